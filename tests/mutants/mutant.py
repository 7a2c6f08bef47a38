"""Changes of the source that break one rule each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from webhook.kubevirt.releases.capabilities import CAPABILITIES

ROOT = Path(__file__).parents[2]
_ASKS = re.compile(r"[\w.]+\.has\(([A-Z][A-Z0-9_]+)\)")


@dataclass(frozen=True)
class Mutant:
    """A change.

    Attributes:
        rule: KubeVirt's, which the source then breaks.
        file: below the project's root.
        old: stands exactly once in the file.
        new: what stands there instead.
    """

    rule: str
    file: str
    old: str
    new: str

    def apply(self, root: Path) -> str:
        """The changed source.

        Raises:
            ValueError: the old text isn't there once: the source has moved on, and this mutant must follow.
        """
        source = (root / self.file).read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.file}: {source.count(self.old)} times, not once: {self.old!r} ({self.rule})")
        return source.replace(self.old, self.new)


def written() -> list[Mutant]:
    """Those of ``mutants.yaml``."""
    files: dict[str, list[dict[str, str]]] = yaml.safe_load(Path(__file__).with_name("mutants.yaml").read_text())
    return [Mutant(file=file, **change) for file, changes in files.items() for change in changes]


def of_releases() -> Iterator[Mutant]:
    """For every capability and every place that asks for it: that all releases have it, and that none has it."""
    for file in sorted((ROOT / "webhook").rglob("*.py")):
        for match in _ASKS.finditer(file.read_text()):
            if match[1] in CAPABILITIES:
                for answer, value in (("every", "True"), ("no", "False")):
                    yield Mutant(f"{match[1]} in {answer} release", str(file.relative_to(ROOT)), match[0], value)


MUTANTS = [*written(), *of_releases()]
