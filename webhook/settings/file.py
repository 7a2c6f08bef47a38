"""The settings file: read whole or not at all, every mistake told at once with its line, followed while it changes."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from webhook.errors import InputError, InputErrors, quote
from webhook.inputs import read_file
from webhook.k8s.yaml_builder import Document, KeyPath, format_path
from webhook.k8s.yaml_documents import mistakes_of, parse_documents
from webhook.settings.model import SettingsModel
from webhook.settings.snapshot import Settings
from webhook.settings.syntax import OWN_ERROR

# A ConfigMap can't be larger.
MAX_BYTES: Final = 1024 * 1024
POLL_SECONDS: Final = 2.0

# Where a setting of the snapshot's `server` stands in the file.
_RESTART_KEYS: Final = {
    "listen": "server.listen",
    "ops_listen": "server.opsListen",
    "max_in_flight": "server.maxInFlight",
    "cert_file": "tls.certFile",
    "key_file": "tls.keyFile",
    "tls_mode": "tls.mode",
    "ca_secret": "tls.secretName",
    "leaf_seconds": "tls.leafExpirationSeconds",
    "ca_seconds": "tls.caExpirationSeconds",
    "client_ca_file": "tls.clientCaFile",
    "client_names": "tls.clientNames",
    "drain_seconds": "server.drainSeconds",
    "explain_listen": "explain.listen",
    "metrics_listen": "metrics.listen",
    "audit": "audit",
}

_WANTED: Final = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
}
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "yes", "on", "y"), "true"),
    **dict.fromkeys(("false", "no", "off", "n"), "false"),
}


def load(path: str | os.PathLike[str]) -> Settings:
    """Read a settings file.

    Raises:
        InputErrors: every mistake in it, or that it can't be read.
    """
    return parse(_read(path), os.fspath(path))


def parse(data: bytes, where: str) -> Settings:
    """Settings from a file's content; an empty one means the defaults.

    Args:
        data: the content, UTF-8.
        where: the file's name, for messages.

    Raises:
        InputErrors: every mistake in it.
    """
    return _validate(data, where).snapshot(hashlib.sha256(data).hexdigest())


def default_settings() -> Settings:
    """What holds where there is no file."""
    return SettingsModel.model_validate({}).snapshot("default")


def effective(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """The whole settings as they stand in a file, with all defaults filled in; fit for YAML and JSON.

    Raises:
        InputErrors: as `load`.
    """
    model = SettingsModel.model_validate({}) if path is None else _validate(_read(path), os.fspath(path))
    return model.model_dump(mode="json", by_alias=True)


def schema() -> dict[str, Any]:
    """The JSON Schema of the file, with descriptions and defaults."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_without_titles(_SCHEMA)}


class SettingsFile:
    """A settings file that is followed: `current` is always a whole, checked state of it.

    A change counts once two polls in a row have seen it, so that half a write, or a file that is away for a moment
    while a mounted ConfigMap is swapped, is nothing. A change of ``server`` or ``tls`` waits for the next start.

    Args:
        path: of the file; symbolic links are followed anew at each poll.
        on_refused: gets the mistakes, once for a content; the state before stays.
        on_reloaded: gets the old and the new state.
        on_restart_needed: gets the keys (``server.listen``) that differ from those at the start, once for a set.
        interval: between polls, in seconds.

    Raises:
        InputErrors: as `load`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        on_refused: Callable[[InputError], None] = lambda _: None,
        on_reloaded: Callable[[Settings, Settings], None] = lambda _old, _new: None,
        on_restart_needed: Callable[[list[str]], None] = lambda _: None,
        interval: float = POLL_SECONDS,
    ) -> None:
        self._path = os.fspath(path)
        self._on_refused = on_refused
        self._on_reloaded = on_reloaded
        self._on_restart_needed = on_restart_needed
        self._interval = interval
        self._current = load(path)
        self._server_at_start = self._current.server
        self._refused: InputError | None = None
        self._restart_needed: list[str] = []
        self._seen = self._judged = self._current.digest

    @property
    def current(self) -> Settings:
        """The last good state."""
        return self._current

    @property
    def problem(self) -> InputError | None:
        """Why the file as it is now is not in force; None if it is."""
        return self._refused

    async def watch(self) -> None:
        """Poll until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            await self.poll()

    async def poll(self) -> None:
        """Look at the file once."""
        read = await asyncio.to_thread(self._look)
        seen = str(read) if isinstance(read, InputError) else hashlib.sha256(read).hexdigest()
        settled = seen == self._seen
        self._seen = seen
        if not settled or seen == self._judged:
            return
        self._judged = seen
        self._refused = None
        try:
            if isinstance(read, InputError):
                raise read
            if seen != self._current.digest:
                self._swap(await asyncio.to_thread(parse, read, self._path))
        except InputError as mistake:
            self._refused = mistake
            self._on_refused(mistake)

    def _look(self) -> bytes | InputError:
        try:
            return _read(self._path)
        except InputError as mistake:
            return mistake

    def _swap(self, new: Settings) -> None:
        old, start = self._current, self._server_at_start
        changed = [key for field, key in _RESTART_KEYS.items() if getattr(new.server, field) != getattr(start, field)]
        self._current = msgspec.structs.replace(new, server=start)
        self._on_reloaded(old, self._current)
        if changed and changed != self._restart_needed:
            self._on_restart_needed(changed)
        self._restart_needed = changed


def _read(path: str | os.PathLike[str]) -> bytes:
    where = os.fspath(path)
    try:
        return read_file(path, MAX_BYTES, "it is no settings file")
    except InputError as error:
        raise InputErrors([InputError(error.what, where, error.fix)]) from error.__cause__


def _validate(data: bytes, where: str) -> SettingsModel:
    try:
        documents = list(parse_documents(data, where))
    except InputError as error:
        raise InputErrors(mistakes_of(error)) from error
    if len(documents) > 1:
        raise InputErrors([InputError("a second document starts here", documents[1].where(), "keep one")])
    document = documents[0] if documents else Document({}, where, 1)
    try:
        return SettingsModel.model_validate(document.value)
    except ValidationError as error:
        found = [_mistake(details, document) for details in error.errors(include_url=False)]
        raise InputErrors(mistake for _, mistake in sorted(found, key=lambda each: each[0])) from error


def _mistake(details: ErrorDetails, document: Document) -> tuple[int, InputError]:
    """One of pydantic's errors in our words, and its line."""
    context = details.get("ctx") or {}
    path: tuple[str | int, ...] = ()
    for part in details["loc"]:
        # pydantic gives a defaulted field by its own name, and marks a mapping's key, as opposed to its value.
        alias = to_camel(part) if details["type"] == OWN_ERROR and isinstance(part, str) else part
        if part != "[key]":
            path = (*path, alias if alias in _node(path).get("properties", ()) else part)
    if context.get("key"):
        path = (*path, context["key"])
    what, fix = _sentence(details, context, path)
    line = document.line_of(path)
    place = f"{format_path(path)}: {what}" if path else what
    return line, InputError(place, f"{document.file}:{line}", fix)


def _sentence(details: ErrorDetails, context: Mapping[str, Any], path: KeyPath) -> tuple[str, str]:
    kind, given, node = details["type"], details["input"], _node(path)
    if kind == OWN_ERROR:
        return context["what"], context["fix"]
    if kind == "extra_forbidden":
        return "there is no such setting", _other_setting(path)
    if kind == "missing":
        return "is missing", f"write for example {path[-1]}: {node['examples'][0]}"
    if kind == "literal_error":
        near = _nearest(str(given), node["enum"])
        return f"must be {_either(node['enum'])}, not {_describe(given)}", f"did you mean {near}?" if near else ""
    if "minimum" in node and isinstance(given, int) and not isinstance(given, bool):
        return f"must be {node['minimum']} to {node['maximum']}, not {given}", ""
    wanted = _WANTED.get(kind)
    if wanted is None:
        return details["msg"], ""
    plain = not isinstance(given, dict | list | None)
    fix = "put it in quotes" if kind == "string_type" and plain else ""
    if kind == "bool_type" and isinstance(given, str) and given.casefold() in _BOOLEANS:
        fix = f"write {_BOOLEANS[given.casefold()]} without quotes"
    elif kind == "int_type" and isinstance(given, str) and given.isdecimal():
        fix = "write it without quotes"
    return f"must be {wanted}, not {_describe(given)}", fix


def _describe(value: Any) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return msgspec.json.encode(value).decode()


def _either(choices: Iterable[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def _nearest(text: str, choices: Iterable[str]) -> str | None:
    folded = {_fold(choice): choice for choice in choices}
    near = difflib.get_close_matches(_fold(text), folded, n=1)
    return folded[near[0]] if near else None


def _fold(name: str) -> str:
    """What ``certFile``, ``cert_file`` and ``cert-file`` have in common."""
    return name.replace("_", "").replace("-", "").casefold()


def _other_setting(path: KeyPath) -> str:
    """What somebody may have meant by an unknown key: the same in another spelling or section, or a neighbour."""
    *parent, key = path
    neighbours = list(_node(parent).get("properties", ()))
    likely: list[KeyPath] = [place for place in _places() if _fold(place[-1]) == _fold(str(key))]
    if not likely and (near := _nearest(str(key), neighbours)):
        likely = [(*parent, near)]
    return f"did you mean {_either(map(format_path, likely))}?" if likely else f"known here: {', '.join(neighbours)}"


def _places(path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all settings below one."""
    for name in _node(path).get("properties", ()):
        yield (*path, name)
        yield from _places((*path, name))


def _node(path: KeyPath) -> Mapping[str, Any]:
    """The schema of what stands at a path; empty where nothing may."""
    node: Mapping[str, Any] = _SCHEMA
    for part in path:
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            others: Iterable[Mapping[str, Any]] = node.get("patternProperties", {}).values()
            node = node.get("properties", {}).get(part, next(iter(others), {}))
        if reference := node.get("$ref"):
            node = _SCHEMA["$defs"][reference.rpartition("/")[2]]
    return node


def _without_titles(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_titles(part) for key, part in node.items() if key != "title"}
    return [_without_titles(part) for part in node] if isinstance(node, list) else node


_SCHEMA: Final = SettingsModel.model_json_schema(by_alias=True)
