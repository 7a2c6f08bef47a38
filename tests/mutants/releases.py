"""For every capability: a rule that assumes it in all releases, and one that assumes it in none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.mutant import ROOT, Mutant
from webhook.kubevirt.releases.capabilities import CAPABILITIES

_ASKS = re.compile(r"[\w.]+\.has\(([A-Z][A-Z0-9_]+)\)")


def asking() -> Iterator[tuple[str, Path, str]]:
    """Every place that tests whether a release has a capability: its name, the file, and the expression."""
    for file in sorted((ROOT / "webhook").rglob("*.py")):
        for match in _ASKS.finditer(file.read_text()):
            if match[1] in CAPABILITIES:
                yield match[1], file.relative_to(ROOT), match[0]


MUTANTS = [
    Mutant(f"{name} in {answer} release", str(file), expression, value)
    for name, file, expression in asking()
    for answer, value in (("every", "True"), ("no", "False"))
]
