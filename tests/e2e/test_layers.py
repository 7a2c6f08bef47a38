"""The scheduler extender for image layers: a real kube-scheduler, a real registry, and nodes with images.

The scenario is the one from which the wish came: image 1 has the layers L1, L2 and L3, image 2 has L1, L2 and L4.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.cli.data import directory

from .conftest import NewWebhook, OwnPlane
from .support.kube import Json, eventually
from .support.objects import launcher_pod, make_node
from .support.plane import ControlPlane
from .support.processes import free_port
from .support.registry import NoRegistryError, Registry, find_registry
from .support.webhook_server import WebhookServer
from .support.workloads import PODS

NODES = ["node-1", "node-2", "node-3"]
KIB = 1024
IMAGES = {
    "image-1": {"L1": 40 * KIB, "L2": 30 * KIB, "L3": 30 * KIB},
    "image-2": {"L1": 40 * KIB, "L2": 30 * KIB, "L4": 30 * KIB},
}
LAUNCHER = "registry.example/kubevirt/virt-launcher:v1"


@pytest.fixture(scope="module")
def registry_binary() -> Path:
    try:
        return find_registry()
    except NoRegistryError as error:
        if os.environ.get("E2E_REQUIRED") == "1":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture
def registry(registry_binary: Path, tmp_path: Path) -> Iterator[Registry]:
    with Registry(registry_binary, tmp_path / "registry") as running:
        yield running


@pytest.fixture(scope="module")
def plane(module_plane: OwnPlane) -> ControlPlane:
    started = module_plane()
    for name in NODES:
        make_node(started.admin, name, allocatable={"devices.kubevirt.io/kvm": "110"})
    return started


@pytest.fixture(autouse=True)
def clean(plane: ControlPlane) -> Iterator[None]:
    yield
    for pod in plane.admin.list(PODS, "default"):
        plane.admin.delete(PODS, pod["metadata"]["name"], "default", options={"gracePeriodSeconds": 0})
    for name in NODES:
        list_images(plane, name, [])
    plane.stop_scheduler("layers")


def settings(registry: Registry, port: int, **more: Any) -> Json:
    return {
        "schedulers": {"kubevirt": {"guard": "off"}},
        "layers": {
            "listen": f"127.0.0.1:{port}",
            "registries": {registry.address: {"plainHttp": True, "addresses": ["127.0.0.0/8"]}},
            **more,
        },
    }


def start_scheduler(plane: ControlPlane, port: int | None, **more: Any) -> None:
    """The shipped profile, with the extender where there is a port."""
    written = yaml.safe_load((directory("manifests") / "scheduler" / "spread.yaml").read_text())
    written.pop("leaderElection")
    if port is not None:
        extender = yaml.safe_load((directory("manifests") / "scheduler" / "layers.yaml").read_text())["extenders"][0]
        written["extenders"] = [{**extender, "urlPrefix": f"http://127.0.0.1:{port}/v1/layers", **more}]
    plane.start_scheduler("layers", written)


def list_images(plane: ControlPlane, node: str, images: list[Json]) -> None:
    plane.admin.patch("v1/nodes", node, {"status": {"images": images}}, subresource="status")


def entry(registry: Registry, repository: str, digest: str) -> Json:
    names = [f"{registry.address}/{repository}@{digest}", f"{registry.address}/{repository}:v1"]
    return {"names": names, "sizeBytes": sum(IMAGES[repository].values())}


def pod(registry: Registry, name: str, repository: str) -> Json:
    """A launcher pod with a containerDisk, as KubeVirt makes it."""
    made = launcher_pod(name, scheduler="kubevirt")
    image = f"{registry.address}/{repository}:v1"
    # An eighth of a node: a VM of this size changes the scores of the shipped profile by 6 to 7 percentage points.
    made["spec"]["containers"][0]["resources"]["requests"] |= {"cpu": "2", "memory": "8Gi"}
    made["spec"]["containers"].append({"name": "volumedisk", "image": image})
    made["spec"]["initContainers"] = [
        {"name": "container-disk-binary", "image": LAUNCHER},
        {"name": "volumedisk-init", "image": image},
    ]
    return made


def place(plane: ControlPlane, written: Json) -> str:
    """The node that the scheduler chooses."""
    name = written["metadata"]["name"]
    plane.admin.create(PODS, written, "default")

    def node() -> str:
        return str(plane.admin.get(PODS, name, "default")["spec"].get("nodeName") or "")

    return eventually(node, what=f"a node for {name}")


def ask(port: int, written: Json, nodes: list[str]) -> Json:
    """What the extender answers."""
    body = json.dumps({"Pod": written, "Nodes": None, "NodeNames": nodes}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/layers/prioritize", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return {each["Host"]: each["Score"] for each in json.load(response)}


def knows(port: int, written: Json) -> bool:
    return bool(ask(port, written, NODES))


def prepared(plane: ControlPlane, registry: Registry, new_webhook: NewWebhook, port: int) -> WebhookServer:
    """A server that scores layers, nodes of which the first has image 1, and the manifests of both images read."""
    digests = {name: registry.push(name, layers) for name, layers in IMAGES.items()}
    server = new_webhook(settings(registry, port), access=plane)
    list_images(plane, "node-1", [entry(registry, "image-1", digests["image-1"])])
    for name in IMAGES:
        eventually(partial(knows, port, pod(registry, "asked", name)), what=f"the layers of {name}")
    return server


def test_a_vm_goes_where_most_of_its_layers_are(
    plane: ControlPlane, registry: Registry, new_webhook: NewWebhook
) -> None:
    port = free_port()
    prepared(plane, registry, new_webhook, port)
    assert ask(port, pod(registry, "asked", "image-1"), NODES) == {"node-1": 10}
    assert ask(port, pod(registry, "asked", "image-2"), NODES) == {"node-1": 7}
    start_scheduler(plane, port, weight=2)
    assert place(plane, pod(registry, "first", "image-1")) == "node-1"
    assert place(plane, pod(registry, "second", "image-2")) == "node-1"
    # Fuller by two VMs than the others by now, it still has the layers.
    assert place(plane, pod(registry, "third", "image-1")) == "node-1"


def test_without_the_extender_it_goes_elsewhere(
    plane: ControlPlane, registry: Registry, new_webhook: NewWebhook
) -> None:
    prepared(plane, registry, new_webhook, free_port())
    start_scheduler(plane, None)
    placed = [place(plane, pod(registry, f"vm-{number}", "image-1")) for number in range(3)]
    assert sorted(placed) == NODES


def test_fuller_nodes_lose_in_the_end(plane: ControlPlane, registry: Registry, new_webhook: NewWebhook) -> None:
    port = free_port()
    prepared(plane, registry, new_webhook, port)
    start_scheduler(plane, port, weight=2)
    placed = [place(plane, pod(registry, f"vm-{number}", "image-1")) for number in range(7)]
    assert placed[:2] == ["node-1", "node-1"]
    assert set(placed) == set(NODES)
