"""The settings: every key of the file with its type, default, limits and description.

First come the types of single settings, each with its syntax; then the sections. They are plain pydantic models, which
are frozen: policies read them as they are, and a reload makes others and swaps the reference, so that a review sees
one state from its first byte to its last. Keys are camelCase, null means absent, unknown keys are denied, and values
are not converted. `webhook.settings.validation` reads a file, and says all of its mistakes.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal, NoReturn, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema

from webhook import names
from webhook.errors import quote
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.names import PolicyName

# The type of errors of `mistake`; their context has `code`, `what`, `fix` and `key`.
OWN_ERROR: Final = "settings"
# The output of audit lines that is not a file.
STDOUT: Final = "stdout"
_MAX_REGISTRY: Final = 259

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_HEALTH_CHECK: Final = f"off|pods|lease +{_LABEL}/{_SUBDOMAIN}"
_LOWER: Final = "use lowercase letters, digits and -; begin and end with a letter or digit"

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

    def check(self, text: str) -> str:
        """The text; an error where it does not have the syntax."""
        if len(text) > self.longest:
            raise mistake("too-long", f"{_shorten(text)} is longer than {self.longest} characters", "shorten it")
        if not re.fullmatch(self.pattern, text):
            raise mistake("syntax", f"{_shorten(text)} is not a valid {self.what}", self.fix)
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "pattern": f"^(?:{self.pattern})$", "maxLength": self.longest}


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


def _check_scheduler_name(text: str) -> str:
    if text == names.DEFAULT_SCHEDULER:
        what = f"{names.DEFAULT_SCHEDULER} cannot be declared: in a VM it means that the owner opted out"
        raise mistake("default-scheduler", what, "declare another scheduler")
    return text


def _is_registry(text: str) -> bool:
    is_valid = len(text) <= _MAX_REGISTRY and (is_address(text) if ":" in text else is_host(text))
    return is_valid and text == text.lower()


def _is_path(text: str) -> bool:
    return text.startswith("/") and "\0" not in text


def _form(
    is_valid: Callable[[str], object], clause: str, fix: str, shown: Callable[[str], str] = _shorten
) -> AfterValidator:
    """A syntax that no regular expression says; ``clause`` is about a text that does not have it."""

    def check(text: str) -> str:
        if not is_valid(text):
            raise mistake("syntax", f"{shown(text)} {clause}", fix)
        return text

    return AfterValidator(check)


@dataclass(frozen=True)
class OneOf:
    """Some texts, of a field that has any text once a namespace's annotations are worked in."""

    choices: tuple[str, ...]

    def check(self, value: object) -> object:
        """The value; an error where it is none of them."""
        if value not in self.choices:
            raise PydanticKnownError("literal_error", {"expected": " or ".join(self.choices)})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "enum": [*self.choices]}


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
Address = Annotated[str, _form(is_address, *_ADDRESS)]
OptionalAddress = Annotated[str, _form(lambda text: not text or is_address(text), *_ADDRESS)]
_VERSION: Final = ("is not a valid KubeVirt version", "use for example 1.8 or v1.8.4")
KubeVirtVersion = Annotated[str, _form(lambda text: not text or parse_version(text) is not None, *_VERSION)]
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
    str, Syntax("requester", "[A-Za-z0-9][-A-Za-z0-9_./]*", 253, "use the value of the annotation requested-by")
]
HealthCheckText = Annotated[
    str,
    BeforeValidator(lambda value: "off" if value is False else value),
    _form(re.compile(_HEALTH_CHECK).fullmatch, "is not a valid health check", "use lease NAMESPACE/NAME, pods or off"),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": f"^(?:{_HEALTH_CHECK})$"}, {"const": False}]}),
]
_REGISTRY_FIX: Final = "use HOST or HOST:PORT in lower case, as references to images have it, for example quay.io"
RegistryName = Annotated[str, _form(_is_registry, "is not a valid registry", _REGISTRY_FIX, quote)]
_NETWORK_FIX: Final = "use for example 10.20.0.0/16, or one address"
Network = Annotated[
    ipaddress.IPv4Network | ipaddress.IPv6Network, BeforeValidator(_network), WithJsonSchema({"type": "string"})
]
_PATH: Final = ("is not an absolute path", "use for example /var/cache/kubevirt-webhook")
OptionalPath = Annotated[str, _form(lambda text: not text or _is_path(text), *_PATH, quote)]
_OUTPUT: Final = (f"is neither {STDOUT} nor an absolute path", f"use {STDOUT} or a path such as /a/b")
Output = Annotated[str, _form(lambda text: text == STDOUT or _is_path(text), *_OUTPUT, quote)]
# A client without a certificate has the empty name.
_CLIENT: Final = ("is not a common name", "use that of the client's certificate, for example kube-apiserver")
ClientName = Annotated[str, _form(bool, *_CLIENT, quote), WithJsonSchema({"type": "string", "minLength": 1})]
TimeOfDay = Annotated[
    str, Syntax("time of day", "([01][0-9]|2[0-3]):[0-5][0-9]|24:00", 5, "use HH:MM, from 00:00 to 24:00")
]
# Zones are UTC or a fixed offset: a named zone changes with daylight saving time, and would make the decision depend on
# the zone data of the machine.
_ZONE_FIX: Final = "use UTC or an offset such as +02:00; zone names are not supported"
Zone = Annotated[str, Syntax("time zone", "UTC|[-+](0[0-9]|1[0-4]):[0-5][0-9]", 40, _ZONE_FIX)]
Switch = Annotated[
    bool,
    BeforeValidator(_switch),
    PlainSerializer(lambda is_on: "on" if is_on else "off", return_type=str),
    WithJsonSchema({"enum": ["off", "on"]}),
]
# Of a switch: its default as files have it.
_OFF: Final[dict[str, Any]] = {"default": "off"}
FailurePolicy = Literal["Ignore", "Fail"]
TlsMode = Literal["managed", "mounted", "self-signed"]


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        validate_default=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        aliases = {field.validation_alias for field in cls.model_fields.values()}
        return {key: part for key, part in value.items() if part is not None or key not in aliases}


def _check_counterpart(section: str, key: str, value: object, counterpart: str, other: object) -> None:
    """Both settings of a section, or neither; the first one's value is None if it is not valid."""
    if value is not None and bool(value) != bool(other):
        present, missing = (key, counterpart) if value else (counterpart, key)
        raise mistake("counterpart-missing", f"{section}.{present} requires {section}.{missing}", "set both or neither")


class ServerSettings(Section):
    """The listeners. Changes take effect at the next start."""

    listen: Address = Field(
        default="0.0.0.0:8443",
        description="HOST:PORT for admission requests, served with TLS. Port 0: any free port.",
    )
    ops_listen: Address = Field(
        default="0.0.0.0:8080",
        description="HOST:PORT for health checks and metrics, served without TLS. Port 0: any free port.",
    )
    max_in_flight: int = Field(
        default=64,
        ge=1,
        le=10_000,
        description="Maximum number of reviews evaluated concurrently; others wait, then get status 429.",
    )
    shutdown_seconds: int = Field(
        default=10,
        ge=0,
        le=120,
        description=("How long to serve requests after SIGTERM while not ready, until the API server stops calling."),
    )

    @field_validator("ops_listen")
    @classmethod
    def _check_ops_listen(cls, address: str, info: ValidationInfo) -> str:
        if address == info.data.get("listen") and not address.endswith(":0"):
            raise mistake("address-in-use", f"{address} is the value of server.listen", "use another port")
        return address


class TlsSettings(Section):
    """The serving certificate. Changes take effect at the next start."""

    cert_file: str = Field(
        default="", description="PEM file of the certificate and its chain. Empty: generated at the start."
    )
    key_file: str = Field(default="", description="PEM file of the private key; required with certFile.")
    mode: TlsMode = Field(
        default="self-signed",
        description=(
            "managed: signed by a CA that kubevirt-webhook keeps in a Secret, renews and writes into the caBundles;"
            " mounted: certFile and keyFile, reloaded when they change; self-signed: generated at the start, for local"
            " use. Absent: mounted with certFile, otherwise self-signed."
        ),
    )
    secret_name: SecretName = Field(
        default="kubevirt-webhook-ca", description="Secret of the managed CA, in the namespace of webhooks.service."
    )
    leaf_expiration_seconds: int = Field(
        default=7 * 86_400,
        ge=10,
        le=90 * 86_400,
        description=("Lifetime of a managed serving certificate; a replaced CA is trusted for that long."),
    )
    ca_expiration_seconds: int = Field(
        default=365 * 86_400, ge=60, le=3650 * 86_400, description="Lifetime of the managed CA."
    )
    client_ca_file: str = Field(
        default="",
        description=(
            "PEM file of the CA of the API server's client certificate, reloaded when it changes. Empty: clients need"
            " no certificate."
        ),
    )
    # A cluster's CA signs certificates of many clients, not only of the API server.
    client_names: Items[ClientName] = Field(
        default=(), description="Accepted common names of client certificates; required with clientCaFile."
    )

    @model_validator(mode="before")
    @classmethod
    def _infer_mode(cls, value: Any) -> Any:
        is_mapping = isinstance(value, Mapping)
        is_mounted = is_mapping and (value.get("certFile") or value.get("cert_file")) and value.get("mode") is None
        return {**value, "mode": "mounted"} if is_mounted else value

    @field_validator("key_file")
    @classmethod
    def _check_key_file(cls, file: str, info: ValidationInfo) -> str:
        _check_counterpart("tls", "certFile", info.data.get("cert_file"), "keyFile", file)
        return file

    @field_validator("mode")
    @classmethod
    def _check_mode(cls, mode: TlsMode, info: ValidationInfo) -> TlsMode:
        file = info.data.get("cert_file")
        if file is not None and bool(file) != (mode == "mounted"):
            requirement = "requires tls.certFile and tls.keyFile" if mode == "mounted" else "excludes tls.certFile"
            fix = "set them" if mode == "mounted" else "remove tls.certFile, or use mounted"
            raise mistake("mode-and-files", f"{mode} {requirement}", fix)
        return mode

    @field_validator("ca_expiration_seconds")
    @classmethod
    def _check_authority_life(cls, seconds: int, info: ValidationInfo) -> int:
        leaf = info.data.get("leaf_expiration_seconds")
        if leaf is not None and seconds < 4 * leaf:
            what = f"{seconds} is less than four times leafExpirationSeconds ({leaf})"
            raise mistake("too-short", what, f"use {4 * leaf} or more")
        return seconds

    @field_validator("client_names")
    @classmethod
    def _check_client_names(cls, client_names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        _check_counterpart("tls", "clientCaFile", info.data.get("client_ca_file"), "clientNames", client_names)
        return client_names


class KubeVirtSettings(Section):
    """The KubeVirt installation."""

    namespace: OptionalNamespace = Field(
        default="", description="Namespace of KubeVirt, which no webhook matches. Empty: that of the KubeVirt object."
    )
    version: KubeVirtVersion = Field(
        default="",
        examples=["v1.8.4"],
        description=(
            "KubeVirt version whose rules apply, for example 1.8 or v1.8.4. Empty: that in the status of the KubeVirt"
            " object."
        ),
    )


@dataclass(frozen=True)
class HealthCheck:
    """How a scheduler's health is watched.

    Attributes:
        kind: ``lease`` (its leader election Lease, and pods), ``pods`` (only pods that wait without a condition) or
            ``off``.
        namespace: namespace of the Lease; empty for the other kinds.
        name: name of the Lease; empty for the other kinds.
    """

    kind: Literal["lease", "pods", "off"]
    namespace: str = ""
    name: str = ""


class SchedulerSettings(Section):
    """A scheduler whose name kubevirt-webhook may set."""

    # The profile's name, which is the section's key.
    name: Derived[str] = derived("")
    health_check: HealthCheckText = Field(
        examples=["pods"],
        description=(
            "Health check: lease NAMESPACE/NAME (its leader election Lease, and pods that it does not try to schedule),"
            " pods (only those pods) or off."
        ),
    )
    assume_alive: bool = Field(
        default=False,
        description="Set its name also while its health is unknown, for example directly after the start.",
    )
    only_by_webhook: bool = Field(
        default=False,
        description=(
            "No VM owner chooses this scheduler, so its name counts as set by kubevirt-webhook even if the annotation"
            " injected-scheduler is missing, for example in a clone that filters annotations."
        ),
    )

    @property
    def watched(self) -> HealthCheck:
        """The health check, in its parts."""
        if self.health_check.startswith("lease"):
            namespace, _, lease = self.health_check.removeprefix("lease").strip().partition("/")
            return HealthCheck("lease", namespace, lease)
        return HealthCheck("pods" if self.health_check == "pods" else "off")


class PolicySettings(Section):
    """What every policy's section has."""

    # Whether namespaces without the policy's label count as ``enforce``.
    cluster_wide: bool = False
    # Where KubeVirt runs; empty: wherever a KubeVirt object is.
    kubevirt_namespace: Derived[str] = derived("")

    @property
    def fails_closed(self) -> bool:
        """Whether requests are denied while they cannot be evaluated; never by a policy without that setting."""
        return False

    def under(self, parameters: Mapping[str, str]) -> Self:
        """The section with a namespace's parameters, its annotations, worked in; most policies have none."""
        return self


class SchedulingSettings(PolicySettings):
    """The scheduling policy: sets schedulerName of VMs whose owners set none."""

    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/scheduling."
    )
    scheduler_name: SchedulerName = Field(
        default="kubevirt",
        description=(
            "Scheduler declared under schedulers, for namespaces without the annotation"
            " kubevirt-webhook.github.io/scheduler-name. If only one scheduler is declared, it is the default."
        ),
    )
    virtual_machines: bool = Field(
        default=True, description="Also set schedulerName in VirtualMachines when they are created."
    )
    virtual_machine_instances: bool = Field(
        default=False, description="Also set schedulerName in VirtualMachineInstances when they are created."
    )
    spread: Annotated[str, OneOf(names.SPREADS)] = Field(
        default="off",
        description=(
            "Soft topology spread constraints of launcher pods whose owners set none, for namespaces without the"
            " annotation kubevirt-webhook.github.io/spread."
        ),
    )
    spread_virtual_machines: bool = Field(
        default=False, description="Also set the constraints in VirtualMachines when they are created."
    )
    spread_virtual_machine_instances: bool = Field(
        default=False, description="Also set the constraints in VirtualMachineInstances when they are created."
    )
    # The only names that may be written, by name.
    schedulers: Derived[Mapping[str, SchedulerSettings]] = derived({})

    def under(self, parameters: Mapping[str, str]) -> Self:
        """The section with the namespace's own choices, whether or not they can be followed."""
        scheduler_name = parameters.get(names.SCHEDULER_NAME_ANNOTATION) or self.scheduler_name
        spread = (parameters.get(names.SPREAD_ANNOTATION) or self.spread).strip()
        if scheduler_name == self.scheduler_name and spread == self.spread:
            return self
        return self.model_copy(update={"scheduler_name": scheduler_name, "spread": spread})


class FidelitySettings(Section):
    """The fidelity check: it compares running VMs with the result of KubeVirt's rules in kubevirt-webhook."""

    sample: int = Field(
        default=0,
        ge=0,
        le=1000,
        examples=[20],
        description=(
            "Number of VMs in a round; 0 disables the check. It requires permission to list and get virtualmachines,"
            " and to get virtualmachineinstances and controllerrevisions."
        ),
    )
    every_minutes: int = Field(default=10, ge=1, le=1440, description="Minutes between rounds.")


class InstancetypeSettings(PolicySettings):
    """The instancetypes policy: default instancetypes and preferences, an allow-list, and early denials."""

    cluster_wide: bool = Field(
        default=False,
        description="Also enforce in namespaces without the label kubevirt-webhook.github.io/instancetypes.",
    )
    default_instancetype: Reference = Field(
        default="",
        examples=["u1.medium"],
        description=(
            "Instancetype of VMs and VMIs whose owners set no size, for namespaces without the annotation"
            " kubevirt-webhook.github.io/default-instancetype: NAME (cluster-wide) or KIND/NAME. Empty: none."
        ),
    )
    default_preference: Reference = Field(
        default="",
        examples=["fedora"],
        description=(
            "Preference of VMs and VMIs whose owners set none, for namespaces without the annotation"
            " kubevirt-webhook.github.io/default-preference: NAME (cluster-wide) or KIND/NAME. Empty: none."
        ),
    )
    default_preference_scope: Annotated[str, OneOf(("unsized", "all"))] = Field(
        default="unsized",
        description=(
            "VMs that get the default preference: those whose owners set no size (unsized), or all. For namespaces"
            " without the annotation kubevirt-webhook.github.io/default-preference-scope."
        ),
    )
    allowed: Items[Pattern] | None = Field(
        default=None,
        examples=[["u1.*"]],
        description=(
            "Instancetypes that VMs and VMIs may name, for namespaces without the annotation"
            " kubevirt-webhook.github.io/allowed-instancetypes: NAME (cluster-wide) or KIND/NAME, with * for any"
            " characters. Absent: all. A VM that sets CPU and memory itself names none, so the list does not limit it:"
            " docs/instancetypes.md has an admission policy that denies such sizes."
        ),
    )
    missing: Literal["warn", "deny"] = Field(
        default="warn",
        description=(
            "Action for a VM that names an instancetype or preference that does not exist. KubeVirt accepts the VM, and"
            " does not start it until they exist."
        ),
    )
    expand: bool = Field(
        default=False,
        description=(
            "Write the values of instancetype and preference into new VMs and remove both, for namespaces without the"
            " annotation kubevirt-webhook.github.io/expand-instancetypes. GitOps tools then report a difference."
        ),
    )
    virtual_machines: bool = Field(default=True, description="Apply the policy to VirtualMachines.")
    virtual_machine_instances: bool = Field(
        default=True, description="Apply the policy to VirtualMachineInstances without a VirtualMachine."
    )
    fidelity_check: FidelitySettings = FidelitySettings()
    failure_policy: FailurePolicy = Field(
        default="Ignore",
        description=(
            "Action for new and changed VMs while kubevirt-webhook is down or cannot determine whether their"
            " instancetype is allowed. Ignore: they are allowed; Fail: they are denied."
        ),
    )

    @property
    def fails_closed(self) -> bool:
        """Whether ``failurePolicy`` is Fail."""
        return self.failure_policy == "Fail"

    def under(self, parameters: Mapping[str, str]) -> Self:
        """The section with the namespace's own defaults, allow-list and expansion; each replaces the section's."""
        changed: dict[str, Any] = {}
        for name, annotation in _INSTANCETYPE_PARAMETERS.items():
            if annotation in parameters:
                changed[name] = parameters[annotation].strip()
        if names.ALLOWED_INSTANCETYPES_ANNOTATION in parameters:
            listed = parameters[names.ALLOWED_INSTANCETYPES_ANNOTATION].split(",")
            changed["allowed"] = tuple(pattern for entry in listed if (pattern := entry.strip()))
        if names.EXPAND_INSTANCETYPES_ANNOTATION in parameters:
            changed["expand"] = parameters[names.EXPAND_INSTANCETYPES_ANNOTATION].strip() == "true"
        return self.model_copy(update=changed) if changed else self


_INSTANCETYPE_PARAMETERS: Final = {
    "default_instancetype": names.DEFAULT_INSTANCETYPE_ANNOTATION,
    "default_preference": names.DEFAULT_PREFERENCE_ANNOTATION,
    "default_preference_scope": names.DEFAULT_PREFERENCE_SCOPE_ANNOTATION,
}


class MigrationSettings(PolicySettings):
    """The migration policy: enforces addedNodeSelector, and denies migrations that cannot meet it."""

    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/migration."
    )
    collision: Literal["deny", "warn", "ignore"] = Field(
        default="deny",
        description=(
            "Action for a selector that contradicts the VM's own requirements. ignore: KubeVirt drops the added value,"
            " and the migration goes to a node that the VM itself permits."
        ),
    )
    no_eligible_node: Literal["deny", "warn", "ignore"] = Field(
        default="deny",
        description="Action for a migration without an eligible node. Use warn or ignore with an autoscaler.",
    )
    reserved_keys: Literal["deny", "allow"] = Field(
        default="deny",
        description="Action for a selector with keys that KubeVirt itself sets, for example CPU vendors.",
    )
    require_right: bool = Field(
        default=False,
        description=("Require the verb use on migrationtargets.kubevirt-webhook.github.io in the VM's namespace."),
    )
    via_virtctl: Literal["allow", "deny"] = Field(
        default="allow",
        description=("With requireRight: action for migrations by virtctl, whose user KubeVirt does not pass on."),
    )
    max_unfinished: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Maximum number of unfinished user migrations in a namespace; 0: no limit.",
    )
    failure_policy: FailurePolicy = Field(
        default="Fail",
        description=(
            "Action for new migrations with addedNodeSelector while kubevirt-webhook is down or cannot determine their"
            " nodes. Fail: they are denied; Ignore: they are allowed, and not enforced."
        ),
    )

    @property
    def fails_closed(self) -> bool:
        """Whether ``failurePolicy`` is Fail."""
        return self.failure_policy == "Fail"


Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
DAYS: Final[tuple[Day, ...]] = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

# Minutes.
_DAY: Final = 24 * 60
WEEK: Final = 7 * _DAY


class Blackout(Section):
    """A time of the week."""

    days: Items[Day] = Field(
        default=DAYS,
        description="Days on which it begins. Absent: every day.",
        json_schema_extra={"minItems": 1},
    )
    begin: TimeOfDay = Field(
        validation_alias="from", serialization_alias="from", examples=["08:00"], description="Begin, as HH:MM."
    )
    end: TimeOfDay = Field(
        validation_alias="to",
        serialization_alias="to",
        examples=["18:00"],
        description="End, as HH:MM; on the next day if it is earlier than the begin.",
    )
    time_zone: Zone = Field(
        default="UTC",
        description="Time zone: UTC or an offset such as +02:00. Zone names are not supported.",
    )

    @field_validator("days")
    @classmethod
    def _check_days(cls, days: tuple[Day, ...]) -> tuple[Day, ...]:
        if not days:
            raise mistake("empty-time", "there is no day", "name days, or remove it for every day")
        return days

    @field_validator("end")
    @classmethod
    def _check_end(cls, end: str, info: ValidationInfo) -> str:
        if end == info.data.get("begin"):
            raise mistake("empty-time", f"begin and end are equal ({end})", "for whole days use 00:00 to 24:00")
        return end

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Begin and end in minutes since Monday 00:00 UTC, the end excluded; 0 <= begin < end <= `WEEK`."""
        return tuple(sorted(self._spans()))

    @property
    def text(self) -> str:
        """The time, for people."""
        days = [day for day in DAYS if day in self.days]
        name = "every day" if len(days) == len(DAYS) else ", ".join(days)
        return f"{name} from {self.begin} to {self.end} {self.time_zone}"

    def _spans(self) -> Iterator[tuple[int, int]]:
        begin, end = _minutes(self.begin), _minutes(self.end)
        lasts = end - begin if end > begin else end - begin + _DAY
        zone = self.time_zone
        ahead = 0 if zone == "UTC" else int(f"{zone[0]}1") * _minutes(zone[1:])
        for day in self.days:
            start = (DAYS.index(day) * _DAY + begin - ahead) % WEEK
            yield start, min(start + lasts, WEEK)
            if start + lasts > WEEK:
                yield 0, start + lasts - WEEK


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


class EvictionSettings(PolicySettings):
    """The eviction policy: denies evictions by the descheduler that cannot succeed, and limits their rate."""

    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/eviction."
    )
    requesters: Items[Requester] = Field(
        default=("sigs.k8s.io/descheduler",),
        description=("Values of the annotation requested-by of evictions to evaluate; drains have no such annotation."),
    )
    cool_down_seconds: int = Field(
        default=300,
        ge=0,
        le=86_400,
        description=("How long a VM is not evicted after a migration; doubled by each further migration. 0: off."),
    )
    max_cool_down_seconds: int = Field(
        default=3600, ge=0, le=604_800, description="Maximum of the doubled time; at least coolDownSeconds."
    )
    max_per_namespace: int = Field(
        default=0, ge=0, le=10_000, description="Maximum number of unfinished evacuations in a namespace; 0: no limit."
    )
    max_per_cluster: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description=(
            "Maximum number of unfinished evacuations in the cluster; 0: no limit. With a limit, each evaluated"
            " eviction lists all migrations of the cluster."
        ),
    )
    protect_transfers_seconds: int = Field(
        default=0,
        ge=0,
        le=604_800,
        description=(
            "How long after its start a pod is not evicted that imports, clones, uploads, converts or exports a disk;"
            " 0: the policy does not evaluate evictions of such pods."
        ),
    )
    blackouts: Items[Blackout] = Field(default=(), description="Times of the week when the descheduler evicts no VM.")

    @field_validator("max_cool_down_seconds")
    @classmethod
    def _check_longest(cls, longest: int, info: ValidationInfo) -> int:
        shortest = info.data.get("cool_down_seconds", 0)
        if longest < shortest:
            what = f"{longest} is less than coolDownSeconds ({shortest})"
            raise mistake("too-short", what, f"use {shortest} or more")
        return longest


class AdminSettings(Section):
    """The admin listener: explanations, the page and metrics. Changes take effect at the next start."""

    listen: OptionalAddress = Field(
        default="",
        examples=["127.0.0.1:8090"],
        description=(
            "HOST:PORT. Empty: off. On 127.0.0.1, [::1] and localhost served without TLS and authentication, for"
            " kubectl port-forward; on other addresses with TLS, to users whose bearer token permits them what they ask"
            " for."
        ),
    )
    explain: bool = Field(
        default=True,
        description=(
            "Explain migrations to tools, at /v1/explain/migration. A token's user must be permitted to get the VMI and"
            " list nodes."
        ),
    )
    page: bool = Field(
        default=True,
        description=(
            "The page for admins, at /page: decisions, health and placement. A token's user must be permitted to get"
            " the path /page."
        ),
    )
    metrics: bool = Field(
        default=False,
        description=(
            "Metrics, at /metrics, which server.opsListen then does not serve. A token's user must be permitted to get"
            " the path /metrics."
        ),
    )

    @field_validator("metrics")
    @classmethod
    def _check_parts(cls, metrics: bool, info: ValidationInfo) -> bool:
        if info.data.get("listen") and not (metrics or info.data.get("explain", True) or info.data.get("page", True)):
            what = "admin.listen requires admin.explain, admin.page or admin.metrics"
            raise mistake("nothing-to-serve", what, "set one of them, or remove admin.listen")
        if metrics and info.data.get("listen") == "":
            what = "admin.metrics has no effect without admin.listen"
            raise mistake("counterpart-missing", what, "set admin.listen, or leave metrics to server.opsListen")
        return metrics

    @property
    def serves_page(self) -> bool:
        """Whether there is a page."""
        return bool(self.listen) and self.page

    @property
    def serves_metrics(self) -> bool:
        """Whether metrics are here, and not at ``server.opsListen``."""
        return bool(self.listen) and self.metrics


class RegistrySettings(Section):
    """A registry that may be contacted."""

    ca_file: OptionalPath = Field(
        default="", description="PEM file of the CA of the registry's certificate. Empty: the CAs of the system."
    )
    plain_http: bool = Field(default=False, description="Contact the registry without TLS.")
    addresses: Items[Network] = Field(
        default=(),
        examples=["10.20.0.0/16"],
        description=(
            "Networks in which the registry may be. Public addresses are always allowed, except those of the cluster's"
            " own nodes and pods; all others only if they are listed here."
        ),
    )
    token_hosts: Items[RegistryName] = Field(
        default=(),
        examples=["auth.example.com"],
        description=(
            "Hosts of the registry's token server, if it is another host. They get the credentials of pull secrets."
        ),
    )
    redirect_hosts: Items[RegistryName] = Field(
        default=(), description="Other hosts to which the registry may redirect. They get no credentials."
    )


class LayersSettings(Section):
    """The scheduler extender for image layers. Changes take effect at the next start."""

    listen: OptionalAddress = Field(
        default="",
        examples=["127.0.0.1:8446"],
        description=(
            "HOST:PORT for kube-scheduler. Empty: off. On 127.0.0.1, [::1] and localhost served without TLS; on other"
            " addresses with TLS, to clients with a certificate of clientCaFile and clientNames."
        ),
    )
    client_ca_file: OptionalPath = Field(
        default="", description="PEM file of the CA of kube-scheduler's client certificate."
    )
    client_names: Items[ClientName] = Field(
        default=(), description="Accepted common names of kube-scheduler's client certificate."
    )
    schedulers: Items[SchedulerName] = Field(
        default=("kubevirt",),
        description=(
            "Schedulers whose pods are scored; kube-scheduler calls its extenders for the pods of all its profiles."
        ),
    )
    registries: dict[RegistryName, RegistrySettings] = Field(
        default={},
        description=(
            "The registries, by name, from which manifests are read. No other registry is contacted. Docker Hub is"
            " docker.io."
        ),
    )
    pull_secrets: Switch = Field(
        default=False,
        json_schema_extra=_OFF,
        description=(
            "Read the pull secrets that pods name, to read manifests of private images. It requires permission to get"
            " these Secrets."
        ),
    )
    cache_directory: OptionalPath = Field(
        default="",
        description=(
            "Existing directory in which manifests are kept, for example on an emptyDir volume. Empty: they are kept in"
            " memory only."
        ),
    )
    cache_bytes: int = Field(
        default=67_108_864, ge=1_048_576, le=10_737_418_240, description="Maximum size of the directory in bytes."
    )

    @field_validator("client_names")
    @classmethod
    def _check_clients(cls, client_names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        listen, authorities = info.data.get("listen"), info.data.get("client_ca_file")
        _check_counterpart("layers", "clientCaFile", authorities, "clientNames", client_names)
        if listen and authorities is not None and not is_loopback(listen) and not client_names:
            what = f"{listen} is not a loopback address, so clients must have a certificate"
            raise mistake("clients-unverified", what, "set layers.clientCaFile and layers.clientNames")
        return client_names


class ServiceSettings(Section):
    """The Service that the API server calls."""

    namespace: Namespace = Field(
        default="kubevirt-webhook",
        description="Namespace of the Service and of kubevirt-webhook, which no webhook matches.",
    )
    name: ServiceName = Field(default="kubevirt-webhook", description="Name of the Service.")
    port: int = Field(default=443, ge=1, le=65_535, description="Port of the Service.")


class MatchExpression(Section):
    """A requirement on a namespace's labels."""

    key: LabelKey = Field(examples=["kubernetes.io/metadata.name"], description="Label key.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        examples=["NotIn"], description="Relation of the label to the values."
    )
    values: Items[LabelValue] = Field(
        default=(), description="At least one value for In and NotIn, none for Exists and DoesNotExist."
    )

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        operator = info.data.get("operator")
        if operator in ("In", "NotIn") and not values:
            raise mistake("values-missing", f"{operator} requires values", "add values, or use Exists or DoesNotExist")
        if operator in ("Exists", "DoesNotExist") and values:
            raise mistake("values-excluded", f"{operator} excludes values", "remove them, or use In or NotIn")
        return values

    def manifest(self) -> dict[str, Any]:
        """The expression as a webhook configuration has it."""
        base = {"key": self.key, "operator": self.operator}
        return {**base, "values": list(self.values)} if self.values else base


class NamespaceSelector(Section):
    """Namespaces that webhooks match at all, in addition to the policies' labels."""

    match_expressions: Items[MatchExpression] = Field(
        default=(), description="Requirements on namespaces' labels; all must be met."
    )


class WebhookSettings(Section):
    """The webhook configurations that are installed."""

    service: ServiceSettings = ServiceSettings()
    timeout_seconds: int = Field(
        default=3,
        ge=1,
        le=3,
        description=("How long the API server waits for an answer; it can delay every request by that long."),
    )
    namespace_selector: NamespaceSelector = NamespaceSelector()


class AuditSettings(Section):
    """Audit lines: one for every decision. Changes take effect at the next start."""

    output: Output = Field(
        default=STDOUT,
        examples=["/var/log/kubevirt-webhook/audit.jsonl"],
        description=(
            "Destination: stdout, or the absolute path of a file in an existing directory. Only one process may write"
            " to a file."
        ),
    )
    max_bytes: int = Field(
        default=104_857_600,
        ge=1_048_576,
        le=10_737_418_240,
        description=("Maximum size of the file in bytes; a full file is renamed to FILE.1, and a new one is started."),
    )
    keep: int = Field(default=5, ge=1, le=100, description="Number of renamed files to keep.")


class DriftSettings(Section):
    """The background scan: it looks for objects that differ from what enforce makes of them."""

    every_minutes: int = Field(
        default=0,
        ge=0,
        le=1440,
        examples=[30],
        description=(
            "Minutes between scans, the first one at the start; 0 disables the scan. It requires permission to list"
            " pods, virtualmachines and virtualmachineinstances."
        ),
    )
    policy_reports: bool = Field(
        default=True,
        description=(
            "Also write the results as PolicyReports, if the cluster serves that kind (wgpolicyk8s.io). It requires"
            " permission to list, create, patch and delete policyreports."
        ),
    )


def undeclared(scheduler: str, declared: Collection[str]) -> PydanticCustomError:
    """The error about a scheduler that ``scheduling`` names and ``schedulers`` does not declare."""
    fix = f"declare it, or use {' or '.join(sorted(declared))}" if declared else "declare it"
    return mistake("undeclared", f"{quote(scheduler)} is not declared under schedulers", fix, "schedulerName")


_Listening = TypeVar("_Listening", AdminSettings, LayersSettings)


class Settings(Section):
    """The settings of kubevirt-webhook."""

    server: ServerSettings = ServerSettings()
    tls: TlsSettings = TlsSettings()
    kubevirt: KubeVirtSettings = KubeVirtSettings()
    excluded_namespaces: Items[Namespace] = Field(
        default=("kube-system", "kube-public", "kube-node-lease"),
        description=(
            "Namespaces that no webhook matches, in addition to kube-system and those of KubeVirt and kubevirt-webhook."
        ),
    )
    schedulers: dict[DeclaredName, SchedulerSettings] = Field(
        default={"kubevirt": SchedulerSettings(health_check="lease kubevirt-scheduler/kubevirt-scheduler")},
        description="The schedulers, by name, whose names kubevirt-webhook may set.",
        json_schema_extra={"additionalProperties": False},
    )
    scheduling: SchedulingSettings = SchedulingSettings()
    instancetypes: InstancetypeSettings = InstancetypeSettings()
    migration: MigrationSettings = MigrationSettings()
    eviction: EvictionSettings = EvictionSettings()
    admin: AdminSettings = AdminSettings()
    layers: LayersSettings = LayersSettings()
    webhooks: WebhookSettings = WebhookSettings()
    audit: AuditSettings = AuditSettings()
    events: Switch = Field(
        default=False,
        json_schema_extra=_OFF,
        description=(
            "Write Kubernetes Events about denials and warnings. It requires permission to create and patch events in"
            " events.k8s.io, and sideEffects NoneOnDryRun in the webhook configurations."
        ),
    )
    traces: Switch = Field(
        default=False,
        json_schema_extra=_OFF,
        description=(
            "Send a span for every review with OTLP, as the environment variables of OpenTelemetry say. It requires the"
            " extra otel: pip install kubevirt-webhook[otel]. Changes take effect at the next start."
        ),
    )
    drift_scan: DriftSettings = DriftSettings()
    # SHA-256 of the file's bytes, hexadecimal; ``default`` where there is no file.
    digest: Derived[str] = derived("")

    @field_validator("scheduling")
    @classmethod
    def _check_scheduler(cls, scheduling: SchedulingSettings, info: ValidationInfo) -> SchedulingSettings:
        """The section with the only declared scheduler where it names none."""
        declared, is_named = info.data.get("schedulers"), "scheduler_name" in scheduling.model_fields_set
        if declared and len(declared) == 1 and not is_named:
            return scheduling.model_copy(update={"scheduler_name": next(iter(declared))})
        # Topology spread constraints do not require a declared scheduler.
        if declared is not None and (declared or is_named) and scheduling.scheduler_name not in declared:
            raise undeclared(scheduling.scheduler_name, declared)
        return scheduling

    @field_validator("admin", "layers")
    @classmethod
    def _check_listener(cls, section: _Listening, info: ValidationInfo) -> _Listening:
        """A section listens where no earlier one does."""
        server = info.data.get("server")
        if server and section.listen and not section.listen.endswith(":0"):
            places = {"server.listen": server.listen, "server.opsListen": server.ops_listen}
            if admin := info.data.get("admin"):
                places["admin.listen"] = admin.listen
            for name, taken in places.items():
                if section.listen == taken:
                    raise mistake("address-in-use", f"{taken} is the value of {name}", "use another port", "listen")
        return section

    @property
    def every_excluded_namespace(self) -> frozenset[str]:
        """Namespaces that no webhook matches, with kube-system and those of KubeVirt and kubevirt-webhook."""
        own = ("kube-system", self.webhooks.service.namespace, self.kubevirt.namespace or "kubevirt")
        return frozenset((*self.excluded_namespaces, *own))

    def completed(self, digest: str) -> Settings:
        """The settings of a file, with what its sections take from each other."""
        schedulers = {name: each.model_copy(update={"name": name}) for name, each in self.schedulers.items()}
        place = {"kubevirt_namespace": self.kubevirt.namespace}
        return self.model_copy(
            update={
                "schedulers": schedulers,
                "scheduling": self.scheduling.model_copy(update={"schedulers": schedulers, **place}),
                "instancetypes": self.instancetypes.model_copy(update=place),
                "migration": self.migration.model_copy(update=place),
                "eviction": self.eviction.model_copy(update=place),
                "digest": digest,
            }
        )

    def with_kubevirt_version(self, version: str) -> Settings:
        """The settings with another KubeVirt version."""
        return self.model_copy(update={"kubevirt": self.kubevirt.model_copy(update={"version": version})})

    def policy(self, policy: PolicyName) -> PolicySettings:
        """The section of a policy."""
        section: PolicySettings = getattr(self, policy)
        return section
