"""The counts of a review: its last line, and the exit status."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from webhook.cli.review.result import Result, Severity
from webhook.text import pluralize

ALLOWED: Final = 0
DENIED: Final = 1
BAD_INPUT: Final = 2
NOT_EVALUATED: Final = 3

# In the order of the summary, with the words of it.
_DECISIONS: Final = {
    "patched": "patched",
    "allowed": "allowed",
    "would-patch": "would be patched",
    "would-deny": "would be denied",
    "skipped": "skipped",
    "denied": "denied",
    "error": "not evaluated",
}


class Summary(msgspec.Struct):
    """The counts of some results.

    Attributes:
        files: how many files were read.
        decisions: the results by their decision, of objects that the API server calls kubevirt-webhook for.
        severities: all results by their severity.
        warnings: how many warnings there are.
        unmatched: how many objects are of other kinds.
        foreign: how many documents are no objects of Kubernetes.
        mistakes: how many mistakes there are in the input.
        redacted: how many objects hold secrets that the output does not show.
    """

    files: int = 0
    decisions: Counter[str] = msgspec.field(default_factory=Counter)
    severities: Counter[Severity] = msgspec.field(default_factory=Counter)
    warnings: int = 0
    unmatched: int = 0
    foreign: int = 0
    mistakes: int = 0
    redacted: int = 0

    def add(self, result: Result) -> None:
        """Count a result."""
        self.severities[result.severity] += 1
        self.warnings += len(result.warnings)
        if result.matched:
            self.decisions[result.decision] += 1
        else:
            self.unmatched += 1

    def join(self, other: Summary) -> None:
        """Count what another one has counted."""
        self.decisions.update(other.decisions)
        self.severities.update(other.severities)
        for field in ("files", "warnings", "unmatched", "foreign", "mistakes", "redacted"):
            setattr(self, field, getattr(self, field) + getattr(other, field))

    @property
    def total(self) -> int:
        """How many objects were reviewed."""
        return self.decisions.total() + self.unmatched

    def exit_status(self, fail_on: str) -> int:
        """The exit status.

        Args:
            fail_on: ``deny`` or ``warn``, the least that is answered with `DENIED`.
        """
        if self.mistakes:
            return BAD_INPUT
        if self.severities["denied"] or (fail_on == "warn" and self.severities["warned"]):
            return DENIED
        return NOT_EVALUATED if self.severities["unevaluated"] else ALLOWED

    def line(self) -> str:
        """The counts in one line."""
        counts = [f"{self.decisions[key]:,} {text}" for key, text in _DECISIONS.items() if self.decisions[key]]
        parts = [", ".join(counts)] if counts else []
        if self.warnings:
            parts.append(pluralize(self.warnings, "warning"))
        if self.mistakes:
            parts.append(pluralize(self.mistakes, "error") + " in the input")
        if other := self.unmatched + self.foreign:
            parts.append(f"{other:,} of other kinds")
        noun = "object" if self.decisions.total() == 1 else "objects"
        return f"{self.decisions.total():,} {noun} in {pluralize(self.files, 'file')}: {'; '.join(parts) or 'none'}"
