"""The token of a replica's service account expires while the replica runs; its kubelet has brought another before."""

from __future__ import annotations

import time

import pytest

from tests.e2e.support.kube import eventually

from .short_lived import LEEWAY_SECONDS, LIFETIME_SECONDS, RESERVED, ShortLived, claims
from .support import SELF_SIGNED, servers

# Run alone, it waits for the token's whole life; behind all other tests, hardly ever.
pytestmark = pytest.mark.timeout(LIFETIME_SECONDS + LEEWAY_SECONDS + 240)


def test_a_replica_goes_on_reading_when_its_first_token_has_expired(short_lived: ShortLived) -> None:
    lived = claims(short_lived.first)
    assert lived["exp"] - lived["iat"] == LIFETIME_SECONDS
    time.sleep(max(0.0, lived["exp"] + LEEWAY_SECONDS - time.time()))
    eventually(lambda: not short_lived.is_accepted(short_lived.first), what="the first token to be refused")

    assert short_lived.is_accepted(short_lived.token())
    first, others = short_lived.read_vmis()
    short_lived.read_more()

    # The same process reads VMIs with tokens that came later, and nothing was denied to it or by it at any time.
    assert first > 0
    assert short_lived.read_vmis() >= (first, others + RESERVED)
    assert servers(SELF_SIGNED) == [short_lived.process]
    assert (short_lived.failed, short_lived.denied()) == ([], [])
