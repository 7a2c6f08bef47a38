"""The kubectl plugin: krew accepts its manifest, and it runs where krew puts it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from hack import plugin
from webhook import __version__


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return plugin.build(tmp_path_factory.mktemp("dist"), "https://example.com/kubevirt-webhook/releases", 1)


def test_the_archive_runs_through_a_link_without_this_environment(built: tuple[Path, Path], tmp_path: Path) -> None:
    store, links = tmp_path / "store", tmp_path / "bin"
    with tarfile.open(built[0]) as archive:
        archive.extractall(store, filter="data")
    links.mkdir()
    link = links / "kubectl-kubevirt_webhook"
    link.symlink_to(store / "kubectl-kubevirt_webhook")
    # The interpreter that the launcher needs, but none of its packages.
    (links / plugin.PYTHON).write_text(f'#!/bin/sh\nexec {sys.base_prefix}/bin/{plugin.PYTHON} -S "$@"\n')
    (links / plugin.PYTHON).chmod(0o755)
    environment = {"PATH": f"{links}:/usr/bin:/bin", "HOME": str(tmp_path)}
    command = [str(link)] if not shutil.which("kubectl") else ["kubectl", "kubevirt-webhook"]

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, env=environment)

    assert run("version").stdout.startswith(f"kubevirt-webhook {__version__}\n")
    tested = run("test", store / "lib" / "webhook" / "_data" / "examples")
    assert (tested.returncode, "\n30 passed, 0 failed;" in tested.stderr) == (0, True), tested
