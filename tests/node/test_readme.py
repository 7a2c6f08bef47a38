"""The commands of README's section on installing, run as they stand there; only the image's name is put in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hack.controlplane.build import HELM, location
from hack.node.cluster import NAME, digest_of
from tests.e2e.support.kube import eventually
from tests.e2e.support.pki import ADMIN

from .support import ROOT, NodeInstallation

SECTION = re.search(r"^## Install\n(.*?)^## ", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
assert SECTION
BLOCKS = dict(re.findall(r"^```(yaml|console)\n(.*?)^```$", SECTION[1], re.MULTILINE | re.DOTALL))
COMMANDS = [command.removeprefix("$ ") for command in re.split(r"\n(?=\$ )", BLOCKS["console"].strip())]


def of_this_node(text: str) -> str:
    """With the image that the node has, by its digest."""
    digest = digest_of(Path(os.environ["NODE_IMAGES"]) / "kubevirt-webhook.tar")
    return text.replace("REGISTRY/kubevirt-webhook", NAME).replace("sha256:DIGEST", digest)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a reader has before them: the directories that the commands name, and the kustomization of the section."""
    for name in ("manifests", "charts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "kustomization.yaml").write_text(of_this_node(BLOCKS["yaml"]))
    return tmp_path


def test_there_are_three() -> None:
    assert [command.split()[0] for command in COMMANDS] == ["helm", "kubectl", "kubevirt-webhook"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_a_command_installs(node: NodeInstallation, checkout: Path, command: str) -> None:
    node.run("uninstall")
    programs = (location(os.environ, bundle=HELM), node.binaries, Path(sys.executable).parent)
    environ = {
        **os.environ,
        "HOME": str(checkout),
        "KUBECONFIG": str(node.kubeconfig_for(*ADMIN)),
        "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
    }
    try:
        done = subprocess.run(
            ["bash", "-c", of_this_node(command)],
            cwd=checkout,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        node.wait_ready()
        assert node.images() == {of_this_node("REGISTRY/kubevirt-webhook@sha256:DIGEST")}
        eventually(node.is_trusted, what="every entry to have a caBundle")
    finally:
        node.remove_everything()
