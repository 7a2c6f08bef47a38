"""Requests to listeners of a server on loopback, which has made its certificate itself."""

from __future__ import annotations

import http.client
import ssl
from contextlib import closing

from .commands import LOOPBACK
from .kube import PATIENCE


def fetch(port: int, path: str, token: str = "", *, tls: bool = True, body: str | None = None) -> tuple[int, str]:
    """Status and text of an answer; with a body, to a POST."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    unverified = ssl._create_unverified_context()
    connection = (
        http.client.HTTPSConnection(LOOPBACK, port, timeout=PATIENCE, context=unverified)
        if tls
        else http.client.HTTPConnection(LOOPBACK, port, timeout=PATIENCE)
    )
    with closing(connection):
        if body is None:
            connection.request("GET", path, headers=headers)
        else:
            connection.request("POST", path, body, {**headers, "Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()
