"""One server of the control plane as a process: started, watched until it is ready, and ended by its process id."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
TETHER = Path(__file__).with_name("tether.py")
# Below the range from which Linux takes ports of outgoing connections: no other process gets one during a restart.
PORTS = range(20_000, 30_000)
LOOPBACK = "127.0.0.1"
LOG_TAIL = 20
# Only what is broken takes so long to be ready.
PATIENCE_SECONDS = 300.0
# For Go's programs: a search for garbage only at four times as much of it. An API server then takes a quarter less CPU
# time in its first seconds, and most have no more of them; kubectl, Helm and the like take half of it or less.
GARBAGE = {"GOGC": "400"}


class StartError(Exception):
    """A part of the control plane didn't become ready; the message carries the end of its log."""


def free_port() -> int:
    """A port on loopback that nothing listens on, and that no other process of tests gets while this one lives.

    It may take seconds until its server listens. Until then the UDP port of the same number stands for it, which no
    server of these tests uses: another process cannot bind that too, and the kernel gives it back.
    """
    for port in random.sample(PORTS, k=100):
        claim = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as probe, contextlib.suppress(OSError):
            claim.bind((LOOPBACK, port))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            claim.detach()  # stays open until this process ends
            return port
        claim.close()
    raise StartError(f"no free port on {LOOPBACK} from {PORTS.start} to {PORTS.stop}: is something using them all?")


def environment() -> dict[str, str]:
    """The environment of a program of this project that a test starts.

    Its coverage is not measured: the unit tests cover the code, and tracing doubles what a server does.
    """
    measured = "COVERAGE_PROCESS_CONFIG"
    return {name: value for name, value in os.environ.items() if name != measured} | {"PYTHONPATH": str(ROOT)}


class Process:
    """A server in a process group of its own, which dies with the thread that started it.

    The thread, not only the process: that is how Linux counts parents for this. So start servers from a thread that
    runs as long as they should, usually the main one.

    Attributes:
        name: what errors call it.
        log: where it writes.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        # What this process's own variables do not say, or say otherwise.
        self._environment = dict(environment or {})
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        if self._popen is None:
            raise StartError(f"{self.name} has no process id: it isn't running; start it first")
        return self._popen.pid

    def start(self) -> None:
        if self.running:
            raise StartError(f"{self.name} is running already (process {self.pid}); stop it first")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:  # appended to: after a restart, what happened before it still matters
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=GARBAGE | os.environ | self._environment,
                process_group=0,
            )

    def wait_ready(self, ready: Callable[[], bool]) -> None:
        """Returns once ``ready`` says so; an OSError in it (nothing listens yet) means no."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with contextlib.suppress(OSError):
                if ready():
                    return
            if not self.running:
                raise StartError(f"{self.name} ended before it was ready ({self._how_it_ended()}); {self._tail()}")
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} was not ready after {PATIENCE_SECONDS:.0f} seconds; {self._tail()}")
            time.sleep(0.05)

    def kill(self) -> None:
        self.stop(grace=0)

    def stop(self, grace: float = 5) -> None:
        """Signals it to end, kills it after ``grace`` seconds, and returns when it is gone; nothing to do if it is."""
        if self._popen is None:
            return
        if grace > 0:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(grace)
        self._signal(signal.SIGKILL)
        self._popen.wait()
        self._popen = None

    def pause(self) -> None:
        """Freezes it: it is there, keeps its connections and says nothing, like a server on a hung machine."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.running:  # the kernel answered just now, without a wait since: the id is still this process's
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _how_it_ended(self) -> str:
        code = self._popen.returncode if self._popen else None
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def _tail(self) -> str:
        return f"the end of {self.log}:\n{tail(self.log)}"


def tail(log: Path) -> str:
    """The last lines of a log, indented, for an error message."""
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        return f"  (unreadable: {error.strerror})"
    return "\n".join(f"  {line}" for line in text.splitlines()[-LOG_TAIL:]) or "  (empty)"
