"""One control plane for a whole test run: the first worker that needs it starts its keeper, the last to leave ends it.

A plane can't belong to the worker that starts it: with parallel workers, others still use it when that one is done. So
it belongs to a process of its own, the keeper (``keeper.py``), and every worker holds a connection to that. Connections
are the count of users: the kernel closes those of a worker that crashes or is killed, so none is ever left over.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path

from filelock import FileLock

from .access import Access
from .processes import StartError, tail

SOCKET = "keeper.sock"
PATIENCE = 300.0


class Membership:
    """A worker's use of the shared plane, from joining to leaving it."""

    def __init__(self, access: Access, connection: socket.socket) -> None:
        self.access = access
        self._connection = connection

    def leave(self) -> None:
        """Gives the plane up; the last to leave waits until all of it is gone."""
        with self._connection, contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            while self._connection.recv(1024):
                pass


def join(directory: Path, binaries: Path) -> Membership:
    """Uses the plane in ``directory``, the same for all workers of a run; starts it where no worker has yet."""
    directory.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with FileLock(directory / "join.lock"):
            connection = _connect(directory) or _start(directory, binaries, deadline)
        connection.settimeout(PATIENCE)
        if answer := _first_line(connection):
            return _admitted(binaries, connection, answer)
        connection.close()  # the keeper's last user had just left; the next one starts another
    raise StartError(f"no shared control plane after {PATIENCE:.0f} seconds; {_log(directory)}")


def _admitted(binaries: Path, connection: socket.socket, answer: bytes) -> Membership:
    said = json.loads(answer)
    if "error" in said:
        connection.close()
        raise StartError(said["error"])
    return Membership(Access(Path(said["directory"]), said["server"], binaries), connection)


def _connect(directory: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(directory / SOCKET))
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise StartError(f"{directory / SOCKET}: {error}; choose a shorter --basetemp") from error
    return connection


def _start(directory: Path, binaries: Path, deadline: float) -> socket.socket:
    keeper = _spawn(directory, binaries)
    while time.monotonic() < deadline:
        if connection := _connect(directory):
            return connection
        if os.waitpid(keeper, os.WNOHANG)[0]:
            break
        time.sleep(0.02)
    raise StartError(f"the keeper of the shared control plane didn't start; {_log(directory)}")


def _spawn(directory: Path, binaries: Path) -> int:
    """Starts the keeper in a process group of its own: Ctrl-C is for the tests; the keeper ends when they have.

    Not by ``subprocess``, which would warn when a worker ends before a process that it started.
    """
    package = __name__.rpartition(".")[0]
    root = Path(__file__).resolve().parents[package.count(".") + 1]
    command = [sys.executable, "-m", f"{package}.keeper", str(directory), str(binaries)]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        command,
        {**os.environ, "PYTHONPATH": str(root)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(directory / "keeper.log"), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setpgroup=0,
    )


def _first_line(connection: socket.socket) -> bytes:
    """The keeper's greeting once the plane is ready; nothing where it hung up instead, or is silent for too long."""
    with contextlib.suppress(OSError), connection.makefile("rb") as stream:
        return stream.readline()
    return b""


def _log(directory: Path) -> str:
    return f"the end of {directory / 'keeper.log'}:\n{tail(directory / 'keeper.log')}"
