"""Runs the control plane that the workers of a test run share, for as long as one of them is connected.

``python -m …e2e.keeper DIRECTORY BINARIES``, started by ``shared.py``, which says why it exists. It listens on a socket
in the directory, says one line of JSON to everyone who connects, the plane's address or why there is none, and ends
the plane when the last has hung up.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from . import commands
from .objects import ZONE, make_node
from .plane import ControlPlane
from .processes import StartError
from .shared import SOCKET

NODES: Mapping[str, Mapping[str, str]] = {
    "node-a": {ZONE: "east"},
    "node-b": {ZONE: "east"},
    "node-c": {ZONE: "west"},
    "node-d": {ZONE: "west", "cpu-feature.node.kubevirt.io/avx2": "true"},
}
# For a worker that was killed before it could connect to the keeper that it had started.
LONELY = 30.0


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
            last = serve(listener, _start(plane))
            # A client that connects from here on finds no socket, or is disconnected, and starts another keeper.
            path.unlink(missing_ok=True)
            listener.close()
        finally:
            plane.stop()
            if last:
                last.close()


def _start(plane: ControlPlane) -> bytes:
    """The plane's greeting; a plane that cannot start has one too, since only the tests can report the error."""
    try:
        plane.start()
        for node, labels in NODES.items():
            make_node(plane.admin, node, labels)
        if plane.has("kube-scheduler"):
            # Two processes, as in production: the one of this project can die while the other serves.
            plane.start_scheduler("default", commands.DEFAULT_SCHEDULER, lease=commands.DEFAULT_SCHEDULER_LEASE)
            plane.start_scheduler("kubevirt", commands.KUBEVIRT_SCHEDULER, lease=commands.KUBEVIRT_SCHEDULER_LEASE)
    except StartError as error:
        return _line(error=str(error))
    return _line(server=plane.server, directory=str(plane.directory))


def _line(**said: str) -> bytes:
    return json.dumps(said).encode() + b"\n"


def _end(number: int, frame: object) -> NoReturn:
    """Ends the plane on the way out, as the last user's leaving does."""
    sys.exit(128 + number)


def main() -> None:
    signal.signal(signal.SIGTERM, _end)
    directory, binaries = (Path(argument) for argument in sys.argv[1:])
    run(directory, binaries)


if __name__ == "__main__":
    main()
