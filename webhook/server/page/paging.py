"""Rows in parts: the links from one part to the next."""

from __future__ import annotations

from typing import Final

from webhook.server.page.query import PageQuery

ROWS: Final = 50


def pager(query: PageQuery, path: str, first: int, shown: int, total: int) -> dict[str, str]:
    """The links to the rows before and after, empty where there are none, and which rows are shown."""
    before, after = max(0, first - ROWS), first + ROWS
    return {
        "previous": (query.link(path, first=before)) if first else "",
        "next": query.link(path, first=after) if after < total else "",
        "text": f"{first + 1} to {first + shown} of {total}" if shown else f"none of {total}",
    }
