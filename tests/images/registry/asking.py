"""Credentials of a user, and why a fetch failed."""

from __future__ import annotations

from base64 import b64encode

import pytest

from webhook.images.manifests import ImageReference
from webhook.images.registry.client import RegistryClient, RegistryError
from webhook.images.registry.credentials import RegistryCredentials

ANN = RegistryCredentials("ann", "secret")
BASIC = "Basic " + b64encode(b"ann:secret").decode()


async def cause_of(
    client: RegistryClient, reference: ImageReference, credentials: RegistryCredentials | None = None
) -> str:
    with pytest.raises(RegistryError) as caught:
        await client.manifest(reference, credentials)
    assert "secret" not in caught.value.why
    return caught.value.cause
