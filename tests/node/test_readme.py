"""README's three ways to install, run as they stand there, with the image by its digest; kubelets start it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hack.controlplane.build import location
from hack.controlplane.bundles import HELM
from hack.node.cluster import NAME, digest_of
from tests.e2e.support import readme
from tests.e2e.support.kube import eventually

from .support import NodeInstallation


@pytest.mark.parametrize("command", readme.COMMANDS, ids=lambda command: command.split()[0])
def test_a_command_installs(node: NodeInstallation, tmp_path: Path, command: str) -> None:
    digest = digest_of(Path(os.environ["NODE_IMAGES"]) / "kubevirt-webhook.tar")
    node.run("uninstall")
    try:
        readme.run(node, tmp_path, command, NAME, digest, location(os.environ, bundle=HELM))
        node.wait_ready()
        assert node.images() == {f"{NAME}@{digest}"}
        eventually(node.is_trusted, what="every entry to have a caBundle")
    finally:
        node.remove_everything()
