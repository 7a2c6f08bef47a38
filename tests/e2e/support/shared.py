"""One control plane for a whole test run: the first worker that needs it starts its keeper, the last to leave ends it.

A plane can't belong to the worker that starts it: with parallel workers, others still use it when that one is done. So
it belongs to a process of its own, the keeper, ``python -m …support.shared DIRECTORY BINARIES``. It listens on a socket
in the directory, says one line of JSON to everyone who connects, the plane's address or why there is none, and ends
the plane when the last has hung up. Connections are the count of users: the kernel closes those of a worker that
crashes or is killed, so none is ever left over.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from filelock import FileLock

from .access import Access
from .objects import ZONE, make_node
from .plane import ControlPlane
from .processes import StartError, tail

SOCKET = "keeper.sock"
PATIENCE = 300.0
NODES: Mapping[str, Mapping[str, str]] = {
    "node-a": {ZONE: "east"},
    "node-b": {ZONE: "east"},
    "node-c": {ZONE: "west"},
    "node-d": {ZONE: "west", "cpu-feature.node.kubevirt.io/avx2": "true"},
}
# For a worker that was killed before it could connect to the keeper that it had started.
LONELY = 30.0


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
            said = json.loads(answer)
            if "error" not in said:
                return Membership(Access(Path(said["directory"]), said["server"], binaries), connection)
            connection.close()
            raise StartError(said["error"])
        connection.close()  # the keeper's last user had just left; the next one starts another
    raise StartError(f"no shared control plane after {PATIENCE:.0f} seconds; {_log(directory)}")


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
    root = Path(__file__).resolve().parents[__name__.count(".")]
    command = [sys.executable, "-m", __name__, str(directory), str(binaries)]
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


# -- the keeper --------------------------------------------------------------------------------------------------------


def serve(listener: socket.socket, greeting: bytes) -> socket.socket | None:
    """Greets every client until the last has hung up, whose connection it returns; or until none came for a while."""
    connections: set[socket.socket] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while ready := selector.select(None if connections else LONELY):
            for key, _ in ready:
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    connections.add(connection)
                    selector.register(connection, selectors.EVENT_READ)
                    with contextlib.suppress(OSError):  # gone already: the selector says so next
                        connection.sendall(greeting)
                    continue
                (gone,) = (each for each in connections if each is key.fileobj)
                if len(connections) == 1:
                    return gone
                selector.unregister(gone)
                connections.remove(gone)
                gone.close()
    return None


def run(directory: Path, binaries: Path) -> None:
    path = directory / SOCKET
    path.unlink(missing_ok=True)  # a killed keeper left it: this one starts only where none answers
    # Of its own, by process id: the next keeper may start while this one is still ending its plane.
    home = directory / f"plane-{os.getpid()}"
    # First, so that nothing connects to a keeper that then has none.
    plane = ControlPlane(home, binaries, controller_manager=(binaries / "kube-controller-manager").exists())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(128)
        last = None
        try:
            last = serve(listener, _greeting(plane))
            # A client that connects from here on finds no socket, or is disconnected, and starts another keeper.
            path.unlink(missing_ok=True)
            listener.close()
        finally:
            plane.stop()
            if last:
                last.close()


def _greeting(plane: ControlPlane) -> bytes:
    """The plane's greeting; a plane that cannot start has one too, since only the tests can report the error."""
    try:
        plane.start()
        for node, labels in NODES.items():
            make_node(plane.admin, node, labels)
        if plane.has("kube-scheduler"):
            plane.start_schedulers()
    except StartError as error:
        said = {"error": str(error)}
    else:
        said = {"server": plane.server, "directory": str(plane.directory)}
    return json.dumps(said).encode() + b"\n"


def _end(number: int, frame: object) -> NoReturn:
    """Ends the plane on the way out, as the last user's leaving does."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    run(*map(Path, sys.argv[1:]))
