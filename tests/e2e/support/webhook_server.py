"""The server under test: the real `serve --register`, a process that a real API server calls."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families

from . import manifests
from .access import Access
from .kube import PATIENCE, Json, Kube, eventually
from .objects import launcher_pod, obj
from .pki import service_account
from .processes import LOOPBACK, TETHER, environment, free_port, tail
from .program import run
from .workloads import VMS, vm

HERE = Path(__file__).resolve().parent
ACCOUNT = service_account("kubevirt-webhook", "kubevirt-webhook")
CONFIGURATIONS = tuple(
    f"admissionregistration.k8s.io/v1/{kind}webhookconfigurations" for kind in ("mutating", "validating")
)
DOMAIN = "kubevirt-webhook.github.io"
SCHEDULING = f"{DOMAIN}/scheduling"
INSTANCETYPES = f"{DOMAIN}/instancetypes"
MIGRATION = f"{DOMAIN}/migration"
EVICTION = f"{DOMAIN}/eviction"
OURS = "e2e"
# An answer that comes later counts for nothing. The 3 seconds that settings allow at most are few on a loaded machine.
TIMEOUT_SECONDS = 20


def install(kube: Kube) -> None:
    """Makes the objects of ``webhook.yaml`` and grants the permissions; may run repeatedly and concurrently."""
    if not may_register(kube):
        manifests.grant(kube, manifests.EVALUATING)
        for document in yaml.safe_load_all((HERE / "webhook.yaml").read_text()):
            kube.apply(document)
        eventually(lambda: may_register(kube), what="the authorizer to know the last role")


def may_register(kube: Kube) -> bool:
    """Whether the API server knows the role of ``webhook.yaml``, which is made last."""
    asked = {"verb": "create", "group": "admissionregistration.k8s.io", "resource": "mutatingwebhookconfigurations"}
    review = obj("SubjectAccessReview", spec={"user": ACCOUNT.user, "resourceAttributes": asked})
    return bool(kube.create("authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"])


def entries(kube: Kube, *resources: str, of: str = "") -> list[Json]:
    """The webhooks of all configurations, or of some resources, whose names end so."""
    found = [one for resource in resources or CONFIGURATIONS for one in kube.list(resource)]
    return [entry for one in found if one["metadata"]["name"].endswith(of) for entry in one.get("webhooks", ())]


class WebhookServer:
    """One server with configurations of its own, which reach only the namespaces that carry `labels`.

    A context manager: entered, the API server calls it; left, it has ended by itself and taken its configurations back,
    unless the test has killed it. Its name distinguishes it from the other servers of the plane.

    Attributes:
        host: the address on which it listens.
    """

    host = LOOPBACK

    def __init__(self, access: Access, directory: Path, name: str, settings: Mapping[str, Any]) -> None:
        self.access = access
        self.name = name
        self.log = directory / f"{name}.log"
        self._audit = directory / f"{name}.audit.jsonl"
        self._settings = directory / f"{name}.settings.json"
        selector = {"matchExpressions": [{"key": OURS, "operator": "In", "values": [name]}]}
        webhooks = {**settings.get("webhooks", {}), "namespaceSelector": selector}
        self._has_timeout = "timeoutSeconds" in webhooks
        self._settings.write_text(json.dumps({**settings, "webhooks": webhooks}))
        self.port, self._ops_port = free_port(), free_port()
        self._popen: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_called()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._popen is not None:
            self.stop()
        self.discard()

    def labels(self, mode: str | None = "enforce", policies: Sequence[str] = (SCHEDULING,)) -> dict[str, str]:
        """Of a namespace that this server's configurations select, for policies by their labels; None: for none."""
        return {OURS: self.name} | (dict.fromkeys(policies, mode) if mode is not None else {})

    # -- the process ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts it and returns at once."""
        with self._audit.open("ab") as stdout, self.log.open("ab") as stderr:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment(),
                process_group=0,
            )

    def wait_called(self) -> None:
        """Returns once the API server calls it: configurations reach it a moment after they were made."""
        self.wait_logged("webhook configurations created")
        if not self._has_timeout:
            self._rewrite(lambda entry, _: {**entry, "timeoutSeconds": TIMEOUT_SECONDS})
        namespace = self._namespace(self.labels())
        pod = launcher_pod("probe")

        def called() -> bool:
            self.access.kubevirt_controller.create("v1/pods", pod, namespace, dryRun="All")
            return bool(self.answered())

        eventually(called, what=f"the API server to call {self.name}")

    @cached_property
    def validates(self) -> bool:
        """True once the API server also calls it to validate, which it may begin a moment later than to mutate."""
        namespace = self._namespace(self.labels("audit", [INSTANCETYPES]))
        probe = vm("probe", instancetype={"name": "probe"})

        def called() -> bool:
            self.access.admin.create(VMS, probe, namespace, dryRun="All")
            return any(line["endpoint"].startswith("/validate/") for line in self.audit())

        eventually(called, what=f"the API server to have {self.name} validate")
        return True

    def _namespace(self, labels: Mapping[str, str]) -> str:
        """A namespace to try things in, where nothing is stored; it stays, for its deletion would cost more."""
        return self.access.admin.make_namespace(f"probe-{self.name}-", labels)

    def insist(self) -> None:
        """Its registered configurations get the failure policies of installed ones, for `--register` asks for none."""
        shown = run("manifests", "webhooks", f"--config={self._settings}").stdout
        policies = {
            (installed["kind"], entry["name"]): entry["failurePolicy"]
            for installed in yaml.safe_load_all(shown)
            for entry in installed["webhooks"]
        }
        self._rewrite(lambda entry, kind: {**entry, "failurePolicy": policies[kind, entry["name"]]})

    def _rewrite(self, change: Callable[[Json, str], Json]) -> None:
        """Replaces the entries of its registered configurations; what replaces one gets it and the object's kind."""
        for resource, name in self.configurations():
            found = self.access.admin.get(resource, name)
            found["webhooks"] = [change(entry, found["kind"]) for entry in found.get("webhooks", ())]
            self.access.admin.replace(resource, found)

    def wait_logged(self, event: str) -> Json:
        """The line of its log about an event, once there is one."""

        def look() -> Json | None:
            lines = self.events(event)
            assert lines or self.running, f"{self.name} ended: {tail(self.log)}"
            return lines[-1] if lines else None

        return eventually(look, what=f"{self.name} to log {event!r}")

    @property
    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def terminate(self) -> None:
        """Signals it to end, as Kubernetes does, and returns at once."""
        self._signal(signal.SIGTERM)

    def wait_ended(self) -> int:
        """Its exit status, once it has ended by itself."""
        assert self._popen is not None
        try:
            return self._popen.wait(PATIENCE)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends it at once, if it has not ended yet; its configurations stay."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            self._popen = None

    def discard(self) -> None:
        """Ends it at once, if it has not ended yet, and removes its configurations, if they are left."""
        self.kill()
        for where in self.configurations():
            self.access.admin.delete(*where)

    def freeze(self) -> None:
        """From here on it takes connections and never answers, until it is killed or thawed."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it answer again, also the requests that arrived meanwhile."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._popen is not None
        self._popen.send_signal(number)

    def stop(self) -> None:
        """Ends it: it must do so by itself, successfully, after a life without mistakes, and leave nothing behind."""
        self.terminate()
        status = self.wait_ended()
        assert status == 0, f"{self.name} exited {status}: {tail(self.log)}"
        assert self.configurations() == []
        assert [line for line in self.logged() if line["level"] in ("error", "critical")] == []
        assert "Traceback" not in self.log.read_text()

    # -- its output ----------------------------------------------------------------------------------------------------

    def logged(self) -> list[Json]:
        return _json_lines(self.log)

    def events(self, event: str) -> list[Json]:
        return [line for line in self.logged() if line["event"] == event]

    def audit(self) -> list[Json]:
        """All audit lines up to now: a thread writes them, so they may come a moment after the answers."""
        answered = self.answered()

        def complete() -> list[list[Json]]:
            lines = _json_lines(self._audit)
            return [lines] if len(lines) >= answered else []

        return eventually(complete, what=f"{answered} audit lines of {self.name}")[0]

    def answered(self) -> int:
        """How many reviews it has evaluated: exact as soon as the API server's client has its answer."""
        return int(self.metric("kubevirt_webhook_requests_total", code="200"))

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have the labels."""
        # Tests ask for one metric hundreds of times, and to parse all of them takes longer than to make them.
        text = "\n".join(line for line in self.ops("/metrics")[1].splitlines() if line.startswith(name))
        families = text_string_to_metric_families(f"{text}\n")
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        assert samples, f"there is no metric {name}"
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def ops(self, path: str) -> tuple[int, str]:
        return fetch(self._ops_port, path, tls=False)

    def ask(self, path: str, review: Json, token: str = "") -> Json:
        """Its answer to an AdmissionReview that no API server sent, perhaps with a token of one."""
        answer: Json = json.loads(fetch(self.port, path, token, body=json.dumps(review))[1])
        return answer

    def configurations(self) -> list[tuple[str, str]]:
        """Its webhook configurations in the API server, by resource and name."""
        return [
            (resource, found["metadata"]["name"])
            for resource in CONFIGURATIONS
            for found in self.access.admin.list(resource)
            if found["metadata"]["name"].endswith(f"-{self.name}")
        ]

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", f"{__package__}.counted", "serve", "--register", f"--register-as={self.name}"),
            f"--kubeconfig={self.access.kubeconfig_for(*ACCOUNT)}",
            f"--config={self._settings}",
            f"--listen={self.host}:{self.port}",
            f"--ops-listen={LOOPBACK}:{self._ops_port}",
            f"--url=https://localhost:{self.port}",
        ]


def fetch(port: int, path: str, token: str = "", *, tls: bool = True, body: str | None = None) -> tuple[int, str]:
    """Status and text of a listener's answer, whose certificate is its own; with a body, to a POST."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {"Content-Type": "application/json"} if body is not None else {}
    unverified = partial(http.client.HTTPSConnection, context=ssl._create_unverified_context())
    connect = unverified if tls else http.client.HTTPConnection
    with closing(connect(LOOPBACK, port, timeout=PATIENCE)) as connection:
        connection.request("GET" if body is None else "POST", path, body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()


def _json_lines(file: Path) -> list[Json]:
    """The objects in a file that is still being written, a line each; the last messages to the user are plain text."""
    lines = file.read_bytes().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"\n")]
