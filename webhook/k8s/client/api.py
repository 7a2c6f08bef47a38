"""What watches, health checks and look-ups need of an API server, and its errors put into words.

`webhook.k8s.client.transport` is the real connection; tests bring their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from webhook.errors import Unavailable
from webhook.k8s.paths import is_segment
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object, decode_status
from webhook.text import duration

if TYPE_CHECKING:
    import aiohttp

V = TypeVar("V", bound=Object)
S = TypeVar("S")

NO_QUERY: Final[Mapping[str, str]] = {}

# etcd stores 1.5 MB of an object by default. As JSON it may have six times that, where its texts must be escaped.
LARGEST_ANSWER_BYTES: Final = 16 * 1024 * 1024


class ApiConnectionError(Exception):
    """No HTTP answer: no connection, a broken one, or none in time.

    Args:
        why: the cause as a clause.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why: Final = why


class NoAnswerInTimeError(ApiConnectionError):
    """No answer came in time, and it was not the making of a connection that took too long."""


class TooLargeError(ApiConnectionError):
    """The answer has more bytes than the caller has room for.

    Args:
        most: the limit of the answer, in bytes.
    """

    def __init__(self, most: int) -> None:
        super().__init__(f"the API server's answer is larger than {most // 1024 // 1024} MiB")


class ApiError(Exception):
    """An HTTP answer with a status other than the expected one.

    Args:
        status: the HTTP status, or the ``code`` of a Status object inside a watch.
        body: usually a Status object; never shown, since it may quote the object that was denied.
    """

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status: Final = status
        self.body: Final = body


class ApiRequest(NamedTuple):
    """One request: its path escaped, its query not; its body is plain JSON or a Struct, None for none."""

    method: str
    path: str
    query: Mapping[str, str]
    timeout: aiohttp.ClientTimeout
    body: Any = None
    content_type: str = "application/json"


_GRANT: Final = "the API server denied the request (403): grant "


class Forbidden(Unavailable, frozen=True):
    """The API server said 403: an answer, which waiting does not change."""

    @property
    def permission(self) -> str:
        """What is missing, such as ``list on nodes``; empty: that is not known."""
        return self.why.removeprefix(_GRANT) if self.why.startswith(_GRANT) else ""


class Requests(Protocol):
    """A connection to the API server for callers that send single requests, also writes.

    Paths start with a slash and are already percent-encoded: `webhook.k8s.paths` makes them.
    """

    async def request(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = NO_QUERY,
        body: Any = None,
        content_type: str = "application/json",
        *,
        seconds: float = ...,
        warnings: list[str] | None = None,
    ) -> tuple[int, bytes]:
        """The HTTP status and the whole body of the answer to plain JSON; an `ApiConnectionError` without one.

        The answer's warnings, which kubectl prints, are added to a list that is given.
        """


class Transport(Requests, Protocol):
    """An authenticated connection to one API server."""

    async def get(
        self, path: str, query: Mapping[str, str] = NO_QUERY, *, most: int = LARGEST_ANSWER_BYTES
    ) -> tuple[int, bytes]:
        """The HTTP status, whatever it is, and the whole body; `ApiConnectionError` without, or over ``most`` bytes."""

    def watch(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """The body of a 200 answer in pieces of any size; the first, empty one says that it has begun.

        An `ApiError` for another status; an `ApiConnectionError` without an answer, or where the connection breaks.
        """

    async def date(self) -> float | Unavailable:
        """The API server's clock in Unix seconds, cut off to whole ones."""

    async def close(self) -> None:
        """End all connections."""


def explain_all(answers: Iterable[Unavailable]) -> str:
    """Why several reads failed, a clause; the permissions that are missing in a row, to be granted at once."""
    forbidden, others = [], []
    for each in answers:
        if isinstance(each, Forbidden) and each.permission:
            forbidden.append(each.permission)
        else:
            others.append(each.why)
    granting = [f"{_GRANT}{', '.join(dict.fromkeys(forbidden))}"] if forbidden else []
    return "; ".join((*granting, *dict.fromkeys(others)))


def explain(verb: str, resource: Resource[Any], namespace: str, status: int, body: bytes) -> Unavailable:
    """Why an answer to an RBAC verb is not the expected one, without a quotation of anything that a person wrote.

    It is `Forbidden` for 403, and names the missing permission.
    """
    if status == 403:
        everywhere = " in all namespaces" if resource.namespaced else ""
        where = f" in namespace {namespace}" if namespace else everywhere
        group = f".{resource.group}" if resource.group else ""
        return Forbidden(f"{_GRANT}{verb} on {resource.plural}{group}{where}")
    if status == 401:
        return Unavailable("the API server answered 401: it does not accept the credentials of kubevirt-webhook")
    reason = decode_status(body).reason or ""
    # Reasons are words of a closed set (metav1.StatusReason); anything else is text that a user may have written.
    word = f" {reason}" if reason.isascii() and reason.isalpha() and len(reason) <= 40 else ""
    return Unavailable(f"the API server answered {status}{word} to {verb} {resource.plural}")


# What a read of the API server may raise, on the way or while its answer is decoded.
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
READ_ERRORS: Final = (ApiError, ApiConnectionError, TimeoutError, *UNDECODABLE)


def describe_timeout(seconds: float) -> Unavailable:
    """A request to the API server that was given up after some seconds."""
    return Unavailable(f"the request to the API server timed out after {duration(seconds)}")


def list_failure(error: Exception, resource: Resource[Any], namespace: str, seconds: float) -> Unavailable:
    """Why objects of a namespace, or of all, could not be listed: one of `READ_ERRORS`, in words."""
    if isinstance(error, ApiError):
        return explain("list", resource, namespace, error.status, error.body)
    if isinstance(error, ApiConnectionError):
        return Unavailable(error.why)
    return describe_timeout(seconds) if isinstance(error, TimeoutError) else _undecodable(f"list of {resource.plural}")


async def fetch(
    transport: Transport, resource: Resource[V], namespace: str, name: str, seconds: float
) -> V | Unavailable | None:
    """One object by GET, decoded; see `fetch_body`."""
    body = await fetch_body(transport, resource, namespace, name, seconds)
    return decode(body, resource.view, resource.kind) if isinstance(body, bytes) else body


async def fetch_body(
    transport: Transport, resource: Resource[Any], namespace: str, name: str, seconds: float
) -> bytes | Unavailable | None:
    """One object by GET, as the JSON that the API server sent, by any text as its name.

    None for 404, and for names that no object can have; `Forbidden` for 403; `Unavailable` for all else that fails on
    the way. Of cluster-scoped resources the namespace is not used.
    """
    if not is_segment(name) or (resource.namespaced and not is_segment(namespace)):
        return None
    path = resource.path(namespace, name)
    answer = await await_answer(transport.get(path), seconds)
    if isinstance(answer, Unavailable):
        return answer
    status, body = answer
    if status == 404:
        return None
    return body if status == 200 else explain("get", resource, namespace, status, body)


async def await_answer(request: Awaitable[tuple[int, bytes]], seconds: float) -> tuple[int, bytes] | Unavailable:
    """The status and body of the answer to a request to the API server; `Unavailable` where there is none in time."""
    try:
        async with asyncio.timeout(seconds):
            return await request
    except ApiConnectionError as error:
        return Unavailable(error.why)
    except TimeoutError:
        return describe_timeout(seconds)


def decode(body: bytes, view: type[S], noun: str) -> S | Unavailable:
    """An answer of the API server, decoded into a view; `Unavailable`, which names the noun, where that fails."""
    try:
        return msgspec.json.decode(body, type=view)
    except UNDECODABLE:
        return _undecodable(noun)


def _undecodable(noun: str) -> Unavailable:
    # The decoder's own message would name the place, and with it keys that people wrote.
    return Unavailable(f"the API server's {noun} cannot be decoded")
