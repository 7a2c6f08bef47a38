"""Credentials of a user, and why a fetch failed."""

from __future__ import annotations

from base64 import b64encode

import pytest

from webhook.layers.references import Reference
from webhook.registry.client import RegistryClient
from webhook.registry.credentials import Credentials
from webhook.registry.failure import RegistryError

ANN = Credentials("ann", "secret")
BASIC = "Basic " + b64encode(b"ann:secret").decode()


async def cause_of(client: RegistryClient, reference: Reference, credentials: Credentials | None = None) -> str:
    with pytest.raises(RegistryError) as caught:
        await client.manifest(reference, credentials)
    assert "secret" not in caught.value.why
    return caught.value.cause
