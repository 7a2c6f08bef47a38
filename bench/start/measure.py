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
from tests.e2e.support.processes import free_port

_PATIENCE: Final = 120.0
_PAUSE: Final = 0.001
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
        stall: the longest wait of a request meanwhile, in ms.
        again: the same while all lists are read again.
    """

    ready: float
    cpu: float
    idle: float
    peak: float
    stall: float
    again: float


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
        with _replica({**environment, "BENCH_SERVICE_ACCOUNT": str(account)}, pair, cores) as (process, ops, begun):
            watch = _Watch(ops, process)
            watch.until(lambda status: status == 200)
            ready, cpu = time.perf_counter() - begun, _cpu(process.pid)
            watch.during(_IDLE_SECONDS)
            stall, idle = watch.longest, _memory(process.pid, "VmRSS")
            watch.longest = 0.0
            cluster.send_signal(signal.SIGUSR1)
            watch.during(_IDLE_SECONDS + ready)
            watch.close()
            return Start(ready, cpu, idle, _memory(process.pid, "VmHWM"), stall * 1000, watch.longest * 1000)


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
    begun = time.perf_counter()
    with pinned(cores.server):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process, ops, begun
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


class _Watch:
    """Asks a replica all the time, and notes how long an answer takes."""

    def __init__(self, ops: int, process: subprocess.Popen[bytes]) -> None:
        self.longest = 0.0
        self._ops = ops
        self._process = process
        self._connection = http.client.HTTPConnection("127.0.0.1", ops, timeout=_PATIENCE)

    def close(self) -> None:
        self._connection.close()

    def until(self, enough: Callable[[int], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not enough(self._ask()):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise ReliabilityError("the server did not become ready")
            time.sleep(_PAUSE)

    def during(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.until(lambda _: time.monotonic() > end)

    def _ask(self) -> int:
        """The status of its readiness; 0: it does not listen yet."""
        begun = time.perf_counter()
        try:
            self._connection.request("GET", "/readyz")
            response = self._connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return 0
        self.longest = max(self.longest, time.perf_counter() - begun)
        return response.status


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory(pid: int, name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    if not found:
        raise ReliabilityError(f"the server has ended: process {pid} tells no {name}")
    return int(found[1]) * 1024 / 1e6
