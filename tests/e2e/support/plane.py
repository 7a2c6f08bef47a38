"""A Kubernetes control plane of one's own: started, broken and ended as a test needs it."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import http.client
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from filelock import FileLock

from hack.controlplane.build import cache_root

from .access import Access
from .kube import Json, Kube, KubeError
from .objects import ensure_namespace, install_crds, install_rbac, kubevirt_crds, wait_told
from .pki import ADMIN, KUBE_SCHEDULER
from .processes import LOOPBACK, Process, StartError, free_port

HERE = Path(__file__).resolve().parent
# Whatever else decides what the data is.
SOURCES = ("objects.py", "plane.py", "rbac.yaml")
BINARIES = ("etcd", "kube-apiserver")
BLOCK = 1 << 18
# Pods get a token, as in a cluster; a namespace takes pods as soon as it has its account.
WITH_ACCOUNTS: Final = "--enable-admission-plugins=ServiceAccount"
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


KUBEVIRT_SCHEDULER_LEASE = HeldLease("kubevirt-scheduler", "kubevirt-scheduler", seconds=60)


class ControlPlane(Access):
    """etcd, kube-apiserver and, on request, a controller manager and schedulers, in ``directory``.

    A context manager: entered, it is ready, with KubeVirt's kinds, or other ``definitions``, and the identities'
    rights; left, all of it is gone but the logs. Its processes die with the thread that started them.
    """

    def __init__(
        self,
        directory: Path,
        binaries: Path,
        *,
        controller_manager: bool = False,
        controller_accounts: bool = False,
        definitions: Sequence[Json] | None = None,
        apiserver_flags: Sequence[str] = (),
    ) -> None:
        self._port, self._etcd_port, self._manager_port = free_port(), free_port(), free_port()
        super().__init__(directory, f"https://localhost:{self._port}", binaries)
        self._wants_controller_manager = controller_manager
        self._controller_accounts = controller_accounts
        self._definitions = kubevirt_crds() if definitions is None else definitions
        self._data = directory / "etcd"
        self._serving = self.pki.serving("control-plane")
        self._etcd = self._process("etcd", self._etcd_command())
        self._apiserver = self._process("kube-apiserver", self._apiserver_command(apiserver_flags))
        self._manager = self._process("kube-controller-manager", self._manager_command())
        self._schedulers: dict[str, Process] = {}
        self._scheduler_ports: dict[str, int] = {}
        self.has_lost_data = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts all requested components and returns when it is ready; after a failure, nothing runs."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kills everything at once, for no part has anything to save, and removes the data."""
        for process in [*self._schedulers.values(), self._manager, self._apiserver, self._etcd]:
            process.kill()
        self._schedulers.clear()
        shutil.rmtree(self._data, ignore_errors=True)

    # -- the API server ------------------------------------------------------------------------------------------------

    @property
    def answers(self) -> bool:
        """Whether the API server runs."""
        return self._apiserver.running

    def start_apiserver(self) -> None:
        self._apiserver.start()
        self._apiserver.wait_ready(functools.partial(_ready, self.admin))

    def stop_apiserver(self) -> None:
        """Ends it, within two seconds: left alone, it waits up to a minute for its watches."""
        self._apiserver.stop(grace=2)

    def restart_apiserver(self) -> None:
        """A new API server on the same address and data."""
        self.stop_apiserver()
        self.start_apiserver()

    # -- etcd ----------------------------------------------------------------------------------------------------------

    def start_etcd(self) -> None:
        self._etcd.start()
        self._etcd.wait_ready(functools.partial(_etcd_is_ready, self._etcd_port))

    def stop_etcd(self) -> None:
        """Ends it at once: asked to end, it waits for the API server's watches. What it wrote, the system has."""
        self._etcd.kill()

    def save_etcd(self) -> Path:
        """A copy of what etcd holds now, made while it is stopped for a moment."""
        saved = self.directory / "etcd-copy"
        shutil.rmtree(saved, ignore_errors=True)
        self.stop_etcd()
        copy(self._data, saved)
        self.start_etcd()
        return saved

    def restore_etcd(self, saved: Path) -> None:
        """As in a bad night: etcd begins again with a copy of its own, and everything since is gone."""
        self.has_lost_data = True
        self.stop_etcd()
        shutil.rmtree(self._data)
        copy(saved, self._data)
        self.start_etcd()

    # -- the controller manager ----------------------------------------------------------------------------------------

    def start_controller_manager(self, *, accounts: bool = False) -> None:
        """With ``accounts``, each controller acts as its service account, as in a cluster, which takes seconds more."""
        self._require("kube-controller-manager")
        self._manager = self._process("kube-controller-manager", self._manager_command(accounts=accounts))
        self._manager.start()
        self._manager.wait_ready(functools.partial(_ready, self._at(self._manager_port), "/healthz"))

    # -- schedulers ----------------------------------------------------------------------------------------------------

    def start_scheduler(
        self,
        name: str,
        config: Mapping[str, Any] = DEFAULT_SCHEDULER,
        *,
        lease: HeldLease | None = None,
        wait: bool = True,
        options: Sequence[str] = (),
    ) -> Process:
        """Starts a scheduler with (a part of) a KubeSchedulerConfiguration; ``name`` is for the log and for stopping.

        With ``lease`` it schedules only while it leads, and its namespace is made. With ``wait`` it returns when the
        scheduler works, and leads; don't wait for one that stands by.
        """
        self._require("kube-scheduler")
        if name in self._schedulers and self._schedulers[name].running:
            raise StartError(f"a scheduler named {name} is running already; stop it first or choose another name")
        if lease is not None:
            ensure_namespace(self.admin, lease.namespace)
        port = free_port()
        command = [*self._scheduler_command(name, config, lease, port), *options]
        process = self._process(f"kube-scheduler-{name}", command)
        self._schedulers[name] = process
        self._scheduler_ports[name] = port
        started = dt.datetime.now(dt.UTC)
        process.start()
        if wait:
            process.wait_ready(functools.partial(_ready, self._at(port)))
        if wait and lease is not None:
            process.wait_ready(functools.partial(_renewed, self.admin, lease, started))
        return process

    def start_schedulers(self, second: Mapping[str, Any] = KUBEVIRT_SCHEDULER) -> None:
        """Two that no test ends, as in production: the one of this project can die while the other serves."""
        for name, config, lease in (
            ("default", DEFAULT_SCHEDULER, HeldLease("kube-system", "kube-scheduler", seconds=60)),
            ("kubevirt", second, KUBEVIRT_SCHEDULER_LEASE),
        ):
            self.start_scheduler(name, config, lease=lease)

    def scheduler(self, name: str) -> Process:
        return self._schedulers[name]

    def scheduler_metric(self, name: str, metric: str) -> float:
        """The sum of a metric's samples, as a scheduler shows it."""
        text = self._at(self._scheduler_ports[name]).text("/metrics")
        samples = [line for line in text.splitlines() if line.startswith((f"{metric}{{", f"{metric} "))]
        return sum(float(line.rpartition(" ")[2]) for line in samples)

    def stop_scheduler(self, name: str, grace: float = 5) -> None:
        """Ends a scheduler; with ``grace=0`` as a crash does, so that its Lease stays taken until it runs out."""
        self._schedulers.pop(name).stop(grace)

    def kill_controllers(self) -> None:
        """Ends the controller manager and the schedulers at once, until they are revived."""
        for process in self._controllers():
            process.kill()

    def revive(self) -> None:
        """Starts the controller manager and the schedulers that have ended, as a kubelet does; returns at once."""
        for process in self._controllers():
            if not process.running:
                process.kill()
                process.start()

    def _controllers(self) -> list[Process]:
        return [*([self._manager] if self._wants_controller_manager else []), *self._schedulers.values()]

    # -- how it is done ------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        copy(prepare(self.binaries, self._definitions, self._make_data), self._data)
        self.start_etcd()
        self.start_apiserver()
        wait_told(self.admin, self._definitions)
        if self._wants_controller_manager:
            self.start_controller_manager(accounts=self._controller_accounts)

    def _make_data(self) -> Path:
        """What every plane holds from the beginning, made by this one's API server, which ends again."""
        self.start_etcd()
        self.start_apiserver()
        for namespace in ("default", "kubevirt"):
            ensure_namespace(self.admin, namespace)
        install_rbac(self.admin)
        install_crds(self.admin, self._definitions)
        self._apiserver.kill()
        self.stop_etcd()
        return self._data

    def _process(self, name: str, command: Sequence[str]) -> Process:
        return Process(name, command, self.directory / "logs" / f"{name}.log")

    def _etcd_command(self) -> list[str]:
        client, peer = f"http://{LOOPBACK}:{self._etcd_port}", f"http://{LOOPBACK}:{free_port()}"
        return [
            f"{self.binaries}/etcd",
            f"--data-dir={self._data}",
            *(f"--{kind}-client-urls={client}" for kind in ("listen", "advertise")),
            *(f"--{kind}-peer-urls={peer}" for kind in ("listen", "initial-advertise")),
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # nothing in here is worth a disk's time: the data lives as long as the process
            "--log-level=warn",
        ]

    def _apiserver_command(self, extra: Sequence[str]) -> list[str]:
        return [
            *(f"{self.binaries}/kube-apiserver", *self._listening(self._port)),
            f"--etcd-servers=http://{LOOPBACK}:{self._etcd_port}",
            f"--advertise-address={LOOPBACK}",
            "--endpoint-reconciler-type=none",  # a loopback address can't be an endpoint of the kubernetes service
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--service-account-key-file={self.pki.service_account_key}",
            f"--service-account-signing-key-file={self.pki.service_account_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=RBAC",
            # Where no controller manager makes the accounts that this plugin requires, it is off.
            *([] if WITH_ACCOUNTS in extra else ["--disable-admission-plugins=ServiceAccount"]),
            "--enable-admission-plugins=PodNodeSelector",  # for namespaces that say so by an annotation
            *("--allow-privileged=true", "--shutdown-delay-duration=0", *extra),
        ]

    def _manager_command(self, *, accounts: bool = False) -> list[str]:
        # Upstream's controllers act as a service account each; without those, one identity must be able to do it all.
        kubeconfig = self.kubeconfig_for(*ADMIN)
        key = f"--service-account-private-key-file={self.pki.service_account_key}"
        return [
            *(f"{self.binaries}/kube-controller-manager", *self._delegating(self._manager_port, kubeconfig)),
            f"--kubeconfig={kubeconfig}",
            "--controllers=*,-node-lifecycle-controller",  # it would taint nodes whose kubelets never report
            "--leader-elect=false",
            *(["--use-service-account-credentials=true", key] if accounts else []),
        ]

    def _scheduler_command(self, name: str, config: Mapping[str, Any], lease: HeldLease | None, port: int) -> list[str]:
        """Of a whole KubeSchedulerConfiguration from the part of it that a test cares about."""
        kubeconfig = self.kubeconfig_for(*KUBE_SCHEDULER)
        whole = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "leaderElection": lease.election() if lease else {"leaderElect": False},
            **config,
        }
        file = self.directory / f"kube-scheduler-{name}.json"
        file.write_text(json.dumps(whole, indent=1))
        return [f"{self.binaries}/kube-scheduler", *self._delegating(port, kubeconfig), f"--config={file}"]

    def _listening(self, port: int) -> list[str]:
        return [
            *(f"--secure-port={port}", f"--bind-address={LOOPBACK}", f"--client-ca-file={self.pki.ca}"),
            *(f"--tls-{part}-file={self._serving}" for part in ("cert", "private-key")),
        ]

    def _delegating(self, port: int, kubeconfig: Path) -> list[str]:
        """Of the servers that ask the API server who their clients are, and what these may see."""
        asking = [f"--{part}-kubeconfig={kubeconfig}" for part in ("authentication", "authorization")]
        return [*self._listening(port), *asking, "--authentication-tolerate-lookup-failure=true"]

    def _at(self, port: int) -> Kube:
        """A client of one of the other servers, which answer health checks as the API server does."""
        return Kube(f"https://localhost:{port}", self.pki.ca, self.pki.client(*ADMIN), ADMIN.user)

    def _require(self, binary: str) -> None:
        if not self.has(binary):
            raise StartError(f"no {binary} in {self.binaries}; unset KUBEBUILDER_ASSETS to have it built")


def _ready(server: Kube, path: str = "/readyz") -> bool:
    try:
        return server.text(path) == "ok"
    except KubeError:
        return False


def _etcd_is_ready(port: int) -> bool:
    with closing(http.client.HTTPConnection(LOOPBACK, port, timeout=5)) as connection:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK


def _renewed(kube: Kube, lease: HeldLease, since: dt.datetime) -> bool:
    """Whether the holder of this Lease has renewed it since then."""
    try:
        spec = kube.get("coordination.k8s.io/v1/leases", lease.name, lease.namespace)["spec"]
    except KubeError:
        return False
    return bool(spec.get("holderIdentity")) and dt.datetime.fromisoformat(spec["renewTime"]) >= since


# -- the data with which planes start ----------------------------------------------------------------------------------


def prepare(binaries: Path, definitions: Sequence[Json], make: Callable[[], Path]) -> Path:
    """The directory with the data with which planes start; nothing changes it once it is there.

    An API server that finds an empty etcd makes hundreds of objects before it is ready, and serves KubeVirt's kinds
    only seconds after it gets their definitions, since it makes more of their schemas than of all else. So the first
    plane of a kind leaves what its etcd then holds in the project's cache, and the others begin with a copy.

    ``make`` runs a control plane with these definitions, ends it, and gives the directory of its data.
    """
    root = cache_root(os.environ) / "control-plane-data"
    directory = root / digest(binaries, definitions)
    if directory.is_dir():
        return directory
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{directory.name}.lock"), tempfile.TemporaryDirectory(dir=root) as temporary:
            if not directory.is_dir():  # else another process made it while this one waited
                made = make()
                copy(made, Path(temporary, "data")).rename(directory)
                shutil.rmtree(made)
    except OSError as error:
        raise StartError(f"{root}: {error.strerror}; set KUBEVIRT_WEBHOOK_CACHE to another directory") from error
    return directory


def digest(binaries: Path, definitions: Sequence[Json]) -> str:
    """Names the data by everything that it is made of."""
    made_of = hashlib.sha256(json.dumps(list(definitions), sort_keys=True).encode())
    for file in (binaries / name for name in BINARIES):
        status = file.stat()
        made_of.update(f"{file.resolve()} {status.st_size} {status.st_mtime_ns}".encode())
    for name in SOURCES:
        made_of.update((HERE / name).read_bytes())
    return made_of.hexdigest()[:16]


def copy(source: Path, target: Path) -> Path:
    """Copies a directory, zeros as holes: etcd reserves 64 MB, and fills less than one of them."""
    shutil.copytree(source, target, copy_function=_copy_filled)
    return target


def _copy_filled(source: str, target: str) -> None:
    with Path(source).open("rb") as reader, Path(target).open("wb") as writer:
        while block := reader.read(BLOCK):
            if block == bytes(len(block)):
                writer.seek(len(block), os.SEEK_CUR)
            else:
                writer.write(block)
        writer.truncate()
