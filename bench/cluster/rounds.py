"""The run: in each round all ways, one after the other, so that a slow moment of the machine can meet each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.cluster import kyverno, load
from bench.cluster.calls import Calls
from bench.cluster.figures import Sample
from bench.cluster.load import Arrival, Series
from bench.cluster.objects import ELSEWHERE, SCHEDULER, Body, bodies, make_machines
from bench.cluster.plane import CreationPlane
from bench.cluster.ways import KYVERNO, Programs, Way
from bench.placement import webhook
from bench.reviews.errors import BenchError
from tests.e2e.support.kube import eventually
from tests.e2e.support.objects import obj
from tests.e2e.support.processes import Process

# Launcher pods are of so many VMIs, by turns.
_MACHINES: Final = 100
_ELSEWHERE: Final = "elsewhere"
# Only a way that is broken takes so long.
_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True)
class ClusterPlan:
    """What is measured.

    Attributes:
        ways: one after the other.
        rounds: how often.
        arrivals: how objects come.
        elsewhere: how pods come that no way is for.
        warmup: how objects come before that; their failures count, and their times do not.
    """

    ways: Sequence[Way]
    rounds: int
    arrivals: Sequence[Arrival]
    elsewhere: Arrival
    warmup: Arrival


class ClusterBench:
    """Measures on one control plane."""

    def __init__(self, plan: ClusterPlan, plane: CreationPlane, programs: Programs, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._plane = plane
        self._programs = programs
        self._say = say
        self._machines: dict[str, list[Body]] = {}

    def measure(self) -> Iterator[Sample]:
        """The samples of all rounds."""
        self._prepare()
        for number in range(self._plan.rounds):
            # What drifts all the time meets each way early and late.
            for way in self._plan.ways if number % 2 == 0 else self._plan.ways[::-1]:
                self._say(f"round {number + 1} of {self._plan.rounds}: {way.title}")
                with way.serving(self._plane, self._programs) as process:
                    yield from self._way(way, process, number)

    def _prepare(self) -> None:
        # Without the Lease of the injected scheduler none is injected.
        self._plane.start_profiles()
        webhook.prepare(self._plane.admin)
        if self._programs.kyverno and any(way.key in KYVERNO for way in self._plan.ways):
            kyverno.prepare(self._plane, self._programs.kyverno)
        self._plane.admin.make(obj("Namespace", _ELSEWHERE))
        for way in self._plan.ways:
            namespace = _namespace(way)
            self._plane.admin.make(obj("Namespace", namespace, labels=dict(way.labels)))
            self._machines[namespace] = make_machines(self._plane, namespace, _MACHINES)

    def _way(self, way: Way, process: Process | None, number: int) -> Iterator[Sample]:
        namespace = _namespace(way)
        for kind in way.kinds:
            series = Series(kind, namespace, bodies(kind, self._machines[namespace]), way.writes)
            if series.written:
                self._wait_written(way, series)
            for arrival in (self._plan.warmup, *self._plan.arrivals):
                yield self._sample(way, process, series, arrival, number)
        elsewhere = Series(ELSEWHERE, _ELSEWHERE, bodies(ELSEWHERE, ()), written=False)
        yield self._sample(way, process, elsewhere, self._plan.elsewhere, number)

    def _wait_written(self, way: Way, series: Series) -> None:
        """Return as soon as objects get their scheduler: the API server learns of webhooks and policies by a watch."""
        kind = series.kind
        client = self._plane.kube(*kind.sender)

        def is_written() -> bool:
            return kind.scheduler(client.request("POST", kind.path(series.namespace), series.items[0])) == SCHEDULER

        eventually(is_written, what=f"the {kind.plural} of {way.title} to get a scheduler", timeout=_PATIENCE_SECONDS)

    def _sample(self, way: Way, process: Process | None, series: Series, arrival: Arrival, number: int) -> Sample:
        pids = [process.pid] if process else []
        apiserver = [self._plane.apiserver_pid]
        calls = Calls.of(self._plane.admin.text("/metrics"))
        webhook_cpu, apiserver_cpu = _cpu_seconds(pids), _cpu_seconds(apiserver)
        seen = load.create(self._plane, self._programs.client, series, arrival)
        apiserver_cpu = _cpu_seconds(apiserver) - apiserver_cpu
        if process and not process.running:
            raise BenchError(f"{way.title} ended by itself; its log is {process.log}")
        webhook_cpu = _cpu_seconds(pids) - webhook_cpu
        calls = Calls.of(self._plane.admin.text("/metrics")).since(calls)
        return Sample(
            way=way.key,
            kind=series.kind.key,
            arrival=arrival.key,
            round=number,
            milliseconds=[*seen.milliseconds],
            failed=dict(seen.failed),
            seconds=seen.seconds,
            webhook_cpu=webhook_cpu,
            apiserver_cpu=apiserver_cpu,
            memory_mb=sum(map(_resident_mb, pids)),
            calls=calls.total,
            call_seconds=calls.seconds,
            passed_over=calls.passed_over,
        )


def _namespace(way: Way) -> str:
    """That of kubevirt-webhook's own name is excluded from what it is called for."""
    return f"with-{way.key}"


def _cpu_seconds(pids: Sequence[int]) -> float:
    """The CPU time of all threads of processes, by the clock that clock_getcpuclockid(3) makes on Linux."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def _resident_mb(pid: int) -> float:
    """Memory in RAM, in MB (10^6 bytes)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024 / 1e6
