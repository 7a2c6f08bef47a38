"""The types of single settings, each with its syntax, and the base of all sections."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from webhook import names
from webhook.errors import quote
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.settings.address import is_address, is_host

# The type of errors made by `mistake`; their context has `code`, `what`, `fix` and `key`.
OWN_ERROR: Final = "settings"
# The output of audit lines that is not a file.
STDOUT: Final = "stdout"
_MAX_REGISTRY: Final = 259

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_GUARD: Final = f"off|pods|lease +{_LABEL}/{_SUBDOMAIN}"
_LOWER: Final = "use lowercase letters, digits and -; begin and end with a letter or digit"


def mistake(code: str, what: str, fix: str = "", key: str = "") -> PydanticCustomError:
    """An error in a setting, for validators to raise.

    Args:
        code: the kind of error, for tests.
        what: a clause about the setting.
        fix: a clause in the imperative.
        key: the setting, relative to the one that pydantic names.
    """
    return PydanticCustomError(OWN_ERROR, "{what}", {"code": code, "what": what, "fix": fix, "key": key})


@dataclass(frozen=True)
class Syntax:
    """A syntax of names; the rules are those of ``k8s.io/apimachinery/pkg/util/validation``."""

    what: str
    pattern: str
    longest: int
    fix: str

    def check(self, text: str) -> str:
        """The text, if it has the syntax.

        Raises:
            PydanticCustomError: it is too long, or does not match the pattern.
        """
        if len(text) > self.longest:
            raise mistake("too-long", f"{_shorten(text)} is longer than {self.longest} characters", "shorten it")
        if not re.fullmatch(self.pattern, text):
            raise mistake("syntax", f"{_shorten(text)} is not a valid {self.what}", self.fix)
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "pattern": f"^(?:{self.pattern})$", "maxLength": self.longest}


def _shorten(text: str) -> str:
    return f'"{text}"' if len(text) <= 60 else f'"{text[:57]}..."'


def _check_address(text: str) -> str:
    if not is_address(text):
        fix = "use for example 0.0.0.0:8443, or [::]:8443 for IPv6"
        raise mistake("syntax", f"{_shorten(text)} is not a valid HOST:PORT", fix)
    return text


def _check_scheduler_name(text: str) -> str:
    if text == names.DEFAULT_SCHEDULER:
        what = f"{names.DEFAULT_SCHEDULER} cannot be declared: in a VM it means that the owner opted out"
        raise mistake("default-scheduler", what, "declare another scheduler")
    return text


def _check_guard(text: str) -> str:
    if not re.fullmatch(_GUARD, text):
        raise mistake("syntax", f"{_shorten(text)} is not a valid guard", "use lease NAMESPACE/NAME, pods or off")
    return text


def _check_version(text: str) -> str:
    if text and parse_version(text) is None:
        raise mistake("syntax", f"{_shorten(text)} is not a valid KubeVirt version", "use for example 1.8 or v1.8.4")
    return text


def _check_registry(text: str) -> str:
    is_valid = len(text) <= _MAX_REGISTRY and (is_address(text) if ":" in text else is_host(text))
    if not is_valid or text != text.lower():
        fix = "use HOST or HOST:PORT in lower case, as references to images have it, for example quay.io"
        raise mistake("syntax", f"{quote(text)} is not a valid registry", fix)
    return text


def _check_network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        fix = "use for example 10.20.0.0/16, or one address"
        raise mistake("syntax", f"{quote(text)} is not a valid network", fix) from None
    return text


def _check_path(text: str) -> str:
    if text and not text.startswith("/"):
        raise mistake("syntax", f"{quote(text)} is not an absolute path", "use for example /var/cache/kubevirt-webhook")
    return text


def _check_output(text: str) -> str:
    if text != STDOUT and not text.startswith("/"):
        raise mistake(
            "syntax", f"{quote(text)} is neither {STDOUT} nor an absolute path", f"use {STDOUT} or a path such as /a/b"
        )
    return text


Address = Annotated[str, AfterValidator(_check_address)]
KubeVirtVersion = Annotated[str, AfterValidator(_check_version)]
OptionalAddress = Annotated[str, AfterValidator(lambda text: _check_address(text) if text else text)]
Namespace = Annotated[str, Syntax("namespace name", _LABEL, 63, _LOWER)]
OptionalNamespace = Annotated[str, Syntax("namespace name", f"({_LABEL})?", 63, _LOWER)]
ServiceName = Annotated[
    str, Syntax("Service name", "[a-z]([-a-z0-9]*[a-z0-9])?", 63, f"{_LOWER}; do not begin with a digit")
]
SecretName = Annotated[str, Syntax("Secret name", _SUBDOMAIN, 253, _LOWER)]
SchedulerName = Annotated[str, Syntax("scheduler name", _SUBDOMAIN, 253, f"{_LOWER}; dots may separate parts")]
DeclaredName = Annotated[SchedulerName, AfterValidator(_check_scheduler_name)]
LabelKey = Annotated[str, Syntax("label key", f"({_SUBDOMAIN}/)?{_QUALIFIED}", 317, "use NAME or DOMAIN/NAME")]
LabelValue = Annotated[str, Syntax("label value", f"({_QUALIFIED})?", 63, "use letters, digits, -, _ and .")]
Reference = Annotated[
    str,
    Syntax("reference to an instancetype or preference", f"(([A-Za-z]+/)?{_SUBDOMAIN})?", 317, "use NAME or KIND/NAME"),
]
Pattern = Annotated[
    str, Syntax("instancetype pattern", "([A-Za-z]+/)?[a-z0-9*][-a-z0-9.*]*", 317, "use NAME or KIND/NAME")
]
Requester = Annotated[
    str,
    Syntax("requester", "[A-Za-z0-9][-A-Za-z0-9_./]*", 253, "use the value of the annotation requested-by"),
]
# YAML 1.1 reads an unquoted off as false.
GuardText = Annotated[
    str,
    AfterValidator(_check_guard),
    BeforeValidator(lambda value: "off" if value is False else value),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": f"^(?:{_GUARD})$"}, {"const": False}]}),
]
RegistryName = Annotated[str, AfterValidator(_check_registry)]
NetworkText = Annotated[str, AfterValidator(_check_network)]
OptionalPath = Annotated[str, AfterValidator(_check_path)]
Output = Annotated[str, AfterValidator(_check_output)]
# YAML 1.1 reads an unquoted on as true.
Switch = Annotated[
    Literal["off", "on"],
    BeforeValidator(lambda value: ("on" if value else "off") if isinstance(value, bool) else value),
    WithJsonSchema({"enum": ["off", "on"]}),
]


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        known = {field.alias for field in cls.model_fields.values()}
        return {key: part for key, part in value.items() if part is not None or key not in known}

    def fields(self, struct: type[msgspec.Struct]) -> dict[str, Any]:
        """The values of the fields that a Struct has by the same names."""
        return {name: getattr(self, name) for name in struct.__struct_fields__ if name in type(self).model_fields}
