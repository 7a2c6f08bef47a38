"""The scheduler extender for image layers: a real kube-scheduler, a real registry, and nodes with images.

The scenario is the one from which the wish came: image 1 has the layers L1, L2 and L3, image 2 has L1, L2 and L4.

Registries that are slow, wrong, hostile or away change nothing: pods are placed as if there were no scores.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import urllib.request
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.cli.data import directory

from .conftest import ModuleWebhook, NewWebhook, OwnPlane
from .support.kube import PATIENCE, Json, denied, eventually
from .support.objects import launcher_pod, make_node, obj
from .support.pki import KUBE_SCHEDULER
from .support.placing import place_one, remove_pods
from .support.plane import ControlPlane
from .support.processes import free_port
from .support.registry import Registry
from .support.webhook_server import ACCOUNT, WebhookServer

NODES = ["node-1", "node-2", "node-3"]


def settings(addresses: Sequence[str], port: int, **more: Any) -> Json:
    """Of a server that scores layers for kube-scheduler at a port, with registries on loopback."""
    registry = {"plainHttp": True, "addresses": ["127.0.0.0/8"]}
    layers = {"listen": f"127.0.0.1:{port}", "registries": dict.fromkeys(addresses, registry), **more}
    return {"schedulers": {"kubevirt": {"healthCheck": "off"}}, "layers": layers}


def start_scheduler(plane: ControlPlane, port: int | None, profiles: Sequence[Json] | None = None, **more: Any) -> None:
    """The shipped profile, or others, with the extender where there is a port; ``more`` goes into its section."""
    written = yaml.safe_load((directory("manifests") / "scheduler" / "spread.yaml").read_text())
    written.pop("leaderElection")
    written["profiles"] = profiles or written["profiles"]
    if port is not None:
        extender = yaml.safe_load((directory("manifests") / "scheduler" / "layers.yaml").read_text())["extenders"][0]
        # On a loaded machine an answer may take longer than in a cluster, and then counts for nothing.
        place = {"urlPrefix": f"http://127.0.0.1:{port}/v1/layers", "httpTimeout": "3s"}
        written["extenders"] = [{**extender, **place, **more}]
    plane.start_scheduler("layers", written)


def list_images(plane: ControlPlane, node: str, images: list[Json]) -> None:
    plane.admin.patch("v1/nodes", node, {"status": {"images": images}}, subresource="status")


def clean_up(plane: ControlPlane) -> None:
    remove_pods(plane.admin)
    for name in NODES:
        list_images(plane, name, [])
    # Some tests have none, or have ended it.
    with contextlib.suppress(KeyError):
        plane.stop_scheduler("layers", grace=0)


KIB = 1024
IMAGES = {
    "image-1": {"L1": 40 * KIB, "L2": 30 * KIB, "L3": 30 * KIB},
    "image-2": {"L1": 40 * KIB, "L2": 30 * KIB, "L4": 30 * KIB},
    "image-3": {"L5": 100 * KIB},
}
# "secret", as bcrypt.
HTPASSWD = "ann:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a"
BASIC = "Basic YW5uOnNlY3JldA=="
LAUNCHER = "registry.example/kubevirt/virt-launcher:v1"


@pytest.fixture(scope="module")
def registry(registry_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with Registry(registry_binary, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def plane(module_plane: OwnPlane) -> ControlPlane:
    started = module_plane()
    for name in NODES:
        make_node(started.admin, name, allocatable={"devices.kubevirt.io/kvm": "110"})
    return started


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture
def server(module_webhook: ModuleWebhook, registry: Registry, port: int) -> WebhookServer:
    """One that scores the layers of a registry for every client of the port."""
    return module_webhook(settings([registry.address], port))


@pytest.fixture(autouse=True)
def clean(plane: ControlPlane) -> Iterator[None]:
    yield
    clean_up(plane)


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


def ask(port: int, written: Json, nodes: list[str], tls: ssl.SSLContext | None = None) -> Json:
    body = json.dumps({"Pod": written, "Nodes": None, "NodeNames": nodes}).encode()
    request = urllib.request.Request(
        f"{'https' if tls else 'http'}://localhost:{port}/v1/layers/prioritize",
        body,
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE, context=tls) as response:
        return {each["Host"]: each["Score"] for each in json.load(response)}


def knows(port: int, written: Json, tls: ssl.SSLContext | None = None) -> bool:
    return bool(ask(port, written, NODES, tls))


def test_vms_go_where_most_of_their_layers_are_until_those_nodes_are_fuller(
    plane: ControlPlane, registry: Registry, server: WebhookServer, port: int
) -> None:
    digests = {name: registry.push(name, IMAGES[name]) for name in ("image-1", "image-2")}
    list_images(plane, "node-1", [entry(registry, "image-1", digests["image-1"])])
    for name in digests:
        eventually(partial(knows, port, pod(registry, "asked", name)), what=f"the layers of {name}")
    assert ask(port, pod(registry, "asked", "image-1"), NODES) == {"node-1": 10}
    assert ask(port, pod(registry, "asked", "image-2"), NODES) == {"node-1": 7}
    written = yaml.safe_load((directory("manifests") / "scheduler" / "spread.yaml").read_text())["profiles"][0]
    start_scheduler(plane, port, profiles=[{**written, "schedulerName": "other"}, written], weight=2)
    other = pod(registry, "other", "image-1")
    other["spec"]["schedulerName"] = "other"
    assert place_one(plane.admin, other) in NODES
    assert server.metric("kubevirt_webhook_layers_requests_total", result="other-scheduler") == 1
    plane.admin.delete("v1/pods", "other", "default", gracePeriodSeconds="0")

    # Fuller by two VMs than the others in the end, it still has the layers.
    images = ("image-1", "image-2", "image-1", *["image-1"] * 5)
    placed = [place_one(plane.admin, pod(registry, f"vm-{number}", image)) for number, image in enumerate(images)]
    assert placed[:3] == ["node-1"] * 3
    assert set(placed) == set(NODES)
    clean_up(plane)

    # Without the extender they go elsewhere.
    list_images(plane, "node-1", [entry(registry, "image-1", digests["image-1"])])
    start_scheduler(plane, None)
    assert sorted(place_one(plane.admin, pod(registry, f"alone-{number}", "image-1")) for number in range(3)) == NODES


@pytest.mark.control("scheduling-waits")
def test_scheduling_goes_on_beside_a_registry_that_hangs(
    plane: ControlPlane, registry: Registry, server: WebhookServer, port: int
) -> None:
    digest = registry.push("image-3", IMAGES["image-3"])
    # On a machine that others load, the server may have given up by then.
    fetched = partial(server.metric, "kubevirt_webhook_layers_fetches_total", result="fetched")
    unscored = partial(server.metric, "kubevirt_webhook_layers_requests_total", result="no-scores")
    start_scheduler(plane, port, weight=2)
    before = fetched(), unscored()
    registry.pause()
    try:
        list_images(plane, "node-1", [entry(registry, "image-3", digest)])
        # No pod waits: the scheduler places all of them while the server still waits for the manifest.
        placed = [place_one(plane.admin, pod(registry, f"hung-{number}", "image-3")) for number in range(3)]
        assert sorted(placed) == NODES
        assert (fetched(), unscored()) == (before[0], before[1] + 3)
    finally:
        registry.resume()
    eventually(partial(knows, port, pod(registry, "asked", "image-3")), what="the layers of image-3")
    assert place_one(plane.admin, pod(registry, "afterwards", "image-3")) == "node-1"


@pytest.mark.control("pull-secrets-of-others")
def test_manifests_of_private_images_are_read_with_the_pods_own_secret(
    plane: ControlPlane, registry_binary: Path, tmp_path: Path, new_webhook: NewWebhook
) -> None:
    with Registry(registry_binary, tmp_path / "private", htpasswd=HTPASSWD) as private:
        private.authorize(BASIC)
        digest = private.push("image-1", IMAGES["image-1"])
        auths = {"auths": {private.address: {"username": "ann", "password": "secret"}}}
        data = {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": json.dumps(auths)}}
        plane.admin.make(obj("Secret", "pull", **data), "default")
        account = plane.kube(*ACCOUNT)
        assert denied(lambda: account.get("v1/secrets", "pull", "default")).status == 403
        text = (directory("manifests") / "roles" / "pull-secrets.yaml").read_text()
        for document in yaml.safe_load_all(text.replace("NAMESPACE", "default").replace("SECRET", "pull")):
            plane.admin.make(document, "default")
        eventually(lambda: account.get("v1/secrets", "pull", "default"), what="the role to be known")
        port = free_port()
        new_webhook(settings([private.address], port, pullSecrets="on"), access=plane)
        list_images(plane, "node-1", [entry(private, "image-1", digest)])
        written = pod(private, "asked", "image-1")
        written["metadata"]["namespace"] = "default"
        written["spec"]["imagePullSecrets"] = [{"name": "pull"}]
        eventually(partial(knows, port, written), what="the layers of a private image")
        assert ask(port, written, NODES) == {"node-1": 10}
        # In another namespace the same name is another Secret, which does not exist.
        stranger = json.loads(json.dumps(written))
        stranger["metadata"]["namespace"] = "kubevirt"
        assert ask(port, stranger, NODES) == {}


@pytest.mark.control("strangers-ask-for-scores")
def test_kube_scheduler_has_to_prove_who_it_is(
    plane: ControlPlane, registry: Registry, new_webhook: NewWebhook, tmp_path: Path
) -> None:
    port = free_port()
    client = plane.pki.client(*KUBE_SCHEDULER)
    more = {"clientCaFile": str(plane.pki.ca), "clientNames": [KUBE_SCHEDULER.user]}
    digest = registry.push("image-1", IMAGES["image-1"])
    server = new_webhook(settings([registry.address], port, **more), access=plane)
    list_images(plane, "node-1", [entry(registry, "image-1", digest)])
    known = partial(server.metric, "kubevirt_webhook_layers_images", layers="known")
    eventually(lambda: known() == 1, what="the layers of image-1")
    authority = tmp_path / "server.crt"
    # The server has made its certificate at the start, and is its own authority.
    authority.write_text(ssl.get_server_certificate(("127.0.0.1", port)))
    tls = {"caFile": str(authority), "certFile": str(client), "keyFile": str(client)}
    url = f"https://localhost:{port}/v1/layers"
    start_scheduler(plane, port, weight=2, urlPrefix=url, enableHTTPS=True, tlsConfig=tls)
    ours = ssl.create_default_context(cafile=str(authority))
    ours.load_cert_chain(client)
    eventually(partial(knows, port, pod(registry, "asked", "image-1"), ours), what="the tag of image-1")
    scored = partial(server.metric, "kubevirt_webhook_layers_requests_total", result="scored")
    before = scored()
    assert place_one(plane.admin, pod(registry, "first", "image-1")) == "node-1"
    assert scored() == before + 1
    plane.stop_scheduler("layers")
    start_scheduler(plane, port, urlPrefix=url, enableHTTPS=True, tlsConfig={"caFile": str(authority)})
    # Without a certificate it gets no scores, and places pods all the same.
    place_one(plane.admin, pod(registry, "third", "image-1"))
    assert server.metric("kubevirt_webhook_layers_requests_total", result="rejected") == 1
