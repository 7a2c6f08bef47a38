"""The tools around control planes: the tests' own, their build, and the lab."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from .conftest import BUILD, EX_UNAVAILABLE
from .support.processes import ROOT

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
