"""How long a certificate lives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def _now_and_life() -> tuple[datetime, timedelta]:
    return datetime.now(UTC), timedelta(days=1)
