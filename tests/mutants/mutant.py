"""One change of the source that breaks one rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

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


def of(module: str, changes: Iterable[tuple[str, str, str]], package: str = "webhook/kubevirt") -> list[Mutant]:
    """Mutants of a module of the port: rule, old text, new text."""
    return [Mutant(rule, f"{package}/{module}.py", old, new) for rule, old, new in changes]
