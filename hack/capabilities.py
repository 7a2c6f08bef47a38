"""Writes the tables of docs/fidelity.md about releases of KubeVirt, which are made of `webhook.kubevirt.releases`."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from webhook.kubevirt.releases.capabilities import CAPABILITIES, SUPPORTED_VERSIONS, Capability, Version
from webhook.kubevirt.releases.fields import FIELDS

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "fidelity.md"
_BEGIN: Final = "<!-- made by hack/capabilities.py -->"
_END: Final = "<!-- end -->"
_ASKS: Final = re.compile(r"\.has\(([A-Z][A-Z0-9_]+)\)")


def places() -> dict[str, list[str]]:
    """The files that ask whether a release has a capability, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted((ROOT / "webhook").rglob("*.py")):
        for name in _ASKS.findall(file.read_text()):
            if name in CAPABILITIES:
                found[name].append(str(file.relative_to(ROOT)))
    return found


def tables() -> str:
    """Both tables, as they stand in the page."""
    return "\n".join([*_capabilities(), "", *_fields()])


def _capabilities() -> Iterator[str]:
    lines = [f"{version.major}.{version.minor}" for version in SUPPORTED_VERSIONS]
    yield f"| capability | KubeVirt … | {' | '.join(lines)} | source | asked in |"
    yield f"|---|---|{'---|' * len(lines)}---|---|"
    asked = places()
    for name, each in CAPABILITIES.items():
        cells = " | ".join(_cell(each, version) for version in SUPPORTED_VERSIONS)
        (place,) = asked[name]
        yield f"| `{name}` | {each.what} | {cells} | {each.source} | {place.removeprefix('webhook/')} |"


def _cell(each: Capability, newest: Version) -> str:
    """Whether the patch releases of a minor version have a capability; where not all of them do, which."""
    having = [patch for patch in range(newest.patch + 1) if each.is_in(newest._replace(patch=patch))]
    if len(having) == newest.patch + 1:
        return "yes"
    if not having:
        return "no"
    if having == list(range(having[0], newest.patch + 1)):
        return f"from .{having[0]}"
    return ", ".join(f".{patch}" for patch in having)


def _fields() -> Iterator[str]:
    yield "| first known in | kind | fields below spec |"
    yield "|---|---|---|"
    grouped: dict[tuple[Version, str], list[str]] = defaultdict(list)
    for field in FIELDS:
        grouped[field.since, field.kind].append(f"`{field.path}`")
    for (since, kind), paths in sorted(grouped.items()):
        yield f"| {since.major}.{since.minor} | {kind} | {', '.join(paths)} |"


def written(page: str) -> str:
    """A page with the tables in their place."""
    before, _, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise SystemExit(f"{PAGE} has no {_BEGIN} … {_END}")
    return f"{before}{_BEGIN}\n{tables()}\n{_END}{after}"


def main() -> int:
    """Write the page."""
    PAGE.write_text(written(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
