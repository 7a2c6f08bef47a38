"""Timestamps of Kubernetes objects."""

from __future__ import annotations

from datetime import datetime


def unix_time(timestamp: str | None) -> float | None:
    """An RFC 3339 timestamp in Unix seconds; None if it is absent or malformed."""
    try:
        moment = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo else None
