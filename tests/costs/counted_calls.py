"""How many Python functions one review calls: a figure that no other work on the machine changes.

Everything is on, as in `serve`: the connection, limits, metrics and an audit line; facts come from files. What is
counted is what runs between a request's last byte and its answer, in code of this project and of its libraries, but
not in the event loop.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from webhook.server.edge import Connection

from bench.instancetypes import cases
from tests.attacks.counting import no_collection
from tests.server.conftest import PieceTransport
from webhook.admission.lines import LineWriter
from webhook.admission.output import Descriptor
from webhook.cluster.files import FilesCluster
from webhook.review.endpoints import BY_PATH
from webhook.review.reviewer import Reviewer
from webhook.server.app import App
from webhook.server.ops import Metrics
from webhook.settings import file as settings_file

ROOT: Final = Path(__file__).parents[2]
_REVIEWS: Final = ROOT / "bench/reviews"
CLUSTER: Final = _REVIEWS / "cluster"
_CAPTURES: Final = ROOT / "tests/data/captures"
_WRITTEN: Final = 4096
# Caches are filled by the first reviews.
_WARM_UP: Final = 5
# The bench's own, and in force where its namespace says nothing of a policy.
_SETTINGS: Final = (
    (_REVIEWS / "settings.yaml").read_bytes().rstrip()
    + b"""
  clusterWide: true
instancetypes: {clusterWide: true}
migration: {clusterWide: true}
eviction: {clusterWide: true}
"""
)

# The measurement, the event loop, and the thread of audit lines, which is woken once for all reviews of some time.
_UNCOUNTED: Final = ("tests", "asyncio", "uvloop", "threading")

# Of the bench, but for the kinds that it has none of.
_VM, _VMI = (case.body for case in cases.cases())
_BODIES: Final[Mapping[str, bytes]] = {
    "mutate/instancetypes/virtualmachines": _VM,
    "validate/instancetypes/virtualmachines": _VM,
    "mutate/instancetypes/virtualmachineinstances": _VMI,
    "mutate/scheduling/virtualmachines": (_REVIEWS / "data/vm.json").read_bytes(),
    "mutate/scheduling/virtualmachineinstances": (_CAPTURES / "vmi-create-owned-by-vm.json").read_bytes(),
    "mutate/scheduling/pods": (_REVIEWS / "data/pod.json").read_bytes(),
    "mutate/migration/virtualmachineinstancemigrations": (_REVIEWS / "data/drain.json").read_bytes(),
    "mutate/migration/pods": (_CAPTURES / "pod-create-migration-target.json").read_bytes(),
    "mutate/eviction/pods": (_CAPTURES / "pod-eviction.json").read_bytes(),
    "validate/migration/virtualmachineinstancemigrations": (_REVIEWS / "data/migration.json").read_bytes(),
}


class _Server:
    """The request path of a server, and a connection to it that has no socket."""

    def __init__(self, cluster: Path, audit: LineWriter) -> None:
        settings = settings_file.parse(_SETTINGS, "settings")
        metrics = Metrics(BY_PATH, _failed)
        files = FilesCluster.load(cluster, settings)
        # The clock stands still: a new second is formatted, and that is a call.
        reviewer = Reviewer(files, lambda: settings, audit, metrics, wall=lambda: 1_700_000_000.0)
        app = App(reviewer, BY_PATH, metrics, 64)
        self._connection = Connection(app.server())
        self._transport = PieceTransport()
        self._connection.connection_made(self._transport)

    async def ask(self, path: str, body: bytes) -> bytes:
        head = (
            f"POST {path}?timeout=10s HTTP/1.1\r\nHost: localhost:8443\r\nUser-Agent: kube-apiserver-admission\r\n"
            f"Content-Length: {len(body)}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n"
            "Accept-Encoding: gzip\r\n\r\n"
        )
        request = head.encode() + body
        # Go's client writes what fills its buffer, and then the rest.
        for piece in filter(None, (request[:_WRITTEN], request[_WRITTEN:])):
            self._connection.data_received(piece)
        while not self._transport.written:
            await asyncio.sleep(0)
        # The work after the answer is written.
        for _ in range(3):
            await asyncio.sleep(0)
        answer, self._transport.written = self._transport.written, b""
        return answer

    def close(self) -> None:
        self._connection.connection_lost(None)


def _failed(event: str, path: str, error: BaseException) -> None:
    raise AssertionError(f"{path}: {event}") from error


async def counted(paths: Collection[str] = BY_PATH, cluster: Path = CLUSTER) -> dict[str, Counter[str]]:
    """The calls of a review by endpoint, each by function: ``module:function``.

    The manifests are those of the cluster, but for the instancetypes policy, which has its own.
    """
    sink = os.open(os.devnull, os.O_WRONLY)
    audit = LineWriter(Descriptor(sink))
    servers = [_Server(directory, audit) for directory in (cluster, cases.CLUSTER)]
    # Let the connections begin.
    await asyncio.sleep(0.01)
    # Leftovers of other tests end now, and not during the counts.
    gc.collect()
    result = {}
    for path in paths:
        body = _BODIES[path[1:].rpartition("/")[0]]
        server = servers["/instancetypes/" in path]
        for _ in range(_WARM_UP):
            answer = await server.ask(path, body)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b'"skipped"' not in answer, path
        result[path] = await _calls(server, path, body)
    for server in servers:
        server.close()
    await asyncio.sleep(0)
    audit.close()
    os.close(sink)
    return result


async def _calls(server: _Server, path: str, body: bytes) -> Counter[str]:
    codes: Counter[Any] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        # What a server does ten times a second is no part of a review.
        if event == "call" and "_look" not in frame.f_code.co_qualname:
            codes[frame.f_code] += 1

    before = sys.getprofile()
    with no_collection():
        sys.setprofile(note)
        try:
            await server.ask(path, body)
        finally:
            sys.setprofile(before)
    named: Counter[str] = Counter()
    for code, times in codes.items():
        module = _module(code.co_filename)
        if module:
            named[f"{module}:{code.co_qualname}"] += times
    return named


def _module(filename: str) -> str:
    """The dotted name of a source file's module; empty where it is the event loop's, or the measurement's own."""
    for base in (str(ROOT), *sys.path):
        if base and filename.startswith(base + os.sep):
            name = filename[len(base) + 1 :].removesuffix(".py").replace(os.sep, ".")
            name = name.rpartition("site-packages.")[2].removesuffix(".__init__")
            return "" if name.partition(".")[0] in _UNCOUNTED else name
    return filename
