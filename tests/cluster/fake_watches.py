"""Watches of the fake API server: what each still has to send."""

from __future__ import annotations

import asyncio
import json
from typing import Any

Json = dict[str, Any]


class OpenWatch:
    """One watch request: the lines that are still to be sent; None ends it, nothing at all breaks its connection."""

    def __init__(self, collection: str, selector: str, since: int) -> None:
        self.collection = collection
        self.since = since
        self.selector = selector
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def tell(self, version: int, collection: str, old: Json | None, new: Json | None) -> None:
        # As a watch cache: nothing up to the watch's own version, even if that is in the future.
        if collection != self.collection or version <= self.since:
            return
        was = old is not None and selected(old, self.selector)
        if new is not None and selected(new, self.selector):
            event = {"type": "MODIFIED" if was else "ADDED", "object": new}
        elif was:
            gone = {**(old or {})}
            if new is not None:
                gone["metadata"] = {**gone["metadata"], "resourceVersion": new["metadata"]["resourceVersion"]}
            event = {"type": "DELETED", "object": gone}
        else:
            return
        self.lines.put_nowait(json.dumps(event).encode() + b"\n")


def selected(item: Json, selector: str) -> bool:
    """Whether an object matches a fieldSelector of equalities."""
    for term in filter(None, selector.split(",")):
        path, _, wanted = term.partition("=")
        value: Any = item
        for segment in path.split("."):
            value = value.get(segment) if isinstance(value, dict) else None
        if (value or "") != wanted:
            return False
    return True
