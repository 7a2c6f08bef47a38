"""What can keep a run from giving figures."""

from __future__ import annotations


class ReliabilityError(Exception):
    """The run can't go on; the message is one sentence for people."""

    exit_code = 1


class ReliabilityToolError(ReliabilityError):
    """Something that the run needs is not on this machine."""

    exit_code = 2
