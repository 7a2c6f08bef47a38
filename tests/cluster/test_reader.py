"""A cluster that is read a few times: facts for explanations, unstructured objects, and the objects of checks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.cluster.fake_apiserver import FakeApiServer, broken, why
from tests.forecast.clusters import node, vm
from tests.placement.headroom.fleets import starting
from tests.waiting import PATIENCE
from webhook.cli.write import dump
from webhook.cluster import reader
from webhook.cluster.directory import KINDS
from webhook.cluster.files import FilesCluster
from webhook.cluster.reader import RESOURCES, FileReader, OnceCluster, Reader, read_once
from webhook.errors import FileGap, Unavailable
from webhook.facts import NOT_READ, HeadroomKey, Key, KubeVirtKey, ListKey, NodesKey, ObjectKey, SchedulerKey
from webhook.k8s.client.transport import KubernetesTransport
from webhook.k8s.resources import LEASES, NODES, PENDING_PODS, PODS
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.kubevirt.run_strategy import STARTED_VMS
from webhook.kubevirt.types.views import KubeVirt
from webhook.placement.machines import LAUNCHER_PODS, PLACED_VMIS
from webhook.settings_file import default_settings

EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster"
IMAGE = RESOURCES["DataSource"]
KUBEVIRT: Any = ListKey(KUBEVIRTS, "")
LIST = "/api/v1/nodes"


@pytest.fixture
def cluster(transport: KubernetesTransport) -> OnceCluster:
    return OnceCluster(transport)


async def read(cluster: OnceCluster, key: Key[Any], seconds: float = PATIENCE) -> Any:
    return await cluster.read(key, asyncio.get_running_loop().time() + seconds)


async def test_nodes_are_listed_in_pages(
    server: FakeApiServer, transport: KubernetesTransport, cluster: OnceCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_PAGE", 2)
    names = [f"n{number}" for number in range(5)]
    for name in names:
        server.put(NODES, name, metadata={"labels": {"zone": "a"}})
    index, listed = await read(cluster, NodesKey()), await Reader(transport).all(NODES)
    assert not isinstance(listed, Unavailable)
    assert sorted(node.name for node in index) == [node.meta.name for node in listed] == names
    assert len(server.requests(LIST)) == 6


async def test_headroom_is_counted_when_it_is_asked_for(server: FakeApiServer, cluster: OnceCluster) -> None:
    for name in ("a", "b"):
        server.put(NODES, name, metadata=node(name)["metadata"], status=node(name)["status"])
    server.put(STARTED_VMS, "web", "shop", spec={"runStrategy": "Always"})
    found = await read(cluster, HeadroomKey())
    assert found.judge(starting("web", "6Gi")).kind == "kept"
    _, pod = vm("full", "a", "4Gi")
    server.put(PODS, "virt-launcher-full", "shop", metadata=pod["metadata"], spec=pod["spec"])
    # As one that was read before, it stays what it was.
    assert found.judge(starting("web", "6Gi")).kind == "kept"
    assert (await read(cluster, HeadroomKey())).judge(starting("web", "6Gi")).kind == "broken"


async def test_headroom_of_a_cluster_whose_pods_may_not_be_listed(server: FakeApiServer, cluster: OnceCluster) -> None:
    server.fail("/api/v1/pods", 403, "Forbidden")
    assert isinstance(await read(cluster, HeadroomKey()), Unavailable)


async def test_objects_lists_and_kubevirt(server: FakeApiServer, cluster: OnceCluster) -> None:
    assert await read(cluster, KubeVirtKey()) is None
    server.put(PLACED_VMIS, "web", "demo", status={"nodeName": "n1"})
    owned = {"labels": {"a": "b"}, "ownerReferences": [{"uid": "u", "controller": True}]}
    server.put(LAUNCHER_PODS, "p", "demo", metadata=owned, spec={"nodeName": "n1"})
    server.put(LAUNCHER_PODS, "q", "demo")
    selectors = {"developerConfiguration": {"nodeSelectors": {"x": "y"}}}
    server.put(KUBEVIRTS, "kubevirt", "kubevirt", spec={"configuration": selectors}, status={"phase": "Deployed"})
    assert (await read(cluster, ObjectKey(PLACED_VMIS, "demo", "web"))).node_name == "n1"
    assert await read(cluster, ObjectKey(PLACED_VMIS, "demo", "other")) is None
    assert [pod.node_name for pod in await read(cluster, ListKey(LAUNCHER_PODS, "demo", "a=b"))] == ["n1"]
    server.put(PENDING_PODS, "waiting", "demo", status={"phase": "Pending"})
    waiting = ListKey(PENDING_PODS, "", field="status.phase=Pending")
    assert [pod.meta.name for pod in await read(cluster, waiting)] == ["waiting"]
    assert (await read(cluster, KubeVirtKey())).configuration.node_selectors == {"x": "y"}


@pytest.mark.parametrize("text", ["", "no JSON", '{"items": 1}'])
async def test_lists_that_can_not_be_read(
    server: FakeApiServer,
    transport: KubernetesTransport,
    cluster: OnceCluster,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
) -> None:
    assert await Reader(transport).all(NODES) == (), "the cluster does not know the kind"
    assert "timed out after" in why(await read(cluster, NodesKey(), 0.0))
    server.answer(LIST, lambda request: web.Response(text=text) if text else broken(request), times=9)
    assert why(await read(cluster, NodesKey())) == why(await Reader(transport).all(NODES))
    server.heal()
    monkeypatch.setattr(reader, "SECONDS", 0.05)
    server.hang(LIST)
    assert why(await Reader(transport).all(NODES)), "it takes too long"


async def test_it_remembers_and_watches_nothing(cluster: OnceCluster) -> None:
    assert cluster.peek(NodesKey()) is NOT_READ
    assert (cluster.staleness(), cluster.waiting_for()) == ({}, ())
    assert "cannot be read" in why(await read(cluster, SchedulerKey("kubevirt")))


def test_every_kind_can_stand_in_a_file_too() -> None:
    for name, resource in RESOURCES.items():
        assert (KINDS[name].group, KINDS[name].namespaced) == (resource.group, resource.namespaced)


async def test_objects_of_files() -> None:
    files = FilesCluster.load(EXAMPLES, default_settings())
    image = await read_once(files, ObjectKey(IMAGE, "shop", "debian"))
    assert isinstance(image, dict)
    assert image["spec"]["source"]["pvc"]["name"] == "debian-13"
    assert await read_once(files, ObjectKey(IMAGE, "shop", "none")) is None
    assert [install.meta.name for install in await read_once(files, KUBEVIRT)] == ["kubevirt"]  # type: ignore[union-attr]


@pytest.mark.parametrize("resource", RESOURCES.values(), ids=RESOURCES)
async def test_live_objects_are_whole(server: FakeApiServer, cluster: OnceCluster, resource: Any) -> None:
    namespace = "shop" if resource.namespaced else ""
    put = server.put(resource, "a", namespace, spec={"anything": [1, {"at": "all"}]})
    assert await read_once(cluster, ObjectKey(resource, namespace, "a")) == put
    assert await read_once(cluster, ObjectKey(resource, namespace, "b")) is None
    assert [(asked.path, asked.verb) for asked in server.asked] == [
        (resource.path(namespace, name), "get") for name in "ab"
    ]


@pytest.mark.parametrize("name", ["", "..", "../secrets/x", "a/b", "a%2fb"])
async def test_wild_names_are_not_asked_for(server: FakeApiServer, cluster: OnceCluster, name: str) -> None:
    assert await read_once(cluster, ObjectKey(IMAGE, "shop", name)) is None
    assert await read_once(cluster, ObjectKey(IMAGE, name, "a")) is None
    assert server.asked == []


async def test_kubevirts(server: FakeApiServer, cluster: OnceCluster) -> None:
    assert await read_once(cluster, KUBEVIRT) == (), "no such kind"
    put = server.put(KUBEVIRTS, "kubevirt", "kubevirt", status={"phase": "Deployed"})
    assert await read_once(cluster, KUBEVIRT) == (msgspec.convert(put, KubeVirt),)
    server.answer(KUBEVIRTS.path(), lambda _: web.json_response({"items": None}))
    assert await read_once(cluster, KUBEVIRT) == ()
    server.fail(KUBEVIRTS.path(), 403)
    assert "grant list on kubevirts.kubevirt.io" in why(await read_once(cluster, KUBEVIRT))


async def test_silence(server: FakeApiServer, cluster: OnceCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "GET_SECONDS", 0.05)
    release = asyncio.Event()
    server.hang(KUBEVIRTS.path(), release)
    server.hang(IMAGE.path("shop", "a"), release)
    assert why(await read_once(cluster, KUBEVIRT)) and why(await read_once(cluster, ObjectKey(IMAGE, "shop", "a")))
    release.set()


async def test_whoever_asks_at_once_gets_the_same_answer(server: FakeApiServer, transport: KubernetesTransport) -> None:
    server.put(NODES, "n1")
    reader = Reader(transport)
    first, second, one = await asyncio.gather(reader.all(NODES), reader.all(NODES), reader.get(NODES, "", "n1"))
    assert first is second
    assert isinstance(one, NODES.view) and first == (one,)
    assert len(server.requests(LIST)) == 1


def in_files(tmp_path: Path, *objects: Any) -> FileReader:
    (tmp_path / "objects.yaml").write_text(dump(objects))
    return FileReader(FilesCluster.load(tmp_path, default_settings()))


def pod(name: str, namespace: str = "shop", **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, **parts.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **parts}


async def names_of(files: FileReader, namespace: str = "", **query: str) -> list[str | None]:
    found = await files.all(PODS, namespace, query)
    assert not isinstance(found, Unavailable)
    return [each.meta.name for each in found]


async def test_a_namespaced_object_without_a_namespace_is_a_mistake_of_the_check(
    server: FakeApiServer, transport: KubernetesTransport, tmp_path: Path
) -> None:
    """Read as "does not exist", it would send an admin to create what is there."""
    for each in (Reader(transport), in_files(tmp_path, pod("a"))):
        with pytest.raises(ValueError, match="Pod a is namespaced"):
            await each.get(PODS, "", "a")
    assert server.asked == []


async def test_objects_by_name_and_namespace(tmp_path: Path) -> None:
    files = in_files(tmp_path, pod("a"), pod("a", "other"), pod("b"))
    found = await files.get(PODS, "shop", "a")
    assert isinstance(found, PODS.view)
    assert (found.meta.namespace, found.meta.name) == ("shop", "a")
    assert await files.get(PODS, "shop", "c") is None
    assert (await names_of(files), await names_of(files, "shop")) == (["a", "a", "b"], ["a", "b"])
    assert isinstance(await files.definitions(), FileGap)
    assert files.api.code == "needs-cluster"


@pytest.mark.parametrize(
    ("resource", "namespace", "command"),
    [
        (NODES, "", "kubectl get nodes -o yaml"),
        (LEASES, "kube-system", "kubectl get leases.coordination.k8s.io -n kube-system -o yaml"),
        (PODS, "other", "kubectl get pods -n other -o yaml"),
    ],
)
async def test_what_the_files_lack_may_be_in_the_cluster(
    tmp_path: Path, resource: Any, namespace: str, command: str
) -> None:
    files = in_files(tmp_path, pod("a"))
    for answer in (await files.get(resource, namespace, "a"), await files.all(resource, namespace)):
        assert isinstance(answer, FileGap)
        assert (answer.code, answer.todo.split('"')[1]) == ("not-in-files", command)
    everywhere = await files.all(LEASES)
    assert isinstance(everywhere, FileGap)
    assert '"kubectl get leases.coordination.k8s.io -A -o yaml"' in everywhere.todo


async def test_labels_and_fields_select(tmp_path: Path) -> None:
    files = in_files(
        tmp_path,
        pod("a", metadata={"labels": {"x": "1", "y": "2"}}, status={"phase": "Pending"}),
        pod("b", metadata={"labels": {"x": "2"}}, spec={"schedulerName": "s"}, status={"phase": "Pending"}),
        pod("c"),
    )
    assert await names_of(files, labelSelector="x=1") == ["a"]
    assert await names_of(files, labelSelector="x=1,y=3") == []
    assert await names_of(files, fieldSelector="status.phase=Pending") == ["a", "b"]
    assert await names_of(files, fieldSelector="spec.schedulerName=s,status.phase=Pending") == ["b"]
    assert await names_of(files, fieldSelector="spec.schedulerName=") == ["a", "c"]


async def test_what_cannot_be_decoded_is_counted_and_skipped(tmp_path: Path) -> None:
    files = in_files(tmp_path, pod("a", spec={"containers": [{"image": 5}]}), pod("b"))
    assert (await names_of(files), await names_of(files), files.malformed) == (["b"], ["b"], {"Pod": 1})
    found = await files.get(PODS, "shop", "a")
    assert isinstance(found, FileGap)
    assert (found.code, found.todo) == ("unreadable", "correct the object")
