"""HTTP to the API server. kubernetes_asyncio finds and authenticates it; nothing else of it is used, or imported."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec
import yaml
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration

from webhook import __version__
from webhook.errors import InputError, Unavailable
from webhook.inputs import read_file
from webhook.k8s.client.api import (
    LARGEST_ANSWER_BYTES,
    NO_QUERY,
    ApiConnectionError,
    ApiError,
    TooLargeError,
    Transport,
)

USER_AGENT: Final = f"kubevirt-webhook/{__version__}"

CONNECT_SECONDS: Final = 5.0
_MAX_KUBECONFIG_BYTES: Final = 4 * 1024 * 1024
REQUEST_SECONDS: Final = 30.0

# A list page may be large; a watch's headers come at once, its body for minutes.
_GET_SECONDS: Final = 60.0
_WATCH_HEADERS_SECONDS: Final = 30.0

# Bodies that are taken in at the same time; the others wait in the kernel's buffers and at the API server.
_READERS: Final = 8

# Between two readings of a kubeconfig because its token was refused.
_RENEW_SECONDS: Final = 10.0

# What kubernetes_asyncio raises over a kubeconfig that isn't what it should be.
_CONFIG_ERRORS: Final = (
    config.ConfigException,
    yaml.YAMLError,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    AssertionError,
)


class _Ask(NamedTuple):
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    timeout: aiohttp.ClientTimeout
    body: Any = None
    content_type: str = "application/json"


class KubernetesTransport(Transport):
    """An authenticated connection to one API server; made by `connect`.

    Args:
        configuration: a filled ``kubernetes_asyncio.client.Configuration``.
        kubeconfig: the file behind it, to be read again when its token is refused; None: not to be.

    Raises:
        OSError: a certificate file can't be read or holds no certificate (``ssl.SSLError``).
    """

    def __init__(self, configuration: Any, kubeconfig: str | None = None) -> None:
        self._configuration = configuration
        self._kubeconfig = kubeconfig
        self._api: Any = ApiClient(configuration)
        self._api.user_agent = USER_AGENT
        self._renewing = asyncio.Lock()
        self._readers = asyncio.Semaphore(_READERS)
        self._renewed_at: float | None = None
        self._closed = False

    @property
    def server(self) -> str:
        """The URL of the API server, for our own log: users' warnings don't name it."""
        return str(self._configuration.host)

    async def get(
        self, path: str, query: Mapping[str, str] = NO_QUERY, *, most: int = LARGEST_ANSWER_BYTES
    ) -> tuple[int, bytes]:
        """The HTTP status and the whole body.

        Args:
            most: bytes that the body may have.

        Raises:
            Unreachable: there was no answer.
            TooLarge: the body is larger.
        """
        return await self.request("GET", path, query, seconds=_GET_SECONDS, most=most)

    async def post(self, path: str, body: Any) -> tuple[int, bytes]:
        """The HTTP status and the whole body of the answer to plain JSON. Raises as `get`."""
        return await self.request("POST", path, body=body)

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = NO_QUERY,
        body: Any = None,
        content_type: str = "application/json",
        *,
        seconds: float = REQUEST_SECONDS,
        most: int = LARGEST_ANSWER_BYTES,
    ) -> tuple[int, bytes]:
        """Any request.

        Args:
            method: the HTTP method.
            path: starts with a slash, already escaped.
            query: the parameters, not yet escaped.
            body: plain JSON, or bytes that hold JSON.
            content_type: of the body: one of the JSON or apply types of Kubernetes.
            seconds: to wait at most.
            most: bytes that the answer's body may have.

        Returns:
            The HTTP status, whatever it is, and the whole body.

        Raises:
            Unreachable: there was no answer.
            TooLarge: its body is larger than it may be.
            msgspec.DecodeError: the bytes hold no JSON.
        """
        if isinstance(body, bytes):
            body = msgspec.json.decode(body)
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with await self._send(_Ask(method, path, query, timeout, body, content_type)) as response:
                return response.status, await self._body(response, most)
        except (aiohttp.ClientError, OSError) as error:
            raise ApiConnectionError(_clause(error)) from error

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """The body of a 200 answer in pieces of any size; the first, empty one says that it has begun.

        Raises:
            Refused: the answer has another status.
            Unreachable: there was no answer, or the connection broke.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        try:
            async with asyncio.timeout(_WATCH_HEADERS_SECONDS):
                response = await self._send(_Ask("GET", path, query, timeout))
            async with response:
                if response.status != 200:
                    raise ApiError(response.status, await self._body(response, LARGEST_ANSWER_BYTES))
                yield b""
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise ApiConnectionError(_clause(error)) from error

    async def _body(self, response: aiohttp.ClientResponse, most: int) -> bytes:
        """A whole body. One that is too large is left unread, which ends its connection.

        Raises:
            TooLarge: it has more bytes than it may.
        """
        chunks, size = [], 0
        async with self._readers:
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > most:
                    raise TooLargeError(most)
                chunks.append(chunk)
            return b"".join(chunks)

    async def date(self) -> float | Unavailable:
        """The API server's clock in Unix seconds, cut off to whole ones: the Date header of any answer."""
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
        try:
            async with await self._send(_Ask("GET", "/version", NO_QUERY, timeout)) as response:
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
        await self._api.close()

    async def _send(self, ask: _Ask) -> aiohttp.ClientResponse:
        token = self._token
        response = await self._call(ask)
        if response.status == 401 and await self._renew_token(token):
            response.release()
            response = await self._call(ask)
        return response

    async def _call(self, ask: _Ask) -> aiohttp.ClientResponse:
        if self._closed:
            raise ApiConnectionError("the connection to the API server has been closed")
        try:
            response: aiohttp.ClientResponse = await self._api.call_api(
                ask.path,
                ask.method,
                query_params=list(ask.query.items()),
                header_params={"Accept": "application/json", "Content-Type": ask.content_type},
                body=ask.body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=ask.timeout,
            )
        except aiohttp.ClientError:
            raise
        except (config.ConfigException, ValueError) as error:
            # In a pod the token file is read again every minute; it may be empty or unfit for a header.
            raise ApiConnectionError("our credentials can't be read") from error
        return response

    @property
    def _token(self) -> str | None:
        token: str | None = self._configuration.api_key.get("BearerToken")
        return token

    async def _renew_token(self, refused: str | None) -> bool:
        """Read the kubeconfig again, whose token was refused: a plugin or a file may have a new one.

        Returns:
            Whether there is another token than the refused one.
        """
        if self._kubeconfig is None:
            return False
        loop = asyncio.get_running_loop()
        async with self._renewing:
            recent = self._renewed_at is not None and loop.time() - self._renewed_at < _RENEW_SECONDS
            if self._token == refused and not recent:
                self._renewed_at = loop.time()
                fresh = Configuration()
                try:
                    await config.load_kube_config(self._kubeconfig, client_configuration=fresh, persist_config=False)
                except _CONFIG_ERRORS:
                    return False
                self._configuration.api_key = fresh.api_key
            return self._token != refused


async def connect(kubeconfig: str | None = None) -> KubernetesTransport:
    """Prepare a connection; no request is sent yet.

    Args:
        kubeconfig: path of a kubeconfig; None: our service account inside a pod, else ``$KUBECONFIG`` or kubectl's
            own default.

    Raises:
        InputError: the kubeconfig or the service account can't be used.
    """
    configuration: Any = Configuration()
    if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            return KubernetesTransport(configuration)
        except (config.ConfigException, OSError) as error:
            raise InputError(
                f"the pod's service account can't be used: {_sentence(error)}",
                fix="set automountServiceAccountToken, or name a kubeconfig",
            ) from error
    path = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    _check(path)
    try:
        loader = await config.load_kube_config(path, client_configuration=configuration, persist_config=False)
        if not getattr(loader, "host", None):
            raise InputError("the cluster of the current context has no server", path, "add it to the kubeconfig")
        return KubernetesTransport(configuration, path)
    except _CONFIG_ERRORS as error:
        raise InputError(f"not a usable kubeconfig: {_sentence(error)}", path, "repair or replace it") from error


def _check(path: str) -> None:
    """Find the mistakes that kubernetes_asyncio reports in no way that helps.

    Args:
        path: a kubeconfig, or several, merged: as for kubectl, those that don't exist are passed over.

    Raises:
        InputError: a file can't be read or is no kubeconfig, or none says what the current context is.
    """
    files = path.split(os.pathsep)
    files = [file for file in files if Path(file).expanduser().exists()] or files[:1]
    context = False
    for file in files:
        try:
            document = yaml.safe_load(read_file(Path(file).expanduser(), _MAX_KUBECONFIG_BYTES))
        except InputError as error:
            raise InputError(f"the kubeconfig {error.what}", file, "name another with --kubeconfig") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise InputError("the kubeconfig is not YAML", file, "repair or replace it") from error
        if not isinstance(document, dict):
            raise InputError("not a kubeconfig", file, "name another with --kubeconfig")
        context = context or bool(document.get("current-context"))
    if not context:
        raise InputError("the kubeconfig has no current context", files[0], "run kubectl config use-context NAME")


def _sentence(error: BaseException) -> str:
    """The library's own words where it has some; those of Python's built-in errors say nothing to anybody."""
    if isinstance(error, config.ConfigException):
        return str(error).removeprefix("Invalid kube-config file. ").rstrip(".")
    if isinstance(error, ssl.SSLError):
        return f"a certificate or key in it is invalid ({error.reason or 'no PEM'})"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    if isinstance(error, ValueError):
        return "its data can't be decoded"
    return "a part of it is missing or has the wrong type"


def _clause(error: Exception) -> str:
    """Why there was no answer. Without the address of the API server: users may see this in a warning."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return "no trusted TLS connection to the API server"
    if isinstance(error, TimeoutError):
        return "the API server did not answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "no connection to the API server"
    return f"the connection to the API server broke ({type(error).__name__})"
