"""Stands for a Service: one address, and behind it the endpoints that are ready."""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import threading
from typing import Self

from .commands import LOOPBACK


class Balancer:
    """Passes every new connection to the next endpoint; connections that are open stay where they are."""

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
