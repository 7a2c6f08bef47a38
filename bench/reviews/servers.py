"""The servers: how each is started, measured and stopped."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

from bench.reviews.certificate import Certificate
from bench.reviews.errors import BenchError, last_line
from bench.reviews.host import pinned
from bench.reviews.payloads import DRAIN, MIGRATION, NAMES, POD, VM, Payload

OURS: Final = "ours"
NEWER: Final = "newer"
# Another version of kubevirt-webhook: a checkout beside this one.
BESIDE: Final = "beside"
# Go, with all that kubevirt-webhook does for these reviews: started, asked and counted as it is.
PEER: Final = "peer"
TITLES: Final = {
    OURS: "kubevirt-webhook",
    NEWER: "the same on a newer Python",
    BESIDE: "another version",
    "plain": "Go, net/http",
    "partial": "Go, needed fields only",
    PEER: "Go, same job",
    "controllerruntime": "Go, controller-runtime",
    "naive": "Python, the usual way",
}

_PROGRAM: Final = "webhook.cli.main"
_HERE: Final = Path(__file__).parent
ROOT: Final = _HERE.parent.parent

_READY_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 10.0

OUR_PATHS: Final = {
    POD.name: "/mutate/scheduling/pods/enforce",
    VM.name: "/mutate/scheduling/virtualmachines/enforce",
    MIGRATION.name: "/validate/migration/virtualmachineinstancemigrations/enforce",
    DRAIN.name: "/mutate/migration/virtualmachineinstancemigrations/enforce",
}
# Without this, Go starts a thread for every core that it sees.
_ONE_CORE: Final = {"GOMAXPROCS": "1"}
# As in go/internal/names.
_OTHER_PATHS: Final = {
    POD.name: "/mutate/pods",
    VM.name: "/mutate/virtualmachines",
    MIGRATION.name: "/validate/migrations",
    DRAIN.name: "/validate/migrations",
}


@dataclass(frozen=True, slots=True)
class Pythons:
    """What the Python servers run on: programs of virtual environments.

    Attributes:
        newer: of a newer Python, for the same server once more; None: there is none.
        beside: of what another version's lock lists; None: no other version is measured.
        checkout: the root of that other version.
    """

    chosen: Path
    newer: Path | None = None
    beside: Path | None = None
    checkout: Path | None = None


@dataclass(frozen=True, slots=True)
class ReviewsServer:
    """A server that can be started.

    Attributes:
        key: what the command line calls it.
        argv: the command.
        address: base URL of its endpoints.
        ready: URL that answers 200 as soon as it takes reviews.
        paths: its endpoint for each payload.
        environment: what it gets beyond this process's.
        audited: it writes a line for each review to standard output.
    """

    key: str
    argv: Sequence[str]
    address: str
    ready: str
    paths: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    audited: bool = False

    @property
    def title(self) -> str:
        return TITLES[self.key]

    def url(self, payload: Payload) -> str:
        # The API server sends its timeout like this; 10 s is its default.
        return f"{self.address}{self.paths[payload.name]}?timeout=10s"


def lineup(
    keys: Sequence[str],
    pythons: Pythons,
    binaries: Path,
    certificate: Certificate,
    directory: Path,
    *,
    module: str = _PROGRAM,
) -> list[ReviewsServer]:
    """The servers named by ``keys``, each on free ports.

    Args:
        keys: of `TITLES`.
        pythons: the interpreters of the Python servers.
        binaries: the directory of the Go servers.
        certificate: of all of them.
        directory: where the cluster is written that kubevirt-webhook and its peer read.
        module: the program of kubevirt-webhook's own.
    """
    cluster = _write_cluster(directory / "cluster")
    ports = _free_ports(2 * len(keys))
    python = pythons.chosen
    servers = []
    for key, port, ops in zip(keys, ports[::2], ports[1::2], strict=True):
        if key == OURS:
            servers.append(_whole(key, (str(python), "-m", module, "serve"), (port, ops), certificate, cluster))
        elif key == NEWER:
            assert pythons.newer is not None
            serve = (str(pythons.newer), "-m", module, "serve")
            servers.append(_whole(key, serve, (port, ops), certificate, cluster))
        elif key == BESIDE:
            assert pythons.beside is not None
            assert pythons.checkout is not None
            serve = (str(pythons.beside), "-m", module, "serve")
            servers.append(_whole(key, serve, (port, ops), certificate, cluster, pythons.checkout))
        elif key == PEER:
            servers.append(_whole(key, (str(binaries / key),), (port, ops), certificate, cluster))
        elif key == "naive":
            servers.append(_other(key, (str(python), "-m", "bench.reviews.naive"), port, certificate))
        else:
            servers.append(_other(key, (str(binaries / key),), port, certificate))
    return servers


def _write_cluster(directory: Path) -> Path:
    """The cluster of the reviews, and the VMIs of all the names that are sent."""
    shutil.copytree(_HERE / "cluster", directory)
    documents = yaml.safe_load_all((directory / "machines.yaml").read_bytes())
    (owner,) = (each for each in documents if each["metadata"]["name"] == POD.varied)
    owner["metadata"]["labels"] = {}
    many = [{**owner, "metadata": {**owner["metadata"], "name": f"p{number:05}"}} for number in range(NAMES)]
    (directory / "owners.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": many}))
    return directory


def _whole(
    key: str,
    command: Sequence[str],
    ports: tuple[int, int],
    certificate: Certificate,
    cluster: Path,
    root: Path = ROOT,
) -> ReviewsServer:
    """A server that reads the cluster, and has the options of `kubevirt-webhook serve`.

    Args:
        root: the checkout whose code and settings it has.
    """
    port, ops = ports
    argv = (
        *command,
        *("--cluster-from", str(cluster)),
        *("--config", str(root / _HERE.relative_to(ROOT) / "settings.yaml")),
        *("--listen", f"127.0.0.1:{port}"),
        *("--ops-listen", f"127.0.0.1:{ops}"),
        *("--tls-cert", str(certificate.certificate)),
        *("--tls-key", str(certificate.key)),
    )
    return ReviewsServer(
        key=key,
        argv=argv,
        address=f"https://127.0.0.1:{port}",
        ready=f"http://127.0.0.1:{ops}/readyz",
        paths=OUR_PATHS,
        environment=_ONE_CORE | {"PYTHONPATH": str(root)},
        audited=True,
    )


def _other(key: str, command: Sequence[str], port: int, certificate: Certificate) -> ReviewsServer:
    argv = (
        *command,
        *("--listen", f"127.0.0.1:{port}"),
        *("--tls-cert", str(certificate.certificate)),
        *("--tls-key", str(certificate.key)),
    )
    return ReviewsServer(
        key=key,
        argv=argv,
        address=f"https://127.0.0.1:{port}",
        ready=f"https://127.0.0.1:{port}/readyz",
        paths=_OTHER_PATHS,
        environment=_ONE_CORE | {"PYTHONPATH": str(ROOT)},
    )


def _free_ports(count: int) -> list[int]:
    """Ports that no process listens on now; all are held until the last is found, so none comes twice."""
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            listener = held.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            ports.append(int(listener.getsockname()[1]))
        return ports


class RunningServer:
    """A started server."""

    def __init__(
        self, server: ReviewsServer, process: subprocess.Popen[bytes], output: Path, tls: ssl.SSLContext
    ) -> None:
        self.server = server
        self._process = process
        self._output = output
        self._tls = tls

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """Return as soon as the server takes reviews.

        Raises:
            BenchError: it ended, or was not ready in time.
        """
        title = self.server.title
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            self.check_alive()
            if self._is_ready():
                return
            if time.monotonic() > deadline:
                raise BenchError(f"{title} was not ready within {_READY_SECONDS:.0f} s: {self._last_words()}")
            time.sleep(0.02)

    def check_alive(self) -> None:
        """Say so if the server has ended by itself.

        Raises:
            BenchError: it has.
        """
        code = self._process.poll()
        if code is not None:
            raise BenchError(f"{self.server.title} ended by itself with code {code}: {self._last_words()}")

    def _is_ready(self) -> bool:
        try:
            # No proxy of the environment is used for the loopback interface.
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._tls)
            )
            with opener.open(self.server.ready, timeout=2) as response:
                return bool(response.status == 200)
        except (OSError, http.client.HTTPException):
            return False

    def ask(self, payload: Payload) -> tuple[int, bytes]:
        """Status and body of one answer.

        Raises:
            BenchError: there was none.
        """
        url = urlsplit(self.server.url(payload))
        connection = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=10, context=self._tls)
        try:
            connection.request(
                "POST", f"{url.path}?{url.query}", payload.file.read_bytes(), {"Content-Type": "application/json"}
            )
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            reason = f"{type(error).__name__} {error}".strip()
            raise BenchError(
                f"{self.server.title} does not answer a {payload.name} review: {reason}: {self._last_words()}"
            ) from None
        finally:
            connection.close()

    def resident_mb(self) -> float:
        """Memory in RAM, in MB (10^6 bytes).

        Raises:
            BenchError: the server is gone.
        """
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
            kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
        except (OSError, StopIteration):
            raise BenchError(f"{self.server.title} is gone: {self._last_words()}") from None
        return kib * 1024 / 1e6

    def audit_lines(self) -> int:
        """How many lines the server has written to standard output; meaningful once it has stopped."""
        with self._output.with_suffix(".out").open("rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))

    def stop(self) -> None:
        """End the server: by itself if it does within ten seconds."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _last_words(self) -> str:
        return last_line(self._output.with_suffix(".err").read_text(errors="replace"))


@contextmanager
def started(
    servers: Sequence[ReviewsServer], core: int | None, certificate: Certificate, directory: Path
) -> Iterator[list[RunningServer]]:
    """All servers, ready; they are stopped at the end, whatever happens.

    They run at the same time, on one core: an idle server costs next to nothing, and payloads can go to one server
    right after the other, so that a change of the machine's mood meets them all.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.load_verify_locations(certificate.certificate)
    with ExitStack() as stack:
        running = []
        for server in servers:
            running.append(_start(server, core, directory, tls))
            stack.callback(running[-1].stop)
        for one in running:
            one.wait_ready()
        yield running


def _environment() -> dict[str, str]:
    """This process's, without what would tune one language's servers (PYTHONDEVMODE, GOGC and the like)."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GO"))}


def _start(server: ReviewsServer, core: int | None, directory: Path, tls: ssl.SSLContext) -> RunningServer:
    output = directory / server.key
    with output.with_suffix(".out").open("wb") as out, output.with_suffix(".err").open("wb") as err, pinned(core):
        try:
            process = subprocess.Popen(
                server.argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=directory,
                env=_environment() | dict(server.environment),
            )
        except OSError as error:
            raise BenchError(f"{server.title} can't be started: {error}") from None
    return RunningServer(server, process, output, tls)
