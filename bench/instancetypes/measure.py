"""Running both ways, and their figures."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jsonpatch

from bench.instancetypes.cases import CLUSTER, InstancetypesCase, settings
from bench.instancetypes.usual import Usual
from bench.reviews.errors import BenchError
from webhook import names
from webhook.admission.lines import LineWriter
from webhook.admission.output import Descriptor
from webhook.cluster.files import FilesCluster
from webhook.kubevirt.go_json.structs import Json, encode
from webhook.kubevirt.types.core import VM, VMI
from webhook.policies.registry import BY_PATH
from webhook.review.reviewer import Reviewer
from webhook.server.ops import Metrics

_SHAPES: Final = {"VirtualMachine": VM, "VirtualMachineInstance": VMI}
_ANNOTATIONS: Final = (names.INJECTED_INSTANCETYPE_ANNOTATION, names.INJECTED_PREFERENCE_ANNOTATION)

Review = Callable[[InstancetypesCase, int], bytes]
"""Answers a case so many times; the last answer."""


@dataclass(frozen=True, slots=True)
class InstancetypesFigures:
    """CPU per review in microseconds, round by round.

    Attributes:
        goal: for the median of kubevirt-webhook.
    """

    case: str
    goal: float
    ours: tuple[float, ...]
    usual: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """How many times as much the usual way needs, sorted."""
        return tuple(sorted(usual / ours for ours, usual in zip(self.ours, self.usual, strict=True)))

    def row(self) -> tuple[str, ...]:
        """For the report."""
        ours, usual, ratio = (statistics.median(values) for values in (self.ours, self.usual, self.ratios))
        spread = f"{self.ratios[0]:.1f}-{self.ratios[-1]:.1f}"
        return self.case, f"{ours:.0f}", f"{self.goal:.0f}", f"{usual:.0f}", f"{ratio:.1f}", spread


class Ways:
    """Both ways of answering, over the same cluster."""

    def __init__(self) -> None:
        cluster = FilesCluster.load(CLUSTER, settings())
        self._usual = Usual(cluster)
        self._sink = os.open(os.devnull, os.O_WRONLY)
        self._audit = LineWriter(Descriptor(self._sink))
        fixed = settings()
        metrics = Metrics(BY_PATH, _crashed)
        self._reviewer = Reviewer(cluster, lambda: fixed, self._audit, metrics)

    def close(self) -> None:
        self._audit.close()
        os.close(self._sink)

    def ours(self, case: InstancetypesCase, times: int) -> bytes:
        """Answer as the server does."""
        endpoint = BY_PATH[case.path]

        async def answer() -> bytes:
            deadline = asyncio.get_running_loop().time() + 3600
            for _ in range(times - 1):
                await self._reviewer.review(endpoint, case.body, deadline)
            return await self._reviewer.review(endpoint, case.body, deadline)

        return asyncio.run(answer())

    def usual(self, case: InstancetypesCase, times: int) -> bytes:
        """Answer the usual way."""
        answer: Callable[[bytes], bytes] = getattr(self._usual, case.plural)
        for _ in range(times - 1):
            answer(case.body)
        return answer(case.body)


def measure(case: InstancetypesCase, ways: Ways, rounds: int, reviews: int) -> InstancetypesFigures:
    """The figures of one case; both ways take turns.

    Raises:
        BenchError: one of them doesn't do the work.
    """
    _compare(case, ways.ours(case, 1), ways.usual(case, 1))
    # As the server does, for both.
    gc.collect()
    gc.freeze()
    ours, usual = [], []
    try:
        for _ in range(rounds):
            ours.append(_cpu(ways.ours, case, reviews))
            usual.append(_cpu(ways.usual, case, reviews))
    finally:
        gc.unfreeze()
    return InstancetypesFigures(case.name, case.goal, tuple(ours), tuple(usual))


def _cpu(review: Review, case: InstancetypesCase, times: int) -> float:
    review(case, times // 10 + 1)
    start = time.process_time()
    review(case, times)
    return (time.process_time() - start) / times * 1e6


def _compare(case: InstancetypesCase, ours: bytes, usual: bytes) -> None:
    made = [_patched(case, who, answer) for who, answer in (("ours", ours), ("the usual way", usual))]
    # Empty members that only one of them wrote mean nothing: compared is what KubeVirt reads.
    shape = _SHAPES[case.object["kind"]]
    if encode(shape, made[0]) != encode(shape, made[1]):
        raise BenchError(f"{case.name}: the two ways don't come to the same object, so nothing was measured")


def _patched(case: InstancetypesCase, who: str, answer: bytes) -> Json:
    response: dict[str, Any] = json.loads(answer)["response"]
    operations = json.loads(base64.b64decode(response.get("patch", "") or b"W10="))
    after: Json = jsonpatch.apply_patch(case.object, operations)
    if not all(mark in after["metadata"]["annotations"] for mark in _ANNOTATIONS):
        raise BenchError(f"{case.name}: {who} leaves the object alone, so nothing was measured: {response}")
    return after


def _crashed(event: str, path: str, error: BaseException) -> None:
    raise BenchError(f"{path}: {event}: {error!r}") from error
