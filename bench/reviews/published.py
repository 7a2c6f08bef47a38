"""The published figures: what a whole run writes into the pages, and whether they are those of the present code.

``python -m bench.reviews.published`` says so, with exit code 1 where they are not.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.reviews import sources
from bench.reviews.report import ReviewsReport
from bench.reviews.servers import ROOT

# The digests of what was measured, beside the figures.
RECORD: Final = Path(__file__).with_name("published.json")
AGAIN: Final = "make bench"
PAGE: Final = "docs/performance.md"
_NAMED: Final = 20
_END: Final = "<!-- to here -->\n"


def write(report: ReviewsReport, root: Path = ROOT, record: Path = RECORD) -> list[str]:
    """Write the figures of a run into the pages.

    Args:
        report: what the run showed.
        root: where the pages are.
        record: where the digests are written.

    Returns:
        The pages.
    """
    tables = {PAGE: report.markdown()}
    for page, table in tables.items():
        path = root / page
        path.write_text(replaced(path.read_text(), table))
    content = {"tables": tables, "sources": sources.digests()}
    record.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return [*tables]


def replaced(page: str, table: str, command: str = AGAIN) -> str:
    """A page with another table.

    Args:
        page: what it is now.
        table: what is to be there instead, between the marks of a command.
        command: what measures the figures.

    Raises:
        ValueError: it has no place for one, or several.
    """
    begin = f"<!-- {command} writes from here -->\n"
    block = re.compile(f"(?<={re.escape(begin)}).*?(?={re.escape(_END)})", re.DOTALL)
    new, places = block.subn(lambda _: f"\n{table}\n", page)
    if places != 1:
        raise ValueError(f"a page has {places} places for the figures, instead of one")
    return new


def faults(record: Mapping[str, Any], now: Mapping[str, str], root: Path = ROOT) -> list[str]:
    """Why the published figures are not those of the present code, in words.

    Args:
        record: what was written with the figures.
        now: the present digests of the sources.
        root: where the pages are.
    """
    found = sources.changed(record["sources"], now)
    for page, table in record["tables"].items():
        text = (root / page).read_text()
        if text != replaced(text, table):
            found.append(f"{page}: its table is not the one that was measured")
    return found


def main() -> int:
    """Say whether the published figures are those of the present code; the exit code is 1 where they are not."""
    found = faults(json.loads(RECORD.read_text()), sources.digests())
    if found:
        print(f"The published figures are older than the code that they measure; run {AGAIN}:", file=sys.stderr)
        more = [f"and {len(found) - _NAMED} more"] if len(found) > _NAMED else []
        print(*(f"  {each}" for each in (*found[:_NAMED], *more)), sep="\n", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
