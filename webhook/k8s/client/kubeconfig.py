"""The kubeconfig of a user: found, read within bounds, and merged as kubectl merges several.

kubernetes-asyncio's own merger reads files without a limit, and takes the last ``current-context`` instead of the first
(docs/upstream.md). What is read here is one context, which `webhook.k8s.client.adapter` hands to the library's loader.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import yaml

from webhook.errors import InputError, quote
from webhook.k8s.bounded_input import read_file
from webhook.k8s.client.identity import Impersonation
from webhook.k8s.client.proxies import PROXY_FIX, is_http_url
from webhook.k8s.yaml_documents import TOO_DEEP_TEXT, is_deep, load_plain

T = TypeVar("T")

# Where kubectl looks for one that nobody names.
DEFAULT: Final = "~/.kube/config"
# What `kubectl config view` prints in place of certificates, keys, tokens and passwords.
_LEFT_OUT: Final = ("DATA+OMITTED", "REDACTED")

_MAX_KUBECONFIG_BYTES: Final = 4 * 1024 * 1024
# Certificates, keys and tokens that a kubeconfig names, and what a plugin writes.
MAX_CREDENTIAL_BYTES: Final = 1024 * 1024

# The extension of a cluster that plugins get as its configuration.
_EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"


def is_empty(path: str) -> bool:
    """Whether kubeconfigs name no cluster: none of them is there, or none has a current context.

    By client-go, a pod's service account counts in that case alone (``DeferredLoadingClientConfig``).

    Raises:
        InputError: one is no kubeconfig.
    """
    files = [file for file in _files(path) if not _is_missing(file)]
    if path == DEFAULT:
        # One that the user of a container may not read is not meant for it.
        files = [file for file in files if os.access(file, os.R_OK)]
    return not any(_document(file).get("current-context") for file in files)


def namespace_of(path: str) -> str:
    """The namespace of the current context of a kubeconfig, or of several; empty where it names none."""
    return read(path).namespace


class Context(NamedTuple):
    """The current context: its cluster and user, with absolute paths, and the kubeconfigs that the two are in."""

    name: str
    cluster: dict[str, Any]
    cluster_file: str
    user: dict[str, Any]
    file: str
    namespace: str = ""

    def __repr__(self) -> str:
        # Cluster and user hold tokens, passwords and keys.
        return f"<{type(self).__name__} {self.name!r}>"

    def impersonation(self) -> Impersonation:
        """The user as whom requests are evaluated, by the kubeconfig."""
        user, file = self.user, self.file
        extra = user.get("as-user-extra") or {}
        if not isinstance(extra, dict):
            raise unusable("as-user-extra is not a mapping", file)
        return Impersonation(
            text_of(user, "as", file),
            text_of(user, "as-uid", file),
            tuple(list_of(user, "as-groups", file, str)),
            {str(key): tuple(list_of(extra, key, file, str)) for key in extra},
        )

    def cluster_info(self) -> dict[str, Any]:
        """The cluster as plugins get it (``ExecCredentialSpec.cluster`` of client.authentication.k8s.io/v1).

        Its certificates are bytes that are not encoded yet.
        """
        keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
        cluster = self.cluster
        info = {key: cluster[key] for key in keys if key in cluster}
        if file := cluster.get("certificate-authority"):
            # As msgspec encodes bytes: in base64.
            info["certificate-authority-data"] = read_credential(file, self.cluster_file)
        for extension in list_of(cluster, "extensions", self.cluster_file, dict):
            if extension.get("name") == _EXEC_EXTENSION:
                info["config"] = extension.get("extension")
        return info


def read(path: str) -> Context:
    """The current context of a kubeconfig, or of several, merged: the first that sets a value or holds a name wins.

    As for kubectl, files that do not exist are passed over, and so is an empty part of ``$KUBECONFIG``.

    Raises:
        InputError: it names no file, or one that is no kubeconfig.
    """
    files = _files(path)
    if not files:
        raise InputError("it names no file", "KUBECONFIG", "name one there, or with --kubeconfig")
    files = [file for file in files if not _is_missing(file)] or files[:1]
    documents = [(file, _document(file)) for file in files]
    name = next((text for _, document in documents if (text := document.get("current-context"))), "")
    if not isinstance(name, str) or not name:
        raise InputError("the kubeconfig has no current context", files[0], "run kubectl config use-context NAME")
    context, file = _entry(documents, "context", name)
    cluster, cluster_file = _entry(documents, "cluster", text_of(context, "cluster", file))
    if not (server := text_of(cluster, "server", cluster_file)):
        raise InputError("the cluster of the current context has no server", path, "add it to the kubeconfig")
    if "@" in server:
        # The URL is logged, and a user's own credentials go into the same header.
        fix = "remove them, and set username and password of the user"
        raise unusable("the server has credentials in its URL", cluster_file, fix)
    scheme, separator, rest = server.partition("://")
    if not separator:
        raise unusable(f"the server {quote(server)} has no scheme", cluster_file, "write https:// before it")
    if not is_http_url(server):
        fix = "use a URL of the form https://HOST:PORT"
        raise unusable(f"the server {quote(server)} is not a valid URL", cluster_file, fix)
    if (url := text_of(cluster, "proxy-url", cluster_file)) and not is_http_url(url):
        # Not the value, which may hold a password.
        raise unusable("the proxy-url is not supported", cluster_file, PROXY_FIX)
    # The library takes any text for true, and fails later by another type of a name.
    if not isinstance(cluster.get("insecure-skip-tls-verify", False), bool):
        raise unusable("insecure-skip-tls-verify is neither true nor false", cluster_file)
    text_of(cluster, "tls-server-name", cluster_file)
    user_name = text_of(context, "user", file)
    user, user_file = _entry(documents, "user", user_name) if user_name else ({}, file)
    for part, place in ((cluster, cluster_file), (user, user_file)):
        if left_out := [key for key, value in part.items() if isinstance(value, str) and value in _LEFT_OUT]:
            raise unusable(f"{left_out[0]} is left out", place, 'write it with "kubectl config view --raw"')
    cluster = _with_absolute_paths(cluster, ("certificate-authority",), cluster_file)
    user = _with_absolute_paths(user, ("client-certificate", "client-key", "tokenFile"), user_file)
    address = f"{scheme.lower()}://{rest}"
    namespace = text_of(context, "namespace", file)
    return Context(name, cluster | {"server": address}, cluster_file, user, user_file, namespace)


def _files(path: str) -> list[str]:
    return [_expanded(file) for file in path.split(os.pathsep) if file]


def _expanded(file: str) -> str:
    """A path with the user's home directory for ``~``; as it is where there is none, as in a container."""
    try:
        return str(Path(file).expanduser())
    except RuntimeError:
        return file


def _is_missing(file: str) -> bool:
    """Whether there is no such file; what else is wrong with it, its reader says."""
    try:
        Path(file).stat()
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return False


def _document(file: str) -> dict[str, Any]:
    try:
        text = read_file(file, _MAX_KUBECONFIG_BYTES)
    except InputError as error:
        raise InputError(f"the kubeconfig {error.what}", file, "name another with --kubeconfig") from error
    try:
        # The parser takes the square of the depth.
        if is_deep(text):
            raise InputError(f"the kubeconfig {TOO_DEEP_TEXT}", file, "name another with --kubeconfig")
        # As for kubectl, an empty file is one that sets nothing.
        document = load_plain(text) or {}
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
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
                raise unusable(f"the {kind} {quote(name)} is not a mapping", file)
    raise unusable(f"it has no {kind} {quote(name)}", documents[0][0])


def _with_absolute_paths(part: dict[str, Any], keys: tuple[str, ...], file: str) -> dict[str, Any]:
    """A cluster or user with its paths made absolute, which are relative to the kubeconfig."""
    changed = {key: absolute(text, file) for key in keys if (text := text_of(part, key, file))}
    # As in client-go, an empty value is an absent one.
    return {key: value for key, value in (part | changed).items() if value != ""}


def read_credential(path: str, file: str) -> bytes:
    """A file with a certificate, a key or a token, which a kubeconfig names."""
    try:
        return read_file(path, MAX_CREDENTIAL_BYTES, "")
    except InputError as error:
        raise unusable(f"the file {path} {error.what}", file) from error


def absolute(path: str, file: str) -> str:
    """A path that a kubeconfig names, which is relative to its directory."""
    return str(Path(file).absolute().parent / path)


def text_of(part: Mapping[str, Any], key: str, file: str) -> str:
    """A value that is text; empty if it is absent."""
    value = part.get(key) if isinstance(part, Mapping) else None
    if value is None or isinstance(value, str):
        return value or ""
    raise unusable(f"{key} is not a string", file, "write it in quotes")


def list_of(part: Mapping[str, Any], key: str, file: str, kind: type[T]) -> list[T]:
    """A value that is a list of strings or of mappings; empty if it is absent."""
    value = part.get(key) or []
    if isinstance(value, list) and all(isinstance(each, kind) for each in value):
        return value
    raise unusable(f"{key} is not a list of {'strings' if kind is str else 'mappings'}", file)


def unusable(why: str, file: str, fix: str = "repair or replace it") -> InputError:
    """What is wrong with a kubeconfig."""
    return InputError(f"not a usable kubeconfig: {why}", file, fix)
