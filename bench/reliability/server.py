"""The server over the example cluster: a process whose memory can be read."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from bench.reliability.errors import ReliabilityError
from tests.e2e.support.processes import free_port

_ROOT: Final = Path(__file__).parents[2]
_FILES: Final = f"--cluster-from={_ROOT / 'examples/cluster'}"
_SETTINGS: Final = _ROOT / "examples/settings.yaml"
_READY_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0


class ReliabilityServer:
    """A running server."""

    def __init__(self, port: int, ops: int, pid: int) -> None:
        self.port: Final = port
        self.ops: Final = ops
        self._pid: Final = pid

    @property
    def memory(self) -> int:
        """Resident now, in MiB."""
        return resident(self._pid, "VmRSS")

    @property
    def peak(self) -> int:
        """The most that ever was, in MiB."""
        return resident(self._pid, "VmHWM")

    @property
    def files(self) -> int:
        """Open now: connections and a few others."""
        return len(list(Path(f"/proc/{self._pid}/fd").iterdir()))


def resident(pid: int, name: Literal["VmRSS", "VmHWM"]) -> int:
    """Memory of a process, now or at its peak, in MiB.

    Raises:
        ReliabilityError: the process has ended, and its parent has not looked at it yet.
        OSError: it is gone.
    """
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    if not found:
        raise ReliabilityError(f"the server has ended: process {pid} tells no {name}")
    return int(found[1]) // 1024


@contextmanager
def serving(facts: str = _FILES, settings: Path = _SETTINGS) -> Iterator[ReliabilityServer]:
    """A server of its own for a run, so that its peak of memory is that run's.

    Args:
        facts: the argument that says where they come from.
    """
    port, ops = free_port(), free_port()
    command = [
        *(sys.executable, "-m", "webhook", "serve"),
        facts,
        f"--config={settings}",
        f"--listen=127.0.0.1:{port}",
        f"--ops-listen=127.0.0.1:{ops}",
    ]
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log) as process:
        try:
            _wait_ready(ops, process)
            yield ReliabilityServer(port, ops, process.pid)
            if process.poll() is not None:
                raise ReliabilityError(f"the server has ended with status {process.returncode}")
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_ready(ops: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{ops}/readyz", timeout=5):
                return
        except OSError as error:
            # An answer, too, whose body would stay open.
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            time.sleep(0.1)
    raise ReliabilityError("the server did not become ready")
