"""A whole cluster in this network namespace: control plane, two kubelets with a containerd each, and kube-proxy."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tests.e2e.support.access import Access
from tests.e2e.support.kube import Kube, KubeError, eventually
from tests.e2e.support.objects import install_crds, kubevirt_crds
from tests.e2e.support.pki import ADMIN, KUBE_SCHEDULER, Identity
from tests.e2e.support.processes import Process, StartError, tail

SERVICES: Final = "10.0.0.0/24"
API_SERVER: Final = "10.0.0.1"
NAME: Final = "localhost/kubevirt-webhook"
IMAGE: Final = f"{NAME}:one"
# Another name of the same bytes: a rollout as an upgrade makes one.
UPGRADED: Final = f"{NAME}:two"
PAUSE: Final = "localhost/pause:1"
# Starts, and never becomes ready.
BROKEN: Final = f"{NAME}:broken"
# The namespace of the service accounts whose requests are recorded, one a line, with the token's id.
AUDITED: Final = "tokens"
AUDIT_LOG: Final = "logs/audit.jsonl"
CONTAINERD: Final = """version = 2
root = "{root}"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
"""


class ClusterNode:
    """A kubelet, and the containerd that it alone uses.

    Args:
        cluster: the cluster that it joins.
        number: from 1; part of its name, its address and its pods' addresses.
    """

    def __init__(self, cluster: NodeCluster, number: int) -> None:
        self.name: Final = f"node-{number}"
        self._address: Final = NodeCluster.ADDRESSES[number - 1]
        self._number: Final = number
        self._place: Final = cluster.directory / self.name
        self._cluster: Final = cluster
        self._socket: Final = Path(f"/run/containerd-{number}.sock")
        self._containerd: Final = cluster.process(
            f"containerd-{number}", self._enter(["/usr/bin/containerd", "--config", self._write_runtime()])
        )
        self._kubelet: Final = cluster.process(f"kubelet-{number}", self._enter(self._kubelet_command()))

    def start_runtime(self, images: Path) -> None:
        """Start containerd, and give it the images that no registry has."""
        self._containerd.start()
        self._containerd.wait_ready(self._answers)
        for archive in self._archives(images):
            self._ctr("images", "import", str(archive))
        self._ctr("images", "tag", IMAGE, UPGRADED)
        self._ctr("images", "tag", IMAGE, f"{NAME}@{digest_of(images / 'kubevirt-webhook.tar')}")
        self._ctr("images", "tag", PAUSE, BROKEN)

    def start(self) -> None:
        """Start the kubelet."""
        self._kubelet.start()

    def stop(self) -> None:
        """End both at once."""
        self._kubelet.kill()
        self._containerd.kill()

    def _enter(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a program on the node, which here is where this program runs."""
        return list(command)

    def _archives(self, images: Path) -> Sequence[Path]:
        return sorted(images.glob("*.tar"))

    def _kubelet_root(self) -> Path:
        return self._place / "kubelet"

    def _answers(self) -> bool:
        return self._ctr("version", check=False).returncode == 0

    def _ctr(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        command = ["/usr/bin/ctr", f"--address={self._socket}", "--namespace=k8s.io", *arguments]
        return subprocess.run(self._enter(command), check=check, capture_output=True)

    def _write_runtime(self) -> str:
        cni = self._place / "cni"
        cni.mkdir(parents=True)
        bridge = {
            "type": "bridge",
            "bridge": f"pods{self._number}",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(self._place / "addresses"),
                "ranges": [[{"subnet": f"10.244.{self._number}.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        network = {"cniVersion": "0.4.0", "name": f"pods{self._number}", "plugins": [bridge]}
        (cni / "10-pods.conflist").write_text(json.dumps(network))
        file = self._place / "containerd.toml"
        places = {"root": self._place / "images", "state": f"/run/containerd-{self._number}", "cni": cni}
        file.write_text(CONTAINERD.format(socket=self._socket, pause=PAUSE, **places))
        return str(file)

    def _kubelet_command(self) -> list[str]:
        identity = Identity(f"system:node:{self.name}", ("system:nodes",))
        kubeconfig = self._cluster.access.kubeconfig_for(*identity)
        root = f"/{self._cluster.directory.name}/{self.name}"
        make_cgroups(root)
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self._address,
            "port": 10250,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self._cluster.access.pki.ca)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": root,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "enforceNodeAllocatable": ["pods"],
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "failCgroupV1": False,
            "failSwapOn": False,
            # By default, images that no pod runs are deleted when the machine's disk is fuller than 85 percent, and no
            # registry has them again. Nothing is deleted at 100.
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": False,
            "nodeStatusUpdateFrequency": "2s",
            "podLogsDir": str(self._place / "logs"),
            "resolvConf": "",
            "serializeImagePulls": False,
            # Changed Secrets and ConfigMaps are in the pods after this; by default it is a minute.
            "syncFrequency": "10s",
            "volumePluginDir": str(self._place / "plugins"),
        }
        file = self._place / "kubelet.json"
        file.write_text(json.dumps(configuration))
        return [
            str(self._cluster.kubelet / "kubelet"),
            f"--config={file}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={self._kubelet_root()}",
            f"--hostname-override={self.name}",
            f"--node-ip={self._address}",
            f"--node-labels=topology.kubernetes.io/zone=zone-{self._number}",
            f"--cert-dir={self._place / 'certificates'}",
        ]


class NodeCluster:
    """All processes of the cluster; a context manager.

    Args:
        directory: where everything is written.
    """

    ADDRESSES: Final = ("10.250.0.1", "10.250.0.2")
    PORT: Final = 6443

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        self.binaries: Final = Path(os.environ["NODE_BINARIES"])
        self.kubelet: Final = Path(os.environ["NODE_KUBELET"])
        self._images: Final = Path(os.environ["NODE_IMAGES"])
        self.access: Final = Access(directory, f"https://{self.ADDRESSES[0]}:{self.PORT}", self.binaries)
        self.image: Final = IMAGE
        self._processes: Final[list[Process]] = []
        self._nodes: Final = [self._make_node(number + 1) for number in range(len(self.ADDRESSES))]

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return [node.name for node in self._nodes]

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an admin."""
        return self.access.kubeconfig_for(*ADMIN)

    @property
    def version(self) -> str:
        """The version of the API server."""
        return str(self.access.admin.request("GET", "/version")["gitVersion"])

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End everything: the namespaces' end does what is left."""
        for process in reversed(self._processes):
            process.kill()

    def process(self, name: str, command: Sequence[str]) -> Process:
        """A process of the cluster, which ends with it."""
        process = Process(name, command, self.directory / "logs" / f"{name}.log")
        self._processes.append(process)
        return process

    def _make_node(self, number: int) -> ClusterNode:
        return ClusterNode(self, number)

    def _install_kinds(self, admin: Kube) -> None:
        """KubeVirt's kinds alone: no KubeVirt is here."""
        install_crds(admin, kubevirt_crds())

    def _start(self) -> None:
        for node in self._nodes:
            node.start_runtime(self._images)
        self._start_server("etcd", self._etcd(), lambda: True)
        admin = self.access.admin
        self._start_server("kube-apiserver", self._apiserver(), lambda: _says_ok(admin))
        self._install_kinds(admin)
        self._start_server("kube-controller-manager", self._controller_manager(), lambda: True)
        self._start_server("kube-scheduler", self._scheduler(), lambda: True)
        self._start_server("kube-proxy", self._proxy(), lambda: True)
        for node in self._nodes:
            node.start()
        try:
            eventually(lambda: self._ready_nodes() == len(self._nodes), what="the nodes to be ready", timeout=120)
        except AssertionError as error:
            logs = self.directory / "logs"
            raise StartError(f"{error}; the end of {logs / 'kubelet-1.log'}:\n{tail(logs / 'kubelet-1.log')}") from None

    def _start_server(self, name: str, command: Sequence[str], ready: Callable[[], bool]) -> None:
        process = self.process(name, command)
        process.start()
        process.wait_ready(ready)

    def _ready_nodes(self) -> int:
        ready = {"type": "Ready", "status": "True"}
        nodes = self.access.admin.list("v1/nodes")
        return sum(
            any(ready.items() <= condition.items() for condition in node.get("status", {}).get("conditions", ()))
            for node in nodes
        )

    def _etcd(self) -> list[str]:
        client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        return [
            str(self.binaries / "etcd"),
            f"--data-dir={self.directory / 'etcd'}",
            *(f"--{name}-client-urls={client}" for name in ("listen", "advertise")),
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver(self) -> list[str]:
        pki = self.access.pki
        names = ("kubernetes", "kubernetes.default.svc", "localhost", "127.0.0.1", API_SERVER, self.ADDRESSES[0])
        serving, accounts = pki.serving("api-server", names), pki.service_account_key
        kubelet, front = pki.client("kube-apiserver", ("system:masters",)), pki.client("front-proxy", ())
        return [
            str(self.binaries / "kube-apiserver"),
            "--etcd-servers=http://127.0.0.1:2379",
            f"--secure-port={self.PORT}",
            f"--advertise-address={self.ADDRESSES[0]}",
            f"--service-cluster-ip-range={SERVICES}",
            f"--tls-cert-file={serving}",
            f"--tls-private-key-file={serving}",
            f"--client-ca-file={pki.ca}",
            f"--kubelet-client-certificate={kubelet}",
            f"--kubelet-client-key={kubelet}",
            # No DNS knows the names of the nodes.
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={accounts}",
            f"--service-account-signing-key-file={accounts}",
            "--service-account-issuer=https://kubernetes.default.svc",
            # Servers behind the API server, such as metrics-server, know it by this certificate.
            f"--requestheader-client-ca-file={pki.ca}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={front}",
            f"--proxy-client-key-file={front}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--shutdown-delay-duration=0",
            f"--audit-policy-file={self._audit_policy()}",
            f"--audit-log-path={self.directory / AUDIT_LOG}",
        ]

    def _audit_policy(self) -> Path:
        """What is recorded in `AUDIT_LOG`: answers to accounts of one namespace, and to unknown senders."""
        file = self.directory / "audit-policy.json"
        accounts, others = [f"system:serviceaccounts:{AUDITED}"], ["system:authenticated", "system:unauthenticated"]
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [
                {"level": "Metadata", "userGroups": accounts},
                {"level": "None", "userGroups": others},
                # The sender of a token that is not accepted has no group at all.
                {"level": "Metadata"},
            ],
        }
        file.write_text(json.dumps(policy))
        return file

    def _controller_manager(self) -> list[str]:
        pki = self.access.pki
        return [
            str(self.binaries / "kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig}",
            f"--root-ca-file={pki.ca}",
            f"--service-account-private-key-file={pki.service_account_key}",
            "--use-service-account-credentials=false",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--node-monitor-grace-period=30s",
        ]

    def _scheduler(self) -> list[str]:
        kubeconfig = self.access.kubeconfig_for(*KUBE_SCHEDULER)
        binary = str(self.binaries / "kube-scheduler")
        return [binary, f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1"]

    def _proxy(self) -> list[str]:
        configuration: dict[str, Any] = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "bindAddress": self.ADDRESSES[0],
            "clientConnection": {"kubeconfig": str(self.kubeconfig)},
            "hostnameOverride": self._nodes[0].name,
            # Limits of the whole machine, not of these namespaces.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
            "nftables": {"masqueradeAll": False, "minSyncPeriod": "0s", "syncPeriod": "30s"},
        }
        file = self.directory / "kube-proxy.json"
        file.write_text(json.dumps(configuration))
        return [str(self.kubelet / "kube-proxy"), f"--config={file}"]


def digest_of(archive: Path) -> str:
    """The digest of the image in an OCI archive: by it a registry would name the same bytes."""
    with tarfile.open(archive) as opened:
        index = opened.extractfile("index.json")
        assert index
        return str(json.load(index)["manifests"][0]["digest"])


def make_cgroups(name: str, root: Path = Path("/sys/fs/cgroup")) -> None:
    """Make a cgroup in every hierarchy; with version 1 there are several, and cpuset's starts empty."""
    hierarchies = (
        [root] if (root / "cgroup.controllers").exists() else [each for each in root.iterdir() if each.is_dir()]
    )
    for hierarchy in hierarchies:
        place = hierarchy
        for part in name.strip("/").split("/"):
            above, place = place, place / part
            place.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                if (place / file).exists() and not (hierarchy / "cgroup.controllers").exists():
                    (place / file).write_text((above / file).read_text())


def _says_ok(kube: Kube) -> bool:
    try:
        return kube.text("/readyz") == "ok"
    except KubeError:
        return False
