"""The command lines of a control plane on loopback, and the configurations of its schedulers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

LOOPBACK = "127.0.0.1"

DEFAULT_SCHEDULER: Mapping[str, Any] = {"profiles": [{"schedulerName": "default-scheduler"}]}
# The reason for this project: with ImageLocality, the nodes that report the launcher's image draw the pods to them.
KUBEVIRT_SCHEDULER: Mapping[str, Any] = {
    "profiles": [{"schedulerName": "kubevirt", "plugins": {"score": {"disabled": [{"name": "ImageLocality"}]}}}]
}


@dataclass(frozen=True)
class HeldLease:
    """The Lease by which the instances of one scheduler elect their leader."""

    namespace: str
    name: str
    seconds: int = 15

    def election(self) -> dict[str, Any]:
        """In upstream's proportions: a loaded machine renews late, and a scheduler that cannot renew in time ends."""
        where = {"resourceNamespace": self.namespace, "resourceName": self.name}
        durations = {"leaseDuration": f"{self.seconds}s", "renewDeadline": f"{self.seconds * 2 // 3}s"}
        return {"leaderElect": True, "resourceLock": "leases", **where, **durations}


# Of schedulers that no test ends.
DEFAULT_SCHEDULER_LEASE = HeldLease("kube-system", "kube-scheduler", seconds=60)
KUBEVIRT_SCHEDULER_LEASE = HeldLease("kubevirt-scheduler", "kubevirt-scheduler", seconds=60)


def etcd(binary: Path, data: Path, port: int, peer_port: int) -> list[str]:
    client, peer = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{peer_port}"
    return [
        str(binary),
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # nothing in here is worth a disk's time: the data lives as long as the process
        "--log-level=warn",
    ]


# Pods get a token, as in a cluster; a namespace takes pods as soon as it has its account.
WITH_ACCOUNTS: Final = "--enable-admission-plugins=ServiceAccount"


def apiserver(
    binary: Path, port: int, etcd_port: int, *, ca: Path, serving: Path, service_accounts: Path, extra: Sequence[str]
) -> list[str]:
    return [
        str(binary),
        f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
        f"--secure-port={port}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        "--endpoint-reconciler-type=none",  # a loopback address can't be an endpoint of the kubernetes service
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--tls-cert-file={serving}",
        f"--tls-private-key-file={serving}",
        f"--client-ca-file={ca}",
        f"--service-account-key-file={service_accounts}",
        f"--service-account-signing-key-file={service_accounts}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=RBAC",
        # Where no controller manager makes the accounts that this plugin requires, it is off.
        *([] if WITH_ACCOUNTS in extra else ["--disable-admission-plugins=ServiceAccount"]),
        "--enable-admission-plugins=PodNodeSelector",  # for namespaces that say so by an annotation
        "--allow-privileged=true",
        "--shutdown-delay-duration=0",
        *extra,
    ]


def controller_manager(binary: Path, port: int, *, ca: Path, serving: Path, kubeconfig: Path) -> list[str]:
    return [
        str(binary),
        *_secure(port, ca=ca, serving=serving, kubeconfig=kubeconfig),
        f"--kubeconfig={kubeconfig}",
        "--controllers=*,-node-lifecycle-controller",  # it would taint nodes whose kubelets never report
        "--leader-elect=false",
    ]


def scheduler(binary: Path, port: int, *, ca: Path, serving: Path, kubeconfig: Path, config: Path) -> list[str]:
    return [str(binary), *_secure(port, ca=ca, serving=serving, kubeconfig=kubeconfig), f"--config={config}"]


def scheduler_configuration(config: Mapping[str, Any], kubeconfig: Path, lease: HeldLease | None) -> dict[str, Any]:
    """A whole KubeSchedulerConfiguration from the part of it that a test cares about."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "leaderElection": lease.election() if lease else {"leaderElect": False},
        **config,
    }


def _secure(port: int, *, ca: Path, serving: Path, kubeconfig: Path) -> list[str]:
    return [
        f"--secure-port={port}",
        f"--bind-address={LOOPBACK}",
        f"--tls-cert-file={serving}",
        f"--tls-private-key-file={serving}",
        f"--client-ca-file={ca}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authentication-tolerate-lookup-failure=true",
    ]
