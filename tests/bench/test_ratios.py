"""What the report of the reviews' benchmark says of its ratios."""

from __future__ import annotations

import pytest

from bench.reviews.payloads import POD, VM
from bench.reviews.ratios import Ratio
from bench.reviews.rounds import BUSY


@pytest.mark.parametrize(
    ("payload", "median", "low", "high", "said"),
    [
        (POD.name, 3.4, 3.2, 3.6, "1/3.4 of the CPU time of Go, net/http, 1/3.6 to 1/3.2 in the rounds"),
        (VM.name, 0.8, 0.5, 1.0, "1.25 times the CPU time of Go, net/http, 1.00 to 2.00 in the rounds"),
        (POD.name, 2.0, 2.0, 2.0, "1/2.0 of the CPU time of Go, net/http"),
    ],
)
def test_the_rounds_range_is_the_same_way_around_as_their_median(
    payload: str, median: float, low: float, high: float, said: str
) -> None:
    assert str(Ratio("plain", payload, BUSY.title, median, low, high, None)).endswith(f"takes {said}")


@pytest.mark.parametrize(("median", "said"), [(1.4, "met"), (0.8, "NOT met")])
def test_an_aim_follows(median: float, said: str) -> None:
    ratio = Ratio("plain", VM.name, BUSY.title, median, median, median, 1 / 0.75)

    assert str(ratio).endswith(f"; the aim is 0.75: {said}")
