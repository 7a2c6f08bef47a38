"""Credentials of a user, and why a fetch failed."""

from __future__ import annotations

from base64 import b64encode

import pytest

from webhook.images.references import ImageReference
from webhook.images.registry.client import RegistryClient
from webhook.images.registry.credentials import RegistryCredentials
from webhook.images.registry.failure import RegistryError

ANN = RegistryCredentials("ann", "secret")
BASIC = "Basic " + b64encode(b"ann:secret").decode()


async def cause_of(
    client: RegistryClient, reference: ImageReference, credentials: RegistryCredentials | None = None
) -> str:
    with pytest.raises(RegistryError) as caught:
        await client.manifest(reference, credentials)
    assert "secret" not in caught.value.why
    return caught.value.cause
