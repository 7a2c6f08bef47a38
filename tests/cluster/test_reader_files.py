from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.cluster.files import FilesCluster
from webhook.cluster.reader import FileGap, FileReader
from webhook.errors import Unavailable
from webhook.k8s.resources import LEASES, NODES, PODS
from webhook.settings.file import default_settings


def reader(tmp_path: Path, *objects: Any) -> FileReader:
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    return FileReader(FilesCluster.load(tmp_path, default_settings()))


def pod(name: str, namespace: str = "shop", **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, **parts.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **parts}


async def names_of(files: FileReader, namespace: str = "", **query: str) -> list[str | None]:
    found = await files.all(PODS, namespace, query)
    assert not isinstance(found, Unavailable)
    return [each.meta.name for each in found]


async def test_objects_by_name_and_namespace(tmp_path: Path) -> None:
    files = reader(tmp_path, pod("a"), pod("a", "other"), pod("b"))
    found = await files.get(PODS, "shop", "a")
    assert not isinstance(found, Unavailable)
    assert found is not None
    assert (found.meta.namespace, found.meta.name) == ("shop", "a")
    assert await files.get(PODS, "shop", "c") is None
    assert (await names_of(files), await names_of(files, "shop")) == (["a", "a", "b"], ["a", "b"])


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
    files = reader(tmp_path, pod("a"))
    for answer in (await files.get(resource, namespace, "a"), await files.all(resource, namespace)):
        assert isinstance(answer, FileGap)
        assert (answer.code, answer.todo.split('"')[1]) == ("not-in-files", command)


async def test_all_namespaces_are_read_with_a(tmp_path: Path) -> None:
    answer = await reader(tmp_path, pod("a")).all(LEASES)
    assert isinstance(answer, FileGap)
    assert '"kubectl get leases.coordination.k8s.io -A -o yaml"' in answer.todo


async def test_labels_and_fields_select(tmp_path: Path) -> None:
    files = reader(
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
    files = reader(tmp_path, pod("a", spec={"containers": [{"image": 5}]}), pod("b"))
    assert (await names_of(files), await names_of(files), files.malformed) == (["b"], ["b"], {"Pod": 1})
    found = await files.get(PODS, "shop", "a")
    assert isinstance(found, FileGap)
    assert (found.code, found.todo) == ("unreadable", "correct the object")


async def test_a_namespaced_object_without_a_namespace_is_a_mistake_of_the_check(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Pod a is namespaced"):
        await reader(tmp_path, pod("a")).get(PODS, "", "a")


async def test_definitions_that_the_files_lack(tmp_path: Path) -> None:
    assert isinstance(await reader(tmp_path, pod("a")).definitions(), FileGap)


def test_there_is_no_connection(tmp_path: Path) -> None:
    assert reader(tmp_path, pod("a")).api.code == "needs-cluster"
