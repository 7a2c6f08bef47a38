"""The tools around control planes: the tests' own, their build, and the lab."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from .conftest import BUILD, EX_UNAVAILABLE, OwnPlane
from .support import prepared
from .support.kube import Json, eventually
from .support.objects import ensure_namespace, make_node
from .support.order import dealt
from .support.processes import ROOT, Process, StartError
from .support.workloads import VMS, vm

CONFIG_MAP: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
ROLES = "rbac.authorization.k8s.io/v1/clusterroles"


class TestProcesses:
    def process(self, tmp_path: Path, script: str) -> Process:
        return Process("server", [shutil.which("sh") or "/bin/sh", "-c", script], tmp_path / "server.log")

    def test_one_that_ends_shows_its_log(self, tmp_path: Path) -> None:
        server = self.process(tmp_path, "echo no such flag; exit 3")
        server.start()

        with pytest.raises(StartError, match=r"server ended before it was ready \(exit code 3\).*\n  no such flag"):
            server.wait_ready(lambda: False)
        assert not server.running

    def test_one_that_ignores_the_request_to_end_is_killed(self, tmp_path: Path) -> None:
        server = self.process(tmp_path, "trap '' TERM; echo up; while :; do sleep 0.1; done")
        server.start()
        server.wait_ready(lambda: server.log.read_text() == "up\n")

        server.stop(grace=0.3)

        assert not server.running

    def test_they_die_with_a_killed_test_run(self, tmp_path: Path) -> None:
        program = (
            f"import pathlib, time; from {__package__}.support.processes import Process\n"
            f"server = Process('server', ['/bin/sleep', '600'], pathlib.Path({str(tmp_path / 'log')!r}))\n"
            "server.start(); print(server.pid, flush=True); time.sleep(600)"
        )
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environ) as run:
            assert run.stdout is not None
            server = int(run.stdout.readline())
            assert is_alive(server)
            run.send_signal(signal.SIGKILL)

        eventually(lambda: not is_alive(server), what="the server to die")


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and whose parent has not waited for it yet (a zombie) does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class TestPreparedData:
    @pytest.fixture
    def programs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A directory with binaries, and a cache that is empty."""
        monkeypatch.setenv("KUBEVIRT_WEBHOOK_CACHE", str(tmp_path / "cache"))
        directory = tmp_path / "binaries"
        directory.mkdir()
        for name in prepared.BINARIES:
            (directory / name).write_text("a program")
        return directory

    def test_data_is_made_once_for_the_same_definitions(self, programs: Path, tmp_path: Path) -> None:
        made: list[Path] = []

        def make() -> Path:
            made.append(tmp_path / f"made-{len(made)}")
            (made[-1] / "member").mkdir(parents=True)
            (made[-1] / "member" / "db").write_text(f"data {len(made)}")
            return made[-1]

        def fail() -> Path:
            raise StartError("etcd ended")

        with pytest.raises(StartError, match="etcd ended"):
            prepared.prepare(programs, [CONFIG_MAP], fail)
        with ThreadPoolExecutor(4) as workers:
            (directory,) = set(workers.map(lambda _: prepared.prepare(programs, [CONFIG_MAP], make), range(8)))

        assert (directory / "member" / "db").read_text() == "data 1"
        assert prepared.prepare(programs, [], make) != directory
        assert [path.exists() for path in made] == [False, False]
        assert len([path for path in (tmp_path / "cache").glob("*/*") if path.is_dir()]) == 2

    def test_a_plane_is_given_to_the_next_test_as_it_was(self, own_plane: OwnPlane) -> None:
        plane = own_plane(controller_manager=True)
        kube = plane.admin
        role = kube.get(ROLES, "view")
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
        # The role is another one by its UID, and is brought back like the first one.
        kube.patch(ROLES, "view", {"metadata": {"labels": {"a": "b"}}})
        assert plane.reset()
        assert kube.get(ROLES, "view")["metadata"]["labels"] == role["metadata"]["labels"]
        assert plane.reset(), "nothing is left to undo"


class Item:
    """As much of a test as is looked at."""

    def __init__(self, path: str, fixtures: tuple[str, ...]) -> None:
        self.path = Path(path)
        self.fixturenames = fixtures


def module(name: str, tests: int, *fixtures: str) -> list[pytest.Item]:
    return cast("list[pytest.Item]", [Item(name, fixtures) for _ in range(tests)])


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_every_worker_begins_with_its_part_of_what_lasts(workers: int) -> None:
    """Under worksteal, which gives each an equal part of what stands there."""
    long = [module(f"long-{n}", 2, "own_plane") for n in range(workers)]
    short = [module(f"short-{n}", 3) for n in range(workers)]
    slow = [item for each in (*short, *long) for item in each]
    items = [*module("unit", 100), *slow, *module("more", 31)]

    order = dealt(items, frozenset(slow), workers)

    assert sorted(map(id, order)) == sorted(map(id, items))
    assert [item for item in order if item not in slow] == [item for item in items if item not in slow]
    names = [item.path.name for item in order]
    for number in range(workers):
        part = len(names) // (workers - number)
        kinds = [name.partition("-")[0] for name in names[:part]]
        assert kinds[:5] == ["long"] * 2 + ["short"] * 3
        assert len(set(names[:5])) == 2, "whole modules"
        assert set(kinds[5:]) <= {"unit", "more"}
        del names[:part]
    assert sorted(map(id, dealt(slow, frozenset(slow), workers))) == sorted(map(id, slow))
    assert dealt([], frozenset(), workers) == []


BINARIES = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}
# The argument of -o is a directory (for Kubernetes) or a file (etcd). Every call leaves a line, and fails on demand.
COMPILER = """#!/bin/sh
echo "$CGO_ENABLED $*" >> "$CALLS"
while [ "$1" != -o ]; do shift; done
sleep 0.2
[ -z "$BROKEN" ] || { echo "no required module provides package"; exit 1; }
case "$2" in
  */etcd) set -- "$2" "$2" ;;
  */kubevirt/*) set -- "$2" "$2virt-api" "$2virt-controller" "$2virt-operator-objects" ;;
  *) set -- "$2" "$2kube-apiserver" "$2kube-controller-manager" "$2kube-scheduler" "$2kubectl" ;;
esac
shift
for file; do : > "$file"; chmod +x "$file"; done
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine with the pretended compiler and an empty cache."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "go").write_text(COMPILER)
    (tools / "go").chmod(0o755)
    return {
        "PATH": f"{tools}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "KUBEVIRT_WEBHOOK_CACHE": str(tmp_path / "cache"),
        "CALLS": str(tmp_path / "calls"),
    }


def run(environment: dict[str, str], *, times: int = 1) -> list[tuple[int, str, str]]:
    """Exit status, output and errors of builds that begin together."""
    command = [BUILD[0], "-W", "error", *BUILD[1:]]
    begin = partial(subprocess.Popen, command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    builds = [begin(text=True) for _ in range(times)]
    said = [(*build.communicate(), build.returncode) for build in builds]
    return [(code, output.strip(), errors.strip()) for output, errors, code in said]


def test_builds_every_binary_once_for_parallel_callers(environment: dict[str, str], tmp_path: Path) -> None:
    found = run(environment, times=3)

    assert {(code, output) for code, output, _ in found} == {(0, found[0][1])}
    directory = Path(found[0][1])
    assert {file.name for file in directory.iterdir()} == BINARIES
    assert directory.parent == tmp_path / "cache" / "controlplane"
    calls = (tmp_path / "calls").read_text()
    assert "0 build -mod=readonly -trimpath" in calls
    assert f"gitVersion={directory.name.partition('-')[0]} " in calls
    assert len(calls.splitlines()) == 2  # Kubernetes and etcd


def test_a_failed_build_leaves_nothing_that_looks_finished(environment: dict[str, str]) -> None:
    ((code, output, errors),) = run({**environment, "BROKEN": "yes"})

    assert (code, output) == (1, "")
    assert errors.splitlines()[-1] == "  no required module provides package"
    assert "error: 'go build' of the tools in" in errors
    assert run(environment)[0][0] == 0


def test_without_go_one_line_says_what_to_do(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    ((code, output, errors),) = run({**environment, "PATH": str(tmp_path / "empty")})

    assert (code, output, len(errors.splitlines())) == (EX_UNAVAILABLE, "", 1)
    assert "install Go" in errors


@contextlib.contextmanager
def lab() -> Iterator[str]:
    """The output of a lab that runs, and ends by an interrupt."""
    with subprocess.Popen([sys.executable, "-m", "hack.lab"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        said = ""
        try:
            for line in running.stdout:
                said += line
                if "/metrics" in line:
                    yield said
                    break
        finally:
            running.send_signal(signal.SIGINT)
            end = running.stdout.read()
    assert (running.returncode, end.split("\n")[-2]) == (0, "lab: all gone")


@pytest.mark.usefixtures("kube_scheduler")
def test_the_lab_is_there_until_it_is_interrupted(binaries: Path) -> None:
    with lab() as said:
        (kubeconfig,) = re.findall(r"export KUBECONFIG=(\S+)", said)
        (directory,) = re.findall(r"cd (\S+)", said)
        (arguments,) = re.findall(r"kubectl (create .* --as=\S+)", said)
        made = subprocess.run(
            [binaries / "kubectl", *arguments.split()],
            cwd=directory,
            env={**os.environ, "KUBECONFIG": kubeconfig},
            capture_output=True,
            text=True,
            check=True,
        )

    assert made.stdout.startswith("pod/virt-launcher-older-")
    assert not Path(directory).exists()
