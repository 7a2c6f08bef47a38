from __future__ import annotations

from webhook.cluster.misses import Misses


def test_too_many_in_a_period() -> None:
    misses = Misses(2, 1.0)

    assert not misses.too_many(0.0)
    misses.add(0.0)
    assert not misses.too_many(0.0)
    misses.add(0.5)
    assert misses.too_many(0.9)
    assert not misses.too_many(1.0)
    misses.add(1.1)
    assert misses.too_many(1.2), "the last two count"
    assert not misses.too_many(1.5)
