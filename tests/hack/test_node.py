from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hack.controlplane import build
from hack.node import __main__ as program
from hack.node import cluster, image, packages, requirements
from hack.node.cluster import make_cgroups

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        ("platform", "Linux"),
        ("user", "root"),
        ("program", "unshare"),
        ("memory", "3 GiB"),
        ("probe", "not permitted"),
        ("", ""),
    ],
)
def test_what_is_missing_is_one_line(fault: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin" if fault == "platform" else "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 1000 if fault == "user" else 0)
    monkeypatch.setattr(os, "sysconf", lambda _: 1 if fault == "memory" else 1 << 20)
    monkeypatch.setattr(shutil, "which", lambda name: None if fault == "program" and name == "unshare" else name)
    monkeypatch.setattr(Path, "read_text", lambda _: "nodev\toverlay\n")
    monkeypatch.setattr(Path, "iterdir", lambda _: iter([Path("memory")]))
    why = "Operation not\npermitted" if fault == "probe" else ""
    monkeypatch.setattr(
        subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], int(fault == "probe"), "", why)
    )

    said = requirements.missing()

    assert word in said
    assert "\n" not in said
    assert bool(said) is bool(fault)


def test_a_machine_that_cannot_run_it_is_told_and_nothing_is_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "missing", lambda: "skipped: it has no root")
    monkeypatch.setattr(build, "ensure", lambda *_: pytest.fail("it began"))

    assert program.main([]) == build.EX_UNAVAILABLE
    assert capsys.readouterr().err == "node: skipped: it has no root\n"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (build.UnavailableError("no Go"), build.EX_UNAVAILABLE),
        (packages.PreparationError("no packages"), build.EX_UNAVAILABLE),
        (image.ImageError("no such file", "COPY x"), 1),
    ],
)
def test_only_a_dockerfile_that_cannot_be_built_is_a_failure(
    error: Exception, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setenv("KUBEVIRT_WEBHOOK_CACHE", str(tmp_path))
    monkeypatch.setattr(program, "missing", lambda: "")
    monkeypatch.setattr(build, "ensure", fail)

    assert program.main([]) == status
    assert capsys.readouterr().err == f"node: {error}\n"


def test_what_fails_on_the_way_is_told_with_its_last_lines() -> None:
    with pytest.raises(packages.PreparationError, match=r"(?s)failed:.*last words"):
        packages.run("sh", "-c", "echo last words >&2; exit 1")


def test_packages_that_cannot_be_had_are_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(packages.PreparationError, match=packages.PACKAGES[0]):
        packages.ensure(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [1, 2])
def test_cgroups_are_made_in_every_hierarchy_and_removed(version: int, tmp_path: Path) -> None:
    hierarchies = [tmp_path] if version == 2 else [tmp_path / "memory", tmp_path / "cpuset"]
    for hierarchy in hierarchies:
        hierarchy.mkdir(exist_ok=True)
    (tmp_path / "cgroup.controllers").touch() if version == 2 else None
    other = hierarchies[0] / "other"
    other.mkdir()

    make_cgroups("/node-x/one", tmp_path)
    assert all((hierarchy / "node-x" / "one").is_dir() for hierarchy in hierarchies)
    program.remove_cgroups("node-x", tmp_path)

    assert not any((hierarchy / "node-x").exists() for hierarchy in hierarchies)
    assert other.is_dir()


def test_no_kubelet_deletes_an_image_because_the_machines_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("BINARIES", "KUBELET", "IMAGES"):
        monkeypatch.setenv(f"NODE_{name}", str(tmp_path))
    monkeypatch.setattr(cluster, "make_cgroups", lambda _: None)
    nodes = cluster.NodeCluster(tmp_path).nodes

    written = [json.loads((tmp_path / name / "kubelet.json").read_text()) for name in nodes]
    assert [one["imageGCHighThresholdPercent"] for one in written] == [100, 100]


def test_the_nodes_directory_is_removed_whatever_happens() -> None:
    kept = []
    with pytest.raises(RuntimeError), program.directory() as place:
        kept.append(place)
        (place / "file").touch()
        raise RuntimeError
    assert not kept[0].exists()


def test_the_tests_beside_a_node_are_the_make_targets_alone() -> None:
    """Elsewhere they could only fail."""
    assert "hack.node" in (ROOT / "Makefile").read_text()
    assert "collect_ignore_glob" in (ROOT / "tests" / "node" / "conftest.py").read_text()
