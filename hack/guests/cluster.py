"""Two nodes that KubeVirt can run guests on, and KubeVirt, installed by its operator."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hack.controlplane.build import version_of
from hack.guests import guest
from hack.node.cluster import ClusterNode, NodeCluster, digest_of
from hack.node.inside import SYSCTLS
from tests.e2e.support.kube import Kube, KubeObject, eventually
from tests.e2e.support.objects import CRDS
from tests.e2e.support.processes import StartError

KUBEVIRT: Final = "kubevirt"
KUBEVIRTS: Final = "kubevirt.io/v1/kubevirts"
# Where KubeVirt's own images would come from; those that are built here have these names.
REGISTRY: Final = "localhost/kubevirt"
# virt-handler and the kubelet name these to each other, so on each node they are its own.
OWN: Final = ("lib/kubelet", "lib/kubevirt", "lib/kubevirt-node-labeller", "lib/cni")
CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
# The first process of a node: virt-handler takes its root, mounts and processes for the machine's.
MACHINE: Final = """set -e
mount -t tmpfs tmpfs /run
for name in {own}; do
    mkdir -p {place}/var/$name /var/$name
    mount --bind {place}/var/$name /var/$name
done
{sysctls}
mount --make-rshared /
touch {place}/ready
while :; do sleep 3600 & wait $!; done
"""
PATIENCE_SECONDS: Final = 600.0


class GuestNode(ClusterNode):
    """A node with processes and mounts of its own, as a machine has; its network is that of the cluster.

    Args:
        cluster: the cluster that it joins.
        number: from 1.
    """

    def __init__(self, cluster: NodeCluster, number: int) -> None:
        super().__init__(cluster, number)
        self._place.mkdir(exist_ok=True)
        directory = cluster.directory
        sysctls = [f"mount --bind {directory / name.replace('/', '-')} /proc/sys/{name}" for name in SYSCTLS]
        script = MACHINE.format(own=" ".join(OWN), place=self._place, sysctls="\n".join(sysctls))
        namespaces = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        self._machine: Final = cluster.process(
            f"machine-{number}", ["/usr/bin/unshare", *namespaces, "/bin/bash", "-c", script]
        )

    def start_runtime(self, images: Path) -> None:
        """Start the machine, then containerd with the images that no registry has."""
        self._machine.start()
        self._machine.wait_ready((self._place / "ready").exists)
        pid = self._machine.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        (self._place / "pid").write_text(children[0])
        super().start_runtime(images)
        # A migration's target pod names the image by the digest that the source runs.
        archive = Path(os.environ["GUESTS_IMAGES"]) / "guest.tar"
        self._ctr("images", "tag", guest.NAME, f"{guest.NAME.rpartition(':')[0]}@{digest_of(archive)}")

    def stop(self) -> None:
        """End both, and the machine."""
        super().stop()
        self._machine.kill()

    def _enter(self, command: Sequence[str]) -> list[str]:
        pid = self._place / "pid"
        script = f'exec nsenter --target "$(cat {pid})" --mount --pid -- "$@"'
        return ["/bin/bash", "-c", script, "--", *command]

    def _archives(self, images: Path) -> Sequence[Path]:
        return [*super()._archives(images), *sorted(Path(os.environ["GUESTS_IMAGES"]).glob("*.tar"))]

    def _kubelet_root(self) -> Path:
        return Path("/var/lib/kubelet")


class GuestCluster(NodeCluster):
    """The cluster, with KubeVirt in it.

    Args:
        directory: where everything is written.
    """

    def _make_node(self, number: int) -> ClusterNode:
        return GuestNode(self, number)

    def _install_kinds(self, admin: Kube) -> None:
        """Nothing: virt-operator installs KubeVirt's kinds."""

    def _start(self) -> None:
        super()._start()
        for node in self.nodes:
            # The operator and all that it installs, but for virt-handler, require it.
            self.access.admin.patch("v1/nodes", node, {"metadata": {"labels": {CONTROL_PLANE: ""}}})
        try:
            install_kubevirt(self.access.admin, manifests(Path(os.environ["GUESTS_BINARIES"])))
        except AssertionError as error:
            pods = self.access.kubectl("-n", KUBEVIRT, "get", "pods", "-o", "wide", check=False).stdout
            raise StartError(f"{error}; the pods of KubeVirt:\n{pods}") from None


def manifests(binaries: Path) -> list[dict[str, Any]]:
    """What a user applies to install KubeVirt's operator."""
    command = [str(binaries / "kubevirt-manifests"), REGISTRY, version_of(binaries), KUBEVIRT]
    shown = subprocess.run(command, check=True, capture_output=True)
    objects: list[dict[str, Any]] = json.loads(shown.stdout)
    return objects


def emulates() -> bool:
    """Whether guests are emulated: the processor of this machine cannot run them by itself."""
    flags = set(Path("/proc/cpuinfo").read_text().split())
    return not Path("/dev/kvm").exists() or not flags & {"vmx", "svm"}


def configuration() -> dict[str, Any]:
    """The KubeVirt object's ``spec``."""
    developer = {
        "useEmulation": emulates(),
        # Debian's containerd knows no volumes that are images; without them, container disks are side containers.
        "disabledFeatureGates": ["ImageVolume"],
    }
    return {
        "imagePullPolicy": "IfNotPresent",
        "infra": {"replicas": 1},
        "configuration": {
            "developerConfiguration": developer,
            # Its programs are in modules that no proxy has.
            "virtTemplateDeployment": {"enabled": False},
            "evictionStrategy": "LiveMigrate",
            "vmRolloutStrategy": "LiveUpdate",
            "virtualMachineInstancesPerNode": 110,
        },
    }


def install_kubevirt(admin: Kube, objects: Sequence[dict[str, Any]]) -> None:
    """Install the operator, and have it install KubeVirt; returns once that is complete.

    Args:
        admin: of the cluster.
        objects: what `manifests` returned.
    """
    for each in objects:
        admin.apply(each)
    eventually(lambda: _is_established(admin), what="the kind KubeVirt to be established")
    made = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt", "namespace": KUBEVIRT}}
    eventually(lambda: admin.apply({**made, "spec": configuration()}), what="the KubeVirt object to be accepted")
    admin.wait(KUBEVIRTS, "kubevirt", KUBEVIRT, until=_is_deployed, what="KubeVirt to work", timeout=PATIENCE_SECONDS)


def _is_established(admin: Kube) -> bool:
    # A definition that is new has null for its conditions.
    conditions = admin.get(CRDS, "kubevirts.kubevirt.io").get("status", {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _is_deployed(kubevirt: KubeObject) -> bool:
    status = kubevirt.get("status", {})
    available = {"type": "Available", "status": "True"}.items()
    return status.get("phase") == "Deployed" and any(
        available <= condition.items() for condition in status.get("conditions", ())
    )
