"""Who this program is to the API server, and how its requests get there.

A pod's service account is here, a kubeconfig's user in `webhook.k8s.client.kubeconfig`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
import os
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlencode

import aiohttp
import msgspec
from multidict import CIMultiDict

from certs.handshake import verifying
from webhook.errors import InputError
from webhook.k8s.client.identity import NOT_IMPERSONATED, Impersonation
from webhook.k8s.client.proxies import proxy_of_environment
from webhook.k8s.yaml_documents import read_file

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# A token is replaced long before it expires, and the CA may be replaced, too. client-go reads as often.
_REREAD_SECONDS: Final = 60.0

# A token is a few KiB; the CAs of a cluster are a few certificates.
_MAX_FILE_BYTES: Final = 1024 * 1024
# To the API server, beside each other.
_CONNECTIONS: Final = 100
# Events of large objects arrive as one line.
_READ_BUFFER_BYTES: Final = 2 * 1024 * 1024


logger = logging.getLogger(__name__)


class CredentialsError(Exception):
    """The credentials cannot be read."""


class ApiRequest(NamedTuple):
    """One request: its path escaped, its query not; its body is plain JSON or a Struct, None for none."""

    method: str
    path: str
    query: Mapping[str, str]
    timeout: aiohttp.ClientTimeout
    body: Any = None
    content_type: str = "application/json"


# What a request was sent with: ``Authorization``, and how its connection was made.
Sent: TypeAlias = tuple[str, ssl.SSLContext | None]


class Credentials(ABC):
    """An identity at an API server, and the connections of it; made within a running loop.

    Attributes:
        host: the URL of the API server.
        context: the context of the kubeconfig; empty in a pod, which has none.
        impersonation: headers of the user as whom requests are evaluated.
        tls: how new connections are verified, and with which certificate; what is open stays. None: no TLS is spoken.
        proxy: the URL of a proxy; empty: the one that the environment names, if any, and otherwise none.
        server_name: the name that the API server's certificate has to have; empty: that in ``host``.
    """

    def __init__(
        self,
        host: str,
        *,
        context: str = "",
        impersonation: Sequence[tuple[str, str]],
        tls: ssl.SSLContext | None,
        proxy: str = "",
        server_name: str = "",
    ) -> None:
        self.host: Final = host
        self.context: Final = context
        self.impersonation: Final = impersonation
        self.tls = tls
        self.proxy: Final = proxy or proxy_of_environment(host, os.environ)
        self.server_name: Final = server_name
        # aiohttp's own look into the environment would also find a name and a password in the user's .netrc.
        self._session: Final = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS), trust_env=False, read_bufsize=_READ_BUFFER_BYTES
        )

    @abstractmethod
    async def authorization(self) -> str:
        """The value of the header ``Authorization``; empty for none, a `CredentialsError` where it cannot be read."""

    @abstractmethod
    async def renew(self, denied: Sent) -> bool:
        """Read the credentials again, because the API server denied some with 401; whether there are others now."""

    async def send(self, request: ApiRequest, headers: CIMultiDict[str]) -> aiohttp.ClientResponse:
        """The head of the answer, whose body the caller reads or releases.

        An `aiohttp.ClientError` or `OSError` where there was none; a `ValueError` for an invalid header or URL.
        """
        return await self._session.request(
            request.method,
            f"{self.host}{request.path}{'?' if request.query else ''}{urlencode(request.query)}",
            headers=headers,
            data=None if request.body is None else msgspec.json.encode(request.body),
            timeout=request.timeout,
            ssl=self.tls or True,
            proxy=self.proxy or None,
            server_hostname=self.server_name or None,
        )

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()


class ServiceAccount(Credentials):
    """The service account of the pod, whose files are read again every minute; an `InputError` if they are no use.

    Args:
        impersonation: the user as whom requests are evaluated.
    """

    def __init__(self, impersonation: Impersonation = NOT_IMPERSONATED) -> None:
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
        if not port:
            raise _unusable("the environment variable KUBERNETES_SERVICE_PORT is empty")
        self._token: Final = SERVICE_ACCOUNT / "token"
        self._authority: Final = SERVICE_ACCOUNT / "ca.crt"
        self._pem: bytes | None = None
        try:
            self._reread_token()
            tls = self._read_authority()
        except (CredentialsError, InputError) as error:
            raise _unusable(str(error)) from error
        self._read_at = asyncio.get_running_loop().time()
        # Why the files could not be read the last time; empty: they could.
        self._unreadable = ""
        url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        super().__init__(url, impersonation=impersonation.headers(), tls=tls)

    async def authorization(self) -> str:
        """The token as a header's value; read again if it was read a minute ago.

        Raises:
            CredentialsError: it has expired, and the file has no other one that can be read.
        """
        now = asyncio.get_running_loop().time()
        if self._unreadable or now - self._read_at >= _REREAD_SECONDS:
            self._reread()
            self._read_at = now
        if self._unreadable and time.time() >= self._expires_at:
            raise CredentialsError(f"the token has expired, and there is no other: {self._unreadable}")
        return self._authorization

    async def renew(self, denied: Sent) -> bool:
        """Read the files before their time."""
        self._reread()
        return self._authorization != denied[0]

    def _reread(self) -> None:
        """Take the token and the CA that the files hold now.

        One that can't be read at the moment stays as it was. It is most likely still valid; where it isn't, the API
        server says so.
        """
        problems = []
        for read in (self._reread_token, self._reread_authority):
            try:
                read()
            except (CredentialsError, InputError) as error:
                problems.append(str(error))
        unreadable, self._unreadable = self._unreadable, "; ".join(problems)
        if self._unreadable and not unreadable:
            logger.warning("the pod's service account stays as it was read before: %s", self._unreadable)
        elif unreadable and not self._unreadable:
            logger.info("the pod's service account can be read again")

    def _reread_token(self) -> None:
        self._authorization = self._read_token()
        self._expires_at = expiry(self._authorization)

    def _reread_authority(self) -> None:
        # Connections that are open stay; new ones are verified by the new CA.
        self.tls = self._read_authority() or self.tls

    def _read_authority(self) -> ssl.SSLContext | None:
        """TLS that is verified by the CA in the file; None where the file holds what it held before."""
        pem = read_file(self._authority, _MAX_FILE_BYTES, "")
        if pem == self._pem:
            return None
        try:
            tls = verifying(cadata=pem.decode("ascii", "ignore"))
        except (ssl.SSLError, ValueError) as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else ""
            raise CredentialsError(f"{self._authority} is not a valid CA certificate ({reason or 'no PEM'})") from error
        self._pem = pem
        return tls

    def _read_token(self) -> str:
        try:
            token = read_file(self._token, _MAX_FILE_BYTES, "").decode().strip()
        except UnicodeDecodeError as error:
            raise CredentialsError(f"{self._token} is not text") from error
        if not token:
            raise CredentialsError(f"{self._token} is empty")
        if not token.isprintable():
            raise CredentialsError(f"{self._token} has more than one line, so it is no token")
        return f"Bearer {token}"


def expiry(token: str) -> float:
    """When a JSON Web Token expires, in Unix seconds; infinite where another token is, or it has no end."""
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims.get("exp", "inf"))
    except (IndexError, ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        return math.inf


def _unusable(why: str) -> InputError:
    fix = "set automountServiceAccountToken, or use --kubeconfig FILE"
    return InputError(f"the pod's service account cannot be used: {why}", fix=fix)
