"""Whether the API server could call a listener by each configuration's caBundles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from certs.authority import Authority
from tests.golden_files import Golden
from webhook.server.guard import Limits
from webhook.server.listener import Listener, serving
from webhook.server.runtime.probe import probe
from webhook.server.tls import ReloadableTLSContext

HOST = "kubevirt-webhook.kubevirt-webhook.svc"


async def test_every_configuration_is_evaluated_by_its_own_bundles(golden: Golden) -> None:
    life = (datetime.now(UTC), timedelta(days=1))
    pair, other = Authority.new([HOST], *life).issue([HOST], *life), Authority.new([HOST], *life).pem
    bundles: dict[str, Any] = {
        "good": {"a": pair.authority, "b": other + pair.authority},
        "pinned": {"a": pair.certificate},
        "old": {"a": pair.authority, "b": other},
        "bare": {"a": b""},
        "broken": {"a": b"\xff"},
        "gone": None,
        "empty": {},
    }
    context = ReloadableTLSContext(pair.certificate, pair.key).listener
    # As it listens in a pod: the probe has to find a way in.
    async with serving(Listener(web.Application(), Limits()), "0.0.0.0:0", context, "--listen", 0.0) as address:
        found = await probe(address, HOST, bundles)

    assert found.matches == {name: name in ("good", "pinned", "empty") for name in bundles}
    golden("\n".join(each.partition(" (")[0] for each in found.why))
    assert (await probe("127.0.0.1:1", HOST, {"one": {"a": pair.certificate}})).matches == {"one": False}
