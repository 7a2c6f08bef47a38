"""Many requests to the API server at once, over connections that stay open: thousands of pods in seconds."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from tests.e2e.support.kube import PATIENCE, KubeError, parse_warnings

_WORKERS: Final = 6
_ATTEMPTS: Final = 10
_CHUNK_BYTES: Final = 1 << 16


class SchedulingRequest(NamedTuple):
    """One request with a JSON body."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    content_type: str = "application/json"


class SchedulingClient:
    """One identity's connections to one API server, one for each thread; a context manager."""

    def __init__(self, server: str, ca: Path, certificate: Path) -> None:
        self._host = urllib.parse.urlsplit(server).netloc
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._tls.load_cert_chain(certificate)
        self._threads = threading.local()
        self._connections: list[http.client.HTTPSConnection] = []
        self._pool = ThreadPoolExecutor(_WORKERS, "client")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        for connection in self._connections:
            # A thread that reads a watch would keep the connection from being closed before the next event.
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()

    def send(self, request: SchedulingRequest) -> dict[str, Any]:
        """The answer to one request.

        Raises:
            ApiError: the API server's status was 400 or higher.
        """
        response = self._exchange(request)
        try:
            answer: dict[str, Any] = json.loads(response.read())
        except (TimeoutError, http.client.IncompleteRead):
            self._connection().close()
            raise
        if response.status >= http.client.BAD_REQUEST:
            warnings = parse_warnings(response.headers.get_all("Warning", []))
            line = f"{request.method} {request.path}"
            raise KubeError(line, response.status, answer.get("message", ""), answer, warnings)
        return answer

    def send_all(self, requests: Iterable[SchedulingRequest]) -> list[dict[str, Any]]:
        """The answers to many requests, a few of which are under way at any time."""
        return list(self._pool.map(self.send, requests))

    def send_all_patiently(self, requests: Iterable[SchedulingRequest]) -> None:
        """Send requests that may take longer than the API server allows, again and again until each is done."""
        list(self._pool.map(self._send_patiently, requests))

    def _send_patiently(self, request: SchedulingRequest) -> None:
        for _attempt in range(_ATTEMPTS - 1):
            with contextlib.suppress(TimeoutError, http.client.IncompleteRead):
                if self._send_once(request):
                    return
        self.send(request)

    def _send_once(self, request: SchedulingRequest) -> bool:
        """Whether the request was done in the time that the API server allows."""
        try:
            self.send(request)
        except KubeError as error:
            if error.status != http.client.GATEWAY_TIMEOUT:
                raise
            return False
        return True

    def lines(self, path: str) -> Iterator[dict[str, Any]]:
        """The lines of a watch, over a connection of its own, until the API server ends it."""
        connection = self._connect()
        connection.timeout = None  # it may be silent for long
        connection.request("GET", path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        pending = b""
        while chunk := response.read1(_CHUNK_BYTES):
            *lines, pending = (pending + chunk).split(b"\n")
            yield from map(json.loads, lines)

    def _exchange(self, request: SchedulingRequest) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json", "Content-Type": request.content_type}
        body = None if request.body is None else json.dumps(request.body)
        connection = self._connection()
        try:
            connection.request(request.method, request.path, body, headers)
            return connection.getresponse()
        except TimeoutError:
            connection.close()
            raise
        except (ConnectionError, ssl.SSLError):  # the API server closes connections that were idle for long
            connection.close()
            connection.request(request.method, request.path, body, headers)
            return connection.getresponse()

    def _connection(self) -> http.client.HTTPSConnection:
        if not hasattr(self._threads, "connection"):
            self._threads.connection = self._connect()
        connection: http.client.HTTPSConnection = self._threads.connection
        return connection

    def _connect(self) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection(self._host, context=self._tls, timeout=PATIENCE)
        self._connections.append(connection)
        return connection
