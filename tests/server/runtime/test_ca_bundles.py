"""The caBundles of webhook configurations; the patches themselves are proved on a real API server in tests/e2e."""

from __future__ import annotations

from base64 import b64encode

import pytest

from tests.server.runtime.ca_memory import FIRST, MUTATING, installed, manifests
from webhook import names
from webhook.server.runtime.ca_bundles import CaBundles


@pytest.mark.control("ca-bundles-overwritten")
async def test_a_patch_holds_nothing_but_bundles_over_a_version() -> None:
    api = installed()
    bundles = CaBundles(api, manifests())
    found = (await bundles.read())[FIRST]
    assert found
    (entry, *_) = found.bundles
    assert await bundles.write(FIRST, found.version, {entry: b"PEM"})
    assert api.asked[-1][3] == {
        "metadata": {"resourceVersion": "1"},
        "webhooks": [{"name": entry, "clientConfig": {"caBundle": b64encode(b"PEM").decode()}}],
    }
    assert not await bundles.write(FIRST, found.version, {entry: b"other"}), "the version has moved on"
    again = (await bundles.read())[FIRST]
    assert again and again.bundles[entry] == b"PEM"
    del api.objects[MUTATING]
    assert (await bundles.read())[FIRST] is None
    assert not await bundles.write(FIRST, "2", {entry: b"x"})


async def test_entries_of_others_in_our_configuration_are_left_alone() -> None:
    api = installed()
    webhooks = api.objects[MUTATING]["webhooks"]
    webhooks.append({"name": "theirs.example.com", "clientConfig": {"url": "https://x"}})
    webhooks.append({"name": f"not{names.DOMAIN}", "clientConfig": {"url": "https://x"}})
    webhooks[0]["clientConfig"]["caBundle"] = "bm9uZQ==!"
    found = (await CaBundles(api, manifests()).read())[FIRST]
    assert found and set(found.bundles) == {entry["name"] for entry in manifests()[0]["webhooks"]}
    assert found.bundles[webhooks[0]["name"]] == b""


async def test_equal_bundles_are_in_memory_once() -> None:
    """Every rotation adds a CA to each of some forty entries."""
    api = installed()
    entries = api.objects[MUTATING]["webhooks"]
    for entry in entries:
        entry["clientConfig"]["caBundle"] = b64encode(b"PEM" * 1000).decode()
    found = (await CaBundles(api, manifests()).read())[FIRST]
    assert found and len(found.bundles) == len(entries) > 1
    assert len({id(pem) for pem in found.bundles.values()}) == 1
