"""An API server in memory, without sockets, each of whose pages and lines can fail, and whose past is remembered.

For tests in virtual time (`tests.virtual_time`). It lists in pages that show the moment of the first one, watches, and
sends a bookmark each minute. What it held when is in `FaultyApiServer.history`, to compare with what others believe.
"""

from __future__ import annotations

import asyncio
import json
import math
from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, NamedTuple

from tests.cluster.fake_apiserver import Json, status
from webhook.errors import Unavailable
from webhook.k8s.client.api import LARGEST_ANSWER_BYTES, NO_QUERY, ApiConnectionError, ApiError, Transport
from webhook.k8s.resources import NAMESPACES

PATH: Final = NAMESPACES.path()
STATUSES: Final = ("403", "404", "410", "429", "500", "503")
# Of an answer to a request.
ANSWERS: Final = (*STATUSES, "refused", "cut", "half", "garbage", "not a list", "hang")
# Of a watch, in the place of a line or of its beginning.
LINES: Final = (
    *(f"ERROR {code}" for code in STATUSES),
    *("cut", "half", "garbage", "silence", "blank lines", "unknown events", "bare events", "end", "late end"),
)


class Snapshot(NamedTuple):
    """What was stored from a moment on: modes by the names of namespaces."""

    since: float
    modes: Mapping[str, str]


class FaultyApiServer(Transport):
    """Namespaces with a label ``mode``, and the switches of failures; make it inside the running loop.

    Attributes:
        pages: the fault of each page of a list, by its number from 1 on.
        other: that of all other requests, which are GETs and lists of one name.
        watch: that of watches as they begin, one of `ANSWERS`.
        line: that of watches after ``lines`` good lines, one of `LINES`.
        pause: seconds before that.
        bookmark_seconds: between two bookmarks.
        label: the label's name.
    """

    def __init__(self, label: str = "mode") -> None:
        self.label = label
        self.pages: dict[int, str] = {}
        self.other = self.watch_fault = self.line = ""
        self.lines = 0
        self.pause = 0.0
        self.bookmark_seconds = 60.0
        self.version = 100
        self.history = [Snapshot(0.0, {})]
        self._log: list[tuple[int, bytes]] = []
        self._compacted = 0
        self._snapshots: dict[int, list[Json]] = {}
        self._changed = asyncio.Event()

    @property
    def modes(self) -> Mapping[str, str]:
        """What is stored now."""
        return self.history[-1].modes

    def put(self, name: str, mode: str) -> None:
        """Create a namespace, or label it."""
        kind = "MODIFIED" if name in self.modes else "ADDED"
        self._change({**self.modes, name: mode})
        self._log.append((self.version, _line(kind, self._namespace(name))))

    def remove(self, name: str) -> None:
        """Delete a namespace."""
        gone = self._namespace(name)
        self._change({each: mode for each, mode in self.modes.items() if each != name})
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._log.append((self.version, _line("DELETED", gone)))

    def expire(self) -> None:
        """Compact etcd, and end all watches with 410: each has to list again."""
        self.version += 1
        self._compacted = self.version
        self._wake()

    def fail(self, *, pages: Mapping[int, str] | None = None, other: str = "", watch: str = "", line: str = "") -> None:
        """Fail in this way from now on, and in no other; open watches too."""
        self.pages, self.other, self.watch_fault, self.line = dict(pages or {}), other, watch, line
        self._wake()

    def die(self) -> None:
        """Refuse all connections, and break those that there are."""
        self.fail(pages=dict.fromkeys(range(1, 100), "refused"), other="refused", watch="refused", line="cut")

    def heal(self) -> None:
        """Fail no more."""
        self.fail()

    async def get(
        self, path: str, query: Mapping[str, str] = NO_QUERY, *, most: int = LARGEST_ANSWER_BYTES
    ) -> tuple[int, bytes]:
        await asyncio.sleep(0.01)
        if path != PATH or "fieldSelector" in query:
            return await self._answer(self.other, *self._found(path, query))
        limit = int(query["limit"])
        at, start = (int(part) for part in query.get("continue", f"{self.version}.0").split("."))
        if at < self._compacted:
            return _status(410)
        if start == 0:
            self._snapshots[at] = [self._namespace(name) for name in sorted(self.modes)]
        items = self._snapshots[at]
        more = {"continue": f"{at}.{start + limit}"} if start + limit < len(items) else {}
        page = {"metadata": {"resourceVersion": str(at)} | more, "items": items[start : start + limit]}
        return await self._answer(self.pages.get(start // limit + 1, ""), 200, page)

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        end = loop.time() + float(query["timeoutSeconds"])
        code, _ = await self._answer(self.watch_fault, 200, {})
        if code != 200:
            raise ApiError(code, json.dumps(status(code)).encode())
        yield b""
        since, lines, bookmark = int(query["resourceVersion"]), 0, loop.time() + self.bookmark_seconds
        while loop.time() < end:
            if self.line and lines >= self.lines:
                async for line in self._fail_line():
                    yield line
                return
            if since < self._compacted:
                yield _line("ERROR", status(410, "Expired"))
                return
            next_one = bisect_right(self._log, since, key=lambda event: event[0])
            if path == PATH and next_one < len(self._log):
                since, line = self._log[next_one]
                lines += 1
                yield line
                continue
            if loop.time() >= bookmark:
                bookmark += self.bookmark_seconds
                lines += 1
                yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})
                continue
            changed = self._changed
            try:
                async with asyncio.timeout_at(min(bookmark, end)):
                    await changed.wait()
            except TimeoutError:
                pass

    async def request(
        self, method: str, path: str, query: Mapping[str, str] = NO_QUERY, *_: Any, **__: Any
    ) -> tuple[int, bytes]:
        return await self.get(path, query)

    async def date(self) -> float | Unavailable:
        return Unavailable("no clock")

    async def close(self) -> None:
        pass

    def _found(self, path: str, query: Mapping[str, str]) -> tuple[int, Json]:
        """The answer to a GET of a namespace, to a list of one name, or to a list of another kind, which has none."""
        name = path.removeprefix(f"{PATH}/")
        if path.startswith(f"{PATH}/") and "/" not in name:
            return (200, self._namespace(name)) if name in self.modes else (404, status(404, "NotFound"))
        if int(query.get("resourceVersion", "0")) > self.version:
            causes = {"causes": [{"reason": "ResourceVersionTooLarge"}]}
            return 504, status(504, "Timeout") | {"details": causes}
        return 200, {"metadata": {"resourceVersion": str(self.version)}, "items": []}

    async def _answer(self, fault: str, code: int, body: Json) -> tuple[int, bytes]:
        if fault.isdecimal():
            return _status(int(fault))
        if fault in ("refused", "cut"):
            raise ApiConnectionError("no connection to the API server")
        if fault == "hang":
            await asyncio.sleep(math.inf)
        whole = json.dumps(body).encode()
        wrong = {"half": whole[: len(whole) // 2], "garbage": b"}{", "not a list": b'{"status": "welcome"}'}
        return code, wrong.get(fault, whole)

    async def _fail_line(self) -> AsyncGenerator[bytes, None]:
        """What a watch still brings once its lines fail."""
        fault = self.line
        await asyncio.sleep(self.pause)
        if fault.startswith("ERROR "):
            yield _line("ERROR", status(int(fault.removeprefix("ERROR "))))
        elif fault == "cut":
            yield b'{"type":"MODIFIED","obj'
            raise ApiConnectionError("the connection to the API server broke")
        elif fault == "garbage":
            yield b"}{\n"
        elif fault == "late end":
            await asyncio.sleep(50.0)
        elif fault != "end":
            version = {"metadata": {"resourceVersion": str(self.version)}}
            repeated = {
                "half": b'{"type":"MODIFIED","object":{',
                "blank lines": b"\n",
                "unknown events": _line("PROGRESS", version),
                "bare events": _line("BOOKMARK", {"metadata": {}}),
            }.get(fault, b"")
            # As long as nobody ends it: what is silent stays so when others are well again.
            while True:
                yield repeated
                await asyncio.sleep(20.0)

    def _change(self, modes: Mapping[str, str]) -> None:
        self.version += 1
        self.history.append(Snapshot(asyncio.get_running_loop().time(), modes))
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _namespace(self, name: str) -> Json:
        meta = {"name": name, "resourceVersion": str(self.version), "labels": {self.label: self.modes[name]}}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def _status(code: int) -> tuple[int, bytes]:
    return code, json.dumps(status(code)).encode()


def _line(kind: str, obj: Json) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"
