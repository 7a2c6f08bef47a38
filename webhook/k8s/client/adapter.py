"""kubernetes-asyncio, with what it lacks; no other module imports it.

It finds the identity (`config.load_incluster_config`, the loader of kubeconfigs) and sends the requests (`ApiClient`).
What is mended here is in docs/upstream.md, with a reproduction or a patch; a mend goes when the library has it. The
import loads a module for each type of Kubernetes, which takes 0.15 s of a processor and 38 MB, so this module is
imported where a connection is made: commands without a cluster stay quick.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import math
import os
import signal
import ssl
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import aiohttp
import msgspec
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration

from certs.files import FileError, Followed
from certs.handshake import show, verifying
from webhook import __version__
from webhook.errors import InputError, quote
from webhook.k8s.client import kubeconfig
from webhook.k8s.client.api import ApiConnectionError, ApiRequest
from webhook.k8s.client.identity import NOT_IMPERSONATED, Impersonation
from webhook.k8s.client.kubeconfig import Context, list_of, text_of, unusable
from webhook.k8s.client.proxies import proxy_of_environment

logger = logging.getLogger(__name__)

USER_AGENT: Final = f"kubevirt-webhook/{__version__}"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Between two looks at the files that a user's credentials and the CA are in. client-go looks as often for a token, and
# each five minutes for certificates.
_LOOK_SECONDS: Final = 60.0
# While one of them is no use. Each look reads them on the event loop.
_LOOK_AGAIN_SECONDS: Final = 1.0
# Between two readings of a kubeconfig because its token was denied.
_RENEW_SECONDS: Final = 10.0
# Events of large objects arrive as one line. aiohttp asks for compressed answers, and decompresses no more at once than
# this either: it reads on when that was taken, and callers count the bytes that come out.
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
# What takes up what files hold now; an `InputError` where that is no use.
Take: TypeAlias = Callable[..., None]


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
        credentials: the files that the credentials and the CA are in, whose first content was taken already.
        context: the context of the kubeconfig; empty in a pod, which has none.
    """

    # What is read, in a log.
    _named = ""

    def __init__(
        self,
        configuration: Configuration,
        tls: ssl.SSLContext | None,
        impersonation: Impersonation,
        credentials: Sequence[tuple[Followed, Take]],
        context: str = "",
    ) -> None:
        self.context: Final = context
        self._follow(credentials)
        self.configuration: Final = configuration
        configuration.proxy = configuration.proxy or proxy_of_environment(self.host, os.environ) or None
        self._impersonation: Final = impersonation.headers()
        self._client: Final = ApiClient(configuration)
        self._client.user_agent = USER_AGENT
        # The library's own session verifies by Python's defaults, which are stricter than Go's, has certificates from
        # files alone, and reads a .netrc. Without its connector, which has no connection yet, it needs no closing, for
        # which one would have to wait.
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
            read_bufsize=_READ_BUFFER_BYTES,
            # With the library's True, aiohttp would read the user's .netrc. Where it has an entry for the API server, a
            # request with a token fails, and one without goes out with the entry's password.
            trust_env=False,
            # No API server needs them, and aiohttp keeps what any answer sets.
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(self._impersonate, _refuse_redirect),
        )
        self._sessions.append(session)
        self._client.rest_client.pool_manager = session

    async def _impersonate(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """A middleware: for whom the API server evaluates a request.

        Several groups are several headers of one name, and the library takes headers as a dict. The session's default
        headers would not do: aiohttp adds these to ``CONNECT``, too, which a proxy gets in clear text.
        """
        request.headers.extend(self._impersonation)
        return await handler(request)

    def _follow(self, credentials: Sequence[tuple[Followed, Take]]) -> None:
        """Look at other files from now on, whose content was taken just now."""
        self._credentials = credentials
        # By files: why they are no use at the moment.
        self._problems: dict[tuple[Path, ...], str] = {}
        self._looked_at = asyncio.get_running_loop().time()

    def _look_if_due(self) -> None:
        """Before each request: look at the files if that was a minute ago, or a second where some were no use then."""
        pause = _LOOK_AGAIN_SECONDS if self._problems else _LOOK_SECONDS
        if asyncio.get_running_loop().time() - self._looked_at >= pause:
            self._look()

    def _look(self) -> None:
        """Take what files hold that have changed.

        What can't be used at the moment leaves what was read before. It is most likely still valid; where it isn't, the
        API server says so: its clock alone decides when a token expires.
        """
        self._looked_at = asyncio.get_running_loop().time()
        before = "; ".join(self._problems.values())
        for followed, take in self._credentials:
            try:
                if (contents := followed.look()) is not None:
                    take(*contents)
                    self._problems.pop(followed.paths, None)
            except (FileError, InputError) as error:
                self._problems[followed.paths] = str(error)
        if self._problems and not before:
            logger.warning("%s stays as it was read before: %s", self._named, "; ".join(self._problems.values()))
        elif before and not self._problems:
            logger.info("%s can be read again", self._named)

    async def send(self, request: ApiRequest) -> tuple[aiohttp.ClientResponse, Sent]:
        """The head of the answer, whose body the caller reads or releases, and what was sent for it.

        aiohttp sends a GET, PUT or DELETE once more where its connection breaks before the answer, as it does where the
        API server closes one that was idle; never a POST or PATCH, whose caller gets the error.

        Raises:
            aiohttp.ClientError, OSError: there was none.
        """
        self._look_if_due()
        tls = self.tls
        while len(self._sessions) > _SESSIONS:
            await self._sessions.pop(0).close()
        # The library encodes its own models and plain values: no structs, no JSON that is encoded already
        # (`msgspec.Raw`).
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
        return response, (response.request_info.headers.get("Authorization", ""), tls)

    @abstractmethod
    async def renew(self, denied: Sent) -> bool:
        """Read the credentials again, because the API server denied some with 401; whether there are others now."""

    async def close(self) -> None:
        """End all connections."""
        for session in self._sessions:
            await session.close()


class ServiceAccount(Connection):
    """The service account of the pod; an `InputError` if its files are no use.

    Args:
        impersonation: the user as whom requests are evaluated.
    """

    _named = "the pod's service account"

    def __init__(self, impersonation: Impersonation = NOT_IMPERSONATED) -> None:
        if not os.environ.get("KUBERNETES_SERVICE_PORT"):
            raise _unusable_account("the environment variable KUBERNETES_SERVICE_PORT is empty")
        token, authority = _followed(SERVICE_ACCOUNT / "token"), _followed(SERVICE_ACCOUNT / "ca.crt")
        configuration = Configuration()
        try:
            # First, since the library reads whatever is there, also what has no end.
            (content,), (pem,) = token.read(), authority.read()
            authorization = f"Bearer {_token(content, str(token.paths[0]))}"
            tls = _verified_by(pem, str(authority.paths[0]))
            config.load_incluster_config(  # type: ignore[no-untyped-call] # the library's types end here
                configuration,
                # The library's own refresh fails each request while the file cannot be read, and never reads the CA.
                try_refresh_token=False,
                token_filename=str(token.paths[0]),
                cert_filename=str(authority.paths[0]),
            )
        except (FileError, InputError, OSError, ValueError, config.ConfigException) as error:
            raise _unusable_account(str(error)) from error
        configuration.api_key[_BEARER] = authorization
        files = (token, self._take_token), (authority, self._take_authority)
        try:
            # `ssl_ca_cert` stays: the library makes a context that nothing uses, and reads the CAs of the system for it
            # where there is no file, as for the user of a kubeconfig.
            super().__init__(configuration, tls, impersonation, files)
        except OSError as error:
            # The library reads the CA once more.
            raise _unusable_account(str(error)) from error

    async def renew(self, denied: Sent) -> bool:
        """Look at the files before their time."""
        self._look()
        return str(self.configuration.api_key[_BEARER]) != denied[0]

    def _take_token(self, content: bytes) -> None:
        self.configuration.api_key[_BEARER] = f"Bearer {_token(content, str(SERVICE_ACCOUNT / 'token'))}"

    def _take_authority(self, pem: bytes) -> None:
        self.tls = _verified_by(pem, str(SERVICE_ACCOUNT / "ca.crt"))


def _token(content: bytes | str, where: str) -> str:
    """A token as a header can hold it; an `InputError` about its place where it is none."""
    try:
        text = (content if isinstance(content, str) else content.decode()).strip()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not text") from error
    if not text:
        raise InputError(f"{where} is empty")
    if not text.isprintable():
        raise InputError(f"{where} has more than one line, so it is no token")
    return text


def _verified_by(pem: bytes, where: str) -> ssl.SSLContext:
    """TLS that is verified by a CA; an `InputError` about its place where it is none."""
    try:
        return verifying(pem)
    except (ssl.SSLError, ValueError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else ""
        raise InputError(f"{where} is not a valid CA certificate ({reason or 'no PEM'})") from error


def _unusable_account(why: str) -> InputError:
    fix = "set automountServiceAccountToken, or use --kubeconfig FILE"
    return InputError(f"the pod's service account cannot be used: {why}", fix=fix)


class KubeconfigUser(Connection):
    """The user of a kubeconfig's current context; made by `load`.

    Args:
        context: the current context.
        impersonation: the user as whom requests are evaluated.
        path: of the kubeconfig, which is read again when its credentials are denied.
        login: how the user logs in.
    """

    _named = "the user of the kubeconfig"

    def __init__(self, context: Context, impersonation: Impersonation, path: str, login: _Login) -> None:
        self._path: Final = path
        self._handshake = login.handshake
        self._expires_at = login.expires_at
        # One for all requests that need it; none of them ends it, since a plugin may be talking with its user.
        self._renewal: asyncio.Task[None] | None = None
        self._renewed_at: float | None = None
        super().__init__(login.configuration, login.tls, impersonation, self._files(login), context.name)

    async def send(self, request: ApiRequest) -> tuple[aiohttp.ClientResponse, Sent]:
        """As `Connection.send`, as client-go with new credentials where the plugin said that these end by now."""
        if self._expires_at <= time.time():
            await self._log_in_again("the credentials have expired")
        return await super().send(request)

    async def renew(self, denied: Sent) -> bool:
        """Read the kubeconfig again: a plugin or a file may have a new token or certificate."""
        if not self._differs(denied):
            await self._log_in_again("the API server denied the credentials (401)")
        return self._differs(denied)

    async def _log_in_again(self, why: str) -> None:
        """Wait for a login, which begins now unless one is under way, or ended a moment ago."""
        if self._renewal is None:
            now = asyncio.get_running_loop().time()
            if self._renewed_at is not None and now - self._renewed_at < _RENEW_SECONDS:
                return
            self._renewal = asyncio.create_task(self._take_login(why))
        renewal = self._renewal
        # It ends no task: not where this request is cancelled or takes too long.
        await asyncio.wait([renewal])
        if renewal.cancelled():
            raise ApiConnectionError("the connection to the API server has been closed")
        renewal.result()

    async def _take_login(self, why: str) -> None:
        try:
            # In a thread, since it may have several MiB.
            login = await _log_in(await asyncio.to_thread(kubeconfig.read, self._path))
        except (InputError, *_CONFIG_ERRORS) as error:
            problem = str(error) if isinstance(error, InputError) else _sentence(error)
            logger.warning("%s, and there are no others: %s", why, problem)
        else:
            self.configuration.api_key = login.configuration.api_key
            self._expires_at = login.expires_at
            if login.handshake != self._handshake:
                self._handshake, self.tls = login.handshake, login.tls
            self._follow(self._files(login))
        finally:
            self._renewal, self._renewed_at = None, asyncio.get_running_loop().time()

    async def close(self) -> None:
        """End all connections, and a plugin that still runs."""
        if (renewal := self._renewal) is not None:
            renewal.cancel()
            await asyncio.wait([renewal])
        await super().close()

    def _differs(self, denied: Sent) -> bool:
        return (self.configuration.api_key.get(_BEARER, ""), self.tls) != denied

    def _files(self, login: _Login) -> list[tuple[Followed, Take]]:
        """The files of a login, and what takes up their content."""
        names = ", ".join(map(str, login.files.paths))

        def take_certificates(*contents: bytes) -> None:
            handshake = _Handshake(**(self._handshake._asdict() | dict(zip(login.in_files, contents, strict=True))))
            try:
                self.tls = handshake.context()
            except (ssl.SSLError, ValueError) as error:
                raise InputError(f"{names}: {_sentence(error)}") from error
            self._handshake = handshake

        files: list[tuple[Followed, Take]] = [(login.files, take_certificates)] if names else []
        if token_file := login.token_file:
            where = str(token_file.paths[0])

            def take_token(content: bytes) -> None:
                self.configuration.api_key[_BEARER] = f"Bearer {_token(content, where)}"

            files.append((token_file, take_token))
        return files


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


class _Handshake(NamedTuple):
    """How connections are verified, and which certificate they show; the library's own is stricter than Go's.

    Attributes:
        is_tls: whether TLS is spoken at all.
        is_verified: whether the API server's certificate is.
        authority: PEM of the API server's CA; None: those of the system.
        certificate: PEM of the client; empty: it shows none.
        key: PEM of its key.
    """

    is_tls: bool
    is_verified: bool
    authority: bytes | None = None
    certificate: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:
        # With the key it would reach a traceback or a log.
        return f"<{type(self).__name__} {'with' if self.key else 'without'} a key>"

    def context(self) -> ssl.SSLContext | None:
        """It, for new connections; raises `ssl.SSLError` or `ValueError`."""
        if not self.is_tls:
            return None
        tls = verifying(self.authority)
        if not self.is_verified:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if self.certificate:
            show(tls, self.certificate, self.key)
        return tls


class _Login(NamedTuple):
    """How a user logs in.

    Attributes:
        configuration: the library's, without certificates.
        handshake: the certificates.
        tls: TLS with them, where it is spoken.
        in_files: names of the parts of the handshake that are in files.
        files: these files, in their order.
        token_file: the file that the token is in; None: it is in none.
        expires_at: when a plugin's credentials end, in Unix seconds; infinity where it does not say so.
    """

    configuration: Configuration
    handshake: _Handshake
    tls: ssl.SSLContext | None
    in_files: tuple[str, ...]
    files: Followed
    token_file: Followed | None
    expires_at: float


async def _log_in(context: Context) -> _Login:
    """How the user of a context logs in; raises `InputError`, or one of `_CONFIG_ERRORS`."""
    user, file = context.user, context.file
    held, paths = _certificates(context)
    token, token_file, expires_at = text_of(user, "token", file), None, math.inf
    if "auth-provider" in user:
        token = _id_token(user["auth-provider"], file)
    if path := text_of(user, "tokenFile", file):
        # client-go prefers the file, too; the library would take the token.
        token_file = _followed(path)
        (content,) = _read(token_file, context)
        token = _token(content, f"not a usable kubeconfig: the token in {path}")
    if "exec" in user:
        status = await _Plugin(user["exec"], context).run()
        if status.token:
            token, token_file = status.token, None
        if status.client_certificate_data and status.client_key_data:
            held |= {"certificate": status.client_certificate_data.encode(), "key": status.client_key_data.encode()}
            paths = {name: path for name, path in paths.items() if name == "authority"}
        if status.expiration_timestamp:
            expires_at = status.expiration_timestamp.timestamp()
    files = _followed(*paths.values())
    held |= dict(zip(paths, _read(files, context), strict=True))
    if held.get("certificate") and not held.get("key"):
        raise unusable("its client certificate has no key", file, "add client-key to the user")
    library_user: dict[str, str] = {key: text_of(user, key, file) for key in ("username", "password") if key in user}
    if token:
        library_user["token"] = _token(token, "not a usable kubeconfig: the token")
    cluster = {key: value for key, value in context.cluster.items() if not key.startswith("certificate-authority")}
    document = {
        "current-context": "current",
        "contexts": [{"name": "current", "context": {"cluster": "current", "user": "current"}}],
        "clusters": [{"name": "current", "cluster": cluster}],
        "users": [{"name": "current", "user": library_user}],
    }
    configuration = Configuration()
    await config.load_kube_config_from_dict(document, client_configuration=configuration)
    is_tls = str(configuration.host).startswith("https:")
    handshake = _Handshake(is_tls, bool(configuration.verify_ssl), **held)
    return _Login(configuration, handshake, handshake.context(), tuple(paths), files, token_file, expires_at)


def _certificates(context: Context) -> tuple[dict[str, bytes], dict[str, str]]:
    """The parts of a handshake by name: what the kubeconfig itself holds, and the files of the others.

    As in client-go, what it holds itself is preferred.
    """
    held, paths = dict[str, bytes](), dict[str, str]()
    for name, key, section, file in (
        ("authority", "certificate-authority", context.cluster, context.cluster_file),
        ("certificate", "client-certificate", context.user, context.file),
        ("key", "client-key", context.user, context.file),
    ):
        if data := text_of(section, f"{key}-data", file):
            held[name] = base64.b64decode(data)
        elif path := text_of(section, key, file):
            paths[name] = path
    return held, paths


def _followed(*paths: str | Path) -> Followed:
    """Files of credentials. What they hold counts at once: if it is half a copy, the next look finds the rest."""
    return Followed(*map(Path, paths), most=kubeconfig.MAX_CREDENTIAL_BYTES, looks=1)


def _read(files: Followed, context: Context) -> tuple[bytes, ...]:
    """What the files of a kubeconfig hold; an `InputError` where one cannot be read."""
    try:
        return files.read()
    except FileError as error:
        is_of_cluster = error.path == context.cluster.get("certificate-authority")
        file = context.cluster_file if is_of_cluster else context.file
        raise unusable(f"the file {error}", file) from error


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
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    def __repr__(self) -> str:
        # All of it is secret, or tells one from another.
        return f"<{type(self).__name__}>"


class _ExecCredential(msgspec.Struct, rename="camel"):
    """What a plugin prints (``ExecCredential`` of client.authentication.k8s.io)."""

    api_version: str
    status: _ExecStatus


class _Plugin:
    """A plugin that logs a user in.

    The library's own has no limits of time and bytes, blocks where one writes 64 KiB to standard error, hides what it
    asks for at a terminal, gives it no cluster, knows no ``installHint``, and is not public.

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
        # As in client-go, its path is relative to the kubeconfig.
        path = kubeconfig.absolute(command, context.file) if os.sep in command else command
        self._arguments: Final = [path, *list_of(section, "args", context.file, str)]
        variables = {
            text_of(each, "name", context.file): text_of(each, "value", context.file)
            for each in list_of(section, "env", context.file, dict)
        }
        self._command: Final = command
        self._version: Final = version
        self._file: Final = context.file
        self._hint: Final = hint or "install it"
        self._is_terminal: Final = mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if mode == "Always" and not self._is_terminal:
            raise unusable(f"the plugin {quote(command)} needs a terminal", context.file, "run the command at one")
        spec: dict[str, Any] = {"interactive": self._is_terminal}
        if section.get("provideClusterInfo"):
            spec["cluster"] = context.cluster_info()
        info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
        self._environment: Final = os.environ | variables | {"KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}

    async def run(self) -> _ExecStatus:
        """Run it, and return the credentials that it prints: a token, or a certificate with its key, or all of them.

        Raises:
            InputError: it cannot be run, fails, takes too long, or prints no credentials.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *self._arguments,
                env=self._environment,
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
        status = answer.status
        has_certificate = bool(status.client_certificate_data)
        is_whole = has_certificate == bool(status.client_key_data) and bool(status.token or has_certificate)
        if answer.api_version != self._version or not is_whole:
            raise ValueError
        return status


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
