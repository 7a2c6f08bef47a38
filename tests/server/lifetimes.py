"""The lifetime of a certificate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def now_and_life() -> tuple[datetime, timedelta]:
    """From when on a test's certificate is good, and for how long."""
    return datetime.now(UTC), timedelta(days=1)
