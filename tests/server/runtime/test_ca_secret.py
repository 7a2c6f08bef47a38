"""The CA's Secret; the patches themselves are proved on a real API server in tests/e2e."""

from __future__ import annotations

from base64 import b64decode

from certs.rotation import CA_CRT, CA_KEY
from tests.server.runtime.ca_memory import SECRET, ApiOfBundles
from webhook.server.runtime.ca_secret import CaSecret


async def test_the_secret_over_its_version_and_beside_what_others_keep_in_it() -> None:
    api = ApiOfBundles()
    secret = CaSecret(api, "ns", "ca")
    assert await secret.read() is None
    assert not await secret.replace({}, "1", answered=False)
    assert await secret.create({CA_CRT: b"1", CA_KEY: b"k"})
    assert not await secret.create({CA_CRT: b"2"})
    found = await secret.read()
    assert found and (found.data, found.is_rotation_requested) == ({CA_CRT: b"1", CA_KEY: b"k"}, False)
    api.objects[SECRET]["data"] |= {"theirs": "eA==", CA_CRT: "x"}

    assert await secret.replace({CA_CRT: b"3"}, found.version, answered=True)
    assert not await secret.replace({CA_CRT: b"4"}, found.version, answered=True)
    assert {key: b64decode(text) for key, text in api.objects[SECRET]["data"].items()} == {CA_CRT: b"3", "theirs": b"x"}
    again = await secret.read()
    assert again and again.data == {CA_CRT: b"3"}
