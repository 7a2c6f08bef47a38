"""Requests as bytes."""

from __future__ import annotations

import msgspec

from tests.builders import launcher_pod, review

PODS = "/mutate/scheduling/pods/enforce"
BODY = msgspec.json.encode(review(launcher_pod()))


def head(length: int, path: str = PODS, extra: str = "") -> bytes:
    begin = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{begin}Content-Length: {length}\r\n{extra}\r\n".encode()
