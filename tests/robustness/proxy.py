"""A proxy between a replica and its API server, on whose way answers are late, wrong, cut or never come."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qs, urlsplit

from tests.e2e.support.access import Access
from tests.e2e.support.pki import Identity
from tests.e2e.support.processes import LOOPBACK

# Of one connection only, or made anew on the way back.
_OF_A_HOP = {"connection", "transfer-encoding", "date", "server"}
_METHODS = ("do_GET", "do_POST", "do_PUT", "do_PATCH", "do_DELETE")
_PIECE = 1 << 16
_TIMEOUT_SECONDS = 60.0

Part = Literal["any", "list", "page", "watch", "get"]


@dataclass(frozen=True)
class Rule:
    """What becomes of some answers while it is in force.

    Attributes:
        resource: the plural of what is read; empty: anything.
        part: of which requests; ``page`` is every page of a list but the first.
        status: the answer's status; 0: the API server's own answer.
        delay: seconds by which the answer, and each piece of a watch, comes late.
        lines: pieces of a watch after which it is cut; -1: never.
        cut: no answer at all: the connection ends.
    """

    resource: str = ""
    part: Part = "any"
    status: int = 0
    delay: float = 0.0
    lines: int = -1
    cut: bool = False

    def __str__(self) -> str:
        what = "cut" if self.cut else f"answered {self.status}" if self.status else ""
        late = f"{self.delay:.1f} s late" if self.delay else ""
        ends = f"cut after {self.lines} pieces" if self.lines >= 0 else ""
        return f"{self.part} of {self.resource or 'everything'} {', '.join(filter(None, (what, late, ends)))}"


class Proxy(Access):
    """An API server as one identity reaches it: every request is sent on as this one's, over TLS.

    A context manager; no rule is in force at first.
    """

    def __init__(self, plane: Access, identity: Identity, name: str) -> None:
        super().__init__(plane.directory, plane.server, plane.binaries)
        self._upstream = urlsplit(plane.server)
        self._tls = ssl.create_default_context(cafile=plane.pki.ca)
        self._tls.load_cert_chain(plane.pki.client(*identity))
        self._identity = identity
        self._name = name
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._open: dict[int, tuple[str, Part, socket.socket]] = {}
        handler = type("Handler", (_Handler,), dict.fromkeys(_METHODS, _Handler.answer) | {"proxy": self})
        self._server = _Server((LOOPBACK, 0), handler)
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        served.load_cert_chain(plane.pki.serving(f"proxy-{name}"))
        self._server.socket = served.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._cut("", "any")

    def kubeconfig_for(self, user: str, groups: Iterable[str] = ()) -> Path:
        if user != self._identity.user:
            return super().kubeconfig_for(user, groups)
        path = self.directory / f"through-proxy-{self._name}.kubeconfig"
        direct = self.pki.kubeconfig(self.server, user, groups).read_text()
        path.write_text(direct.replace(self.server, f"https://localhost:{self._server.server_port}"))
        return path

    @contextmanager
    def rule(self, rule: Rule, *, break_open: bool = True) -> Iterator[None]:
        """Puts a rule in force; ``break_open``: what it is about and is open already ends."""
        self._rules.append(rule)
        if break_open:
            self._cut(rule.resource, "watch" if rule.part != "any" else "any")
        try:
            yield
        finally:
            self._rules.remove(rule)

    def _cut(self, resource: str, part: Part) -> None:
        with self._lock:
            for its_resource, its_part, upstream in self._open.values():
                if resource in ("", its_resource) and part in ("any", its_part):
                    with suppress(OSError):
                        upstream.shutdown(socket.SHUT_RDWR)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        resource, part = _about(handler.path)
        rules = [rule for rule in self._rules if _is_about(rule, resource, part)]
        if any(rule.cut for rule in rules):
            handler.connection.close()
            return
        time.sleep(max((rule.delay for rule in rules), default=0.0))
        status = next((rule.status for rule in rules if rule.status), 0)
        if status:
            _fail(handler, status)
            return
        host, port = self._upstream.hostname or "", self._upstream.port
        with closing(http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=self._tls)) as upstream:
            body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
            headers = {name: value for name, value in handler.headers.items() if name.lower() != "connection"}
            upstream.connect()
            connection = upstream.sock
            if part == "watch":
                connection.settimeout(None)
            with self._lock:
                self._open[id(handler)] = resource, part, connection
            try:
                upstream.request(handler.command, handler.path, body, headers)
                self._pass(upstream.getresponse(), handler, resource, part)
            finally:
                with self._lock:
                    del self._open[id(handler)]

    def _pass(
        self, response: http.client.HTTPResponse, handler: BaseHTTPRequestHandler, resource: str, part: Part
    ) -> None:
        handler.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _OF_A_HOP:
                handler.send_header(name, value)
        # Its end is that of the connection, as in HTTP/1.0.
        handler.end_headers()
        pieces = 0
        while piece := response.read1(_PIECE):
            if part == "watch":
                rules = [rule for rule in self._rules if _is_about(rule, resource, part)]
                time.sleep(max((rule.delay for rule in rules), default=0.0))
                if any(0 <= rule.lines <= pieces for rule in rules):
                    # In the middle of a line.
                    handler.wfile.write(piece[: len(piece) // 2])
                    return
                pieces += 1
            handler.wfile.write(piece)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has left, or a cut, is what this is for."""


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy

    def answer(self) -> None:
        with suppress(OSError, http.client.HTTPException):
            self.proxy.answer(self)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base's
        """Nothing."""


def _about(target: str) -> tuple[str, Part]:
    """The plural of what a request reads, and how."""
    url = urlsplit(target)
    query, parts = parse_qs(url.query), [part for part in url.path.split("/") if part]
    parts = parts[2:] if parts[:1] == ["api"] else parts[3:] if parts[:1] == ["apis"] else []
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    resource = parts[0] if parts else ""
    if len(parts) > 1:
        return resource, "get"
    return resource, "watch" if "watch" in query else "page" if "continue" in query else "list"


def _is_about(rule: Rule, resource: str, part: Part) -> bool:
    return rule.resource in ("", resource) and rule.part in ("any", part)


def _fail(handler: BaseHTTPRequestHandler, code: int) -> None:
    reason = {410: "Expired", 429: "TooManyRequests"}.get(code, "InternalError")
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    body = json.dumps(status | {"message": "as the test says"}).encode()
    handler.send_response(code)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
