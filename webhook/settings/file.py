"""The settings file: read as a whole or not at all; all errors are reported at once, with their lines.

`SettingsFile` follows changes of the file.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from webhook.errors import InputError, InputErrors, quote
from webhook.k8s.yaml_documents import Document, KeyPath, format_path, mistakes_of, parse_documents, read_file
from webhook.settings.model import Settings
from webhook.settings.validation import OWN_ERROR, Section, model_of, read
from webhook.text import pluralize

# The size limit of a ConfigMap.
MAX_BYTES: Final = 1024 * 1024
# Each takes a look through the file for its line, and a search for what was meant.
MAX_MISTAKES: Final = 100
POLL_SECONDS: Final = 2.0

# The sections whose changes take effect at the next start: those of several keys are reported by key.
_AT_START: Final = ("server", "tls", "explain", "metrics", "page")
_WHOLE_AT_START: Final = ("audit", "layers", "traces")

_WANTED: Final = {
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "an integer",
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
        InputErrors: all errors in the file, or that it cannot be read.
    """
    return parse(_read(path), os.fspath(path))


def parse(data: bytes, where: str) -> Settings:
    """Settings from a file's content. A file that sets nothing says so with ``{}``.

    Args:
        data: the content, UTF-8.
        where: the file's name, for messages.

    Raises:
        InputErrors: all errors in the content.
    """
    return read_settings(_validate(data, where), hashlib.sha256(data).hexdigest())


def default_settings() -> Settings:
    """The settings without a file."""
    return read_settings(model_of(Settings).model_validate({}), "default")


def effective(path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """All settings of a file including defaults, as plain JSON.

    Raises:
        InputErrors: all errors in the file, or that it cannot be read.
    """
    model = model_of(Settings).model_validate({}) if path is None else _validate(_read(path), os.fspath(path))
    return model.model_dump(mode="json", by_alias=True)


def read_settings(model: Section, digest: str) -> Settings:
    """The settings of a validated file."""
    settings = read(model)
    assert isinstance(settings, Settings)
    return settings.completed(digest)


def schema() -> dict[str, Any]:
    """The JSON Schema of the file, with descriptions and defaults."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_without_titles(_schema())}


class SettingsFile:
    """Follows a settings file: `current` is always a complete, valid state of it.

    A change takes effect once two consecutive polls have read it, so a partial write, or a file that is missing while
    the kubelet swaps a mounted ConfigMap, has no effect. A change of ``server`` or ``tls`` requires a restart.

    Args:
        path: the path of the file; symbolic links are resolved at each poll.
        on_rejected: receives the errors, once for each content; the previous state is kept.
        on_reloaded: receives the old and the new state.
        on_restart_needed: receives the keys (``server.listen``) that changed since the start, once for each set.
        interval: between polls, in seconds.

    Raises:
        InputErrors: all errors in the file, or that it cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        on_rejected: Callable[[InputError], None] = lambda _: None,
        on_reloaded: Callable[[Settings, Settings], None] = lambda _old, _new: None,
        on_restart_needed: Callable[[list[str]], None] = lambda _: None,
        interval: float = POLL_SECONDS,
    ) -> None:
        self._path = os.fspath(path)
        self._on_rejected = on_rejected
        self._on_reloaded = on_reloaded
        self._on_restart_needed = on_restart_needed
        self._interval = interval
        self._current = load(path)
        self._at_start = self._current
        self._refused: InputError | None = None
        self._restart_needed: list[str] = []
        self._seen = self._evaluated = self._current.digest

    @property
    def current(self) -> Settings:
        """The last valid state."""
        return self._current

    @property
    def problem(self) -> InputError | None:
        """The error in the present file; None if it is in effect."""
        return self._refused

    async def watch(self) -> None:
        """Poll the file until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            await self.poll()

    async def poll(self) -> None:
        """Read the file once; valid content takes effect once two reads in a row have found it."""
        read = await asyncio.to_thread(self._try_read)
        seen = str(read) if isinstance(read, InputError) else hashlib.sha256(read).hexdigest()
        settled = seen == self._seen
        self._seen = seen
        if not settled or seen == self._evaluated:
            return
        self._evaluated = seen
        self._refused = None
        try:
            if isinstance(read, InputError):
                raise read
            if seen != self._current.digest:
                self._swap(await asyncio.to_thread(parse, read, self._path))
        except InputError as mistake:
            self._refused = mistake
            self._on_rejected(mistake)

    def _try_read(self) -> bytes | InputError:
        try:
            return _read(self._path)
        except InputError as mistake:
            return mistake

    def _swap(self, new: Settings) -> None:
        old, start = self._current, self._at_start
        changed = list(_changes_at_start(start, new))
        kept = {name: getattr(start, name) for name in (*_AT_START, *_WHOLE_AT_START)}
        self._current = msgspec.structs.replace(new, **kept)
        self._on_reloaded(old, self._current)
        if changed and changed != self._restart_needed:
            self._on_restart_needed(changed)
        self._restart_needed = changed


def _changes_at_start(old: Settings, new: Settings) -> Iterator[str]:
    """The keys of the file whose changes take effect at the next start."""
    for section in _AT_START:
        before, after = getattr(old, section), getattr(new, section)
        for field in before.__struct_fields__:
            if getattr(before, field) != getattr(after, field):
                yield f"{section}.{to_camel(field)}"
    yield from (name for name in _WHOLE_AT_START if getattr(old, name) != getattr(new, name))


def _read(path: str | os.PathLike[str]) -> bytes:
    where = os.fspath(path)
    try:
        return read_file(path, MAX_BYTES, "a settings file is not larger")
    except InputError as error:
        raise InputErrors([InputError(error.what, where, error.fix)]) from error.__cause__


def _validate(data: bytes, where: str) -> Section:
    try:
        documents = list(parse_documents(data, where))
    except InputError as error:
        raise InputErrors(mistakes_of(error)) from error
    if len(documents) > 1:
        raise InputErrors(
            [InputError("the file has more than one document", documents[1].where(), "keep one document")]
        )
    if not documents:
        # Editors and failed writes leave empty files behind; the defaults would end what the admin enforces.
        raise InputErrors([InputError("the file is empty", where, "write {} for the defaults")])
    document = documents[0]
    try:
        return model_of(Settings).model_validate(document.value)
    except ValidationError as error:
        listed = error.errors(include_url=False)
        ordered = sorted((_mistake(details, document) for details in listed[:MAX_MISTAKES]), key=lambda each: each[0])
        mistakes = [mistake for _, mistake in ordered]
        if more := len(listed) - len(mistakes):
            mistakes.append(InputError(f"{pluralize(more, 'more mistake')}", where, "correct these first"))
        raise InputErrors(mistakes) from error


def _mistake(details: ErrorDetails, document: Document) -> tuple[int, InputError]:
    """The line and the sentence of one of pydantic's errors."""
    context = details.get("ctx") or {}
    path: tuple[str | int, ...] = ()
    for part in details["loc"]:
        # pydantic uses a defaulted field's Python name, and marks a mapping's key to distinguish it from the value.
        alias = to_camel(part) if details["type"] == OWN_ERROR and isinstance(part, str) else part
        if part != "[key]":
            path = (*path, alias if alias in _node(path).get("properties", ()) else part)
    if context.get("key"):
        path = (*path, context["key"])
    clause, fix = _sentence(details, context, path)
    line = document.line_of(path)
    what = f"{format_path(path)}: {clause}" if path else clause
    return line, InputError(what, f"{document.file}:{line}", fix)


def _sentence(details: ErrorDetails, context: Mapping[str, Any], path: KeyPath) -> tuple[str, str]:
    kind, given, node = details["type"], details["input"], _node(path)
    if kind == OWN_ERROR:
        return context["what"], context["fix"]
    if kind == "extra_forbidden":
        return "unknown setting", _suggest(path)
    if kind == "missing":
        return "required setting is missing", f"use for example {path[-1]}: {node['examples'][0]}"
    if kind == "literal_error":
        near = _nearest_choice(str(given), node["enum"])
        return (
            f"must be {_join_alternatives(node['enum'])}, not {_describe(given)}",
            f"did you mean {near}?" if near else "",
        )
    if "minimum" in node and isinstance(given, int) and not isinstance(given, bool):
        return f"must be from {node['minimum']} to {node['maximum']}, not {given}", ""
    wanted = _WANTED.get(kind)
    if wanted is None:
        return details["msg"], ""
    plain = not isinstance(given, dict | list | None)
    fix = "write it in quotes" if kind == "string_type" and plain else ""
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


def _join_alternatives(choices: Iterable[str]) -> str:
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def _nearest_choice(text: str, choices: Iterable[str]) -> str | None:
    folded = {_fold(choice): choice for choice in choices}
    near = difflib.get_close_matches(_fold(text), folded, n=1)
    return folded[near[0]] if near else None


def _fold(name: str) -> str:
    """One spelling of ``certFile``, ``cert_file`` and ``cert-file``."""
    return name.replace("_", "").replace("-", "").casefold()


def _suggest(path: KeyPath) -> str:
    """Settings for an unknown key: with the same name in another spelling or section, or with a similar name."""
    *parent, key = path
    siblings = list(_node(parent).get("properties", ()))
    likely: list[KeyPath] = [place for place in _places() if _fold(place[-1]) == _fold(str(key))]
    if not likely and (near := _nearest_choice(str(key), siblings)):
        likely = [(*parent, near)]
    return (
        f"did you mean {_join_alternatives(map(format_path, likely))}?"
        if likely
        else f"valid settings are {', '.join(siblings)}"
    )


def _places(path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all settings below one."""
    for name in _node(path).get("properties", ()):
        yield (*path, name)
        yield from _places((*path, name))


def _node(path: KeyPath) -> Mapping[str, Any]:
    """The schema of the value at a path; empty if the path is not valid."""
    node: Mapping[str, Any] = _schema()
    for part in path:
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            others: Iterable[Mapping[str, Any]] = node.get("patternProperties", {}).values()
            node = node.get("properties", {}).get(part, next(iter(others), {}))
        if reference := node.get("$ref"):
            node = _schema()["$defs"][reference.rpartition("/")[2]]
    return node


def _without_titles(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_titles(part) for key, part in node.items() if key != "title"}
    return [_without_titles(part) for part in node] if isinstance(node, list) else node


@cache
def _schema() -> dict[str, Any]:
    """The schema of the model: made when it is needed, since that takes longer than reading a file of settings."""
    return model_of(Settings).model_json_schema(by_alias=True)
