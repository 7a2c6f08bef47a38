"""The tests' client of the API server: what it keeps between two requests, and what it does not."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from .support.kube import Kube
from .support.pki import ADMIN, Pki


class CountingServer(ThreadingHTTPServer):
    """Answers every request with an object, and counts the connections on which they come."""

    def __init__(self, pki: Pki, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Answerer)
        self.connections: list[socket.socket] = []
        self.ended = threading.Event()
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.tls.load_cert_chain(pki.serving("counting"))

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.append(self.tls.wrap_socket(connection, server_side=True))
        return self.connections[-1], address

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.ended.set()

    def hang_up(self) -> None:
        """Ends all connections, as a server that is restarted does."""
        for connection in self.connections:
            connection.shutdown(socket.SHUT_RDWR)


class Answerer(BaseHTTPRequestHandler):
    """Keeps the connection after an answer."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b'{"kind": "Status"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "pki")


@pytest.fixture
def server(pki: Pki) -> Iterator[CountingServer]:
    with CountingServer(pki) as counting:
        thread = threading.Thread(target=counting.serve_forever, args=[0.02])
        thread.start()
        yield counting
        counting.shutdown()
        thread.join()


@pytest.fixture
def kube(server: CountingServer, pki: Pki) -> Kube:
    return Kube(f"https://localhost:{server.server_port}", pki.ca, pki.client(*ADMIN), ADMIN.user)


def test_threads_share_a_client_but_no_connection(kube: Kube, server: CountingServer) -> None:
    together = threading.Barrier(3)

    def ask(_: int) -> None:
        together.wait()
        kube.request("GET", "/")

    with ThreadPoolExecutor(3) as threads:
        assert len(list(threads.map(ask, range(3)))) == 3

    assert len(server.connections) == 3


def test_a_server_that_was_restarted_gets_another_one(kube: Kube, server: CountingServer) -> None:
    kube.request("GET", "/")
    server.hang_up()

    assert kube.request("GET", "/") == {"kind": "Status"}
    assert len(server.connections) == 2
