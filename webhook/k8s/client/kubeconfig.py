"""A kubeconfig, read by kubernetes_asyncio: it knows all that is written there, and runs plugins.

The library imports a module for each of Kubernetes' types, half a second and 40 MB. So this module is imported only by
who has a kubeconfig, which a server in a pod has not.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration

from webhook.errors import InputError
from webhook.k8s.client.credentials import Credentials, CredentialsError
from webhook.k8s.inputs import read_file
from webhook.k8s.yaml_documents import TOO_DEEP_TEXT, is_deep

_MAX_KUBECONFIG_BYTES: Final = 4 * 1024 * 1024
# Between two readings of a kubeconfig because its token was denied.
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


class KubeconfigUser(Credentials):
    """The user of a kubeconfig's current context; made by `load`.

    Args:
        configuration: a filled ``kubernetes_asyncio.client.Configuration``.
        path: the path of the kubeconfig, which is read again when its token is denied.
        context: the name of its current context.

    Raises:
        OSError: a certificate file cannot be read or holds no certificate (``ssl.SSLError``).
    """

    def __init__(self, configuration: Any, path: str, context: str) -> None:
        self.context = context
        self._configuration = configuration
        self._path: Final = path
        self._renewing: Final = asyncio.Lock()
        self._renewed_at: float | None = None
        self.host = str(configuration.host)
        self.tls_name = configuration.tls_server_name
        self.proxy = configuration.proxy
        self.tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            self.tls.load_cert_chain(configuration.cert_file, configuration.key_file)
        if not configuration.verify_ssl:
            self.tls.check_hostname = False
            self.tls.verify_mode = ssl.CERT_NONE
        if configuration.disable_strict_ssl_verification:
            self.tls.verify_flags &= ~ssl.VERIFY_X509_STRICT

    async def authorization(self) -> str:
        """What the library makes of the user's token."""
        try:
            return str(await self._configuration.get_api_key_with_prefix("BearerToken") or "")
        except config.ConfigException as error:
            raise CredentialsError(str(error)) from error

    async def renew(self, denied: str) -> bool:
        """Read the kubeconfig again: a plugin or a file may have a new token."""
        loop = asyncio.get_running_loop()
        async with self._renewing:
            recent = self._renewed_at is not None and loop.time() - self._renewed_at < _RENEW_SECONDS
            if await self.authorization() == denied and not recent:
                self._renewed_at = loop.time()
                fresh = Configuration()
                try:
                    await config.load_kube_config(self._path, client_configuration=fresh, persist_config=False)
                except _CONFIG_ERRORS:
                    return False
                self._configuration.api_key = fresh.api_key
            return await self.authorization() != denied


async def load(path: str) -> KubeconfigUser:
    """The user of a kubeconfig, or of several, merged.

    Raises:
        InputError: it cannot be used.
    """
    _check(path)
    configuration: Any = Configuration()
    try:
        loader = await config.load_kube_config(path, client_configuration=configuration, persist_config=False)
        if not getattr(loader, "host", None):
            raise InputError("the cluster of the current context has no server", path, "add it to the kubeconfig")
        return KubeconfigUser(configuration, path, str((loader.current_context or {}).get("name", "")))
    except _CONFIG_ERRORS as error:
        raise InputError(f"not a usable kubeconfig: {_sentence(error)}", path, "repair or replace it") from error


def _check(path: str) -> None:
    """Find the mistakes that kubernetes_asyncio reports in no way that helps.

    Args:
        path: a kubeconfig, or several, merged: as for kubectl, those that do not exist are passed over.

    Raises:
        InputError: a file cannot be read or is not a kubeconfig, or none says what the current context is.
    """
    files = path.split(os.pathsep)
    files = [file for file in files if Path(file).expanduser().exists()] or files[:1]
    context = False
    for file in files:
        try:
            document = _document(file)
        except InputError as error:
            raise InputError(f"the kubeconfig {error.what}", file, "name another with --kubeconfig") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise InputError("the kubeconfig is not YAML", file, "repair or replace it") from error
        if not isinstance(document, dict):
            raise InputError("not a kubeconfig", file, "name another with --kubeconfig")
        context = context or bool(document.get("current-context"))
    if not context:
        raise InputError("the kubeconfig has no current context", files[0], "run kubectl config use-context NAME")


def _document(file: str) -> Any:
    text = read_file(Path(file).expanduser(), _MAX_KUBECONFIG_BYTES)
    if is_deep(text):
        raise InputError(TOO_DEEP_TEXT, file)
    return yaml.safe_load(text)


def _sentence(error: BaseException) -> str:
    """The library's own words where it has some; those of Python's built-in errors do not help an admin."""
    if isinstance(error, config.ConfigException):
        return str(error).removeprefix("Invalid kube-config file. ").rstrip(".")
    if isinstance(error, ssl.SSLError):
        return f"a certificate or key in it is invalid ({error.reason or 'no PEM'})"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    if isinstance(error, ValueError):
        return "its data cannot be decoded"
    return "a part of it is missing or has the wrong type"
