"""Validates the settings file's content, with all its mistakes at once. Only here is pydantic.

The models are made from the classes of `webhook.settings.model`: keys are camelCase, null means absent, unknown keys
are denied, values are not converted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
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
    GetJsonSchemaHandler,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from webhook.settings.syntax import DERIVED, AsText, Check, CheckBeside, Range, Setting, SettingError

# The type of errors made from a `SettingError`; their context has `code`, `what`, `fix` and `key`.
OWN_ERROR: Final = "settings"
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
    descriptions = dict(_ATTRIBUTE.findall(_text(struct).partition("Attributes:\n")[2]))
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
    """The settings of a validated section."""
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


def _settings_of(struct: type[msgspec.Struct]) -> Iterator[tuple[str, Any, Setting, list[Any]]]:
    """Name, type, setting, and limits of the fields that the file has."""
    # With the module's names as globals, which functions within annotations need.
    for name, hint in get_type_hints(struct, vars(sys.modules[struct.__module__]), include_extras=True).items():
        base, *parts = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if DERIVED not in parts:
            setting = next((part for part in parts if isinstance(part, Setting)), _PLAIN)
            yield name, base, setting, list(chain.from_iterable(map(_annotations, parts)))


def _summary(struct: type[msgspec.Struct]) -> str:
    return _text(struct).partition("\n\n")[0]


def _text(struct: type[msgspec.Struct]) -> str:
    """The docstring, without the indentation that compilers before Python 3.13 leave in it."""
    return cleandoc(struct.__doc__ or "")


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
        yield AfterValidator(lambda value: _call(part.check, value))
        if part.pattern:
            yield _Pattern(part)
    elif isinstance(part, CheckBeside):
        yield AfterValidator(lambda value, info: _call(part.check, value, info.data))
    elif isinstance(part, AsText):
        yield BeforeValidator(part.convert)
        yield WithJsonSchema(dict(part.schema))


def _call(check: Callable[..., Any], *values: Any) -> Any:
    try:
        return check(*values)
    except SettingError as error:
        raise PydanticCustomError(OWN_ERROR, "{what}", error.context) from None


class _Pattern:
    """What the JSON Schema says of a syntax; pydantic's own pattern would have a message of its own."""

    def __init__(self, check: Check) -> None:
        self._check: Final = check

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "pattern": f"^(?:{self._check.pattern})$", "maxLength": self._check.longest}
