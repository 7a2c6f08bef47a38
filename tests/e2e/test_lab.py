"""`make lab`: that it gives what it promises, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.processes import ROOT


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
