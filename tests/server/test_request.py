"""Heads that are parsed, and those that need not be, for they have been."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.conftest import REQUEST, PieceCase, PieceTransport
from tests.server.raw_requests import BODY, head
from tests.waiting import until
from webhook.server import edge
from webhook.server.edge import Connection
from webhook.server.request import MAX_HEAD_BYTES, BadRequestError, CachedRequestHead, Chunks, Head, parse_head

# As Go's client writes it.
GO = (
    b"POST /mutate/scheduling/pods/enforce?timeout=10s HTTP/1.1\r\nHost: webhook.demo.svc:443\r\n"
    b"User-Agent: kube-apiserver-admission\r\nContent-Length: 11613\r\nAccept: application/json, */*\r\n"
    b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)


def test_what_a_head_says() -> None:
    said = parse_head(GO)[0]
    assert (said.method, said.path, said.query) == ("POST", "/mutate/scheduling/pods/enforce", "timeout=10s")
    assert (said.length, said.content_type, said.is_encoded, said.is_last) == (11613, "application/json", False, False)


@pytest.mark.parametrize(
    ("data", "length", "is_last"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 0, False),
        (b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 0, False),
        (b"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\n", 3, True),
        (b"POST / HTTP/1.1\r\nHost: x\r\ncontent-length: 003 \r\n\r\n", 3, False),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", None, False),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", 0, True),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", 0, True),
    ],
)
def test_how_a_body_is_bounded(data: bytes, length: int | None, is_last: bool) -> None:
    said = parse_head(data)[0]
    assert (said.length, said.is_last) == (length, is_last)


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        # What others may take for the end of a head must not be inside of one.
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\n\nabc\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\nabc\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\rabc\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nA: b\r\n Content-Length: 3\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\ncontent-length: 3\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n",
        b"POST /%2e%2e/\xe4 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n",
    ],
)
def test_what_is_not_a_head(data: bytes) -> None:
    with pytest.raises(BadRequestError):
        parse_head(data)


@given(length=st.integers(0, 999_999_999), zeros=st.integers(0, 3), body=st.binary(max_size=20))
def test_a_known_head_says_of_a_length_what_the_parser_says(length: int, zeros: int, body: bytes) -> None:
    known = CachedRequestHead(GO, parse_head(GO)[0])
    other = GO.replace(b"11613", b"0" * zeros + str(length).encode())
    found = known.match(other + body)
    if len(str(length)) + zeros <= 9:
        assert found == (len(other), length)
    said = parse_head(other)[0]
    assert said.length == length
    assert msgspec.structs.replace(said, length=None, headers={}) == msgspec.structs.replace(
        known.head, length=None, headers={}
    )
    assert {**said.headers, "content-length": ""} == {**known.head.headers, "content-length": ""}


@given(at=st.integers(0, len(GO) - 1), with_=st.binary(max_size=3), removed=st.integers(0, 3))
def test_where_a_known_head_is_found_the_parser_finds_the_same(at: int, with_: bytes, removed: int) -> None:
    known = CachedRequestHead(GO, parse_head(GO)[0])
    changed = GO[:at] + with_ + GO[at + removed :]
    found = known.match(changed + BODY)
    if found:
        begin, length = found
        assert changed[:begin].endswith(b"\r\n\r\n")
        assert parse_head(changed[:begin])[0].length == length
        assert parse_head(changed[:begin])[0].path == known.head.path


DIGITS = [b"", b"-1", b"+1", b"1 ", b"0x1", b"1_0", b"\xd9\xa1", b"1" * 10, b"1\r\nX: y"]
WITHOUT = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: 1"]


@pytest.mark.parametrize(
    ("known", "data"), [*((GO, GO.replace(b"11613", digits)) for digits in DIGITS), *((data, data) for data in WITHOUT)]
)
def test_only_digits_are_a_length_and_without_one_no_head_is_known_again(known: bytes, data: bytes) -> None:
    assert CachedRequestHead(known, parse_head(GO)[0]).match(data) is None


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Those that are parsed."""
    found: list[bytes] = []

    def counting(data: bytes) -> tuple[Head, Chunks]:
        found.append(data)
        return parse_head(data)

    monkeypatch.setattr(edge, "parse_head", counting)
    return found


async def test_a_head_that_comes_again_is_parsed_once(case: PieceCase, heads: list[bytes]) -> None:
    for request in (REQUEST, REQUEST, head(0), REQUEST, head(0, "/other"), REQUEST):
        case.receive(request)
    assert case.transport.answers == 6
    assert heads == [head(len(BODY)), head(0, "/other"), head(len(BODY))]


async def test_a_head_that_comes_on_another_connection_is_parsed_once(case: PieceCase, heads: list[bytes]) -> None:
    for connection in (case.connection, Connection(case.server), Connection(case.server)):
        connection.connection_made(transport := PieceTransport())
        case.receive(REQUEST[:-1], connection)
        case.receive(REQUEST[-1:], connection)
        case.receive(REQUEST, connection)
        assert transport.answers == 2
    assert heads == [head(len(BODY))]
    # What follows from the connection, such as a certificate that is none of those that are allowed, is asked again.
    assert case.heads == 3


async def test_a_head_with_a_token_is_forgotten_with_its_connection(case: PieceCase) -> None:
    case.receive(REQUEST.replace(b"Host: x", b"Host: x\r\nAuthorization: Bearer canary"))
    assert (case.transport.answers, case.server.head) == (1, None)


async def test_nothing_is_known_of_a_head_that_was_rejected(case: PieceCase) -> None:
    case.receive(REQUEST)
    case.receive(head(len(BODY)).replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n") + BODY)
    case.receive(REQUEST)
    assert case.transport.answers == 1
    assert b"HTTP/1.1 400 Bad Request\r\n" in case.transport.written
    assert case.transport.closed


@pytest.mark.parametrize("size", [1, 1000, 4 * MAX_HEAD_BYTES])
async def test_a_head_without_an_end_has_a_limit(case: PieceCase, size: int) -> None:
    endless = b"POST / HTTP/1.1\r\n" + b"A: b\r\n" * MAX_HEAD_BYTES
    taken = 0
    for start in range(0, 2 * MAX_HEAD_BYTES, size):
        if case.transport.closed:
            break
        case.receive(endless[start : start + size])
        taken = start + size
    assert case.transport.closed
    assert taken <= MAX_HEAD_BYTES + size
    assert b"HTTP/1.1 400 Bad Request\r\n" in case.transport.written


async def test_a_body_that_nobody_wants_to_read_does_not_stop_the_next_request(case: PieceCase) -> None:
    """What is behind its flow control is read on, however much of it there is."""
    case.at_once = False
    case.release.set()
    body = b" " * 1_000_000
    data = head(len(body)) + body
    case.receive(data[:-1])
    assert not case.transport.reads
    case.receive(data[-1:])
    await until(lambda: not case.connection.task)

    assert case.transport.answers == 1
    assert case.transport.reads
    case.receive(REQUEST)
    await until(lambda: case.transport.answers == 2)
