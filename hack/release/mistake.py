"""The error of a release that cannot be made."""

from __future__ import annotations


class ReleaseError(Exception):
    """Why, and what to do, in one sentence."""
