"""One case after the other: VMs come one by one, nodes pull their images, and what they pull is added up."""

from __future__ import annotations

import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.layers.cases import SCHEDULER, LayersCase
from bench.layers.catalog import CatalogImage, CatalogVm, make_images, make_vms, pod
from bench.placement.bindings import Bindings
from bench.placement.client import SchedulingClient, SchedulingRequest
from tests.e2e.support.kube import PATCHES
from tests.e2e.support.objects import make_node
from tests.e2e.support.pki import ADMIN
from tests.e2e.support.plane import ControlPlane
from tests.e2e.support.processes import Process, free_port
from tests.e2e.support.registry import Registry

_PODS: Final = "/api/v1/namespaces/default/pods"
_BOUND_SECONDS: Final = 60.0
_KNOWN_SECONDS: Final = 5.0
# How long the scheduler gets to hear of a node's new image before the next VM comes.
_SETTLE_SECONDS: Final = 0.03
_NODE: Final = {"cpu": "64", "memory": "256Gi", "devices.kubevirt.io/kvm": "110"}
_NODE_MEMORY: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class LayersSize:
    """How large the measurement is."""

    vms: int = 300
    images: int = 40
    nodes: int = 20


@dataclass(frozen=True, slots=True)
class LayersFigures:
    """What one case showed.

    Attributes:
        pulled: MiB that nodes pulled.
        present: MiB of the VMs' images that were there already.
        counts: VMs on each node.
        memory: percent of each node's memory that VMs request.
    """

    pulled: int
    present: int
    counts: tuple[int, ...]
    memory: tuple[float, ...]

    @property
    def present_share(self) -> float:
        """What need not be pulled, in percent of what the VMs need."""
        return 100 * self.present / (self.present + self.pulled)

    @property
    def deviation(self) -> float:
        """The standard deviation of the VMs per node."""
        return statistics.pstdev(self.counts)

    @property
    def memory_deviation(self) -> float:
        """The standard deviation of the requested memory, in percentage points."""
        return statistics.pstdev(self.memory)


class MeasuredNodes:
    """What is on the nodes: images, their layers, and VMs."""

    def __init__(self, names: Sequence[str]) -> None:
        self.images: dict[str, dict[str, CatalogImage]] = {name: {} for name in names}
        self.vms: dict[str, list[CatalogVm]] = {name: [] for name in names}
        self.pulled = 0
        self.present = 0

    def take(self, node: str, vm: CatalogVm) -> bool:
        """A VM starts on a node; whether the node has to list another image then."""
        there = {layer for image in self.images[node].values() for layer in image.layers}
        missing = sum(size for layer, size in vm.image.layers.items() if layer not in there)
        self.pulled += missing
        self.present += vm.image.size - missing
        self.vms[node].append(vm)
        is_new = vm.image.name not in self.images[node]
        self.images[node][vm.image.name] = vm.image
        return is_new

    def figures(self) -> LayersFigures:
        """What it came to."""
        memory = tuple(100 * sum(vm.memory for vm in vms) / _NODE_MEMORY for vms in self.vms.values())
        return LayersFigures(self.pulled, self.present, tuple(map(len, self.vms.values())), memory)


def measure(
    binaries: Path,
    registry_binary: Path,
    directory: Path,
    size: LayersSize,
    cases: Sequence[LayersCase],
    say: Callable[[str], None],
) -> dict[str, LayersFigures]:
    """The figures of each case, by its key."""
    images = make_images(size.images)
    vms = make_vms(size.vms, images)
    names = [f"node-{number:02}" for number in range(size.nodes)]
    results = {}
    with (
        ControlPlane(directory / "plane", binaries) as plane,
        Registry(registry_binary, directory / "registry") as registry,
        SchedulingClient(plane.server, plane.pki.ca, plane.pki.client(*ADMIN)) as client,
    ):
        digests = {
            image.name: registry.push(image.name, {name: size * 1024 for name, size in image.layers.items()})
            for image in images
        }
        for name in names:
            make_node(plane.admin, name, allocatable=_NODE)
        bindings = Bindings(client)
        for case in cases:
            say(f"{case.title} …")
            nodes = MeasuredNodes(names)
            with _extender(plane, registry, directory / case.key, case) as port:
                plane.start_scheduler("case", case.configuration(f"http://127.0.0.1:{port}/v1/layers"))
                for vm in vms:
                    client.send(SchedulingRequest("POST", _PODS, pod(vm, registry.address, SCHEDULER)))
                    node = bindings.wait([vm.name], _BOUND_SECONDS)[vm.name]
                    if nodes.take(node, vm):
                        _report(client, node, nodes.images[node].values(), registry.address, digests)
                        _settle(port if case.weight else 0, pod(vm, registry.address, SCHEDULER), node)
                plane.stop_scheduler("case")
            results[case.key] = nodes.figures()
            client.send(SchedulingRequest("DELETE", f"{_PODS}?gracePeriodSeconds=0"))
            bindings.wait([], _BOUND_SECONDS)
            for name in names:
                _report(client, name, (), registry.address, digests)
    return results


def _report(client: SchedulingClient, node: str, images: Any, registry: str, digests: Mapping[str, str]) -> None:
    """Write a node's images into its status, as a kubelet does after a pull."""
    written = [
        {
            "names": [f"{registry}/{image.name}@{digests[image.name]}", f"{registry}/{image.name}:v1"],
            "sizeBytes": image.size * 1024 * 1024,
        }
        for image in images
    ]
    status = {"status": {"images": written}}
    client.send(SchedulingRequest("PATCH", f"/api/v1/nodes/{node}/status", status, PATCHES["merge"]))


def _settle(port: int, asked: Mapping[str, object], node: str) -> None:
    """Wait until everybody has heard of a node's new image: a pull takes longer than that."""
    deadline = time.monotonic() + _KNOWN_SECONDS
    while port and time.monotonic() < deadline:
        if _scores(port, asked, node).get(node) == 10:
            break
        time.sleep(0.01)
    time.sleep(_SETTLE_SECONDS)


def _scores(port: int, asked: Mapping[str, object], node: str) -> dict[str, int]:
    body = json.dumps({"Pod": asked, "NodeNames": [node]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/layers/prioritize", body)
    with urllib.request.urlopen(request, timeout=10) as response:
        return {each["Host"]: each["Score"] for each in json.load(response)}


@contextmanager
def _extender(plane: ControlPlane, registry: Registry, directory: Path, case: LayersCase) -> Iterator[int]:
    """The server, as one runs it beside a cluster; gives the port of its extender."""
    port, ops = free_port(), free_port()
    if not case.weight:
        yield port
        return
    directory.mkdir()
    settings = directory / "settings.json"
    listed = {registry.address: {"plainHttp": True, "addresses": ["127.0.0.0/8"]}}
    layers = {"listen": f"127.0.0.1:{port}", "schedulers": [SCHEDULER], "registries": listed}
    settings.write_text(json.dumps({"layers": layers, "server": {"shutdownSeconds": 0}}))
    command = [
        *(sys.executable, "-m", "webhook", "serve"),
        *("--kubeconfig", str(plane.kubeconfig_for(*ADMIN))),
        *("--config", str(settings)),
        *("--listen", "127.0.0.1:0"),
        *("--ops-listen", f"127.0.0.1:{ops}"),
    ]
    process = Process("kubevirt-webhook", command, directory / "log")
    process.start()
    try:
        process.wait_ready(lambda: _is_ready(ops))
        yield port
    finally:
        process.stop()


def _is_ready(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as response:
        return bool(response.status == 200)
