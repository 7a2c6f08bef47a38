"""The data that planes start with: made once, whole, and of what the plane is asked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .conftest import OwnPlane
from .support import prepared
from .support.kube import Json
from .support.objects import CRDS, crds, ensure_namespace, make_node
from .support.processes import StartError
from .support.workloads import VMS, vm

CONFIG_MAP: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
ROLES = "rbac.authorization.k8s.io/v1/clusterroles"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with binaries, and a cache that is empty."""
    monkeypatch.setenv("KUBEVIRT_WEBHOOK_CACHE", str(tmp_path / "cache"))
    directory = tmp_path / "binaries"
    directory.mkdir()
    for name in prepared.BINARIES:
        (directory / name).write_text("a program")
    return directory


class Maker:
    """Stands for a control plane that makes data, and counts how often it is asked to."""

    def __init__(self, directory: Path) -> None:
        self.asked = 0
        self._directory = directory

    def __call__(self) -> Path:
        self.asked += 1
        made = self._directory / f"made-{self.asked}"
        (made / "member").mkdir(parents=True)
        (made / "member" / "db").write_text(f"data {self.asked}")
        return made


def definition(name: str) -> Json:
    return {"kind": "CustomResourceDefinition", "metadata": {"name": name}}


def test_data_is_made_once(programs: Path, tmp_path: Path) -> None:
    maker = Maker(tmp_path)

    with ThreadPoolExecutor(4) as workers:
        found = set(workers.map(lambda _: prepared.prepare(programs, [definition("a")], maker), range(8)))

    assert maker.asked == 1
    [directory] = found
    assert (directory / "member" / "db").read_text() == "data 1"
    assert not (tmp_path / "made-1").exists()


def test_other_definitions_need_other_data(programs: Path, tmp_path: Path) -> None:
    maker = Maker(tmp_path)

    directories = {prepared.prepare(programs, [definition(name)], maker) for name in "aba"}

    assert (maker.asked, len(directories)) == (2, 2)


def test_what_fails_leaves_nothing(programs: Path, tmp_path: Path) -> None:
    def fail() -> Path:
        raise StartError("etcd ended")

    with pytest.raises(StartError, match="etcd ended"):
        prepared.prepare(programs, [], fail)

    maker = Maker(tmp_path)
    prepared.prepare(programs, [], maker)
    assert maker.asked == 1
    assert len([path for path in (tmp_path / "cache").glob("*/*") if path.is_dir()]) == 1


def test_a_plane_serves_what_it_was_asked_for(own_plane: OwnPlane) -> None:
    names = [crd["metadata"]["name"] for crd in own_plane(definitions=crds()[:2]).admin.list(CRDS)]

    assert sorted(names) == sorted(crd["metadata"]["name"] for crd in crds()[:2])


def test_planes_share_no_data(own_plane: OwnPlane) -> None:
    first, second = own_plane(), own_plane()
    first.admin.create("v1/configmaps", CONFIG_MAP, "default")

    assert "one" not in [found["metadata"]["name"] for found in second.admin.list("v1/configmaps", "default")]


def test_a_plane_is_given_to_the_next_test_as_it_was(own_plane: OwnPlane) -> None:
    plane = own_plane(controller_manager=True)
    kube = plane.admin
    server, role = kube.server, kube.get(ROLES, "view")
    ensure_namespace(kube, "left")
    held = {**CONFIG_MAP, "metadata": {"name": "held", "finalizers": ["example.com/held"]}}
    kube.create("v1/configmaps", held, "left")
    make_node(kube, "node-a")
    kube.create(VMS, vm(), "left")
    kube.patch("v1/namespaces", "default", {"metadata": {"labels": {"a": "b"}}})
    kube.delete(ROLES, "view")

    assert plane.reset()

    assert "left" not in [found["metadata"]["name"] for found in kube.list("v1/namespaces")]
    assert [*kube.list("v1/nodes"), *kube.list(VMS), *kube.list("v1/configmaps", "left")] == []
    assert "a" not in kube.get("v1/namespaces", "default")["metadata"]["labels"]
    assert kube.get(ROLES, "view")["metadata"]["labels"] == role["metadata"]["labels"]
    assert plane.reset(), "nothing is left to undo"
    assert kube.server == server
