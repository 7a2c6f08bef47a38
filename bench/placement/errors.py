"""What can keep the benchmark from giving figures."""

from __future__ import annotations


class PlacementError(Exception):
    """The benchmark can't go on; the message is one sentence for people."""

    exit_code = 1


class PlacementToolError(PlacementError):
    """Something that the benchmark needs is not on this machine."""

    exit_code = 2
