"""What every listener answers in the same way: sentences, denials, overload, and errors; as middlewares of aiohttp."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from webhook.errors import InputError
from webhook.facts import Unreadable
from webhook.server.guard import guard_of
from webhook.text import visible

# Makes an answer of a status, a sentence and headers.
Render: TypeAlias = Callable[[int, str, Mapping[str, str]], Awaitable[web.Response]]

JSON: Final = "application/json"
_NO_HEADERS: Final[Mapping[str, str]] = {}
# Which versions of what answer is nobody's business.
_SERVER: Final = "kubevirt-webhook"


class RequestDenied(Exception):  # noqa: N818 - an answer
    """A request that gets nothing.

    Args:
        status: the HTTP status.
        sentence: why, and what to do.
        headers: of the answer.
    """

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status)
        self.status: Final = status
        self.sentence: Final = sentence
        self.headers: Final = headers or {}


class Overload(Enum):
    """Why a request whose head is fine gets no answer of its own.

    Args:
        status: of an answer as an HTTP error.
        denial_code: HTTP's, of a denial.
        clause: why.
        remedy: what the client can do.

    Attributes:
        sentence: why, and what the client can do.
    """

    NO_MEMORY = 429, 429, "kubevirt-webhook has more bytes of requests than it has memory for", "try again"
    NO_SEAT = 429, 429, "kubevirt-webhook has more requests than it can evaluate", "try again"
    LATE = 408, 429, "the request's body did not arrive in time", "send it whole"
    TOO_LARGE = 413, 413, "the request's body is too large", "send one review at a time"

    def __init__(self, status: int, denial_code: int, clause: str, remedy: str) -> None:
        self.status: Final = status
        self.denial_code: Final = denial_code
        self.clause: Final = clause
        self.sentence: Final = f"{clause}; {remedy}"

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of an answer as an HTTP error."""
        return {"Retry-After": "1"} if self.status == 429 else {}


class OverloadError(Exception):
    """A request gets no answer of its own.

    Args:
        overload: why.
    """

    def __init__(self, overload: Overload) -> None:
        super().__init__(overload.clause)
        self.overload: Final = overload


class TrafficObserver:
    """Gets what a listener answers, and how it fails."""

    def on_crash(self, path: str, error: BaseException) -> None:
        """An exception that no handler expects: a bug."""

    def on_served(self, path: str, status: int, seconds: float) -> None:
        """An HTTP request at an endpoint was answered."""

    def on_explained(self, status: int) -> None:
        """A request for an explanation was answered."""


def response(
    status: int, body: bytes, content_type: str = JSON, headers: Mapping[str, str] | None = None
) -> web.Response:
    """An answer; ``content_type`` may have parameters."""
    return web.Response(status=status, body=body, headers={"Content-Type": content_type, **(headers or {})})


def text(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Plain text, which the API server shows in its own message where it is an error."""
    return web.Response(status=status, text=visible(sentence) + "\n", headers=headers)


async def as_text(status: int, sentence: str, headers: Mapping[str, str]) -> web.Response:
    """`text`, as a `Render`."""
    return text(status, sentence, headers)


@web.middleware
async def through_guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost middleware: tells the connection's guard when a request begins and ends."""
    guard = guard_of(request)
    guard.begin(request)
    try:
        answer = await handler(request)
    finally:
        is_last = guard.end()
    if is_last:
        answer.force_close()
    return answer


class RequestHandler(web.RequestHandler):
    """aiohttp's side of a connection, with another answer where no request of a client could be made.

    aiohttp's own repeats the line that it could not parse, names its version and Python's, and is logged as an error.
    """

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to bytes that are no HTTP, or to an exception that no middleware has answered.

        Raises:
            ConnectionError: the client has gone, and aiohttp ends its connection.
        """
        if isinstance(exc, ConnectionError):
            raise exc
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        answer = text(400, "the request is not valid HTTP/1.1", {"Server": _SERVER})
        answer.force_close()
        return answer


async def name_server(_request: web.Request, answer: web.StreamResponse) -> None:
    """A signal of aiohttp, before an answer is written: says which server it is."""
    answer.headers["Server"] = _SERVER


async def end_expectation(request: web.Request, answer: web.StreamResponse) -> None:
    """A signal of aiohttp, before an answer is written: tells the guard of one that no middleware has seen.

    An ``Expect`` that it doesn't know, aiohttp denies before any of them.
    """
    if isinstance(answer, web.HTTPExpectationFailed):
        guard = guard_of(request)
        guard.begin(request)
        if guard.end():
            answer.headers["Connection"] = "close"
            answer.force_close()


def errors_to_answers(traffic: TrafficObserver, hint: str, render: Render = as_text, *, path: str = "") -> Middleware:
    """A middleware that makes an answer of every exception.

    Args:
        traffic: gets exceptions that are bugs.
        hint: what to do instead of a request for a path at which there is nothing.
        render: makes the answer.
        path: names the listener, or a part of it, to ``traffic``; empty: the request's path does.
    """

    @web.middleware
    async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except ConnectionError:
            # The client has gone: `RequestHandler` lets aiohttp end the connection.
            raise
        except web.HTTPNotFound:
            problem = 404, f"there is nothing at {request.path[:200]}; {hint}", _NO_HEADERS
        except Exception as error:  # noqa: BLE001 - what leaves here would be aiohttp's own 500
            problem = problem_of(error, path or request.path, traffic)
        return await render(*problem)

    return answer_errors


def problem_of(error: Exception, path: str, traffic: TrafficObserver) -> tuple[int, str, Mapping[str, str]]:
    """Status, sentence and headers of the answer to a request that ends with an exception, at whatever listener."""
    if isinstance(error, RequestDenied):
        return error.status, error.sentence, error.headers
    if isinstance(error, OverloadError):
        return error.overload.status, error.overload.sentence, error.overload.headers
    if isinstance(error, InputError):
        return 400, str(error), {}
    if isinstance(error, Unreadable):
        return 503, f"the answer is not known now: {error.why}", {"Retry-After": "5"}
    if isinstance(error, web.RequestPayloadError):
        return 400, "the request's body is not valid HTTP/1.1", {}
    if isinstance(error, web.HTTPMethodNotAllowed):
        methods = ", ".join(sorted(error.allowed_methods))
        return 405, f"{error.method[:20]} is not answered here; use {methods}", {"Allow": methods}
    if isinstance(error, web.HTTPMove):
        # Without a host: whatever the request names, its answer leads to nobody else's.
        to = urlsplit(str(error.location))._replace(scheme="", netloc="").geturl()
        return error.status, f"this is at {to}", {"Location": to}
    traffic.on_crash(path, error)
    return 500, "internal error; see the kubevirt-webhook log", {}
