"""Tables in Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any


def cell(text: str) -> str:
    """Text that stays in its cell of a table."""
    return " ".join(text.replace("|", "\\|").split())


def code(text: str) -> str:
    """Text as code, in a cell of a table."""
    return f"`{cell(text)}`" if text else ""


def as_json(value: Any) -> str:
    """A value as JSON, as code; nothing for an absent one."""
    return "" if value is None else code(json.dumps(value, ensure_ascii=False))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; empty without rows.

    Args:
        head: the titles of the columns.
        rows: the cells, as Markdown.
    """
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
    rule = "|".join(["---"] * len(head))
    return "\n".join([f"| {' | '.join(head)} |", f"|{rule}|", *lines]) + "\n" if lines else ""
