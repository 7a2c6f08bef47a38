"""README's three ways to install, run as they stand there; `make e2e-node` runs them with kubelets and the image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from webhook.install.plan import everything, path

from .conftest import OwnPlane
from .support import readme
from .support.installed import ServerReplica
from .support.kube import eventually
from .support.manifests import MANIFESTS
from .support.plane import ControlPlane
from .support.program import command as run
from .support.webhook_server import CONFIGURATIONS
from .test_install import DEPLOYMENT, NAMESPACE, NodesController

REPOSITORY = "registry.example/kubevirt-webhook"
DIGEST = f"sha256:{'5' * 64}"
NAMES = {CONFIGURATIONS[0]: (NAMESPACE, f"zz-{NAMESPACE}"), CONFIGURATIONS[1]: (NAMESPACE,)}


@pytest.fixture
def cluster(module_plane: OwnPlane, tmp_path: Path) -> Iterator[ControlPlane]:
    """A plane without an installation; whose replicas are pods that are said to be ready, and one process."""
    plane = module_plane(controller_manager=True)
    settings = {"schedulers": {"kubevirt": {"healthCheck": "off"}}, "server": {"shutdownSeconds": 1}}
    replica = ServerReplica(plane, tmp_path / "replica", "", ["--tls=managed"], settings)
    replica.start()
    with NodesController(plane.admin):
        yield plane
        run(plane, "uninstall")
    replica.kill()


def test_there_are_three() -> None:
    assert [command.split()[0] for command in readme.COMMANDS] == ["kubevirt-webhook", "kubectl", "helm"]


@pytest.mark.parametrize("command", readme.COMMANDS, ids=lambda command: command.split()[0])
def test_a_command_installs_everything(cluster: ControlPlane, helm_program: Path, tmp_path: Path, command: str) -> None:
    kube = cluster.admin
    (tmp_path / "checkout").mkdir()

    readme.run(cluster, tmp_path / "checkout", command, REPOSITORY, DIGEST, helm_program.parent)

    (container,) = kube.get(*DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{REPOSITORY}@{DIGEST}"
    base = [one for one in everything(MANIFESTS) if one["metadata"]["name"] in (NAMESPACE, f"{NAMESPACE}-certificates")]
    assert [one["kind"] for one in base if not kube.request("GET", path(one))] == []

    def is_trusted() -> bool:
        found = [kube.get(resource, name) for resource, names in NAMES.items() for name in names]
        return all(entry["clientConfig"].get("caBundle") for one in found for entry in one["webhooks"])

    eventually(is_trusted, what="every entry to have a caBundle")
