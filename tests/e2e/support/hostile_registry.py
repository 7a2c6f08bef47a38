"""A registry on loopback that answers as a test says: wrong, hostile, or not at all."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler as Handler

from .loopback import Answer, LoopbackServer, reply
from .registry import MANIFEST


def answering(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
    """An answer that is whole."""
    return lambda handler: reply(handler, body, status, {"Content-Type": MANIFEST, **(headers or {})})


def endless(handler: Handler) -> None:
    """A body without an end."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65536)


def dripping(handler: Handler) -> None:
    """A byte now and then."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(1000):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


def another_manifest() -> bytes:
    """A manifest, and not the one that any digest names."""
    layer = {"digest": "sha256:" + "0" * 64, "size": 1}
    return json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "layers": [layer]}).encode()


class HostileRegistry(LoopbackServer):
    """A registry that gives an answer to every request.

    Attributes:
        paths: of all requests.
    """

    def __init__(self, answer: Answer) -> None:
        self.paths: list[str] = []

        def remember(handler: Handler) -> None:
            self.paths.append(handler.path)
            answer(handler)

        super().__init__(remember)
