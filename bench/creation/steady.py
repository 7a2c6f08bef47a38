"""Launcher pods and VMs at a steady rate through a real API server: ``python -m bench.creation.steady``.

Into a namespace that no webhook looks at, into one with a webhook that looks at nothing, into one whose objects
kubevirt-webhook writes into, its pods the longest, and into one with a webhook that looks at nothing and answers with
the same patch. For each, what the client waited, and what the API server's own metric says of the calls, in which it
applies the patch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
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
_EMPTY: Final = "empty"
_OURS: Final = "kubevirt-webhook"
_SAME: Final = "same-patch"
# The labels of the namespaces, each by what is called for its objects.
_PLACES: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    _EMPTY: {empty.LABEL: _EMPTY},
    _OURS: webhook.LABELS,
    _SAME: {empty.LABEL: _SAME},
}
# What kubevirt-webhook writes into the spec of a pod, or of a VM's template.
_WRITTEN: Final = ("schedulerName", "topologySpreadConstraints")
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
        template: the path to what has a pod's spec.
        patch: the option of the webhook that looks at nothing.
    """

    title: str
    api: str
    resource: str
    body: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    template: tuple[str, ...]
    patch: str

    def of(self, item: Mapping[str, Any]) -> Mapping[str, Any]:
        """The part of an object that has a pod's spec."""
        for segment in self.template:
            item = item[segment]
        return item


def _vm(vmi: Mapping[str, Any]) -> Mapping[str, Any]:
    """A VM with the spec of a VMI."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": vmi["metadata"]["name"]},
        "spec": {"runStrategy": "Always", "template": {"metadata": {}, "spec": vmi["spec"]}},
    }


_POD: Final = CreatedKind("launcher pod", "api/v1", "pods", launcher.pod, (), "-pod-patch")
_VM: Final = CreatedKind("VM", "apis/kubevirt.io/v1", "virtualmachines", _vm, ("spec", "template"), "-vm-patch")


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
    binary = golang.build(host.cache_directory(), ["empty"]).binaries / "empty"
    with (
        tempfile.TemporaryDirectory() as name,
        BenchPlane(Path(name), build.ensure(os.environ)) as plane,
        ExitStack() as servers,
        plane.controller_client() as controller,
        plane.client() as owner,
    ):
        # Without the Lease of the injected scheduler none is injected.
        plane.start_profiles()
        servers.enter_context(empty.serving(plane, binary, _EMPTY))
        servers.enter_context(webhook.serving(plane))
        print(f"{per_second} objects in a second, load average {os.getloadavg()[0]:.1f}", flush=True)
        print(f"| {' | '.join(_HEADER)} |", f"|{' --- |' * len(_HEADER)}", sep="\n", flush=True)
        failed = 0
        patches: list[str] = []
        for place, labels in _PLACES.items():
            if place == _SAME:
                servers.enter_context(empty.serving(plane, binary, _SAME, *patches))
            namespace = namespace_of(place)
            metadata = {"name": namespace, "labels": dict(labels)}
            plane.admin.create("v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            vmi = plane.kubevirt_controller.create(webhook.MACHINES, launcher.machine("steady"), namespace)
            for kind, client in ((_POD, controller), (_VM, owner)):
                lasts = seconds if (place, kind) == (_OURS, _POD) else min(_OTHERS_SECONDS, seconds)
                before = Calls.of(plane.admin.text("/metrics"))
                created: list[Mapping[str, Any]] = []
                run = rate.create(
                    client,
                    f"/{kind.api}/namespaces/{namespace}/{kind.resource}",
                    kind.body(vmi),
                    _check(kind, place, created),
                    rate=per_second,
                    lasts=lasts,
                )
                calls = Calls.of(plane.admin.text("/metrics")).since(before)
                print(f"| {' | '.join((kind.title, place, *run.cells(), *calls.cells()))} |", flush=True)
                failed += run.failed.total() + calls.passed_over
                if place == _OURS and created:
                    patches += [kind.patch, json.dumps(patch(kind, created[0]))]
        print(f"load average after: {os.getloadavg()[0]:.1f}")
    return 1 if failed else 0


def patch(kind: CreatedKind, created: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A JSON patch that writes what kubevirt-webhook has written into a created object."""
    operations: list[dict[str, Any]] = []
    template = "".join(f"/{segment}" for segment in kind.template)
    for path, item in {"": created, template: kind.of(created)}.items():
        if annotations := item["metadata"].get("annotations"):
            operations.append({"op": "add", "path": f"{path}/metadata/annotations", "value": annotations})
    spec = kind.of(created)["spec"]
    operations += [
        {"op": "add", "path": f"{template}/spec/{field}", "value": spec[field]} for field in _WRITTEN if field in spec
    ]
    return operations


def namespace_of(place: str) -> str:
    """The namespace of a place. That of kubevirt-webhook's own name is excluded from what it is called for."""
    return f"with-{place}"


def _check(kind: CreatedKind, place: str, first: list[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], bool]:
    """Whether an object has kubevirt-webhook's scheduler where it should, and nowhere else; keeps the first object."""

    def check(answer: Mapping[str, Any]) -> bool:
        if not first:
            first.append(answer)
        written: bool = kind.of(answer)["spec"].get("schedulerName") == profiles.SHIPPED
        return written == (place in (_OURS, _SAME))

    return check


if __name__ == "__main__":
    sys.exit(main())
