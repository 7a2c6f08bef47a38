"""The minor version of Kubernetes that the tests run on, and what older ones lack."""

from __future__ import annotations

import os

import pytest

# What KUBERNETES=1.34 chooses; empty: the newest, which everything is written for.
OLDER = os.environ.get("KUBERNETES", "")


def is_since(minor: str) -> bool:
    """Whether the version under test is at least this one."""
    return not OLDER or _key(OLDER) >= _key(minor)


def lack(item: pytest.Item) -> str:
    """Why a test cannot run on this version, by its ``kubernetes`` mark; empty: it can."""
    for mark in item.iter_markers("kubernetes"):
        since, lacking = mark.args
        if not is_since(since):
            return f"Kubernetes {OLDER} has no {lacking}, which came with {since}"
    return ""


def _key(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))
