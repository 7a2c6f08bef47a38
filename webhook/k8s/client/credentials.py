"""Who this program is to the API server, and where that is: a pod's service account, or a user of `kubeconfig`."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from typing import Final, Protocol

from webhook.errors import InputError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# A token is replaced long before it expires, and the CA may be replaced, too. client-go reads as often.
_REREAD_SECONDS: Final = 60.0


class CredentialsError(Exception):
    """The credentials cannot be read."""


class Credentials(Protocol):
    """What a request to the API server needs.

    Attributes:
        host: the URL of the API server.
        tls: verifies the API server, and holds a client certificate if there is one.
        tls_name: the name in the API server's certificate, if not its host's.
        proxy: the URL of a proxy, or None.
        context: the context of the kubeconfig; empty in a pod, which has none.
    """

    host: str
    context: str
    tls: ssl.SSLContext
    tls_name: str | None
    proxy: str | None

    async def authorization(self) -> str:
        """The value of the header ``Authorization``; empty for none.

        Raises:
            CredentialsError: it cannot be read.
        """

    async def renew(self, denied: str) -> bool:
        """Read the credentials again, because the API server answered 401.

        Args:
            denied: the header's value then.

        Returns:
            Whether there are others than those.
        """


class ServiceAccount(Credentials):
    """The service account of the pod, whose files are read again every minute.

    Args:
        directory: the directory of the files ``token`` and ``ca.crt``; None: `SERVICE_ACCOUNT`.

    Raises:
        InputError: they cannot be used.
    """

    def __init__(self, directory: Path | None = None) -> None:
        directory = directory or SERVICE_ACCOUNT
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
        if not port:
            raise _unusable("the environment variable KUBERNETES_SERVICE_PORT is empty")
        self.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self.context = ""
        self.tls_name: str | None = None
        self.proxy: str | None = None
        self._token: Final = directory / "token"
        self._authority: Final = directory / "ca.crt"
        try:
            self._authorization = self._read_token()
            self._pem = self._authority.read_bytes()
            self.tls = ssl.create_default_context(cafile=self._authority)
        except ssl.SSLError as error:
            raise _unusable(f"{self._authority} is not a valid CA certificate ({error.reason or 'no PEM'})") from error
        except OSError as error:
            raise _unusable(f"{error.filename}: {error.strerror}") from error
        except CredentialsError as error:
            raise _unusable(str(error)) from error
        self._read_at = asyncio.get_running_loop().time()

    async def authorization(self) -> str:
        """The token as a header's value; read again if it was read a minute ago."""
        now = asyncio.get_running_loop().time()
        if now - self._read_at >= _REREAD_SECONDS:
            self._reread()
            self._read_at = now
        return self._authorization

    async def renew(self, denied: str) -> bool:
        """Read the files before their time."""
        try:
            self._reread()
        except CredentialsError:
            return False
        return self._authorization != denied

    def _reread(self) -> None:
        try:
            self._authorization = self._read_token()
            pem = self._authority.read_bytes()
            if pem != self._pem:
                # Connections that are open stay; new ones are verified by the new CA.
                self.tls = ssl.create_default_context(cafile=self._authority)
                self._pem = pem
        except OSError as error:
            raise CredentialsError(str(error)) from error

    def _read_token(self) -> str:
        try:
            token = self._token.read_text().strip()
        except UnicodeDecodeError as error:
            raise CredentialsError(f"{self._token} is not text") from error
        if not token:
            raise CredentialsError(f"{self._token} is empty")
        return f"Bearer {token}"


def _unusable(why: str) -> InputError:
    return InputError(
        f"the pod's service account cannot be used: {why}",
        fix="set automountServiceAccountToken, or use --kubeconfig FILE",
    )
