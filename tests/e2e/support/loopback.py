"""HTTP servers on loopback that answer as a test says."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from .processes import LOOPBACK

_METHODS = ("do_GET", "do_HEAD", "do_POST", "do_PUT", "do_PATCH", "do_DELETE")
Answer = Callable[[BaseHTTPRequestHandler], None]


class LoopbackServer:
    """One that listens at ``address`` for as long as its context lasts, with TLS where there is a key and certificate.

    A client that has left before its answer is no error. It has threads of its own: these tests have no loop, on which
    pytest-aiohttp's servers answer.
    """

    def __init__(self, answer: Answer, pem: Path | None = None) -> None:
        def respond(handler: BaseHTTPRequestHandler) -> None:
            with contextlib.suppress(OSError):
                answer(handler)

        methods = dict.fromkeys(_METHODS, respond) | {"log_message": lambda *_: None}
        self._server = ThreadingHTTPServer((LOOPBACK, 0), type("Handler", (BaseHTTPRequestHandler,), methods))
        if pem:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(pem)
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.address = f"{LOOPBACK}:{self.port}"

    def __enter__(self) -> Self:
        # Its end is noticed between two polls.
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def reply(handler: BaseHTTPRequestHandler, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    handler.send_response(200)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)
