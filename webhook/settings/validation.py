"""Reads a settings file as `Settings`, or says all of its mistakes at once: where, what, and what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from webhook.errors import InputError, InputErrors, quote
from webhook.k8s.documents import Document, KeyPath, format_path, mistakes_of
from webhook.k8s.yaml_documents import parse_documents
from webhook.settings.fields import OWN_ERROR
from webhook.settings.model import Settings
from webhook.settings.schedulers import undeclared
from webhook.text import pluralize

# Each takes a look through the file for its line, and a search for what was meant.
MAX_MISTAKES: Final = 100
_EXPECTED_TYPES: Final = {
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

# Listeners of before there was one for all of them.
_MOVED: Final[Mapping[KeyPath, str]] = {
    ("explain",): "use admin: {listen: HOST:PORT}, with page: false for explanations alone",
    ("page",): "use admin: {listen: HOST:PORT}, with explain: false for the page alone",
    ("metrics",): "use admin: {listen: HOST:PORT, metrics: true}, with explain and page: false for metrics alone",
}


def schema(model: type[Settings]) -> dict[str, Any]:
    """The JSON Schema of the file, with descriptions and defaults."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_without_titles(_schema(model))}


def of_file(value: object, model: type[Settings]) -> Settings:
    """The settings that a file's mapping has, each under its key in the file; a `ValidationError` where it has none."""
    return model.model_validate(value, by_alias=True, by_name=False)


def validate(data: bytes, where: str, model: type[Settings]) -> Settings:
    """The file's content, UTF-8, as settings; messages have the file's name.

    Raises:
        InputErrors: all errors in the content.
    """
    try:
        documents = list(parse_documents(data, where))
    except InputError as error:
        raise InputErrors(mistakes_of(error)) from error
    if len(documents) > 1:
        mistake = InputError("the file has more than one document", documents[1].where(), "keep one document")
        raise InputErrors([mistake])
    if not documents:
        # Editors and failed writes leave empty files behind; the defaults would end what the admin enforces.
        raise InputErrors([InputError("the file is empty", where, "write {} for the defaults")])
    document = documents[0]
    if other := _object_of_kubernetes(document):
        raise InputErrors([other])
    try:
        return of_file(document.value, model)
    except ValidationError as error:
        listed = error.errors(include_url=False)
        found = [_mistake(details, document, model) for details in listed[:MAX_MISTAKES]]
        found += _undeclared_scheduler(document, listed, model)
        ordered = sorted(found, key=lambda each: each[0])
        mistakes = [mistake for _, mistake in ordered]
        if (more := len(listed) - MAX_MISTAKES) > 0:
            mistakes.append(InputError(f"{pluralize(more, 'more mistake')}", where, "correct these first"))
        raise InputErrors(mistakes) from error


def _object_of_kubernetes(document: Document) -> InputError | None:
    """A file that holds an object of Kubernetes, such as the ConfigMap that has the settings, and not the settings."""
    value = document.value
    if not isinstance(value, dict) or not {"apiVersion", "kind"} <= value.keys():
        return None
    kind = value["kind"] if isinstance(value["kind"], str) else "object"
    fix = "use a file with settings alone"
    data = value.get("data")
    if kind == "ConfigMap" and isinstance(data, dict) and data:
        key = "settings.yaml" if "settings.yaml" in data else next(iter(data))
        fix = f"use the content of its key {quote(str(key))}"
    return InputError(f"this is a {kind} of Kubernetes, not settings", document.where(), fix)


def _undeclared_scheduler(
    document: Document, listed: Iterable[ErrorDetails], model: type[Settings]
) -> list[tuple[int, InputError]]:
    """An undeclared scheduler, which validation does not look for where a section that it depends on has a mistake."""
    if any((details.get("ctx") or {}).get("code") == "undeclared" for details in listed):
        return []
    path = ("scheduling", "schedulerName")
    if not _node(path, model):
        return []
    value: Any = document.value
    schedulers, scheduling = (
        value.get(key) if isinstance(value, dict) else None for key in ("schedulers", "scheduling")
    )
    scheduler = scheduling.get("schedulerName") if isinstance(scheduling, dict) else None
    if not isinstance(scheduler, str) or not isinstance(schedulers, dict) or scheduler in schedulers:
        return []
    error, line = undeclared(scheduler, [name for name in schedulers if isinstance(name, str)]), document.line_of(path)
    context = error.context or {}
    return [(line, InputError(f"{format_path(path)}: {context['what']}", f"{document.file}:{line}", context["fix"]))]


def _mistake(details: ErrorDetails, document: Document, model: type[Settings]) -> tuple[int, InputError]:
    """The line and the sentence of one of pydantic's errors."""
    context = details.get("ctx") or {}
    path: tuple[str | int, ...] = ()
    for part in details["loc"]:
        # pydantic uses a defaulted field's Python name, and marks a mapping's key to distinguish it from the value.
        alias = to_camel(part) if details["type"] == OWN_ERROR and isinstance(part, str) else part
        if part != "[key]":
            path = (*path, alias if alias in _node(path, model).get("properties", ()) else part)
    if context.get("key"):
        path = (*path, context["key"])
    clause, fix = _sentence(details, context, path, model)
    line = document.line_of(path)
    what = f"{format_path(path)}: {clause}" if path else clause
    return line, InputError(what, f"{document.file}:{line}", fix)


def _sentence(
    details: ErrorDetails, context: Mapping[str, Any], path: KeyPath, model: type[Settings]
) -> tuple[str, str]:
    kind, value, node = details["type"], details["input"], _node(path, model)
    if kind == OWN_ERROR:
        return context["what"], context["fix"]
    if kind == "extra_forbidden" and path in _MOVED:
        return "these are settings of the admin listener now", _MOVED[path]
    if kind == "extra_forbidden":
        return "unknown setting", _suggest(path, model)
    if kind == "missing":
        return "required setting is missing", f"use for example {path[-1]}: {node['examples'][0]}"
    if kind == "literal_error":
        near = _nearest_choice(str(value), node["enum"])
        fix = f"did you mean {near}?" if near else ""
        return f"must be {_join_alternatives(node['enum'])}, not {_describe(value)}", fix
    if "minimum" in node and isinstance(value, int) and not isinstance(value, bool):
        return f"must be from {node['minimum']} to {node['maximum']}, not {value}", ""
    expected = _EXPECTED_TYPES.get(kind)
    if expected is None:
        return details["msg"], ""
    plain = not isinstance(value, dict | list | None)
    fix = "write it in quotes" if kind == "string_type" and plain else ""
    if kind == "bool_type" and isinstance(value, str) and value.casefold() in _BOOLEANS:
        fix = f"write {_BOOLEANS[value.casefold()]} without quotes"
    elif kind == "int_type" and isinstance(value, str) and value.isdecimal():
        fix = "write it without quotes"
    return f"must be {expected}, not {_describe(value)}", fix


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


def _suggest(path: KeyPath, model: type[Settings]) -> str:
    """Settings for an unknown key: with the same name in another spelling or section, or with a similar name."""
    *parent, key = path
    siblings = list(_node(parent, model).get("properties", ()))
    likely: list[KeyPath] = [place for place in _places(model) if _fold(place[-1]) == _fold(str(key))]
    if not likely and (near := _nearest_choice(str(key), siblings)):
        likely = [(*parent, near)]
    if likely:
        return f"did you mean {_join_alternatives(map(format_path, likely))}?"
    return f"valid settings are {', '.join(siblings)}"


def _places(model: type[Settings], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all settings below one."""
    for name in _node(path, model).get("properties", ()):
        yield (*path, name)
        yield from _places(model, (*path, name))


def _node(path: KeyPath, model: type[Settings]) -> Mapping[str, Any]:
    """The schema of the value at a path; empty if the path is not valid."""
    node: Mapping[str, Any] = _schema(model)
    for part in path:
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            others: Iterable[Mapping[str, Any]] = node.get("patternProperties", {}).values()
            node = node.get("properties", {}).get(part, next(iter(others), {}))
        if reference := node.get("$ref"):
            node = _schema(model)["$defs"][reference.rpartition("/")[2]]
    return node


def _without_titles(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_titles(part) for key, part in node.items() if key != "title"}
    return [_without_titles(part) for part in node] if isinstance(node, list) else node


@cache
def _schema(model: type[Settings]) -> dict[str, Any]:
    """The schema of the model: made when it is needed, since that takes longer than reading a file of settings."""
    return model.model_json_schema()
