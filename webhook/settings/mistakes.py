"""What is wrong with settings, in sentences: where, what, and what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from webhook.errors import InputError, quote
from webhook.k8s.documents import Document, KeyPath, format_path
from webhook.settings.fields import OWN_ERROR
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


def validate_field(value: object, model: type[BaseModel], field: str) -> Any:
    """A value that is in no settings file, such as a namespace's annotation, as a setting of a section.

    Args:
        value: text, or what was JSON.
        model: the section.
        field: the setting, by attribute.

    Raises:
        InputError: the first mistake, in the words of a settings file; places are within the value.
    """
    name = model.model_fields[field].alias or field
    try:
        return getattr(model.model_validate({name: value}, by_alias=True, by_name=False), field)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        path = _path_of(details, model)
        clause, fix = _sentence(details, path, model, given=1)
        raise InputError(clause, format_path(path[1:]), fix) from error


def mistakes_in(
    listed: Sequence[ErrorDetails],
    document: Document,
    model: type[BaseModel],
    others: Iterable[tuple[int, InputError]] = (),
) -> list[InputError]:
    """What pydantic found, and other mistakes with their lines, in the order of the lines."""
    found = [_mistake(details, document, model) for details in listed[:MAX_MISTAKES]]
    mistakes = [mistake for _, mistake in sorted([*found, *others], key=lambda each: each[0])]
    if (more := len(listed) - MAX_MISTAKES) > 0:
        mistakes.append(InputError(f"{pluralize(more, 'more mistake')}", document.file, "correct these first"))
    return mistakes


def _mistake(details: ErrorDetails, document: Document, model: type[BaseModel]) -> tuple[int, InputError]:
    """The line and the sentence of one of pydantic's errors."""
    path = _path_of(details, model)
    clause, fix = _sentence(details, path, model)
    line = document.line_of(path)
    what = f"{format_path(path)}: {clause}" if path else clause
    return line, InputError(what, f"{document.file}:{line}", fix)


def _path_of(details: ErrorDetails, model: type[BaseModel]) -> tuple[str | int, ...]:
    """The setting that is wrong, by the keys of a file."""
    context = details.get("ctx") or {}
    path: tuple[str | int, ...] = ()
    for part in details["loc"]:
        # pydantic uses a defaulted field's Python name, and marks a mapping's key to distinguish it from the value.
        alias = to_camel(part) if details["type"] == OWN_ERROR and isinstance(part, str) else part
        if part != "[key]":
            path = (*path, alias if alias in node_at(path, model).get("properties", ()) else part)
    if context.get("key"):
        path = (*path, context["key"])
    return path


def _sentence(details: ErrorDetails, path: KeyPath, model: type[BaseModel], given: int = 0) -> tuple[str, str]:
    """What is wrong and what to do, as clauses; the first keys of the path are ``given`` and not named."""
    kind, value, node = details["type"], details["input"], node_at(path, model)
    if kind == OWN_ERROR:
        return details["ctx"]["what"], details["ctx"]["fix"]
    if kind == "extra_forbidden" and path in _MOVED:
        return "these are settings of the admin listener now", _MOVED[path]
    if kind == "extra_forbidden":
        return "unknown setting", _suggest(path, model, given)
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
    *others, last = (choice or '""' for choice in choices)
    return f"{', '.join(others)} or {last}" if others else last


def _nearest_choice(text: str, choices: Iterable[str]) -> str | None:
    folded = {_fold(choice): choice for choice in choices}
    near = difflib.get_close_matches(_fold(text), folded, n=1)
    return folded[near[0]] if near else None


def _fold(name: str) -> str:
    """One spelling of ``certFile``, ``cert_file`` and ``cert-file``."""
    return name.replace("_", "").replace("-", "").casefold()


def _suggest(path: KeyPath, model: type[BaseModel], given: int) -> str:
    """Settings for an unknown key: with the same name in another spelling or section, or with a similar name."""
    *parent, key = path
    siblings = list(node_at(parent, model).get("properties", ()))
    likely: list[KeyPath] = [
        place for place in _places(model) if _fold(place[-1]) == _fold(str(key)) and place[:given] == path[:given]
    ]
    # In another spelling it is meant where it stands, whatever other sections have.
    likely = [place for place in likely if [*place[:-1]] == parent] or likely
    if not likely and (near := _nearest_choice(str(key), siblings)):
        likely = [(*parent, near)]
    if likely:
        return f"did you mean {_join_alternatives(format_path(place[given:]) for place in likely)}?"
    return f"valid settings are {', '.join(siblings)}"


def _places(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all settings below one."""
    for name in node_at(path, model).get("properties", ()):
        yield (*path, name)
        yield from _places(model, (*path, name))


def node_at(path: KeyPath, model: type[BaseModel]) -> Mapping[str, Any]:
    """The schema of the value at a path; empty if the path is not valid."""
    node: Mapping[str, Any] = schema_of(model)
    for part in path:
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            others: Iterable[Mapping[str, Any]] = node.get("patternProperties", {}).values()
            node = node.get("properties", {}).get(part, next(iter(others), {}))
        # What is optional is something or null.
        chosen = [each for each in node.get("anyOf", ()) if each.get("type") != "null"]
        if len(chosen) == 1:
            node = {**node, **chosen[0]}
        if reference := node.get("$ref"):
            node = schema_of(model)["$defs"][reference.rpartition("/")[2]]
    return node


@cache
def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of the model: made when it is needed, since that takes longer than reading a file of settings."""
    return model.model_json_schema()
