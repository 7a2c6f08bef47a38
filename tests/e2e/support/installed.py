"""The server as it runs in a cluster: configurations installed by others, several replicas, certificates of its own."""

from __future__ import annotations

import contextlib
import itertools
import json
import selectors
import socket
import threading
import time
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from cryptography import x509

from webhook.install.registration import RegistrationTarget, configurations
from webhook.settings_file import parse

from . import manifests
from .access import Access
from .kube import Json, KubeError, eventually
from .objects import ensure_namespace
from .processes import LOOPBACK
from .repeated import Repeated
from .tenant import Tenant
from .webhook_server import ACCOUNT, OURS, WebhookServer, install

SECRET = ("v1/secrets", "kubevirt-webhook-ca", "kubevirt-webhook")
ROTATE = "kubevirt-webhook.github.io/rotate-ca"
NAME = "installed"
# Lifetimes so short that a test sees every rotation.
SETTINGS: Mapping[str, Any] = {
    "schedulers": {"kubevirt": {"healthCheck": "pods"}},
    "webhooks": {"namespaceSelector": {"matchExpressions": [{"key": OURS, "operator": "In", "values": [NAME]}]}},
    "tls": {"leafExpirationSeconds": 60, "caExpirationSeconds": 3600},
    "server": {"shutdownSeconds": 3},
}


class Balancer:
    """Stands for a Service: passes each new connection to the next ready endpoint; open ones stay where they are."""

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        self.endpoints: list[int] = []
        self._turn = itertools.count()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closed alone, the thread would still wait in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        endpoints = list(self.endpoints)
        with client, contextlib.suppress(OSError):
            first = next(self._turn)
            for port in (endpoints[(first + i) % len(endpoints)] for i in range(len(endpoints))):
                with contextlib.suppress(ConnectionRefusedError), socket.create_connection((LOOPBACK, port)) as server:
                    _pass(client, server)
                    return


def _pass(client: socket.socket, server: socket.socket) -> None:
    other = {client: server, server: client}
    with selectors.DefaultSelector() as selector:
        for each in other:
            selector.register(each, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)
                data = source.recv(65536)
                if data:
                    other[source].sendall(data)
                else:
                    selector.unregister(source)
                    other[source].shutdown(socket.SHUT_WR)


class ServerReplica(WebhookServer):
    """One replica, which makes no configurations and is called under a URL; empty: the Service's."""

    def __init__(
        self,
        access: Access,
        directory: Path,
        url: str,
        arguments: Sequence[str],
        settings: Mapping[str, Any] = SETTINGS,
    ) -> None:
        directory.mkdir()
        super().__init__(access, directory, NAME, settings)
        self._url = url
        self._arguments = arguments

    def wait_ready(self) -> None:
        eventually(lambda: self.ops("/readyz")[0] == 200, what=f"{self.log} to tell of readiness")

    def _command(self) -> list[str]:
        own = [part for part in super()._command() if not part.startswith(("--register", "--url"))]
        self.access.kubeconfig_for(*ACCOUNT)
        return [*own, *([f"--url={self._url}"] if self._url else []), *self._arguments]


class LiveInstallation:
    """Configurations with failurePolicy Fail, and replicas behind one address: a failed call denies the request."""

    def __init__(
        self, access: Access, directory: Path, *arguments: str, settings: Mapping[str, Any] = SETTINGS
    ) -> None:
        self.access = access
        self.settings = settings
        self._directory = directory
        self.balancer = Balancer()
        self.arguments = arguments
        self.replicas: list[ServerReplica] = []
        self._started = 0
        # Seconds; None: as the settings say.
        self.timeout: int | None = None
        self.url = f"https://localhost:{self.balancer.port}"
        install(access.admin)
        ensure_namespace(access.admin, SECRET[2])
        manifests.grant(access.admin, manifests.CERTIFICATES)
        # What the account may not write, though its permissions let it.
        manifests.apply(access.admin, "base/account.yaml")

    def __enter__(self) -> Self:
        self.balancer.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.replicas:
            replica.kill()
        self.balancer.__exit__()

    def manifests(self) -> list[Json]:
        """The installed manifests, without any caBundle."""
        made = configurations(parse(json.dumps(self.settings).encode(), "settings"), RegistrationTarget(url=self.url))
        for manifest in made:
            for entry in manifest.get("webhooks", ()):
                entry.update({"failurePolicy": "Fail"} | ({"timeoutSeconds": self.timeout} if self.timeout else {}))
        return made

    def apply(self, manifests: Sequence[Json] | None = None) -> None:
        """As a GitOps tool does it: server-side."""
        for manifest in self.manifests() if manifests is None else manifests:
            self.access.admin.apply(manifest, fieldManager="gitops")

    def start(self, *, ready: bool = True) -> ServerReplica:
        """One more replica, which gets requests once it is ready."""
        self._started += 1
        directory = self._directory / f"replica-{self._started}"
        replica = ServerReplica(self.access, directory, self.url, self.arguments, self.settings)
        self.replicas.append(replica)
        replica.start()
        if ready:
            replica.wait_ready()
            self.balancer.endpoints.append(replica.port)
        return replica

    def remove(self, replica: ServerReplica) -> None:
        """It gets no new connections any more."""
        self.balancer.endpoints.remove(replica.port)
        self.replicas.remove(replica)

    def tenant(self) -> Tenant:
        """Makes a namespace with policies on; returns once the API server calls the webhook for it."""
        tenant = Tenant.new(self.replicas[0])
        eventually(lambda: tenant.choice() == "kubevirt", what="the API server to call the replicas")
        return tenant

    def secret(self) -> Json:
        return self.access.admin.get(*SECRET)

    def rotate(self) -> None:
        self.access.admin.patch(*SECRET[:2], {"metadata": {"annotations": {ROTATE: "now"}}}, SECRET[2])

    def wait_serving(self, old: str) -> str:
        """Returns the CA that signs, once it is another one and every replica serves with it."""

        def moved() -> str | None:
            crt = self.secret().get("data", {}).get("ca.crt")
            if not crt or crt == old:
                return None
            subject = x509.load_pem_x509_certificate(b64decode(crt)).subject.rfc4514_string()
            signs = {replica.events("serving certificate issued")[-1]["ca"] for replica in self.replicas}
            return str(crt) if signs == {subject.removeprefix("CN=")} else None

        return eventually(moved, what="every replica to serve with another CA")


class SteadyReviews(Repeated):
    """Creates VMs without a pause, and keeps those that were denied or came back without an evaluation."""

    def __init__(self, tenant: Tenant, threads: int = 2) -> None:
        super().__init__(threads)
        self._tenant = tenant
        self.done = 0
        self.times: list[float] = []  # of those that the webhook evaluated, in milliseconds
        self.failures: list[str] = []

    def step(self) -> None:
        began = time.perf_counter()
        try:
            chosen = self._tenant.choice()
        except KubeError as error:
            self.failures.append(str(error))
        else:
            if chosen != "kubevirt":
                self.failures.append(f"chosen: {chosen}")
            else:
                self.times.append((time.perf_counter() - began) * 1000)
        self.done += 1
