"""Launcher pods and VMs at a steady rate through a real API server: ``python -m bench.creation.steady``.

Into a namespace that no webhook looks at, into one with a webhook that looks at nothing, and into one whose objects
kubevirt-webhook writes into; its pods the longest. For each, what the client waited, and what the API server's own
metric says of the calls.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.creation import empty, rate
from bench.creation.webhook_calls import Calls
from bench.options import at_least
from bench.placement import launcher, profiles, webhook
from bench.placement.errors import PlacementError
from bench.placement.plane import BenchPlane
from bench.reviews import golang, host
from bench.reviews.errors import BenchError
from hack.controlplane import build, bundles
from tests.e2e.support.kube import KubeError
from tests.e2e.support.processes import StartError

_OTHERS_SECONDS: Final = 30
_HEADER: Final = (
    *("object", "webhook", "objects", "failed", "p50 ms", "p99 ms", "longest ms"),
    *("calls", "mean ms", "p50 ms of calls", "p99 ms of calls"),
)
# The labels of the namespaces, each by what is called for its objects.
_PLACES: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    "empty": empty.LABELS,
    "kubevirt-webhook": webhook.LABELS,
}
_OURS: Final = "kubevirt-webhook"
# What a reader can do something about.
_FAILURES: Final = (
    *(build.UnavailableError, bundles.BuildError, StartError, KubeError, PlacementError, BenchError, OSError),
)


class CreatedKind(NamedTuple):
    """A kind of objects that are created.

    Attributes:
        title: how the table calls one.
        api: where its API is in the API server.
        resource: its plural name.
        body: an object, of a VMI.
        scheduler: the scheduler of an object.
    """

    title: str
    api: str
    resource: str
    body: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    scheduler: Callable[[Mapping[str, Any]], str | None]


def _vm(vmi: Mapping[str, Any]) -> Mapping[str, Any]:
    """A VM with the spec of a VMI."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": vmi["metadata"]["name"]},
        "spec": {"runStrategy": "Always", "template": {"metadata": {}, "spec": vmi["spec"]}},
    }


_POD: Final = CreatedKind("launcher pod", "api/v1", "pods", launcher.pod, lambda pod: pod["spec"].get("schedulerName"))
_VM: Final = CreatedKind(
    "VM",
    "apis/kubevirt.io/v1",
    "virtualmachines",
    _vm,
    lambda vm: vm["spec"]["template"]["spec"].get("schedulerName"),
)


def main() -> int:
    """Measure and report; the exit code is 1 where an object failed or the control plane did."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.creation.steady", description="Create launcher pods and VMs at a steady rate."
    )
    parser.add_argument("--rate", type=at_least(1), default=100, help="objects in a second (100)")
    parser.add_argument("--seconds", type=at_least(1), default=300, help="seconds of pods with kubevirt-webhook (300)")
    options = parser.parse_args()
    try:
        return _measure(options.rate, options.seconds)
    except _FAILURES as error:
        print(f"bench.creation.steady: {error}", file=sys.stderr)
        return 1


def _measure(per_second: int, seconds: int) -> int:
    binary = golang.build(host.cache_directory()).binaries / "empty"
    with (
        tempfile.TemporaryDirectory() as name,
        BenchPlane(Path(name), build.ensure(os.environ)) as plane,
        _called(plane, binary),
        plane.controller_client() as controller,
        plane.client() as owner,
    ):
        print(f"{per_second} objects in a second, load average {os.getloadavg()[0]:.1f}", flush=True)
        print(f"| {' | '.join(_HEADER)} |", f"|{' --- |' * len(_HEADER)}", sep="\n", flush=True)
        failed = 0
        for place, labels in _PLACES.items():
            namespace = namespace_of(place)
            metadata = {"name": namespace, "labels": dict(labels)}
            plane.admin.create("v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            vmi = plane.kubevirt_controller.create(webhook.MACHINES, launcher.machine("steady"), namespace)
            for kind, client in ((_POD, controller), (_VM, owner)):
                lasts = seconds if (place, kind) == (_OURS, _POD) else min(_OTHERS_SECONDS, seconds)
                before = Calls.of(plane.admin.text("/metrics"))
                run = rate.create(
                    client,
                    f"/{kind.api}/namespaces/{namespace}/{kind.resource}",
                    kind.body(vmi),
                    _check(kind, place),
                    rate=per_second,
                    lasts=lasts,
                )
                calls = Calls.of(plane.admin.text("/metrics")).since(before)
                print(f"| {' | '.join((kind.title, place, *run.cells(), *calls.cells()))} |", flush=True)
                failed += run.failed.total() + calls.passed_over
        print(f"load average after: {os.getloadavg()[0]:.1f}")
    return 1 if failed else 0


def namespace_of(place: str) -> str:
    """The namespace of a place. That of kubevirt-webhook's own name is excluded from what it is called for."""
    return f"with-{place}"


def _check(kind: CreatedKind, place: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether an object has kubevirt-webhook's scheduler where it should, and nowhere else."""
    return lambda answer: (kind.scheduler(answer) == profiles.SHIPPED) == (place == _OURS)


@contextmanager
def _called(plane: BenchPlane, binary: Path) -> Iterator[None]:
    """Both servers that the API server calls, and the injected scheduler, without whose Lease none is injected."""
    plane.start_profiles()
    with empty.serving(plane, binary), webhook.serving(plane):
        yield


if __name__ == "__main__":
    sys.exit(main())
