"""Starts a replica and measures it from outside."""

from __future__ import annotations

import http.client
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.reliability.errors import ReliabilityError
from bench.reviews.certificate import Certificate
from bench.reviews.host import Cores, pinned
from bench.start.turns import read
from tests.e2e.support.processes import free_port

_PATIENCE: Final = 120.0
_PAUSE: Final = 0.005
# How long to look on after it is ready, and after lists are read again.
_IDLE_SECONDS: Final = 3.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Start(NamedTuple):
    """What a start has shown.

    Attributes:
        ready: seconds until it takes reviews.
        cpu: seconds of CPU until then.
        idle: MB resident some seconds later.
        peak: the most that ever was, in MB.
        late: the longest turn of the event loop from when it listens until then, in ms by the clock.
        busy: the longest, in ms of CPU.
        late_again: as `late`, while all lists are read again.
        busy_again: as `busy`, while all lists are read again.
    """

    ready: float
    cpu: float
    idle: float
    peak: float
    late: float
    busy: float
    late_again: float
    busy_again: float


def help_seconds(times: int) -> tuple[float, float]:
    """Median seconds, and of CPU, until ``--help`` has answered."""
    walls, before = [], os.times().children_user + os.times().children_system
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "webhook", "--help"], check=True, stdout=subprocess.DEVNULL)
        walls.append(time.perf_counter() - start)
    after = os.times().children_user + os.times().children_system
    return statistics.median(walls), (after - before) / times


def start(nodes: int, namespaces: int, pair: Certificate, cores: Cores, directory: Path) -> Start:
    """Start a replica over a cluster of so many nodes and namespaces, and end it."""
    with _cluster(nodes, namespaces, pair, cores) as (cluster, port):
        account = directory / "account"
        account.mkdir(exist_ok=True)
        (account / "token").write_text("token")
        (account / "ca.crt").write_bytes(pair.certificate.read_bytes())
        environment = {**os.environ, "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
        # A kubeconfig would come before the service account.
        environment |= {"KUBECONFIG": "", "HOME": str(account)}
        environment |= {"BENCH_SERVICE_ACCOUNT": str(account), "BENCH_TURNS": str(directory / "turns")}
        with _replica(environment, pair, cores) as (process, ops, begun):
            listens = _wait(ops, process, lambda status: status != 0)
            ready = _wait(ops, process, lambda status: status == 200)
            cpu = _cpu(process.pid)
            time.sleep(_IDLE_SECONDS)
            idle, listed = _memory(process.pid, "VmRSS"), time.monotonic()
            cluster.send_signal(signal.SIGUSR1)
            time.sleep(_IDLE_SECONDS + ready - begun)
            first = _longest(directory / "turns", listens, listed)
            again = _longest(directory / "turns", listed, time.monotonic())
            return Start(ready - begun, cpu, idle, _memory(process.pid, "VmHWM"), *first, *again)


@contextmanager
def _cluster(
    nodes: int, namespaces: int, pair: Certificate, cores: Cores
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    command = [sys.executable, "-m", "bench.start.cluster", str(nodes), str(namespaces)]
    with pinned(cores.load):
        process = subprocess.Popen([*command, str(pair.certificate), str(pair.key)], stdout=subprocess.PIPE)
    try:
        assert process.stdout
        said = process.stdout.readline()
        if not said:
            raise ReliabilityError("the API server did not start")
        yield process, int(said)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _replica(
    environment: dict[str, str], pair: Certificate, cores: Cores
) -> Iterator[tuple[subprocess.Popen[bytes], int, float]]:
    port, ops = free_port(), free_port()
    command = [
        *(sys.executable, "-m", "bench.start.replica"),
        *(f"--listen=127.0.0.1:{port}", f"--ops-listen=127.0.0.1:{ops}"),
        *(f"--tls-cert={pair.certificate}", f"--tls-key={pair.key}"),
    ]
    begun = time.monotonic()
    with pinned(cores.server):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process, ops, begun
    finally:
        process.kill()
        process.wait()


def _wait(ops: int, process: subprocess.Popen[bytes], is_enough: Callable[[int], bool]) -> float:
    """When the status of its readiness was enough, on the monotonic clock; 0 while it does not listen."""
    deadline = time.monotonic() + _PATIENCE
    while not is_enough(_status(ops)):
        if time.monotonic() > deadline or process.poll() is not None:
            raise ReliabilityError("the server did not become ready")
        time.sleep(_PAUSE)
    return time.monotonic()


def _status(ops: int) -> int:
    # A connection of its own for each request: the server makes the second one on a connection wait.
    connection = http.client.HTTPConnection("127.0.0.1", ops, timeout=_PATIENCE)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _longest(path: Path, since: float, until: float) -> tuple[float, float]:
    """The longest turn by the clock and by CPU, in ms."""
    turns = read(path, since, until)
    longest = (max((turn.late for turn in turns), default=0.0), max((turn.cpu for turn in turns), default=0.0))
    return longest[0] * 1000, longest[1] * 1000


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory(pid: int, name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    if not found:
        raise ReliabilityError(f"the server has ended: process {pid} tells no {name}")
    return int(found[1]) * 1024 / 1e6
