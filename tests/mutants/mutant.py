"""One change of the source that breaks one rule."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


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
