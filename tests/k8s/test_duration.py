"""Durations as Go writes them."""

from __future__ import annotations

import pytest

from webhook.k8s.duration import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("1m30.5s", 90.5), ("+.5h", 1800.0), ("-5m", -300.0), ("0", 0.0), ("-0", 0.0), ("1.s", 1.0), ("10ms", 0.01)),
        *(("1µs", 1e-6), ("1\u03bcs", 1e-6), ("2562047h", 2562047 * 3600.0)),
        *((text, None) for text in ("2562048h", "9" * 400 + "h", "", "+", "-", "1", "h", ".s", "+-5m", "--5m", "5m ")),
        *((text, None) for text in ("1d", "1e3s", "\u0663m", "1m-2s")),
    ],
)
def test_what_go_takes_for_a_duration(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds
