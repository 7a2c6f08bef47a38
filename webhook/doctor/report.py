"""The report of all findings."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

from webhook.admission.redaction import redact
from webhook.findings import Finding, Verdict

# The worst first.
VERDICTS: Final[tuple[Verdict, ...]] = ("failure", "warning", "unknown", "ok")
# The version of the JSON form; an incompatible change increments it.
SCHEMA: Final = 1


class Report(msgspec.Struct, frozen=True):
    """All findings, in the order of the checks."""

    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of a finding."""
        return next((verdict for verdict in VERDICTS if self.counts[verdict]), "ok")

    @property
    def groups(self) -> list[tuple[str, list[Finding]]]:
        """Findings by check; failures first, in and among the checks."""
        by_check: dict[str, list[Finding]] = {}
        for finding in self.findings:
            by_check.setdefault(finding.check, []).append(finding)
        for group in by_check.values():
            group.sort(key=lambda finding: VERDICTS.index(finding.verdict))
        return sorted(by_check.items(), key=lambda group: VERDICTS.index(group[1][0].verdict))

    @property
    def counts(self) -> dict[str, int]:
        """Findings by verdict."""
        counts = Counter(finding.verdict for finding in self.findings)
        return {verdict: counts[verdict] for verdict in VERDICTS}

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON, without the secrets in it."""
        ordered = [redact(msgspec.to_builtins(each)) | {"see": each.see} for _, group in self.groups for each in group]
        return {"schemaVersion": SCHEMA, "verdict": self.verdict, "counts": self.counts, "findings": ordered}
