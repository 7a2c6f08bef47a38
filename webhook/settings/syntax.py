"""The types of single settings: addresses, names, labels, references, each with its syntax."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from webhook import names
from webhook.releases.version import parse_version
from webhook.settings.address import is_address

# The type of our own errors; their context has `what`, `fix` and `key` (below the place that pydantic names).
OWN_ERROR: Final = "settings"

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_GUARD: Final = f"off|pods|lease +{_LABEL}/{_SUBDOMAIN}"
_LOWER: Final = "use lower case letters, digits and -, and a letter or digit at both ends"


def mistake(what: str, fix: str = "", key: str = "") -> PydanticCustomError:
    """An error of our own, told as `webhook.settings.file` tells it.

    Args:
        key: where it is, below the place that pydantic names.
    """
    return PydanticCustomError(OWN_ERROR, "{what}", {"what": what, "fix": fix, "key": key})


@dataclass(frozen=True)
class Syntax:
    """A syntax of names; the rules are those of ``k8s.io/apimachinery/pkg/util/validation``."""

    what: str
    pattern: str
    longest: int
    fix: str

    def check(self, text: str) -> str:
        if len(text) > self.longest:
            raise mistake(f"{_shorten(text)} is longer than {self.longest} characters", "shorten it")
        if not re.fullmatch(self.pattern, text):
            raise mistake(f"{_shorten(text)} is no {self.what}", self.fix)
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
        raise mistake(f"{_shorten(text)} is no HOST:PORT", "write for example 0.0.0.0:8443, or [::]:8443 for IPv6")
    return text


def _check_scheduler_name(text: str) -> str:
    if text == names.DEFAULT_SCHEDULER:
        what = f"{names.DEFAULT_SCHEDULER} is what pods have anyway, and means that the owner opted out"
        raise mistake(what, "declare another scheduler")
    return text


def _check_guard(text: str) -> str:
    if not re.fullmatch(_GUARD, text):
        raise mistake(f"{_shorten(text)} is no guard", "write lease NAMESPACE/NAME, pods or off")
    return text


def _check_version(text: str) -> str:
    if text and parse_version(text) is None:
        raise mistake(f"{_shorten(text)} is not a version of KubeVirt", "write for example 1.8 or v1.8.4")
    return text


Address = Annotated[str, AfterValidator(_check_address)]
KubeVirtVersion = Annotated[str, AfterValidator(_check_version)]
OptionalAddress = Annotated[str, AfterValidator(lambda text: _check_address(text) if text else text)]
Namespace = Annotated[str, Syntax("name of a namespace", _LABEL, 63, _LOWER)]
OptionalNamespace = Annotated[str, Syntax("name of a namespace", f"({_LABEL})?", 63, _LOWER)]
ServiceName = Annotated[str, Syntax("name of a Service", "[a-z]([-a-z0-9]*[a-z0-9])?", 63, f"{_LOWER}, no digit first")]
SecretName = Annotated[str, Syntax("name of a Secret", _SUBDOMAIN, 253, _LOWER)]
SchedulerName = Annotated[
    str, Syntax("name of a scheduler", _SUBDOMAIN, 253, f"{_LOWER}; dots may separate such parts")
]
DeclaredName = Annotated[SchedulerName, AfterValidator(_check_scheduler_name)]
LabelKey = Annotated[
    str, Syntax("key of a label", f"({_SUBDOMAIN}/)?{_QUALIFIED}", 317, "write NAME or DOMAIN/NAME, as in a label")
]
LabelValue = Annotated[str, Syntax("value of a label", f"({_QUALIFIED})?", 63, "use letters, digits, -, _ and .")]
Reference = Annotated[
    str,
    Syntax(
        "reference to an instancetype or preference", f"(([A-Za-z]+/)?{_SUBDOMAIN})?", 317, "write NAME or KIND/NAME"
    ),
]
Pattern = Annotated[
    str, Syntax("pattern of instancetypes", "([A-Za-z]+/)?[a-z0-9*][-a-z0-9.*]*", 317, "write NAME or KIND/NAME")
]
Requester = Annotated[
    str,
    Syntax("name of a requester", "[A-Za-z0-9][-A-Za-z0-9_./]*", 253, "write it as in the annotation requested-by"),
]
# YAML 1.1 reads an unquoted off as false.
GuardText = Annotated[
    str,
    AfterValidator(_check_guard),
    BeforeValidator(lambda value: "off" if value is False else value),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": f"^(?:{_GUARD})$"}, {"const": False}]}),
]
