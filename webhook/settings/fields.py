"""The types of single settings, each with its syntax, and how a setting says its mistake.

A text that may say nothing is empty then, in files as in annotations, and never null: its type takes the empty text
(`Syntax.or_empty`), which is the default. A type of which that is needed first gets an optional one beside it, as
`Namespace` has `OptionalNamespace`. None is for numbers and sections, which have no value that says nothing, and
for what is a field of Kubernetes' own, such as a toleration's key.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, NoReturn, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    GetPydanticSchema,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema

from webhook.errors import quote
from webhook.kubevirt.releases.capabilities import parse_version

# The type of errors of `mistake`; their context has `code`, `what`, `fix` and `key`.
OWN_ERROR: Final = "settings"
# The output of audit lines that is not a file.
STDOUT: Final = "stdout"
_MAX_REGISTRY: Final = 259

LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = rf"{LABEL}(\.{LABEL})*"
_QUALIFIED: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LOWER: Final = "use lowercase letters, digits and -; begin and end with a letter or digit"

T = TypeVar("T")


def mistake(code: str, what: str, fix: str = "", key: str = "") -> PydanticCustomError:
    """An error in a setting, for validators to raise.

    Args:
        code: the kind of error, for tests.
        what: a clause about the setting.
        fix: a clause in the imperative.
        key: the setting, relative to the one that is validated.
    """
    return PydanticCustomError(OWN_ERROR, "{what}", {"code": code, "what": what, "fix": fix, "key": key})


# A list of YAML, as a tuple.
Items = Annotated[tuple[T, ...], Field(strict=False)]


def _not_in_a_file(_: object) -> NoReturn:
    raise PydanticKnownError("extra_forbidden")


# A field that no file has: `Settings.completed` takes it from other sections, or from the key of its own.
Derived = Annotated[T, BeforeValidator(_not_in_a_file), SkipJsonSchema()]


def derived(default: T) -> T:
    """The default of a `Derived` field."""
    field: T = Field(default, exclude=True, validate_default=False)
    return field


@dataclass(frozen=True)
class Syntax:
    """A syntax of names that a regular expression says; the rules are k8s.io/apimachinery's (pkg/util/validation).

    Attributes:
        what: what the name is of.
        pattern: the regular expression.
        longest: characters that the name may have.
        fix: a clause in the imperative.
    """

    what: str
    pattern: str
    longest: int
    fix: str

    def or_empty(self) -> Syntax:
        """The same, which the empty text has, too."""
        return replace(self, pattern=f"({self.pattern})?")

    def check(self, text: str) -> str:
        """The text; an error where it does not have the syntax."""
        if len(text) > self.longest:
            raise mistake("too-long", f"{quote(text)} is longer than {self.longest} characters", "shorten it")
        if not re.fullmatch(self.pattern, text):
            raise mistake("syntax", f"{quote(text)} is not a valid {self.what}", self.fix)
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "pattern": f"^(?:{self.pattern})$", "maxLength": self.longest}


def is_host(text: str) -> bool:
    """Whether a text is an IP address without brackets, or a DNS name that can be resolved and certified."""
    if ":" in text or re.fullmatch("[0-9.]+", text):
        try:
            ipaddress.ip_address(text)
        except ValueError:
            return False
        return True
    # Names are resolved through IDNA, which takes labels of 63 characters at most.
    return bool(re.fullmatch(SUBDOMAIN, text.lower())) and all(len(label) <= 63 for label in text.split("."))


def is_loopback(address: str) -> bool:
    """Whether only this host, or pod, can reach ``HOST:PORT``."""
    return address.rpartition(":")[0] in ("127.0.0.1", "[::1]", "localhost")


def is_address(text: str) -> bool:
    """Whether a text is ``HOST:PORT``; brackets are required for an IPv6 address, and not allowed otherwise."""
    match = re.fullmatch(r"(?:\[(?P<six>[^]]+)\]|(?P<host>[^]:[]+)):(?P<port>[0-9]{1,5})", text)
    if match is None or int(match["port"]) > 65535:
        return False
    if match["six"]:
        return ":" in match["six"] and is_host(match["six"])
    return is_host(match["host"])


def _is_registry(text: str) -> bool:
    is_valid = len(text) <= _MAX_REGISTRY and (is_address(text) if ":" in text else is_host(text))
    return is_valid and text == text.lower()


def _is_path(text: str) -> bool:
    return text.startswith("/") and "\0" not in text


def form(is_valid: Callable[[str], object], clause: str, fix: str) -> AfterValidator:
    """A syntax that no regular expression says; ``clause`` is about a text that does not have it."""

    def check(text: str) -> str:
        if not is_valid(text):
            raise mistake("syntax", f"{quote(text)} {clause}", fix)
        return text

    return AfterValidator(check)


def one_of(*choices: str) -> GetPydanticSchema:
    """As `Literal` in a file; the field's type is `str`, since a namespace's annotation may bring any text later."""
    return GetPydanticSchema(lambda _source, _handler: core_schema.literal_schema([*choices]))


def _switch(value: object) -> object:
    """True for ``on``; YAML 1.1 reads an unquoted ``on`` and ``off`` as a boolean."""
    # By type, since 1 equals True.
    if isinstance(value, bool):
        return value
    if value not in ("off", "on"):
        raise PydanticKnownError("literal_error", {"expected": "'off' or 'on'"})
    return value == "on"


def _network(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return ipaddress.ip_network(value)
    except ValueError:
        raise mistake("syntax", f"{quote(value)} is not a valid network", _NETWORK_FIX) from None


_ADDRESS: Final = ("is not a valid HOST:PORT", "use for example 0.0.0.0:8443, or [::]:8443 for IPv6")
Address = Annotated[str, form(is_address, *_ADDRESS)]
OptionalAddress = Annotated[str, form(lambda text: not text or is_address(text), *_ADDRESS)]
_VERSION: Final = ("is not a valid KubeVirt version", "use for example 1.8 or v1.8.4")
KubeVirtVersion = Annotated[str, form(lambda text: not text or parse_version(text) is not None, *_VERSION)]
_NAMESPACE: Final = Syntax("namespace name", LABEL, 63, LOWER)
Namespace = Annotated[str, _NAMESPACE]
OptionalNamespace = Annotated[str, _NAMESPACE.or_empty()]
ServiceName = Annotated[
    str, Syntax("Service name", "[a-z]([-a-z0-9]*[a-z0-9])?", 63, f"{LOWER}; do not begin with a digit")
]
SecretName = Annotated[str, Syntax("Secret name", SUBDOMAIN, 253, LOWER)]
SchedulerName = Annotated[str, Syntax("scheduler name", SUBDOMAIN, 253, f"{LOWER}; dots may separate parts")]
LabelKey = Annotated[str, Syntax("label key", f"({SUBDOMAIN}/)?{_QUALIFIED}", 317, "use NAME or DOMAIN/NAME")]
LabelValue = Annotated[str, Syntax("label value", _QUALIFIED, 63, "use letters, digits, -, _ and .").or_empty()]
_REGISTRY_FIX: Final = "use HOST or HOST:PORT in lower case, as references to images have it, for example quay.io"
RegistryName = Annotated[str, form(_is_registry, "is not a valid registry", _REGISTRY_FIX)]
_NETWORK_FIX: Final = "use for example 10.20.0.0/16, or one address"
Network = Annotated[
    ipaddress.IPv4Network | ipaddress.IPv6Network, BeforeValidator(_network), WithJsonSchema({"type": "string"})
]
_PATH: Final = ("is not an absolute path", "use for example /var/cache/kubevirt-webhook")
OptionalPath = Annotated[str, form(lambda text: not text or _is_path(text), *_PATH)]
_OUTPUT: Final = (f"is neither {STDOUT} nor an absolute path", f"use {STDOUT} or a path such as /a/b")
Output = Annotated[str, form(lambda text: text == STDOUT or _is_path(text), *_OUTPUT)]
# A client without a certificate has the empty name.
_CLIENT: Final = ("is not a common name", "use that of the client's certificate, for example kube-apiserver")
ClientName = Annotated[str, form(bool, *_CLIENT), WithJsonSchema({"type": "string", "minLength": 1})]
Switch = Annotated[
    bool,
    BeforeValidator(_switch),
    PlainSerializer(lambda is_on: "on" if is_on else "off", return_type=str),
    WithJsonSchema({"enum": ["off", "on"]}),
]
# Of a switch: its default as files have it.
OFF_BY_DEFAULT: Final[dict[str, Any]] = {"default": "off"}
