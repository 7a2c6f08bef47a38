"""Requests to the API server by kubernetes-asyncio: bounded in time and bytes, and its failures in sentences."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from certs import files
from webhook.errors import Unavailable
from webhook.k8s.client import api, kubeconfig
from webhook.k8s.client.api import (
    NO_QUERY,
    ApiConnectionError,
    ApiError,
    ApiRequest,
    Transport,
)
from webhook.k8s.client.identity import Kubeconfig

if TYPE_CHECKING:
    from webhook.k8s.client.adapter import Connection, Sent

CONNECT_SECONDS: Final = 5.0
REQUEST_SECONDS: Final = 30.0

# A list page may be large; a watch's headers come at once, its body for minutes.
_GET_SECONDS: Final = 60.0
_WATCH_HEADERS_SECONDS: Final = 30.0

# aiohttp's own total would begin again after a renewal, and not count what goes on here around a request.
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)

# Bodies that are taken in at the same time; the others wait in their sockets' buffers and at the API server.
_READERS: Final = 8

# A path is made by `webhook.k8s.paths`; another one could lose its query, and with it ``dryRun=All``.
_UNESCAPED: Final = re.compile(r"^(?!/)|[?#\s]|/\.{1,2}(/|$)")

# Of the service account that a pod has.
_POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NO_SUCH_HOST: Final = (socket.EAI_NONAME, socket.EAI_NODATA)
_CONNECTION_PROBLEMS: Final = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset by peer",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network is unreachable",
}
# X509_V_ERR_... of OpenSSL, in the words of Go's crypto/x509.
_CERTIFICATE_PROBLEMS: Final = {
    9: "certificate is not yet valid",
    10: "certificate has expired",
    **dict.fromkeys((18, 19, 20, 21), "certificate signed by unknown authority"),
    62: "certificate is not valid for the name of the API server",
    64: "certificate is not valid for the address of the API server",
}
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


# One of a header Warning (RFC 7234, 5.5): a code, an agent, and a quoted text. A proxy may join several.
_WARNING: Final = re.compile(r'[0-9]{3} \S+ "((?:[^"\\]|\\.)*)"')


class KubernetesTransport(Transport):
    """An authenticated connection to one API server; made by `connect`.

    Args:
        connection: kubernetes-asyncio's client, as one identity.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection: Final = connection
        self._readers: Final = asyncio.Semaphore(_READERS)
        self._closed = False

    @property
    def server(self) -> str:
        """The URL of the API server, for the server's own log: warnings to users do not name it."""
        return self._connection.host

    @property
    def cluster(self) -> str:
        """The cluster, as an admin distinguishes it from others: the context and the URL of the API server."""
        context = self._connection.context
        return f'context "{context}", {self.server}' if context else f"the cluster of this pod, {self.server}"

    async def get(
        self, path: str, query: Mapping[str, str] = NO_QUERY, *, most: int = api.LARGEST_ANSWER_BYTES
    ) -> tuple[int, bytes]:
        """The HTTP status, whatever it is, and the whole body; see `Transport.get`."""
        return await self.request("GET", path, query, seconds=_GET_SECONDS, most=most)

    async def request(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = NO_QUERY,
        body: Any = None,
        content_type: str = "application/json",
        *,
        seconds: float = REQUEST_SECONDS,
        most: int = api.LARGEST_ANSWER_BYTES,
        warnings: list[str] | None = None,
    ) -> tuple[int, bytes]:
        """The HTTP status, whatever it is, and the whole body of the answer to any request.

        Its path is escaped, its query is not; its body is plain JSON. The seconds are those of all of it: of a new
        login after a 401, of the request after that, and of waiting until others have read theirs. The answer's
        warnings are added to a list that is given.

        Raises:
            ApiConnectionError: there was no answer within so many seconds; `TooLargeError`: it has over ``most`` bytes.
        """
        try:
            async with (
                asyncio.timeout(seconds),
                self._answer(ApiRequest(method, path, query, _TIMEOUT, body, content_type)) as response,
            ):
                if warnings is not None:
                    warnings += _warnings_of(response)
                return response.status, await self._body(response, most)
        except (aiohttp.ClientError, OSError) as error:
            is_late = isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError)
            raise (api.NoAnswerInTimeError if is_late else ApiConnectionError)(_clause(error)) from error

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """The body of a 200 answer in pieces of any size; see `Transport.watch`."""
        until = asyncio.get_running_loop().time() + _WATCH_HEADERS_SECONDS
        try:
            async with self._answer(ApiRequest("GET", path, query, _TIMEOUT), until) as response:
                if response.status != 200:
                    async with asyncio.timeout_at(until):
                        body = await self._body(response, api.LARGEST_ANSWER_BYTES)
                    raise ApiError(response.status, body)
                yield b""
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise ApiConnectionError(_clause(error)) from error

    async def _body(self, response: aiohttp.ClientResponse, most: int) -> bytes:
        """A whole body. One that is too large is left unread, which ends its connection."""
        chunks, size = [], 0
        async with self._readers:
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > most:
                    raise api.TooLargeError(most)
                chunks.append(chunk)
            return b"".join(chunks)

    async def date(self) -> float | Unavailable:
        """The API server's clock in Unix seconds, cut off to whole ones: the Date header of any answer."""
        until = asyncio.get_running_loop().time() + REQUEST_SECONDS
        try:
            async with self._answer(ApiRequest("GET", "/version", NO_QUERY, _TIMEOUT), until) as response:
                return parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
        except ApiConnectionError as error:
            return Unavailable(error.why)
        except (aiohttp.ClientError, OSError) as error:
            return Unavailable(_clause(error))
        except ValueError:
            return Unavailable("the API server's answer has no Date")

    async def close(self) -> None:
        """End all connections."""
        self._closed = True
        await self._connection.close()

    @asynccontextmanager
    async def _answer(self, request: ApiRequest, until: float | None = None) -> AsyncIterator[aiohttp.ClientResponse]:
        """The head of an answer by some time of the loop; at the end its connection is free for another, or gone.

        Raises:
            ValueError: the path is not escaped, so that a part of it would be sent as the query.
        """
        if _UNESCAPED.search(request.path):
            raise ValueError(f"the path {request.path!r} is not one of webhook.k8s.paths")
        async with asyncio.timeout_at(until):
            response = await self._send(request)
        try:
            yield response
        finally:
            _end(response)

    async def _send(self, request: ApiRequest) -> aiohttp.ClientResponse:
        response, sent = await self._call(request)
        if response.status != 401 or self._closed:
            return response
        try:
            is_renewed = await self._connection.renew(sent)
        except BaseException:
            _end(response)
            raise
        if is_renewed:
            _end(response)
            response, _ = await self._call(request)
        return response

    async def _call(self, request: ApiRequest) -> tuple[aiohttp.ClientResponse, Sent]:
        """The head of an answer, and what was sent for it."""
        if self._closed:
            raise ApiConnectionError("the connection to the API server has been closed")
        return await self._connection.send(request)


async def connect(target: Kubeconfig | str | None = None) -> KubernetesTransport:
    """Prepare a connection; no request is sent yet.

    Without the path of a kubeconfig, it is that of ``$KUBECONFIG`` or kubectl's own default, and in a pod without
    these, of its service account; an `InputError` where it cannot be used.
    """
    # It takes 0.15 s of a processor and 38 MB, which commands without a cluster don't pay.
    from webhook.k8s.client.adapter import ServiceAccount, load  # noqa: PLC0415

    options = target if isinstance(target, Kubeconfig) else Kubeconfig(target or "")
    path = _kubeconfig(options)
    connection = await load(path, options.impersonation) if path else ServiceAccount(options.impersonation)
    return KubernetesTransport(connection)


def default_namespace(options: Kubeconfig | None = None) -> str:
    """The namespace of what names none, as for kubectl: that of the context or of the pod, else ``default``.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    path = _kubeconfig(options or Kubeconfig())
    named = kubeconfig.namespace_of(path) if path else ""
    if named or not _is_in_pod():
        return named or "default"
    # As client-go: a pod may be told by the downward API.
    if named := os.environ.get("POD_NAMESPACE", ""):
        return named
    try:
        return files.read(_POD_NAMESPACE, kubeconfig.MAX_CREDENTIAL_BYTES).decode().strip() or "default"
    except (files.FileError, UnicodeDecodeError):
        return "default"


def _kubeconfig(options: Kubeconfig) -> str:
    """The kubeconfigs of a command, as kubectl finds them; empty in a pod that has none, so its service account counts.

    Raises:
        InputError: a kubeconfig cannot be used.
    """
    if options.path:
        return options.path
    path = os.environ.get("KUBECONFIG") or kubeconfig.DEFAULT
    return "" if _is_in_pod() and kubeconfig.is_empty(path) else path


def _is_in_pod() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def _end(response: aiohttp.ClientResponse) -> None:
    """Free the connection of an answer, or end it where there is more of the body."""
    if response.connection and response.connection.transport:
        # To end TLS in order takes an answer, for which nothing would wait.
        response.connection.transport.abort()
    response.release()


def _clause(error: Exception) -> str:
    """Why there was no answer. Without the address of the API server: users may see this in a warning."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            # By the code alone: OpenSSL's own text may name the API server's address.
            code = getattr(error.certificate_error, "verify_code", 0)
            cause = f"x509: {_CERTIFICATE_PROBLEMS.get(code, 'the certificate cannot be verified')}"
            return f"no trusted TLS connection to the API server ({cause})"
        case aiohttp.ClientConnectorSSLError():
            # OpenSSL's name of the error, from a closed set: for example ``TLSV13_ALERT_CERTIFICATE_REQUIRED``.
            reason = error.os_error.reason if isinstance(error.os_error, ssl.SSLError) else ""
            cause = reason.lower().replace("_", " ") or "the handshake failed"
            cause = "it does not speak TLS at this port" if reason in _NO_TLS else cause
            return f"no trusted TLS connection to the API server ({cause})"
        case TimeoutError():
            return "the API server did not answer in time"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy before the API server answered {error.status}"
        case aiohttp.ClientConnectorError():
            # As other clients of Kubernetes name it.
            code = error.os_error.errno or 0
            cause = _CONNECTION_PROBLEMS.get(code) or errno.errorcode.get(code, "unknown error")
            if isinstance(error.os_error, socket.gaierror):
                cause = "no such host" if code in _NO_SUCH_HOST else "the name of its host cannot be resolved now"
            is_proxy = isinstance(error, aiohttp.ClientProxyConnectionError)
            return f"no connection to {'the proxy before ' if is_proxy else ''}the API server ({cause})"
    return f"the connection to the API server broke ({type(error).__name__})"


def _warnings_of(response: aiohttp.ClientResponse) -> list[str]:
    """The texts of the answer's warnings."""
    found = (match for value in response.headers.getall("Warning", ()) for match in _WARNING.finditer(value))
    return [re.sub(r"\\(.)", r"\1", match[1]) for match in found]
