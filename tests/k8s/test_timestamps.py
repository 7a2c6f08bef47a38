from __future__ import annotations

import pytest

from webhook.k8s.types.meta import unix_time


@pytest.mark.parametrize(
    ("timestamp", "unix"),
    [
        *(("2026-11-21T12:00:00Z", 1795262400.0), ("2026-11-21T12:00:00.250000Z", 1795262400.25)),
        *(("2026-11-21T13:00:00+01:00", 1795262400.0), ("2026-11-21T12:00:00", None), ("now", None), (None, None)),
    ],
)
def test_timestamps(timestamp: str | None, unix: float | None) -> None:
    assert unix_time(timestamp) == unix
