"""The cluster under test: a control plane, replicas that reach it through proxies, and a Service in front of them."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Self

from tests.e2e.kubevirt.control_plane import aggregation
from tests.e2e.support.installed import LiveInstallation, ServerReplica
from tests.e2e.support.kube import Json
from tests.e2e.support.objects import kubevirt_crds
from tests.e2e.support.pki import Pki
from tests.e2e.support.plane import ControlPlane
from tests.e2e.support.processes import LOOPBACK
from tests.e2e.support.webhook_server import ACCOUNT, OURS
from webhook.install.registration import RegistrationTarget, configurations
from webhook.settings_file import parse

from .clocks import set_clock
from .controllers import Controllers
from .history import Sample, SettingsWritten, Webhook
from .proxy import Proxy
from .record import EtcdRecorder, audit_flags

NAME = "installed"
SELECTOR = {"matchExpressions": [{"key": OURS, "operator": "In", "values": [NAME]}]}
# What all settings of a run have in common; what changes under way is in `traffic`.
SETTINGS: Mapping[str, Any] = {
    "schedulers": {"kubevirt": {"healthCheck": "off"}},
    "webhooks": {"namespaceSelector": SELECTOR},
    "tls": {"leafExpirationSeconds": 300, "caExpirationSeconds": 3600},
    "server": {"shutdownSeconds": 3},
}
# As many seconds as the API server may wait. The three that are shipped are few where two processors do all the work.
TIMEOUT_SECONDS = 10
_SAMPLE_SECONDS = 1.0


class RobustReplica(ServerReplica):
    """A replica that may be killed, stopped and blinded, and whose clock and memory may be changed.

    Attributes:
        blind_since: when it lost its way to the API server; None: it has one.
        is_stopped: it is there and does nothing.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.blind_since: float | None = None
        self.is_stopped = False
        self._clock = self._settings.with_name("clock")
        self.set_clock(0.0)

    @property
    def running(self) -> bool:
        process = self._popen  # which another thread may take away meanwhile
        return process is not None and process.poll() is None

    @property
    def pid(self) -> int:
        assert self._popen is not None
        return self._popen.pid

    def set_clock(self, seconds: float) -> None:
        """Its wall clock is off by so much from now on, also after it has been started again."""
        set_clock(self._clock, seconds)

    def _command(self) -> list[str]:
        command = super()._command()
        program = command.index("tests.e2e.support.counted")
        command[program : program + 1] = ["tests.robustness.replica", str(self._clock)]
        return command

    def write(self, text: str) -> None:
        self._settings.write_text(text)

    def lines(self) -> list[Json]:
        """Its audit lines, also of what it was before it was killed; a killed process may have torn the last one."""
        found = []
        for line in self._audit.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
        return found


class Installation(LiveInstallation):
    """The configurations as they are shipped, failure policies included, and each replica behind a proxy of its own."""

    def __init__(self, plane: ControlPlane, directory: Path, settings: Mapping[str, Any]) -> None:
        super().__init__(plane, directory, "--tls=managed", settings=settings)
        self.timeout = TIMEOUT_SECONDS
        self.proxies: list[Proxy] = []
        self._ends = ExitStack()

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._ends.close()

    def manifests(self) -> list[Json]:
        made = configurations(parse(json.dumps(self.settings).encode(), "settings"), RegistrationTarget(url=self.url))
        for manifest in made:
            for entry in manifest.get("webhooks", ()):
                entry["timeoutSeconds"] = TIMEOUT_SECONDS
        return made

    def entries(self) -> list[Webhook]:
        """The entries of the webhook configurations."""
        found = []
        for manifest in self.manifests():
            type_ = "mutating" if manifest["kind"].startswith("Mutating") else "validating"
            for entry in manifest.get("webhooks", ()):
                path = entry["clientConfig"]["url"].removeprefix(self.url)
                found.append(Webhook(entry["name"], type_, path, entry["failurePolicy"]))  # type: ignore[arg-type]
        return found

    def add(self) -> RobustReplica:
        number = len(self.replicas)
        proxy = self._ends.enter_context(Proxy(self.access, ACCOUNT, str(number)))
        directory = self._directory / f"replica-{number}"
        replica = RobustReplica(proxy, directory, self.url, self.arguments, self.settings)
        self.proxies.append(proxy)
        self.replicas.append(replica)
        replica.start()
        return replica


class Cluster:
    """A context manager: entered, it runs, and all that happens is written down.

    Args:
        kubevirt: the directory of a real KubeVirt's binaries, whose controllers are to run; None: its kinds alone.

    Attributes:
        kubevirt: the controllers, where they run.
        written: the settings that were written, one after the other.
    """

    def __init__(
        self,
        directory: Path,
        binaries: Path,
        replicas: int,
        settings: Mapping[str, Any],
        kubevirt: Path | None = None,
    ) -> None:
        self.directory = directory
        self._log = directory / "audit"
        flags = audit_flags(self._log)
        self.kubevirt: Controllers | None = None
        if kubevirt:
            flags += aggregation(Pki(directory / "front"))
            self.plane = ControlPlane(
                directory / "plane", binaries, controller_manager=True, definitions=(), apiserver_flags=flags
            )
            self.kubevirt = Controllers(self.plane, kubevirt)
        else:
            self.plane = ControlPlane(directory / "plane", binaries, definitions=kubevirt_crds(), apiserver_flags=flags)
        self._replicas = replicas
        self._first = {**SETTINGS, **settings}
        self.written: list[SettingsWritten] = []
        self.samples: list[Sample] = []
        self._ends = ExitStack()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        with ExitStack() as ends:
            ends.enter_context(self.plane)
            self.recorder = ends.enter_context(EtcdRecorder(self.plane._etcd_port))
            if self.kubevirt:
                ends.enter_context(self.kubevirt)
                self.kubevirt.label()
            self.installation = ends.enter_context(Installation(self.plane, self.directory, self._first))
            self.installation.apply()
            for _ in range(self._replicas):
                self.installation.add()
            self.write(self._first)
            for replica in self.replicas:
                replica.wait_ready()
            self.installation.balancer.endpoints[:] = [replica.port for replica in self.replicas]
            threading.Thread(target=self._look, daemon=True).start()
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._ends.close()
        shutil.rmtree(self.directory / "plane" / "etcd-copy", ignore_errors=True)

    @property
    def definitions(self) -> list[Json]:
        """KubeVirt's, as they are installed."""
        return self.kubevirt.definitions if self.kubevirt else kubevirt_crds()

    @property
    def log(self) -> Path:
        return self._log

    @property
    def replicas(self) -> Sequence[RobustReplica]:
        return self.installation.replicas  # type: ignore[return-value]

    def write(self, settings: Mapping[str, Any]) -> None:
        """Gives all replicas other settings."""
        text, after = json.dumps({**SETTINGS, **settings}), time.time()
        for replica in self.replicas:
            replica.write(text)
        self.written.append(SettingsWritten(after, time.time(), text))

    def end_replicas(self) -> None:
        """Has all write their last lines."""
        self._over.set()
        for replica in self.replicas:
            if replica.running:
                replica.terminate()
                with suppress(Exception):
                    replica.wait_ended()

    def _look(self) -> None:
        """What a kubelet and the endpoints' controller do: who is ready gets new connections."""
        balancer = self.installation.balancer
        while not self._over.wait(_SAMPLE_SECONDS):
            for number, replica in enumerate(self.replicas):
                at, blind = time.time(), replica.blind_since
                if not replica.running or replica.is_stopped:
                    continue
                try:
                    status, text = replica.ops("/readyz")
                except (OSError, http.client.HTTPException):
                    continue
                ready = status == 200
                self.samples.append(Sample(at, str(number), ready, text.strip(), blind))
                if ready and replica.port not in balancer.endpoints:
                    balancer.endpoints.append(replica.port)
                elif not ready and replica.port in balancer.endpoints:
                    balancer.endpoints.remove(replica.port)

    # -- etcd ----------------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Has etcd forget all that was."""
        revision = self._ask_etcd("/v3/kv/range", {"key": base64.b64encode(b"/").decode()})["header"]["revision"]
        self._ask_etcd("/v3/kv/compaction", {"revision": revision, "physical": True})

    def defragment(self) -> None:
        self._ask_etcd("/v3/maintenance/defragment", {})

    def _ask_etcd(self, path: str, body: Json) -> Json:
        with closing(http.client.HTTPConnection(LOOPBACK, self.plane._etcd_port, timeout=30)) as connection:
            connection.request("POST", path, json.dumps(body))
            answer: Json = json.loads(connection.getresponse().read())
            return answer
