"""The types of single settings, each with its syntax, and how the file's value of a setting becomes a field's."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from webhook import names
from webhook.errors import quote
from webhook.kubevirt.releases.capabilities import parse_version

# The output of audit lines that is not a file.
STDOUT: Final = "stdout"
_MAX_REGISTRY: Final = 259

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_HEALTH_CHECK: Final = f"off|pods|lease +{_LABEL}/{_SUBDOMAIN}"
_LOWER: Final = "use lowercase letters, digits and -; begin and end with a letter or digit"


class SettingError(Exception):
    """An error in a setting, for checks to raise.

    Args:
        code: the kind of error, for tests.
        what: a clause about the setting.
        fix: a clause in the imperative.
        key: the setting, relative to the one that is checked.
    """

    def __init__(self, code: str, what: str, fix: str = "", key: str = "") -> None:
        super().__init__(what)
        self.context: Final = {"code": code, "what": what, "fix": fix, "key": key}


# Of a field that is not in the file: it comes from other sections, or from the key of its own.
DERIVED: Final = "derived"


@dataclass(frozen=True)
class Range:
    """The bounds of a number, which belong to it."""

    least: int
    most: int


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How the file differs from a field.

    Attributes:
        examples: values, for documentation and messages.
        alias: the file's name, where it is not the field's in camel case.
        form: the file's type, where the field has another.
        read: makes the field's value from the file's.
        default: the file's default as JSON, where the field has another.
        is_required: whether the file must have it.
        schema: what the JSON Schema says beyond the type.
    """

    examples: list[Any] | None = None
    alias: str = ""
    form: Any = None
    read: Callable[[Any], Any] | None = None
    default: Any = ...
    is_required: bool = False
    schema: dict[str, Any] | None = None


@dataclass(frozen=True)
class Check:
    """A check of a value, which raises `SettingError`.

    Attributes:
        check: returns the value.
        pattern: what it checks as a regular expression, if it can be said as one.
        longest: characters that the value may have, if it is bounded.
    """

    check: Callable[[Any], Any]
    pattern: str = ""
    longest: int = 0


@dataclass(frozen=True)
class CheckBeside:
    """A check that also gets the section's earlier fields as far as they are valid.

    Attributes:
        check: returns the value.
    """

    check: Callable[[Any, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class AsText:
    """Makes text of a boolean, since YAML 1.1 reads an unquoted ``on`` and ``off`` as one.

    Attributes:
        true: the text for true; None: true is not valid.
        schema: the JSON Schema of what is accepted.
    """

    true: str | None
    schema: Mapping[str, Any]

    def convert(self, value: Any) -> Any:
        """The text of a boolean; any other value as it is."""
        text = {True: self.true, False: "off"}.get(value) if isinstance(value, bool) else None
        return value if text is None else text


def syntax(what: str, pattern: str, longest: int, fix: str) -> Check:
    """A syntax of names; the rules are those of ``k8s.io/apimachinery/pkg/util/validation``.

    Args:
        what: what has the syntax.
        pattern: the whole text.
        longest: in characters.
        fix: a clause in the imperative.
    """

    def check(text: str) -> str:
        if len(text) > longest:
            raise SettingError("too-long", f"{_shorten(text)} is longer than {longest} characters", "shorten it")
        if not re.fullmatch(pattern, text):
            raise SettingError("syntax", f"{_shorten(text)} is not a valid {what}", fix)
        return text

    return Check(check, pattern, longest)


def _shorten(text: str) -> str:
    return f'"{text}"' if len(text) <= 60 else f'"{text[:57]}..."'


def is_host(text: str) -> bool:
    """Whether a text is an IP address without brackets, or a DNS name that can be resolved and certified."""
    if ":" in text or re.fullmatch("[0-9.]+", text):
        try:
            ipaddress.ip_address(text)
        except ValueError:
            return False
        return True
    # Names are resolved through IDNA, which takes labels of 63 characters at most.
    return bool(re.fullmatch(_SUBDOMAIN, text.lower())) and all(len(label) <= 63 for label in text.split("."))


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


def _check_address(text: str) -> str:
    if not is_address(text):
        fix = "use for example 0.0.0.0:8443, or [::]:8443 for IPv6"
        raise SettingError("syntax", f"{_shorten(text)} is not a valid HOST:PORT", fix)
    return text


def _check_scheduler_name(text: str) -> str:
    if text == names.DEFAULT_SCHEDULER:
        what = f"{names.DEFAULT_SCHEDULER} cannot be declared: in a VM it means that the owner opted out"
        raise SettingError("default-scheduler", what, "declare another scheduler")
    return text


def _check_health_check(text: str) -> str:
    if not re.fullmatch(_HEALTH_CHECK, text):
        what = f"{_shorten(text)} is not a valid health check"
        raise SettingError("syntax", what, "use lease NAMESPACE/NAME, pods or off")
    return text


def _check_version(text: str) -> str:
    if text and parse_version(text) is None:
        fix = "use for example 1.8 or v1.8.4"
        raise SettingError("syntax", f"{_shorten(text)} is not a valid KubeVirt version", fix)
    return text


def _check_registry(text: str) -> str:
    is_valid = len(text) <= _MAX_REGISTRY and (is_address(text) if ":" in text else is_host(text))
    if not is_valid or text != text.lower():
        fix = "use HOST or HOST:PORT in lower case, as references to images have it, for example quay.io"
        raise SettingError("syntax", f"{quote(text)} is not a valid registry", fix)
    return text


def _check_network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        fix = "use for example 10.20.0.0/16, or one address"
        raise SettingError("syntax", f"{quote(text)} is not a valid network", fix) from None
    return text


def _check_path(text: str) -> str:
    if text and not text.startswith("/"):
        fix = "use for example /var/cache/kubevirt-webhook"
        raise SettingError("syntax", f"{quote(text)} is not an absolute path", fix)
    return text


def _check_output(text: str) -> str:
    if text != STDOUT and not text.startswith("/"):
        what = f"{quote(text)} is neither {STDOUT} nor an absolute path"
        raise SettingError("syntax", what, f"use {STDOUT} or a path such as /a/b")
    return text


Address = Annotated[str, Check(_check_address)]
KubeVirtVersion = Annotated[str, Check(_check_version)]
OptionalAddress = Annotated[str, Check(lambda text: _check_address(text) if text else text)]
Namespace = Annotated[str, syntax("namespace name", _LABEL, 63, _LOWER)]
OptionalNamespace = Annotated[str, syntax("namespace name", f"({_LABEL})?", 63, _LOWER)]
ServiceName = Annotated[
    str, syntax("Service name", "[a-z]([-a-z0-9]*[a-z0-9])?", 63, f"{_LOWER}; do not begin with a digit")
]
SecretName = Annotated[str, syntax("Secret name", _SUBDOMAIN, 253, _LOWER)]
SchedulerName = Annotated[str, syntax("scheduler name", _SUBDOMAIN, 253, f"{_LOWER}; dots may separate parts")]
DeclaredName = Annotated[SchedulerName, Check(_check_scheduler_name)]
LabelKey = Annotated[str, syntax("label key", f"({_SUBDOMAIN}/)?{_QUALIFIED}", 317, "use NAME or DOMAIN/NAME")]
LabelValue = Annotated[str, syntax("label value", f"({_QUALIFIED})?", 63, "use letters, digits, -, _ and .")]
Reference = Annotated[
    str,
    syntax("reference to an instancetype or preference", f"(([A-Za-z]+/)?{_SUBDOMAIN})?", 317, "use NAME or KIND/NAME"),
]
Pattern = Annotated[
    str, syntax("instancetype pattern", "([A-Za-z]+/)?[a-z0-9*][-a-z0-9.*]*", 317, "use NAME or KIND/NAME")
]
Requester = Annotated[
    str, syntax("requester", "[A-Za-z0-9][-A-Za-z0-9_./]*", 253, "use the value of the annotation requested-by")
]
HealthCheckText = Annotated[
    str,
    Check(_check_health_check),
    AsText(None, {"anyOf": [{"type": "string", "pattern": f"^(?:{_HEALTH_CHECK})$"}, {"const": False}]}),
]
RegistryName = Annotated[str, Check(_check_registry)]
NetworkText = Annotated[str, Check(_check_network)]
OptionalPath = Annotated[str, Check(_check_path)]
Output = Annotated[str, Check(_check_output)]
TimeOfDay = Annotated[
    str, syntax("time of day", "([01][0-9]|2[0-3]):[0-5][0-9]|24:00", 5, "use HH:MM, from 00:00 to 24:00")
]
# Zones are UTC or a fixed offset: a named zone changes with daylight saving time, and would make the decision depend on
# the zone data of the machine.
Zone = Annotated[
    str,
    syntax(
        "time zone",
        "UTC|[-+](0[0-9]|1[0-4]):[0-5][0-9]",
        40,
        "use UTC or an offset such as +02:00; zone names are not supported",
    ),
]
_Switch = Annotated[Literal["off", "on"], AsText("on", {"enum": ["off", "on"]})]
SWITCH: Final = Setting(form=_Switch, read=lambda value: value == "on", default="off")
