"""What is said where the CA's Secret or a webhook configuration cannot be read or written."""

from __future__ import annotations

from typing import Any

import pytest

from certs.pem import Pair
from certs.rotation import NotNow, Rotation
from tests.certs.memory import TERMS, CertsClock, KeptObject
from tests.server.runtime.ca_memory import FIRST, ApiOfBundles, installed, manifests
from webhook.server.runtime.ca_bundles import CaBundles
from webhook.server.runtime.ca_secret import CaSecret
from webhook.server.runtime.certificates import make_plan


async def test_refusals_say_what_to_grant() -> None:
    api = installed()
    secret, bundles = CaSecret(api, "ns", "ca"), CaBundles(api, manifests())
    api.answers = dict.fromkeys((("GET", ""), ("PATCH", "")), (403, {"reason": "Forbidden"}))
    for work, said in (
        (secret.read(), "Secret ns/ca: .* grant get on secrets"),
        (secret.create({}), "grant create on secrets in namespace ns"),
        (secret.replace({}, "1", answered=False), "grant patch on secrets in namespace ns"),
        (bundles.read(), f"{FIRST}: .* grant get on mutatingwebhookconfigurations.admissionregistration.k8s.io"),
        (bundles.write(FIRST, "1", {}), "grant patch on mutatingwebhookconfigurations"),
    ):
        with pytest.raises(NotNow, match=said):
            await work
    api.answers = {("PATCH", ""): (404, {})}
    with pytest.raises(NotNow, match="answered 404"):
        await secret.create({})
    api.answers = {("GET", ""): None}
    with pytest.raises(NotNow, match="Secret ns/ca: no answer"):
        await secret.read()


@pytest.mark.parametrize("body", [b"{}", b"<html>", b'{"metadata": {"a": ' + b"[" * 100_000, b'"\xff"'])
async def test_an_answer_that_cannot_be_decoded_is_a_failure_like_others(body: bytes) -> None:
    """Of a proxy before the API server, for example; it is tried again, and counted."""

    class Garbling(ApiOfBundles):
        async def request(self, *_: Any, **__: Any) -> tuple[int, bytes]:
            return 200, body

    api = Garbling()
    secret, bundles = CaSecret(api, "ns", "ca"), CaBundles(api, manifests())
    with pytest.raises(NotNow, match=r"Secret ns/ca: .* Secret cannot be decoded"):
        await secret.read()
    rotation = Rotation(
        secret, bundles, TERMS, list[Pair]().append, plan=make_plan, clock=CertsClock(), log=KeptObject()
    )
    await rotation.step()
    assert rotation.failures == 1
