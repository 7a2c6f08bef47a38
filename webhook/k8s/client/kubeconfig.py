"""A kubeconfig, read within bounds and as kubectl reads it: several files, plugins, impersonation, and proxies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import yaml

from certs.handshake import verifying
from webhook.errors import InputError, quote
from webhook.k8s.client.credentials import PROXY_FIX, Credentials, Sent, is_proxy
from webhook.k8s.client.identity import Impersonation
from webhook.k8s.yaml_documents import TOO_DEEP_TEXT, is_deep, read_file

T = TypeVar("T")

_MAX_KUBECONFIG_BYTES: Final = 4 * 1024 * 1024
# Certificates, keys and tokens that a kubeconfig names, and what a plugin writes.
_MAX_CREDENTIAL_BYTES: Final = 1024 * 1024
# A plugin may open a browser and wait for its user there.
_PLUGIN_SECONDS: Final = 180.0
# Until a plugin that is killed has ended.
_KILL_SECONDS: Final = 5.0
# Between two readings of a kubeconfig because its token was denied.
_RENEW_SECONDS: Final = 10.0

# The extension of a cluster that plugins get as its configuration.
_EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"

# A kubeconfig that isn't what it should be; `ssl.SSLError` is an `OSError`.
_CONFIG_ERRORS: Final = (OSError, ValueError, TypeError)


class KubeconfigUser(Credentials):
    """The user of a kubeconfig's current context; made by `load`.

    Args:
        context: the current context.
        impersonation: headers of the user as whom requests are evaluated.
        path: of the kubeconfig, which is read again when its token is denied.
        login: how the user logs in.
    """

    def __init__(self, context: _Context, impersonation: Sequence[tuple[str, str]], path: str, login: _Login) -> None:
        server, proxy, name = (
            _text(context.cluster, key, context.cluster_file) for key in ("server", "proxy-url", "tls-server-name")
        )
        super().__init__(
            server.rstrip("/"),
            context=context.name,
            impersonation=impersonation,
            tls=login.tls,
            proxy=proxy,
            server_name=name,
        )
        self._path: Final = path
        self._login = login
        self._renewing: Final = asyncio.Lock()
        self._renewed_at: float | None = None

    async def authorization(self) -> str:
        """The user's token, or name and password, as a header's value."""
        return self._login.authorization

    async def renew(self, denied: Sent) -> bool:
        """Read the kubeconfig again: a plugin or a file may have a new token or certificate."""
        loop = asyncio.get_running_loop()
        async with self._renewing:
            recent = self._renewed_at is not None and loop.time() - self._renewed_at < _RENEW_SECONDS
            if (self._login.authorization, self.tls) != denied:
                return True
            if recent:
                return False
            self._renewed_at = loop.time()
            try:
                former, self._login = self._login, await _log_in(_read(self._path))
            except (InputError, *_CONFIG_ERRORS):
                return False
            if self._login.certificate != former.certificate:
                self.tls = self._login.tls
            return (self._login.authorization, self.tls) != denied


async def load(path: str, impersonation: Impersonation) -> KubeconfigUser:
    """The user of a kubeconfig, or of several, separated as in ``$KUBECONFIG`` and merged; else an `InputError`."""
    context = _read(path)
    headers = _impersonation(context, impersonation).headers()
    try:
        return KubeconfigUser(context, headers, path, await _log_in(context))
    except _CONFIG_ERRORS as error:
        raise _unusable(_sentence(error), path) from error


def namespace_of(path: str) -> str:
    """The namespace of the current context of a kubeconfig, or of several; empty where it names none."""
    return _read(path).namespace


class _Context(NamedTuple):
    """The current context: its cluster and user, with absolute paths, and the kubeconfigs that the two are in."""

    name: str
    cluster: dict[str, Any]
    cluster_file: str
    user: dict[str, Any]
    file: str
    namespace: str = ""


def _read(path: str) -> _Context:
    """The current context of a kubeconfig, or of several, merged: the first that sets a value or holds a name wins.

    As for kubectl, files that do not exist are passed over.
    """
    files = path.split(os.pathsep)
    files = [file for file in files if Path(file).expanduser().exists()] or files[:1]
    documents = [(str(Path(file).expanduser()), _document(file)) for file in files]
    name = next((text for _, document in documents if (text := document.get("current-context"))), "")
    if not isinstance(name, str) or not name:
        raise InputError("the kubeconfig has no current context", files[0], "run kubectl config use-context NAME")
    context, file = _entry(documents, "context", name)
    cluster, cluster_file = _entry(documents, "cluster", _text(context, "cluster", file))
    if not _text(cluster, "server", cluster_file):
        raise InputError("the cluster of the current context has no server", path, "add it to the kubeconfig")
    if "://" not in cluster["server"]:
        raise _unusable(
            f"the server {quote(cluster['server'])} has no scheme", cluster_file, "write https:// before it"
        )
    if (url := _text(cluster, "proxy-url", cluster_file)) and not is_proxy(url):
        raise _unusable(f"the proxy-url {quote(url)} is not supported", cluster_file, PROXY_FIX)
    user_name = _text(context, "user", file)
    user, user_file = _entry(documents, "user", user_name) if user_name else ({}, file)
    cluster = _with_absolute_paths(cluster, ("certificate-authority",), cluster_file)
    user = _with_absolute_paths(user, ("client-certificate", "client-key", "tokenFile"), user_file)
    return _Context(name, cluster, cluster_file, user, user_file, _text(context, "namespace", file))


def _document(file: str) -> dict[str, Any]:
    try:
        text = read_file(Path(file).expanduser(), _MAX_KUBECONFIG_BYTES)
    except InputError as error:
        raise InputError(f"the kubeconfig {error.what}", file, "name another with --kubeconfig") from error
    try:
        # The parser takes the square of the depth.
        if is_deep(text):
            raise InputError(f"the kubeconfig {TOO_DEEP_TEXT}", file, "name another with --kubeconfig")
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError("the kubeconfig is not YAML", file, "repair or replace it") from error
    if not isinstance(document, dict):
        raise InputError("not a kubeconfig", file, "name another with --kubeconfig")
    return document


def _entry(documents: list[tuple[str, dict[str, Any]]], kind: str, name: str) -> tuple[dict[str, Any], str]:
    """The context, cluster or user of a name, and the file that it is in."""
    for file, document in documents:
        entries = document.get(f"{kind}s")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                if isinstance(body := entry.get(kind) or {}, dict):
                    return {key: value for key, value in body.items() if value is not None}, file
                raise _unusable(f"the {kind} {quote(name)} is not a mapping", file)
    raise _unusable(f"it has no {kind} {quote(name)}", documents[0][0])


def _with_absolute_paths(part: dict[str, Any], keys: tuple[str, ...], file: str) -> dict[str, Any]:
    """A cluster or user with its paths made absolute, which name regular files and are relative to the kubeconfig."""
    changed = {}
    for key in keys:
        if not part.get(f"{key}-data") and (text := _text(part, key, file)):
            changed[key] = _absolute(text, file)
            _credential(changed[key], file)
    # As in client-go, an empty value is an absent one.
    return {key: value for key, value in (part | changed).items() if value != ""}


def _credential(path: str, file: str) -> bytes:
    """A file with a certificate, a key or a token."""
    try:
        return read_file(path, _MAX_CREDENTIAL_BYTES, "")
    except InputError as error:
        raise _unusable(f"the file {path} {error.what}", file) from error


def _absolute(path: str, file: str) -> str:
    """A path that a kubeconfig names, which is relative to its directory."""
    return str(Path(file).absolute().parent / path)


def _impersonation(context: _Context, override: Impersonation) -> Impersonation:
    user, file = context.user, context.file
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise _unusable("as-user-extra is not a mapping", file)
    return Impersonation(
        _text(user, "as", file),
        _text(user, "as-uid", file),
        tuple(_list(user, "as-groups", file, str)),
        {str(key): tuple(_list(extra, key, file, str)) for key in extra},
    ).override(override)


class _Login(NamedTuple):
    """How a user logs in: the value of ``Authorization``, TLS where it is spoken, and the client's certificate."""

    authorization: str
    tls: ssl.SSLContext | None
    certificate: bytes


async def _log_in(context: _Context) -> _Login:
    """How the user of a context logs in; raises `InputError`, or one of `_CONFIG_ERRORS`."""
    user, file = dict(context.user), context.file
    if "auth-provider" in user:
        user["token"] = _id_token(user["auth-provider"], file)
    if "tokenFile" in user:
        # As in client-go, the file is preferred to a token.
        user["token"] = _credential(user["tokenFile"], file).decode().strip()
    if "exec" in user:
        user |= await _run_plugin(user["exec"], context)
    token, name, password = (_text(user, key, file) for key in ("token", "username", "password"))
    basic = f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}" if name and password else ""
    tls, certificate = None, b""
    if context.cluster["server"].lower().startswith("https:"):
        tls, certificate = _tls(context, user)
    return _Login(f"Bearer {token}" if token else basic, tls, certificate)


def _tls(context: _Context, user: dict[str, Any]) -> tuple[ssl.SSLContext, bytes]:
    """TLS with what a cluster and a user have for it, and the user's certificate, if any."""
    cluster, cluster_file = context.cluster, context.cluster_file
    authority = _text(cluster, "certificate-authority-data", cluster_file)
    # Beside its certificates there may be words in any encoding.
    pem = base64.b64decode(authority).decode("ascii", "ignore") if authority else None
    tls = verifying(None if authority else cluster.get("certificate-authority"), pem)
    insecure = cluster.get("insecure-skip-tls-verify", False)
    if not isinstance(insecure, bool):
        raise _unusable("insecure-skip-tls-verify is neither true nor false", cluster_file)
    if insecure:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    with contextlib.ExitStack() as temporary:

        def path(key: str) -> str | None:
            """The file that is named, or one with what is given itself: OpenSSL takes no key from memory."""
            if not (data := _text(user, f"{key}-data", context.file)):
                return user.get(key)
            made = Path(temporary.enter_context(tempfile.TemporaryDirectory()), key)
            made.write_bytes(base64.b64decode(data))
            return str(made)

        if not (certificate := path("client-certificate")):
            return tls, b""
        # With a password, if an empty one, OpenSSL does not ask for that of an encrypted key at the terminal.
        tls.load_cert_chain(certificate, path("client-key"), "")
        return tls, Path(certificate).read_bytes()


def _id_token(provider: Any, file: str) -> str:
    """The ID token of an OpenID Connect provider, which is not refreshed.

    The user's session in kubectl would end, since the refresh token that replaces the used one is not stored.
    """
    fields = provider if isinstance(provider, dict) else {}
    if fields.get("name") != "oidc":
        what = f"the auth-provider {quote(str(fields.get('name', '')))} is not supported, as in kubectl since 1.26"
        raise _unusable(what, file, "use a plugin (exec), for example gke-gcloud-auth-plugin or kubelogin")
    token = _text(fields.get("config") or {}, "id-token", file)
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        expires = float(claims.get("exp", "inf"))
    except (IndexError, ValueError, AttributeError, TypeError):
        raise _unusable("the id-token of its auth-provider cannot be decoded", file) from None
    if expires <= time.time():
        fix = "run any kubectl command, which renews it"
        raise _unusable("the id-token of its auth-provider has expired", file, fix)
    return token


async def _run_plugin(section: Any, context: _Context) -> dict[str, str]:
    """The credentials that a plugin prints, as fields of a user."""
    if not isinstance(section, dict):
        raise _unusable("exec is not a mapping", context.file)
    command, version = (_text(section, key, context.file) for key in ("command", "apiVersion"))
    if not command or not version:
        raise _unusable(f"exec has no {'apiVersion' if command else 'command'}", context.file)
    variables = _list(section, "env", context.file, dict)
    environment = os.environ | {
        _text(each, "name", context.file): _text(each, "value", context.file) for each in variables
    }
    is_terminal = section.get("interactiveMode") != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if section.get("interactiveMode") == "Always" and not is_terminal:
        raise _unusable(f"the plugin {quote(command)} needs a terminal", context.file, "run the command at one")
    spec: dict[str, Any] = {"interactive": is_terminal}
    if section.get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(context)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    try:
        process = await asyncio.create_subprocess_exec(
            _absolute(command, context.file) if os.sep in command else command,
            *_list(section, "args", context.file, str),
            env=environment | {"KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()},
            stdin=None if is_terminal else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            # A group of its own, to end what it starts; at a terminal, only the foreground's group may read.
            start_new_session=not is_terminal,
        )
    except OSError as error:
        hint = _text(section, "installHint", context.file) or "install it"
        raise _unusable(f"the plugin {quote(command)} cannot be run: {error.strerror}", context.file, hint) from error
    try:
        return _fields(msgspec.json.decode(await _output(process), type=_ExecCredential), version)
    except InputError as error:
        why = error.what
    except TimeoutError:
        why = f"did not end within {_PLUGIN_SECONDS:.0f}s"
    except ValueError:
        why = "does not print an ExecCredential of its apiVersion with a token, or with a certificate and its key"
    finally:
        if process.returncode is None:
            await _kill(process, group=not is_terminal)
    raise _unusable(f"the plugin {quote(command)} {why}", context.file, "run its command to find out why")


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


async def _output(process: asyncio.subprocess.Process) -> bytes:
    """All that a process prints, once it has ended well; raises `TimeoutError`, or `InputError`."""
    output = bytearray()
    assert process.stdout is not None
    async with asyncio.timeout(_PLUGIN_SECONDS):
        while piece := await process.stdout.read(65_536):
            output += piece
            if len(output) > _MAX_CREDENTIAL_BYTES:
                raise InputError(f"prints more than {_MAX_CREDENTIAL_BYTES >> 20} MiB")
        if code := await process.wait():
            raise InputError(f"failed with exit status {code}")
    return bytes(output)


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    """What a plugin prints (``ExecCredential`` of client.authentication.k8s.io)."""

    api_version: str
    status: _ExecStatus


def _fields(answer: _ExecCredential, version: str) -> dict[str, str]:
    """The fields of a user for what a plugin prints; raises `ValueError` where that is no credential."""
    token, certificate, key = msgspec.structs.astuple(answer.status)
    if answer.api_version != version or bool(certificate) != bool(key) or not (token or certificate):
        raise ValueError
    pair = {"client-certificate-data": certificate, "client-key-data": key} if certificate else {}
    fields = {name: base64.b64encode(text.encode()).decode() for name, text in pair.items()}
    return fields | ({"token": token} if token else {})


def _cluster_info(context: _Context) -> dict[str, Any]:
    """The cluster as plugins get it (``ExecCredentialSpec.cluster`` of client.authentication.k8s.io/v1)."""
    keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    cluster = context.cluster
    info = {key: cluster[key] for key in keys if key in cluster}
    if file := cluster.get("certificate-authority"):
        info["certificate-authority-data"] = base64.b64encode(_credential(file, context.cluster_file)).decode()
    for extension in _list(cluster, "extensions", context.cluster_file, dict):
        if extension.get("name") == _EXEC_EXTENSION:
            info["config"] = extension.get("extension")
    return info


def _text(part: Mapping[str, Any], key: str, file: str) -> str:
    """A value that is text; empty if it is absent."""
    value = part.get(key) if isinstance(part, Mapping) else None
    if value is None or isinstance(value, str):
        return value or ""
    raise _unusable(f"{key} is not a string", file, "write it in quotes")


def _list(part: Mapping[str, Any], key: str, file: str, kind: type[T]) -> list[T]:
    """A value that is a list of strings or of mappings; empty if it is absent."""
    value = part.get(key) or []
    if isinstance(value, list) and all(isinstance(each, kind) for each in value):
        return value
    raise _unusable(f"{key} is not a list of {'strings' if kind is str else 'mappings'}", file)


def _unusable(why: str, file: str, fix: str = "repair or replace it") -> InputError:
    return InputError(f"not a usable kubeconfig: {why}", file, fix)


def _sentence(error: BaseException) -> str:
    """In an admin's words: those of Python's errors do not help."""
    if isinstance(error, ssl.SSLError):
        return f"a certificate or key in it is invalid ({error.reason or 'no PEM'})"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    if isinstance(error, ValueError):
        return "its data cannot be decoded"
    return "a part of it is missing or has the wrong type"
