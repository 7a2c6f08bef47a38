from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import Authority
from certs.pem import Pair
from certs.source import self_signed
from tests.golden_files import Golden
from tests.server.listening import Unanswering
from webhook.server.edge import serving
from webhook.server.runtime.certificates import probe
from webhook.server.tls import ReloadableTLSContext

HOST = "kubevirt-webhook.kubevirt-webhook.svc"
LIFE = (datetime.now(UTC), timedelta(days=1))


@pytest.fixture
def pair() -> Pair:
    return Authority.new([HOST], *LIFE).issue([HOST], *LIFE)


@pytest.fixture
async def address(pair: Pair) -> AsyncIterator[str]:
    # As it listens in a pod: the probe has to find a way in.
    context = ReloadableTLSContext(pair.certificate, pair.key).listener
    async with serving(Unanswering.server(), "0.0.0.0:0", context, "--listen", 0.0) as bound:
        yield bound


async def test_every_configuration_is_judged_by_its_own_bundles(address: str, pair: Pair, golden: Golden) -> None:
    other = Authority.new([HOST], *LIFE).pem
    found = await probe(
        address,
        HOST,
        {
            "good": {"a": pair.authority, "b": other + pair.authority},
            "pinned": {"a": pair.certificate},
            "old": {"a": pair.authority, "b": other},
            "bare": {"a": b""},
            "broken": {"a": b"\xff"},
            "gone": None,
            "empty": {},
        },
    )

    assert found.matches == {
        **dict.fromkeys(("good", "pinned", "empty"), True),
        **dict.fromkeys(("old", "bare", "broken", "gone"), False),
    }
    golden("\n".join(each.partition(" (")[0] for each in found.why))


async def test_a_listener_that_is_not_there() -> None:
    found = await probe("127.0.0.1:1", HOST, {"one": {"a": self_signed([HOST]).certificate}})
    assert found.matches == {"one": False}
