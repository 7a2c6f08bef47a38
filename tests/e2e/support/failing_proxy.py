"""A proxy before an API server, on whose way some answers fail."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterable
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlsplit

from .access import Access
from .kube import PATIENCE
from .loopback import LoopbackServer
from .pki import Identity

# Of one connection only, or made anew on the way back.
_OF_A_HOP = {"connection", "transfer-encoding", "date", "server"}


class FailingProxy(Access):
    """An API server as one identity reaches it: every request is sent on as this one's, over TLS.

    A context manager. While `fails_lists`, no list of namespaces comes whole: the second page of each is a 500, and
    their watches, also those that are open, end with 410.
    """

    def __init__(self, plane: Access, identity: Identity) -> None:
        self._upstream = urlsplit(plane.server)
        self._tls = ssl.create_default_context(cafile=plane.pki.ca)
        self._tls.load_cert_chain(plane.pki.client(*identity))
        self._server = LoopbackServer(self._answer, plane.pki.serving("proxy"))
        self._identity = identity
        self._lock = threading.Lock()
        self._watches: set[socket.socket] = set()
        self._fails = False
        self.failed_pages = 0
        super().__init__(plane.directory, plane.server, plane.binaries)

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def kubeconfig_for(self, user: str, groups: Iterable[str] = ()) -> Path:
        if user != self._identity.user:
            return super().kubeconfig_for(user, groups)
        # Beside the one that leads to the API server itself.
        path = self.directory / "through-the-proxy.kubeconfig"
        direct = self.pki.kubeconfig(self.server, user, groups).read_text()
        path.write_text(direct.replace(self.server, f"https://localhost:{self._server.port}"))
        return path

    def fail_lists(self) -> None:
        """Begin to fail."""
        with self._lock:
            self._fails = True
            for watch in self._watches:
                # Their threads wait for the next line.
                watch.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Send everything on again."""
        self._fails = False

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path, query = urlsplit(handler.path).path, parse_qs(urlsplit(handler.path).query)
        of_namespaces, is_watch = path == "/api/v1/namespaces", "watch" in query
        if self._fails and of_namespaces and (is_watch or "continue" in query):
            self.failed_pages += not is_watch
            _fail(handler, 410 if is_watch else 500)
            return
        host, port = self._upstream.hostname or "", self._upstream.port
        with closing(http.client.HTTPSConnection(host, port, timeout=PATIENCE, context=self._tls)) as connection:
            body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
            headers = {name: value for name, value in handler.headers.items() if name.lower() != "connection"}
            connection.request(handler.command, handler.path, body, headers)
            response = connection.getresponse()
            handler.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in _OF_A_HOP:
                    handler.send_header(name, value)
            # Its end is that of the connection, as in HTTP/1.0.
            handler.end_headers()
            watch = connection.sock if of_namespaces and is_watch else None
            if watch:
                with self._lock:
                    self._watches.add(watch)
            try:
                # An answer that breaks off does so here, too.
                with suppress(http.client.HTTPException):
                    while piece := response.read1(1 << 16):
                        handler.wfile.write(piece)
            finally:
                if watch:
                    with self._lock:
                        self._watches.discard(watch)


def _fail(handler: BaseHTTPRequestHandler, code: int) -> None:
    body = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}).encode()
    handler.send_response(code)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
