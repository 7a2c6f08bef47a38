"""The data that planes start with: made once, whole, and of what the plane is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .conftest import OwnPlane
from .support import prepared
from .support.kube import Json
from .support.objects import CRDS, crds
from .support.processes import StartError

RESERVED = 64_000_000


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


@pytest.mark.parametrize("name", prepared.BINARIES)
def test_another_build_needs_other_data(programs: Path, name: str) -> None:
    before = prepared.digest(programs, [])

    (programs / name).write_text("another program")

    assert prepared.digest(programs, []) != before


def test_what_fails_leaves_nothing(programs: Path, tmp_path: Path) -> None:
    def fail() -> Path:
        raise StartError("etcd ended")

    with pytest.raises(StartError, match="etcd ended"):
        prepared.prepare(programs, [], fail)

    maker = Maker(tmp_path)
    prepared.prepare(programs, [], maker)
    assert maker.asked == 1
    assert len([path for path in (tmp_path / "cache").glob("*/*") if path.is_dir()]) == 1


def test_a_cache_that_cannot_be_written_is_named(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")

    with pytest.raises(StartError, match="KUBEVIRT_WEBHOOK_CACHE"):
        prepared.prepare(programs, [], Maker(tmp_path))


@pytest.mark.parametrize(
    "parts",
    [[(0, b"log" * 1000)], [], [(0, b"log"), (RESERVED // 2, b"end")], [(0, b"log" + bytes(RESERVED - 3))]],
    ids=["full", "hole", "filled in part", "zeros"],
)
def test_copies_are_the_same_and_take_no_room_for_zeros(tmp_path: Path, parts: Sequence[tuple[int, bytes]]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with (source / "wal").open("wb") as file:
        for offset, content in parts:
            file.seek(offset)
            file.write(content)
        file.truncate(RESERVED)

    prepared.copy(source, tmp_path / "target")

    copied = tmp_path / "target" / "wal"
    assert copied.read_bytes() == (source / "wal").read_bytes()
    assert copied.stat().st_blocks * 512 <= len(parts) * prepared.BLOCK


def test_an_empty_file_is_copied(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "wal").touch()

    prepared.copy(tmp_path / "source", tmp_path / "target")

    assert (tmp_path / "target" / "wal").read_bytes() == b""


def test_a_plane_serves_what_it_was_asked_for(own_plane: OwnPlane) -> None:
    names = [crd["metadata"]["name"] for crd in own_plane(definitions=crds()[:2]).admin.list(CRDS)]

    assert sorted(names) == sorted(crd["metadata"]["name"] for crd in crds()[:2])


def test_planes_share_no_data(own_plane: OwnPlane) -> None:
    first, second = own_plane(definitions=()), own_plane(definitions=())

    first.admin.create(
        "v1/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}, "default"
    )

    assert "one" not in [found["metadata"]["name"] for found in second.admin.list("v1/configmaps", "default")]
    assert second.admin.list(CRDS) == []
