"""What the report of the reviews' benchmark says of its ratios."""

from __future__ import annotations

import pytest

from bench.reviews.payloads import POD, VM
from bench.reviews.report import Ratio


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (Ratio("plain", POD.name, 3.4, 3.2, 3.6, None), "1/3.4 of the CPU time of Go, net/http, 1/3.2 to 1/3.6"),
        (Ratio("plain", VM.name, 0.8, 0.5, 1.0, None), "1.25 times the CPU time of Go, net/http, 1.00 to 2.00 times"),
        (Ratio("plain", POD.name, 2.0, 2.0, 2.0, None), "1/2.0 of the CPU time of Go, net/http"),
    ],
)
def test_the_rounds_range_is_the_same_way_around_as_their_median(ratio: Ratio, said: str) -> None:
    spread = " in the rounds" if ratio.low != ratio.high else ""

    assert str(ratio).endswith(f"takes {said}{spread}")


def test_an_aim_follows() -> None:
    assert str(Ratio("plain", VM.name, 1.4, 1.4, 1.4, 1.33)).endswith("; the aim is 1/1.33: met")
    assert str(Ratio("plain", VM.name, 0.8, 0.8, 0.8, 1.33)).endswith("; the aim is 1/1.33: NOT met")
