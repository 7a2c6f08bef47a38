"""How many Python functions one review calls: a figure that no other work on the machine changes.

With metrics and an audit line, as in `serve`; facts come from files. What is counted is what runs between a whole body
and its answer, in code of this project and of its libraries, but not in the event loop.
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

from tests.attacks.counting import no_collection
from webhook import settings_file
from webhook.admission.lines import LineWriter
from webhook.admission.output import Descriptor
from webhook.cluster.files import FilesCluster
from webhook.policies.registry import BY_PATH
from webhook.review.reviewer import Reviewer
from webhook.server.ops import Metrics

ROOT: Final = Path(__file__).parents[2]
_REVIEWS: Final = ROOT / "bench/reviews"
CLUSTER: Final = _REVIEWS / "cluster"
# Caches are filled by the first reviews.
_WARM_UP: Final = 5
# The bench's own, and in force where its namespace says nothing of a policy.
_SETTINGS: Final = (
    (_REVIEWS / "settings.yaml").read_bytes().rstrip()
    + b"""
  clusterWide: true
migration: {clusterWide: true}
"""
)

# The measurement, the event loop, and the thread of audit lines, which is woken once for all reviews of some time.
_UNCOUNTED: Final = ("tests", "asyncio", "uvloop", "threading")

# Of the bench.
_BODIES: Final[Mapping[str, bytes]] = {
    "mutate/scheduling/virtualmachines": (_REVIEWS / "data/vm.json").read_bytes(),
    "mutate/scheduling/pods": (_REVIEWS / "data/pod.json").read_bytes(),
    "mutate/migration/virtualmachineinstancemigrations": (_REVIEWS / "data/drain.json").read_bytes(),
    "validate/migration/virtualmachineinstancemigrations": (_REVIEWS / "data/migration.json").read_bytes(),
}


def _reviewer(cluster: Path, audit: LineWriter) -> Reviewer:
    settings = settings_file.parse(_SETTINGS, "settings")
    metrics = Metrics(BY_PATH, _failed)
    files = FilesCluster.load(cluster, settings)
    # The clock stands still: a new second is formatted, and that is a call.
    return Reviewer(files, lambda: settings, audit, metrics, wall=lambda: 1_700_000_000.0)


async def _ask(reviewer: Reviewer, path: str, body: bytes) -> bytes:
    return await reviewer.review(BY_PATH[path], body, asyncio.get_running_loop().time() + 10)


def _failed(event: str, path: str, error: BaseException) -> None:
    raise AssertionError(f"{path}: {event}") from error


async def counted(paths: Collection[str], cluster: Path = CLUSTER) -> dict[str, Counter[str]]:
    """The calls of a review by endpoint, each by function: ``module:function``."""
    sink = os.open(os.devnull, os.O_WRONLY)
    audit = LineWriter(Descriptor(sink))
    reviewer = _reviewer(cluster, audit)
    # Leftovers of other tests end now, and not during the counts.
    gc.collect()
    result = {}
    for path in paths:
        body = _BODIES[path[1:].rpartition("/")[0]]
        for _ in range(_WARM_UP):
            answer = await _ask(reviewer, path, body)
        assert b'"skipped"' not in answer, path
        result[path] = await _calls(reviewer, path, body)
    audit.close()
    os.close(sink)
    return result


async def _calls(reviewer: Reviewer, path: str, body: bytes) -> Counter[str]:
    codes: Counter[Any] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes[frame.f_code] += 1

    before = sys.getprofile()
    with no_collection():
        sys.setprofile(note)
        try:
            await _ask(reviewer, path, body)
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
