"""kubernetes-asyncio, with what it lacks; no other module imports it.

It finds the identity (`config.load_incluster_config`, the loader of kubeconfigs, exec plugins) and sends the requests
(`ApiClient`). What is mended here is in docs/upstream.md, with a reproduction or a patch; a mend goes when the library
has it. The import loads a module for each type of Kubernetes, which takes a third of a second and 36 MB, so this module
is imported where a connection is made: commands without a cluster stay quick.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import signal
import ssl
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import aiohttp
import msgspec
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config.exec_provider import ExecProvider
from kubernetes_asyncio.config.kube_config import ConfigNode
from multidict import CIMultiDict

from certs.handshake import verifying
from webhook import __version__
from webhook.errors import InputError, quote
from webhook.k8s.client import kubeconfig
from webhook.k8s.client.api import ApiConnectionError, ApiRequest
from webhook.k8s.client.identity import NOT_IMPERSONATED, Impersonation
from webhook.k8s.client.kubeconfig import Context, list_of, text_of, unusable
from webhook.k8s.client.proxies import proxy_of_environment
from webhook.k8s.yaml_documents import read_file

logger = logging.getLogger(__name__)

USER_AGENT: Final = f"kubevirt-webhook/{__version__}"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# A token is replaced long before it expires, and the CA may be replaced, too. client-go reads as often.
_REREAD_SECONDS: Final = 60.0
# Between two readings of a kubeconfig because its token was denied.
_RENEW_SECONDS: Final = 10.0
# A token is a few KiB; the CAs of a cluster are a few certificates.
_MAX_FILE_BYTES: Final = 1024 * 1024
# Events of large objects arrive as one line.
_READ_BUFFER_BYTES: Final = 2 * 1024 * 1024
# The present session, and the one before, whose connections watches may still use.
_SESSIONS: Final = 2
# A plugin may open a browser and wait for its user there.
_PLUGIN_SECONDS: Final = 180.0
# Until a plugin that is killed has ended.
_KILL_SECONDS: Final = 5.0
# The library's name of the header Authorization, and of what stands in it.
_BEARER: Final = "BearerToken"

# A kubeconfig that isn't what it should be; `ssl.SSLError` is an `OSError`.
_CONFIG_ERRORS: Final = (OSError, ValueError, TypeError, config.ConfigException)


# What a request was sent with: ``Authorization``, and how its connection was made.
Sent: TypeAlias = tuple[str, ssl.SSLContext | None]


async def _refuse_redirect(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """A middleware: the library lets aiohttp follow redirects, by which a write would reach another host, or none.

    Raises:
        ApiConnectionError: the answer is a redirect; an API server sends none to its API's clients.
    """
    response = await handler(request)
    if response.status in (301, 302, 303, 307, 308):
        response.close()
        why = f"the address of the API server answers {response.status}, a redirect, which is not followed"
        raise ApiConnectionError(why)
    return response


class Connection(ABC):
    """The library's client of one API server, as one identity; made within a running loop.

    Args:
        configuration: has the API server's URL and how it is reached; its certificates are in ``tls`` already.
        tls: how connections are verified, and with which certificate; None: no TLS is spoken.
        impersonation: the user as whom requests are evaluated.
        context: the context of the kubeconfig; empty in a pod, which has none.
    """

    def __init__(
        self, configuration: Configuration, tls: ssl.SSLContext | None, impersonation: Impersonation, context: str = ""
    ) -> None:
        self.context: Final = context
        self.configuration: Final = configuration
        configuration.proxy = configuration.proxy or proxy_of_environment(self.host, os.environ) or None
        # Several groups are several headers of one name; the library's default headers are a dict.
        self._headers: Final = CIMultiDict(impersonation.headers())
        self._client: Final = ApiClient(configuration)
        self._client.user_agent = USER_AGENT
        # The library's own trusts the system's CAs beside others, and reads a .netrc.
        self._client.rest_client.pool_manager.detach()
        self._sessions: Final[list[aiohttp.ClientSession]] = []
        self.tls = tls

    @property
    def host(self) -> str:
        """The URL of the API server."""
        return str(self.configuration.host)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """How new connections are verified, and with which certificate; what is open stays."""
        return self._tls

    @tls.setter
    def tls(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.configuration.connection_pool_maxsize, ssl=tls or True),
            headers=self._headers,
            read_bufsize=_READ_BUFFER_BYTES,
            # With the library's True, a name and a password in the user's .netrc would reach the API server.
            trust_env=False,
            # No API server needs them, and aiohttp keeps what any answer sets.
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(_refuse_redirect,),
        )
        self._sessions.append(session)
        self._client.rest_client.pool_manager = session

    async def send(self, request: ApiRequest) -> aiohttp.ClientResponse:
        """The head of the answer, whose body the caller reads or releases.

        Raises:
            aiohttp.ClientError, OSError: there was none.
            ValueError: a header or the URL is not valid.
        """
        while len(self._sessions) > _SESSIONS:
            await self._sessions.pop(0).close()
        # The library knows its own models and plain values, no structs.
        body = msgspec.json.decode(msgspec.json.encode(request.body))
        # As client-go: what is no object has a media type of its own, such as a set of keys.
        headers = {"Accept": "application/json, */*", "Content-Type": request.content_type}
        response: aiohttp.ClientResponse = await self._client.call_api(
            request.path,
            request.method,
            query_params=list(request.query.items()),
            header_params=headers,
            body=body,
            auth_settings=[_BEARER],
            _preload_content=False,
            _request_timeout=request.timeout,
        )
        return response

    @abstractmethod
    async def renew(self, denied: Sent) -> bool:
        """Read the credentials again, because the API server denied some with 401; whether there are others now."""

    async def close(self) -> None:
        """End all connections."""
        for session in self._sessions:
            await session.close()


class ServiceAccount(Connection):
    """The service account of the pod, whose files are read again every minute; an `InputError` if they are no use.

    Args:
        impersonation: the user as whom requests are evaluated.
    """

    def __init__(self, impersonation: Impersonation = NOT_IMPERSONATED) -> None:
        if not os.environ.get("KUBERNETES_SERVICE_PORT"):
            raise _unusable_account("the environment variable KUBERNETES_SERVICE_PORT is empty")
        self._token: Final = SERVICE_ACCOUNT / "token"
        self._authority: Final = SERVICE_ACCOUNT / "ca.crt"
        self._pem: bytes | None = None
        configuration = Configuration()
        try:
            # First, since the library reads whatever is there, also what has no end.
            authorization = self._read_token()
            tls = self._read_authority()
            config.load_incluster_config(  # type: ignore[no-untyped-call] # the library's types end here
                configuration,
                try_refresh_token=False,
                token_filename=str(self._token),
                cert_filename=str(self._authority),
            )
        except (InputError, OSError, ValueError, config.ConfigException) as error:
            raise _unusable_account(str(error)) from error
        configuration.ssl_ca_cert = None
        configuration.api_key[_BEARER] = authorization
        # The library's own refresh fails each request while the file cannot be read, and never reads the CA again.
        configuration.refresh_api_key_hook = self._refresh
        self._read_at = asyncio.get_running_loop().time()
        # Why the files could not be read the last time; empty: they could.
        self._unreadable = ""
        super().__init__(configuration, tls, impersonation)

    async def renew(self, denied: Sent) -> bool:
        """Read the files before their time."""
        self._reread()
        return str(self.configuration.api_key[_BEARER]) != denied[0]

    def _refresh(self, _: Configuration) -> None:
        """Before each request: read the files again if they were read a minute ago."""
        now = asyncio.get_running_loop().time()
        if self._unreadable or now - self._read_at >= _REREAD_SECONDS:
            self._reread()
            self._read_at = now

    def _reread(self) -> None:
        """Take the token and the CA that the files hold now.

        One that can't be read at the moment stays as it was. It is most likely still valid; where it isn't, the API
        server says so: its clock alone decides when a token expires.
        """
        problems = []
        try:
            self.configuration.api_key[_BEARER] = self._read_token()
        except InputError as error:
            problems.append(str(error))
        try:
            if tls := self._read_authority():
                self.tls = tls
        except InputError as error:
            problems.append(str(error))
        unreadable, self._unreadable = self._unreadable, "; ".join(problems)
        if self._unreadable and not unreadable:
            logger.warning("the pod's service account stays as it was read before: %s", self._unreadable)
        elif unreadable and not self._unreadable:
            logger.info("the pod's service account can be read again")

    def _read_authority(self) -> ssl.SSLContext | None:
        """TLS that is verified by the CA in the file; None where the file holds what it held before."""
        pem = read_file(self._authority, _MAX_FILE_BYTES, "")
        if pem == self._pem:
            return None
        try:
            tls = verifying(cadata=pem.decode("ascii", "ignore"))
        except (ssl.SSLError, ValueError) as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else ""
            raise InputError(f"{self._authority} is not a valid CA certificate ({reason or 'no PEM'})") from error
        self._pem = pem
        return tls

    def _read_token(self) -> str:
        try:
            token = read_file(self._token, _MAX_FILE_BYTES, "").decode().strip()
        except UnicodeDecodeError as error:
            raise InputError(f"{self._token} is not text") from error
        if not token:
            raise InputError(f"{self._token} is empty")
        if not token.isprintable():
            raise InputError(f"{self._token} has more than one line, so it is no token")
        return f"Bearer {token}"


def _unusable_account(why: str) -> InputError:
    fix = "set automountServiceAccountToken, or use --kubeconfig FILE"
    return InputError(f"the pod's service account cannot be used: {why}", fix=fix)


class KubeconfigUser(Connection):
    """The user of a kubeconfig's current context; made by `load`.

    Args:
        context: the current context.
        impersonation: the user as whom requests are evaluated.
        path: of the kubeconfig, which is read again when its token is denied.
        login: how the user logs in.
    """

    def __init__(self, context: Context, impersonation: Impersonation, path: str, login: _Login) -> None:
        self._path: Final = path
        self._certificate = login.certificate
        self._renewing: Final = asyncio.Lock()
        self._renewed_at: float | None = None
        super().__init__(login.configuration, login.tls, impersonation, context.name)

    async def renew(self, denied: Sent) -> bool:
        """Read the kubeconfig again: a plugin or a file may have a new token or certificate."""
        loop = asyncio.get_running_loop()
        async with self._renewing:
            recent = self._renewed_at is not None and loop.time() - self._renewed_at < _RENEW_SECONDS
            if self._differs(denied):
                return True
            if recent:
                return False
            self._renewed_at = loop.time()
            try:
                login = await _log_in(kubeconfig.read(self._path))
            except (InputError, *_CONFIG_ERRORS) as error:
                why = str(error) if isinstance(error, InputError) else _sentence(error)
                logger.warning("the API server denied the credentials (401), and there are no others: %s", why)
                return False
            self.configuration.api_key = login.configuration.api_key
            if login.certificate != self._certificate:
                self._certificate, self.tls = login.certificate, login.tls
            return self._differs(denied)

    def _differs(self, denied: Sent) -> bool:
        return (self.configuration.api_key.get(_BEARER, ""), self.tls) != denied


async def load(path: str, impersonation: Impersonation) -> KubeconfigUser:
    """The user of a kubeconfig, or of several, separated as in ``$KUBECONFIG`` and merged; else an `InputError`."""
    context = kubeconfig.read(path)
    user = context.impersonation().override(impersonation)
    # What can't be sent is said before a plugin asks its user anything.
    user.headers()
    try:
        return KubeconfigUser(context, user, path, await _log_in(context))
    except _CONFIG_ERRORS as error:
        raise unusable(_sentence(error), path) from error


class _Login(NamedTuple):
    """How a user logs in: the library's configuration, TLS where it is spoken, and the client's certificate."""

    configuration: Configuration
    tls: ssl.SSLContext | None
    certificate: bytes


async def _log_in(context: Context) -> _Login:
    """How the user of a context logs in; raises `InputError`, or one of `_CONFIG_ERRORS`."""
    user, file = dict(context.user), context.file
    if "auth-provider" in user:
        user["token"] = _id_token(user.pop("auth-provider"), file)
    if "tokenFile" in user:
        # client-go prefers the file, too; the library would take the token, and keep a line break at the file's end.
        user["token"] = kubeconfig.read_credential(user.pop("tokenFile"), file).decode().strip()
    if "exec" in user:
        user |= await _Plugin(user.pop("exec"), context).fields()
    for key in ("token", "username", "password"):
        text_of(user, key, file)
    configuration = Configuration()
    with contextlib.ExitStack() as temporary:
        cluster = {key: value for key, value in context.cluster.items() if key != "certificate-authority-data"}
        document = {
            "current-context": "current",
            "contexts": [{"name": "current", "context": {"cluster": "current", "user": "current"}}],
            "clusters": [{"name": "current", "cluster": cluster}],
            "users": [{"name": "current", "user": _with_key_files(user, file, temporary)}],
        }
        await config.load_kube_config_from_dict(document, client_configuration=configuration)
        authority = text_of(context.cluster, "certificate-authority-data", context.cluster_file)
        # Beside its certificates there may be words in any encoding.
        pem = base64.b64decode(authority).decode("ascii", "ignore") if authority else None
        tls, certificate = _tls(configuration, pem)
    configuration.ssl_ca_cert = configuration.cert_file = configuration.key_file = None
    return _Login(configuration, tls, certificate)


def _with_key_files(user: dict[str, Any], file: str, temporary: contextlib.ExitStack) -> dict[str, Any]:
    """A user whose certificate and key are in files: OpenSSL takes no key from memory.

    The library would make such files, too, and keep them until the program ends.
    """
    changed = dict(user)
    for key in ("client-certificate", "client-key"):
        if data := text_of(user, f"{key}-data", file):
            path = Path(temporary.enter_context(tempfile.TemporaryDirectory()), key)
            path.write_bytes(base64.b64decode(data))
            del changed[f"{key}-data"]
            changed[key] = str(path)
    return changed


def _tls(configuration: Configuration, pem: str | None) -> tuple[ssl.SSLContext | None, bytes]:
    """TLS as a configuration says, and its client certificate, if any; the library's own is stricter than Go's.

    Args:
        configuration: by the library's loader.
        pem: the certificates of the API server's CA, where they are in no file.
    """
    if not str(configuration.host).startswith("https:"):
        return None, b""
    tls = verifying(None if pem else configuration.ssl_ca_cert, pem)
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    if not configuration.cert_file:
        return tls, b""
    # With a password, if an empty one, OpenSSL does not ask for that of an encrypted key at the terminal.
    tls.load_cert_chain(configuration.cert_file, configuration.key_file, "")
    return tls, Path(configuration.cert_file).read_bytes()


def _id_token(provider: Any, file: str) -> str:
    """The ID token of an OpenID Connect provider, which is not refreshed.

    The user's session in kubectl would end, since the refresh token that replaces the used one is not stored. The
    library's refresh does not verify the certificate of the issuer that it sends the refresh token to.
    """
    fields = provider if isinstance(provider, dict) else {}
    if fields.get("name") != "oidc":
        what = f"the auth-provider {quote(str(fields.get('name', '')))} is not supported, as in kubectl since 1.26"
        raise unusable(what, file, "use a plugin (exec), for example gke-gcloud-auth-plugin or kubelogin")
    token = text_of(fields.get("config") or {}, "id-token", file)
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        expires = float(claims.get("exp", "inf"))
    except (IndexError, ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        raise unusable("the id-token of its auth-provider cannot be decoded", file) from None
    if expires <= time.time():
        fix = "run any kubectl command, which renews it"
        raise unusable("the id-token of its auth-provider has expired", file, fix)
    return token


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    """What a plugin prints (``ExecCredential`` of client.authentication.k8s.io)."""

    api_version: str
    status: _ExecStatus


class _Plugin(ExecProvider):
    """A plugin that logs a user in.

    The library's own has no limits of time and bytes, blocks where one writes 64 KiB to standard error, hides what it
    asks for at a terminal, gives it no cluster, and knows no ``installHint``.

    Args:
        section: ``exec`` of a user.
        context: the context that it is in.
    """

    def __init__(self, section: Any, context: Context) -> None:
        if not isinstance(section, dict):
            raise unusable("exec is not a mapping", context.file)
        command, version, mode, hint = (
            text_of(section, key, context.file) for key in ("command", "apiVersion", "interactiveMode", "installHint")
        )
        if not command or not version:
            raise unusable(f"exec has no {'apiVersion' if command else 'command'}", context.file)
        variables = [
            {key: text_of(each, key, context.file) for key in ("name", "value")}
            for each in list_of(section, "env", context.file, dict)
        ]
        checked = {
            "command": kubeconfig.absolute(command, context.file) if os.sep in command else command,
            "apiVersion": version,
            "args": list_of(section, "args", context.file, str),
            "env": variables,
        }
        super().__init__(ConfigNode("exec", checked))
        self._command: Final = command
        self._file: Final = context.file
        self._hint: Final = hint or "install it"
        self._is_terminal: Final = mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not self._is_terminal:
            raise unusable(f"the plugin {quote(command)} needs a terminal", context.file, "run the command at one")
        spec: dict[str, Any] = {"interactive": self._is_terminal}
        if section.get("provideClusterInfo"):
            spec["cluster"] = context.cluster_info()
        info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
        self.env["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()

    async def fields(self) -> dict[str, str]:
        """The credentials that it prints, as fields of a user."""
        status = await self.run()
        pair = (
            {"client-certificate-data": status.client_certificate_data, "client-key-data": status.client_key_data}
            if status.client_certificate_data
            else {}
        )
        fields = {name: base64.b64encode((text or "").encode()).decode() for name, text in pair.items()}
        return fields | ({"token": status.token} if status.token else {})

    async def run(self, previous_response: str | None = None) -> _ExecStatus:
        """Run it, and return what it prints.

        Raises:
            InputError: it cannot be run, fails, takes too long, or prints no credentials.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *self.args,
                env=self.env,
                stdin=None if self._is_terminal else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                # A group of its own, to end what it starts; at a terminal, only the foreground's group may read.
                start_new_session=not self._is_terminal,
            )
        except OSError as error:
            what = f"the plugin {quote(self._command)} cannot be run: {error.strerror}"
            raise unusable(what, self._file, self._hint) from error
        try:
            return self._status(msgspec.json.decode(await _output(process), type=_ExecCredential))
        except InputError as error:
            why = error.what
        except TimeoutError:
            why = f"did not end within {_PLUGIN_SECONDS:.0f}s"
        except ValueError:
            why = "does not print an ExecCredential of its apiVersion with a token, or with a certificate and its key"
        finally:
            if process.returncode is None:
                await _kill(process, group=not self._is_terminal)
        raise unusable(f"the plugin {quote(self._command)} {why}", self._file, "run its command to find out why")

    def _status(self, answer: _ExecCredential) -> _ExecStatus:
        """The status of what it prints; raises `ValueError` where that is no credential."""
        token, certificate, key = msgspec.structs.astuple(answer.status)
        if answer.api_version != self.api_version or bool(certificate) != bool(key) or not (token or certificate):
            raise ValueError
        return answer.status


async def _output(process: asyncio.subprocess.Process) -> bytes:
    """All that a process prints, once it has ended well; raises `TimeoutError`, or `InputError`."""
    output = bytearray()
    assert process.stdout is not None
    async with asyncio.timeout(_PLUGIN_SECONDS):
        while piece := await process.stdout.read(65_536):
            output += piece
            if len(output) > kubeconfig.MAX_CREDENTIAL_BYTES:
                raise InputError(f"prints more than {kubeconfig.MAX_CREDENTIAL_BYTES >> 20} MiB")
        if code := await process.wait():
            raise InputError(f"failed with exit status {code}")
    return bytes(output)


async def _kill(process: asyncio.subprocess.Process, *, group: bool) -> None:
    """End a process, and those that it started if they are its group."""
    with contextlib.suppress(ProcessLookupError):
        if group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    # Its end is noticed once its output was read to the end, which a child of it may keep open.
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILL_SECONDS):
            while await process.stdout.read(65_536):
                pass
            await process.wait()


def _sentence(error: BaseException) -> str:
    """The library's own words where it has some; those of Python's errors do not help an admin."""
    if isinstance(error, config.ConfigException):
        return str(error).removeprefix("Invalid kube-config file. ").rstrip(".")
    if isinstance(error, ssl.SSLError):
        return f"a certificate or key in it is invalid ({error.reason or 'no PEM'})"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    if isinstance(error, ValueError):
        return "its data cannot be decoded"
    return "a part of it is missing or has the wrong type"
