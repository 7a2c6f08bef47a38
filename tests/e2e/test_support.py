"""The tools around control planes: the tests' own, their build, and the lab."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hack.controlplane.bundles import CONTROL_PLANE

from .conftest import BUILD, EX_UNAVAILABLE
from .support.kube import eventually
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


def test_without_go_a_store_of_setup_envtest_will_do(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    minor = CONTROL_PLANE.parts[0].version.removeprefix("v").rpartition(".")[0]
    for version in (f"{minor}.2", f"{minor}.10", "1.5.11"):
        for machine in ("linux-amd64", "linux-arm64"):
            directory = tmp_path / "data" / "kubebuilder-envtest" / "k8s" / f"{version}-{machine}"
            directory.mkdir(parents=True)
            for binary in ("etcd", "kube-apiserver", "kubectl"):
                (directory / binary).touch(0o755)
    environ = {**environment, "PATH": str(tmp_path / "empty"), "XDG_DATA_HOME": str(tmp_path / "data")}

    ((code, output, errors),) = run(environ)

    assert (code, errors) == (0, "")
    assert Path(output).name.startswith(f"{minor}.10-linux-")


@contextlib.contextmanager
def lab() -> Iterator[str]:
    """The output of a lab that runs, and ends by an interrupt."""
    with subprocess.Popen([sys.executable, "-m", "hack.lab"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        said = ""
        try:
            for line in running.stdout:
                said += line
                if line.endswith("kubevirt-webhook uninstall\n"):
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
        environ = {**os.environ, "KUBECONFIG": kubeconfig}
        in_lab = partial(subprocess.run, cwd=directory, env=environ, capture_output=True, text=True, check=True)
        program = [sys.executable, "-m", "webhook"]
        context = in_lab([binaries / "kubectl", "config", "current-context"]).stdout
        installed = in_lab([*program, "install", "--image=lab"]).stdout
        pods = []

        def has_a_pod_of_the_profile() -> bool:
            # The API server's own watch tells it of a caBundle a moment after `install` has read that.
            made = in_lab([binaries / "kubectl", *arguments.split(), "--output=json"])
            pods.append(json.loads(made.stdout))
            return bool(pods[-1]["spec"]["schedulerName"] == "kubevirt")

        eventually(has_a_pod_of_the_profile, what="a reviewed launcher pod")
        in_lab([*program, "uninstall", "--yes"])

    assert context == "kubevirt-webhook-lab\n"
    assert installed.endswith("\ninstalled\n")
    assert pods[-1]["metadata"]["name"].startswith("virt-launcher-older-")
    assert not Path(directory).exists()
