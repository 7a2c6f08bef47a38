"""Validates the settings file's content, with all its mistakes at once. Only here is pydantic.

The models are made from the classes of `webhook.settings.model`: keys are camelCase, null means absent, unknown keys
are denied, values are not converted. A server leaves this to a process of its own, `webhook.settings.file.parse_apart`.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from inspect import cleandoc
from itertools import chain
from types import GenericAlias, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from webhook.errors import InputError, InputErrors, quote
from webhook.k8s.yaml_documents import Document, KeyPath, format_path, mistakes_of, parse_documents
from webhook.settings.model import DERIVED, AsText, Check, Range, Setting, SettingError, Settings, undeclared
from webhook.text import pluralize

# The type of errors made from a `SettingError`; their context has `code`, `what`, `fix` and `key`.
OWN_ERROR: Final = "settings"
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
# Keys that settings files of before the first release have, and their names now.
_PREVIOUS: Final = {
    "guard": "healthCheck",
    "parity": "fidelityCheck",
    "unenforced": "driftScan",
    "drainSeconds": "shutdownSeconds",
}


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _prepare(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        aliases = {field.alias for field in cls.model_fields.values()}
        for previous, now in _PREVIOUS.items():
            if now in aliases and previous in value and now not in value:
                value = {now if key == previous else key: part for key, part in value.items()}
        present = {key: part for key, part in value.items() if part is not None or key not in aliases}
        prepare = getattr(_STRUCTS.get(cls), "prepare", None)
        return prepare(present) if prepare else present


_PLAIN: Final = Setting()
# A line of a docstring's Attributes.
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
_STRUCTS: Final[dict[type[Section], type[msgspec.Struct]]] = {}


@cache
def model_of(struct: type[msgspec.Struct]) -> type[Section]:
    """The model of a class of settings; that of `Settings` is the file's."""
    defaults = dict(zip(reversed(struct.__struct_fields__), reversed(struct.__struct_defaults__), strict=False))
    descriptions = dict(_ATTRIBUTE.findall(cleandoc(struct.__doc__ or "").partition("Attributes:\n")[2]))
    fields: dict[str, Any] = {}
    for name, base, setting, limits in _settings_of(struct):
        form = _form(setting.form or base)
        options: dict[str, Any] = {"examples": setting.examples, "json_schema_extra": setting.schema}
        if setting.alias:
            options["alias"] = setting.alias
        if not setting.is_required:
            default = defaults[name] if setting.default is ... else setting.default
            options["default"] = form() if isinstance(default, msgspec.Struct) else default
        # A section is described by its class.
        described = " ".join(descriptions.get(name, "").split()) or _summary(setting.form or base)
        fields[name] = (_annotated(form, *limits), Field(description=described, **options))
    model = create_model(struct.__name__, __base__=Section, __doc__=_summary(struct), **fields)
    _STRUCTS[model] = struct
    return model


def read(model: Section) -> msgspec.Struct:
    """The settings of a validated section, of the class from which its model was made."""
    fields = {}
    for name, _, setting, _ in _settings_of(_STRUCTS[type(model)]):
        value = _read_value(getattr(model, name))
        fields[name] = setting.read(value) if setting.read else value
    return _STRUCTS[type(model)](**fields)


def _read_value(value: Any) -> Any:
    if isinstance(value, Section):
        return read(value)
    if isinstance(value, tuple):
        return tuple(map(_read_value, value))
    return {key: _read_value(part) for key, part in value.items()} if isinstance(value, dict) else value


@cache
def _settings_of(struct: type[msgspec.Struct]) -> list[tuple[str, Any, Setting, list[Any]]]:
    """Name, type, setting, and limits of the fields that the file has."""
    fields = []
    # With the module's names as globals, which functions within annotations need.
    for name, hint in get_type_hints(struct, vars(sys.modules[struct.__module__]), include_extras=True).items():
        base, *parts = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if DERIVED not in parts:
            setting = next((part for part in parts if isinstance(part, Setting)), _PLAIN)
            fields.append((name, base, setting, list(chain.from_iterable(map(_annotations, parts)))))
    return fields


def _summary(struct: type[msgspec.Struct]) -> str:
    # Compilers before Python 3.13 leave the indentation in a docstring.
    return cleandoc(struct.__doc__ or "").partition("\n\n")[0]


def _form(hint: Any) -> Any:
    """A type as pydantic validates it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(_form(arguments[0]), *chain.from_iterable(map(_annotations, arguments[1:])))
    if origin is tuple:
        return _annotated(GenericAlias(tuple, (_form(arguments[0]), ...)), Field(strict=False))
    if origin is Mapping:
        return GenericAlias(dict, tuple(map(_form, arguments)))
    if origin is UnionType:
        return Union[tuple(map(_form, arguments))]  # noqa: UP007 - of a tuple
    return model_of(hint) if isinstance(hint, type) and issubclass(hint, msgspec.Struct) else hint


def _annotated(*parts: Any) -> Any:
    return Annotated[parts] if len(parts) > 1 else parts[0]


def _annotations(part: Any) -> Iterator[Any]:
    if isinstance(part, Range):
        yield Field(ge=part.least, le=part.most)
    elif isinstance(part, Check):
        yield AfterValidator(lambda value, info: _call(part.check, value, info.data))
        if part.pattern:
            # pydantic's own pattern would have a message of its own.
            pattern = {"pattern": f"^(?:{part.pattern})$", "maxLength": part.longest}
            yield WithJsonSchema({"type": "string", **pattern})
    elif isinstance(part, AsText):
        yield BeforeValidator(part.convert)
        yield WithJsonSchema(dict(part.schema))


def _call(check: Callable[[Any, Mapping[str, Any]], Any], value: Any, earlier: Mapping[str, Any]) -> Any:
    try:
        changed = check(value, earlier)
    except SettingError as error:
        raise PydanticCustomError(OWN_ERROR, "{what}", error.context) from None
    return value if changed is None else changed


def schema() -> dict[str, Any]:
    """The JSON Schema of the file, with descriptions and defaults."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_without_titles(_schema())}


def validate(data: bytes, where: str) -> Section:
    """The file's content, UTF-8, as the model of `Settings`; messages have the file's name.

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
    try:
        return model_of(Settings).model_validate(document.value)
    except ValidationError as error:
        listed = error.errors(include_url=False)
        found = [_mistake(details, document) for details in listed[:MAX_MISTAKES]]
        found += _undeclared_scheduler(document, listed)
        ordered = sorted(found, key=lambda each: each[0])
        mistakes = [mistake for _, mistake in ordered]
        if (more := len(listed) - MAX_MISTAKES) > 0:
            mistakes.append(InputError(f"{pluralize(more, 'more mistake')}", where, "correct these first"))
        raise InputErrors(mistakes) from error


def _undeclared_scheduler(document: Document, listed: Iterable[ErrorDetails]) -> list[tuple[int, InputError]]:
    """An undeclared scheduler, which validation does not look for where a section that it depends on has a mistake."""
    if any((details.get("ctx") or {}).get("code") == "undeclared" for details in listed):
        return []
    value: Any = document.value
    schedulers, scheduling = (
        value.get(key) if isinstance(value, dict) else None for key in ("schedulers", "scheduling")
    )
    scheduler = scheduling.get("schedulerName") if isinstance(scheduling, dict) else None
    if not isinstance(scheduler, str) or not isinstance(schedulers, dict) or scheduler in schedulers:
        return []
    path = ("scheduling", "schedulerName")
    error, line = undeclared(scheduler, [name for name in schedulers if isinstance(name, str)]), document.line_of(path)
    what = f"{format_path(path)}: {error.context['what']}"
    return [(line, InputError(what, f"{document.file}:{line}", error.context["fix"]))]


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
    kind, value, node = details["type"], details["input"], _node(path)
    if kind == OWN_ERROR:
        return context["what"], context["fix"]
    if kind == "extra_forbidden":
        return "unknown setting", _suggest(path)
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


def _suggest(path: KeyPath) -> str:
    """Settings for an unknown key: with the same name in another spelling or section, or with a similar name."""
    *parent, key = path
    siblings = list(_node(parent).get("properties", ()))
    likely: list[KeyPath] = [place for place in _places() if _fold(place[-1]) == _fold(str(key))]
    if not likely and (near := _nearest_choice(str(key), siblings)):
        likely = [(*parent, near)]
    if likely:
        return f"did you mean {_join_alternatives(map(format_path, likely))}?"
    return f"valid settings are {', '.join(siblings)}"


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
