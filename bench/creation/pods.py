"""Launcher pods at a steady rate through a real API server: ``python -m bench.creation.pods``.

Once into a namespace that no webhook looks at, and then, for longer, into one whose pods kubevirt-webhook writes into.
Every pod is a dry run, so that the store does not grow; admission is the same. A pod that was created but not written
into counts as failed, since the API server passes over a webhook that fails.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from bench.options import at_least
from bench.placement import launcher, profiles, webhook
from bench.placement.client import SchedulingClient, SchedulingRequest
from bench.placement.errors import PlacementError
from bench.placement.plane import BenchPlane
from hack.controlplane import build, bundles
from tests.e2e.support.kube import KubeError
from tests.e2e.support.processes import StartError

_BESIDE: Final = 16
_WITHOUT_SECONDS: Final = 30
_DURATIONS: Final = "apiserver_admission_webhook_admission_duration_seconds"
_PASSED_OVER: Final = "apiserver_admission_webhook_fail_open_count"
_HEADER: Final = ("namespace", "pods", "failed", "p50 ms", "p99 ms", "longest ms")


class PodRun(NamedTuple):
    """What some pods have shown.

    Attributes:
        seconds: the time of each pod that was created as it should be.
        failed: the others, by what went wrong.
    """

    seconds: list[float]
    failed: Counter[str]

    def row(self, namespace: str) -> tuple[str, ...]:
        """The cells of a table."""
        count, why = (
            len(self.seconds) + self.failed.total(),
            ", ".join(f"{n} {what}" for what, n in self.failed.items()),
        )
        failed = f"{self.failed.total()}{f' ({why})' if why else ''}"
        if not self.seconds:
            return (namespace, f"{count:,}", failed, "-", "-", "-")
        ordered = sorted(self.seconds)
        last = ordered[min(len(ordered) - 1, math.ceil(len(ordered) * 0.99) - 1)]
        shown = (statistics.median(ordered), last, ordered[-1])
        return (namespace, f"{count:,}", failed, *(f"{each * 1000:.1f}" for each in shown))


def main() -> int:
    """Measure and report; the exit code is 1 where a pod failed or the control plane did."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.creation.pods", description="Create launcher pods at a steady rate, with and without."
    )
    parser.add_argument("--rate", type=at_least(1), default=100, help="pods in a second (100)")
    parser.add_argument("--seconds", type=at_least(1), default=300, help="seconds with kubevirt-webhook (300)")
    options = parser.parse_args()
    try:
        return _measure(options.rate, options.seconds)
    except (build.UnavailableError, bundles.BuildError, StartError, KubeError, PlacementError, OSError) as error:
        print(f"bench.creation.pods: {error}", file=sys.stderr)
        return 1


def _measure(rate: int, seconds: int) -> int:
    with (
        tempfile.TemporaryDirectory() as name,
        BenchPlane(Path(name), build.ensure(os.environ)) as plane,
        _called(plane),
        plane.controller_client() as client,
    ):
        print(f"{rate} pods in a second, load average {os.getloadavg()[0]:.1f}", flush=True)
        print(f"| {' | '.join(_HEADER)} |", f"|{' --- |' * len(_HEADER)}", sep="\n", flush=True)
        failed = 0
        phases: tuple[tuple[str, Mapping[str, str], int], ...] = (
            ("without", {}, min(_WITHOUT_SECONDS, seconds)),
            ("with", webhook.LABELS, seconds),
        )
        for namespace, labels, lasts in phases:
            metadata = {"name": namespace, "labels": labels}
            plane.admin.create("v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            vmi = plane.kubevirt_controller.create(webhook.MACHINES, launcher.machine("steady"), namespace)
            scheduler = profiles.SHIPPED if labels else "default-scheduler"
            run = _run(client, launcher.pod(vmi), namespace, scheduler, rate, lasts)
            print(f"| {' | '.join(run.row(namespace))} |", flush=True)
            failed += run.failed.total()
        print(*_of_api_server(plane.admin.text("/metrics")), sep="\n")
        print(f"load average after: {os.getloadavg()[0]:.1f}")
    return 1 if failed else 0


@contextmanager
def _called(plane: BenchPlane) -> Iterator[None]:
    """A server that the API server calls, and the scheduler that it injects, without whose Lease it would not."""
    plane.start_profiles()
    with webhook.serving(plane):
        yield


def _run(
    client: SchedulingClient, pod: Mapping[str, Any], namespace: str, scheduler: str, rate: int, lasts: int
) -> PodRun:
    """Create pods at a rate; one that is late does not keep the next ones back."""
    run = PodRun([], Counter())
    begun = time.monotonic()

    def create(number: int) -> None:
        body = {**pod, "metadata": {**pod["metadata"], "name": f"steady-{number}"}}
        request = SchedulingRequest("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
        start = time.perf_counter()
        try:
            answer = client.send(request)
        except (KubeError, OSError) as error:
            run.failed[str(error.status) if isinstance(error, KubeError) else type(error).__name__] += 1
            return
        if answer["spec"]["schedulerName"] == scheduler:
            run.seconds.append(time.perf_counter() - start)
        else:
            run.failed["not written into"] += 1

    with ThreadPoolExecutor(_BESIDE, "pods") as pool:
        for number in range(rate * lasts):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            pool.submit(create, number)
    return run


def _of_api_server(text: str) -> list[str]:
    """What the API server counts of the webhook's entries for pods."""
    counts: Counter[str] = Counter()
    seconds, passed_over = 0.0, 0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if family.name == _DURATIONS and sample.labels.get("operation") == "CREATE":
                if sample.name.endswith("_bucket"):
                    counts[sample.labels["le"]] += int(sample.value)
                elif sample.name.endswith("_sum"):
                    seconds += sample.value
            elif family.name == _PASSED_OVER.removesuffix("_total"):
                passed_over += int(sample.value)
    calls = counts["+Inf"] or 1
    shares = ", ".join(f"{counts[edge] / calls:.2%} within {float(edge) * 1000:g} ms" for edge in ("0.005", "0.025"))
    return [
        f"calls of webhooks: {counts['+Inf']:,}, mean {seconds / calls * 1000:.2f} ms, {shares}",
        f"failed and passed over: {passed_over}",
    ]


if __name__ == "__main__":
    sys.exit(main())
