"""The settings: every key of the file with its type, default, limits and description, as requests read them.

First come the types of single settings, each with its syntax, and how the file's value of a setting becomes a field's.
`webhook.settings.validation` makes these frozen objects from the file, checked as a whole; a reload makes another one
and swaps the reference, so that a review sees one state from its first byte to its last. Nothing here imports pydantic.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self

import msgspec

from webhook import names
from webhook.errors import quote
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.names import Policy

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
        check: gets the value, and the section's earlier fields as far as they are valid; may return another value.
        pattern: what it checks as a regular expression, if it can be said as one.
        longest: characters that the value may have, if it is bounded.
    """

    check: Callable[[Any, Mapping[str, Any]], Any]
    pattern: str = ""
    longest: int = 0


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
    """A syntax of names, at most so many characters; the rules are k8s.io/apimachinery's (pkg/util/validation)."""

    def check(text: str, _: Mapping[str, Any]) -> None:
        if len(text) > longest:
            raise SettingError("too-long", f"{_shorten(text)} is longer than {longest} characters", "shorten it")
        if not re.fullmatch(pattern, text):
            raise SettingError("syntax", f"{_shorten(text)} is not a valid {what}", fix)

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


def _check_scheduler_name(text: str, _: Mapping[str, Any]) -> None:
    if text == names.DEFAULT_SCHEDULER:
        what = f"{names.DEFAULT_SCHEDULER} cannot be declared: in a VM it means that the owner opted out"
        raise SettingError("default-scheduler", what, "declare another scheduler")


def _is_registry(text: str) -> bool:
    is_valid = len(text) <= _MAX_REGISTRY and (is_address(text) if ":" in text else is_host(text))
    return is_valid and text == text.lower()


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def _form(is_valid: Callable[[str], object], clause: str, fix: str, shown: Callable[[str], str] = _shorten) -> Check:
    """A syntax that no regular expression says; ``clause`` is about a text that does not have it."""

    def check(text: str, _: Mapping[str, Any]) -> None:
        if not is_valid(text):
            raise SettingError("syntax", f"{shown(text)} {clause}", fix)

    return Check(check)


_ADDRESS: Final = ("is not a valid HOST:PORT", "use for example 0.0.0.0:8443, or [::]:8443 for IPv6")
Address = Annotated[str, _form(is_address, *_ADDRESS)]
OptionalAddress = Annotated[str, _form(lambda text: not text or is_address(text), *_ADDRESS)]
_VERSION: Final = ("is not a valid KubeVirt version", "use for example 1.8 or v1.8.4")
KubeVirtVersion = Annotated[str, _form(lambda text: not text or parse_version(text) is not None, *_VERSION)]
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
    _form(re.compile(_HEALTH_CHECK).fullmatch, "is not a valid health check", "use lease NAMESPACE/NAME, pods or off"),
    AsText(None, {"anyOf": [{"type": "string", "pattern": f"^(?:{_HEALTH_CHECK})$"}, {"const": False}]}),
]
_REGISTRY_FIX: Final = "use HOST or HOST:PORT in lower case, as references to images have it, for example quay.io"
RegistryName = Annotated[str, _form(_is_registry, "is not a valid registry", _REGISTRY_FIX, quote)]
_NETWORK_FIX: Final = "use for example 10.20.0.0/16, or one address"
NetworkText = Annotated[str, _form(_is_network, "is not a valid network", _NETWORK_FIX, quote)]
_PATH: Final = ("is not an absolute path", "use for example /var/cache/kubevirt-webhook")
OptionalPath = Annotated[str, _form(lambda text: not text or text.startswith("/"), *_PATH, quote)]
_OUTPUT: Final = (f"is neither {STDOUT} nor an absolute path", f"use {STDOUT} or a path such as /a/b")
Output = Annotated[str, _form(lambda text: text == STDOUT or text.startswith("/"), *_OUTPUT, quote)]
TimeOfDay = Annotated[
    str, syntax("time of day", "([01][0-9]|2[0-3]):[0-5][0-9]|24:00", 5, "use HH:MM, from 00:00 to 24:00")
]
# Zones are UTC or a fixed offset: a named zone changes with daylight saving time, and would make the decision depend on
# the zone data of the machine.
_ZONE_FIX: Final = "use UTC or an offset such as +02:00; zone names are not supported"
Zone = Annotated[str, syntax("time zone", "UTC|[-+](0[0-9]|1[0-4]):[0-5][0-9]", 40, _ZONE_FIX)]
_Switch = Annotated[Literal["off", "on"], AsText("on", {"enum": ["off", "on"]})]
SWITCH: Final = Setting(form=_Switch, read=lambda value: value == "on", default="off")

FailurePolicy = Literal["Ignore", "Fail"]
TlsMode = Literal["managed", "mounted", "self-signed"]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _needs(section: str, counterpart: str, key: str, file_key: str) -> Check:
    """Both settings of a section, or neither."""

    def check(value: Any, earlier: Mapping[str, Any]) -> None:
        other = earlier.get(counterpart)
        if other is not None and bool(other) != bool(value):
            present, missing = (file_key, key) if other else (key, file_key)
            raise SettingError(
                "counterpart-missing", f"{section}.{present} requires {section}.{missing}", "set both or neither"
            )

    return Check(check)


def _check_ops_listen(address: str, earlier: Mapping[str, Any]) -> None:
    if address == earlier.get("listen") and not address.endswith(":0"):
        raise SettingError("address-in-use", f"{address} is the value of server.listen", "use another port")


class ServerSettings(msgspec.Struct, frozen=True):
    """The listeners. Changes take effect at the next start.

    Attributes:
        listen: HOST:PORT for admission requests, served with TLS. Port 0: any free port.
        ops_listen: HOST:PORT for health checks and metrics, served without TLS. Port 0: any free port.
        max_in_flight: Maximum number of reviews evaluated concurrently; others wait, then get status 429.
        shutdown_seconds: How long to serve requests after SIGTERM while not ready, until the API server stops calling.
    """

    listen: Address = "0.0.0.0:8443"
    ops_listen: Annotated[Address, Check(_check_ops_listen)] = "0.0.0.0:8080"
    max_in_flight: Annotated[int, Range(1, 10_000)] = 64
    shutdown_seconds: Annotated[int, Range(0, 120)] = 10


def _check_mode(mode: str, earlier: Mapping[str, Any]) -> None:
    file = earlier.get("cert_file")
    if file is not None and bool(file) != (mode == "mounted"):
        requirement = "requires tls.certFile and tls.keyFile" if mode == "mounted" else "excludes tls.certFile"
        fix = "set them" if mode == "mounted" else "remove tls.certFile, or use mounted"
        raise SettingError("mode-and-files", f"{mode} {requirement}", fix)


def _check_authority_life(seconds: int, earlier: Mapping[str, Any]) -> None:
    leaf = earlier.get("leaf_expiration_seconds")
    if leaf is not None and seconds < 4 * leaf:
        what = f"{seconds} is less than four times leafExpirationSeconds ({leaf})"
        raise SettingError("too-short", what, f"use {4 * leaf} or more")


class TlsSettings(msgspec.Struct, frozen=True):
    """The serving certificate. Changes take effect at the next start.

    Attributes:
        cert_file: PEM file of the certificate and its chain. Empty: generated at the start.
        key_file: PEM file of the private key; required with certFile.
        mode: managed: signed by a CA that kubevirt-webhook keeps in a Secret, renews and writes into the caBundles;
            mounted: certFile and keyFile, reloaded when they change; self-signed: generated at the start, for local
            use. Absent: mounted with certFile, otherwise self-signed.
        secret_name: Secret of the managed CA, in the namespace of webhooks.service.
        leaf_expiration_seconds: Lifetime of a managed serving certificate; a replaced CA is trusted for that long.
        ca_expiration_seconds: Lifetime of the managed CA.
        client_ca_file: PEM file of the CA of the API server's client certificate, reloaded when it changes. Empty:
            clients need no certificate.
        client_names: Accepted common names of client certificates; required with clientCaFile.
    """

    cert_file: str = ""
    key_file: Annotated[str, _needs("tls", "cert_file", "keyFile", "certFile")] = ""
    mode: Annotated[TlsMode, Check(_check_mode)] = "self-signed"
    secret_name: SecretName = "kubevirt-webhook-ca"  # noqa: S105 - the name of a Secret, not its content
    leaf_expiration_seconds: Annotated[int, Range(10, 90 * 86_400)] = 7 * 86_400
    ca_expiration_seconds: Annotated[int, Range(60, 3650 * 86_400), Check(_check_authority_life)] = 365 * 86_400
    client_ca_file: str = ""
    # A cluster's CA signs certificates of many clients, not only of the API server.
    client_names: Annotated[tuple[str, ...], _needs("tls", "client_ca_file", "clientNames", "clientCaFile")] = ()

    @staticmethod
    def prepare(value: Mapping[str, Any]) -> Mapping[str, Any]:
        """The section of the file with the mode that its files imply."""
        is_mounted = value.get("certFile") and value.get("mode") is None
        return {**value, "mode": "mounted"} if is_mounted else value


class KubeVirtSettings(msgspec.Struct, frozen=True):
    """The KubeVirt installation.

    Attributes:
        namespace: Namespace of KubeVirt, which no webhook matches. Empty: that of the KubeVirt object.
        version: KubeVirt version whose rules apply, for example 1.8 or v1.8.4. Empty: that in the status of the
            KubeVirt object.
    """

    namespace: OptionalNamespace = ""
    version: Annotated[KubeVirtVersion, Setting(examples=["v1.8.4"])] = ""


class SchedulerHealthSettings(msgspec.Struct, frozen=True):
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

    @classmethod
    def of(cls, text: str) -> SchedulerHealthSettings:
        """The health check that a valid text names."""
        if text.startswith("lease"):
            namespace, _, lease = text.removeprefix("lease").strip().partition("/")
            return cls("lease", namespace, lease)
        return cls("pods" if text == "pods" else "off")


class SchedulerSettings(msgspec.Struct, frozen=True):
    """A scheduler whose name kubevirt-webhook may set.

    Attributes:
        name: The profile's name, which is the section's key.
        health_check: Health check: lease NAMESPACE/NAME (its leader election Lease, and pods that it does not try to
            schedule), pods (only those pods) or off.
        assume_alive: Set its name also while its health is unknown, for example directly after the start.
        only_by_webhook: No VM owner chooses this scheduler, so its name counts as set by kubevirt-webhook even if the
            annotation injected-scheduler is missing, for example in a clone that filters annotations.
    """

    name: Annotated[str, DERIVED] = ""
    health_check: Annotated[
        SchedulerHealthSettings,
        Setting(examples=["pods"], form=HealthCheckText, read=SchedulerHealthSettings.of, is_required=True),
    ] = SchedulerHealthSettings("off")
    assume_alive: bool = False
    only_by_webhook: bool = False


class PolicySettings(msgspec.Struct, frozen=True):
    """What every policy's section has.

    Attributes:
        cluster_wide: whether namespaces without the policy's label count as ``enforce``.
        kubevirt_namespace: where KubeVirt runs; empty: wherever a KubeVirt object is.
    """

    cluster_wide: bool = False
    kubevirt_namespace: Annotated[str, DERIVED] = ""

    @property
    def failure_policy(self) -> FailurePolicy:
        """The failurePolicy of the entries that may deny requests; a policy without a setting always has Ignore."""
        return "Ignore"

    def under(self, parameters: Mapping[str, str]) -> Self:
        """The section with a namespace's parameters, its annotations, worked in; most policies have none."""
        return self


class SchedulingSettings(PolicySettings, frozen=True):
    """The scheduling policy: sets schedulerName of VMs whose owners set none.

    Attributes:
        cluster_wide: Also enforce in namespaces without the label kubevirt-webhook.github.io/scheduling.
        scheduler_name: Scheduler declared under schedulers, for namespaces without the annotation
            kubevirt-webhook.github.io/scheduler-name. If only one scheduler is declared, it is the default.
        virtual_machines: Also set schedulerName in VirtualMachines when they are created.
        virtual_machine_instances: Also set schedulerName in VirtualMachineInstances when they are created.
        spread: Soft topology spread constraints of launcher pods whose owners set none, for namespaces without the
            annotation kubevirt-webhook.github.io/spread.
        spread_virtual_machines: Also set the constraints in VirtualMachines when they are created.
        spread_virtual_machine_instances: Also set the constraints in VirtualMachineInstances when they are created.
        schedulers: the only names that may be written, by name.
    """

    scheduler_name: SchedulerName = "kubevirt"
    virtual_machines: bool = True
    virtual_machine_instances: bool = False
    spread: Annotated[str, Setting(form=names.Spread)] = "off"
    spread_virtual_machines: bool = False
    spread_virtual_machine_instances: bool = False
    schedulers: Annotated[Mapping[str, SchedulerSettings], DERIVED] = MappingProxyType({})

    def under(self, parameters: Mapping[str, str]) -> Self:
        """The section with the namespace's own choices, whether or not they can be followed."""
        scheduler_name = parameters.get(names.SCHEDULER_NAME_ANNOTATION) or self.scheduler_name
        spread = (parameters.get(names.SPREAD_ANNOTATION) or self.spread).strip()
        if scheduler_name == self.scheduler_name and spread == self.spread:
            return self
        return msgspec.structs.replace(self, scheduler_name=scheduler_name, spread=spread)


class FidelitySettings(msgspec.Struct, frozen=True):
    """The fidelity check: it compares running VMs with the result of KubeVirt's rules in kubevirt-webhook.

    Attributes:
        sample: Number of VMs in a round; 0 disables the check. It requires permission to list and get virtualmachines,
            and to get virtualmachineinstances and controllerrevisions.
        every_minutes: Minutes between rounds.
    """

    sample: Annotated[int, Range(0, 1000), Setting(examples=[20])] = 0
    every_minutes: Annotated[float, Range(1, 1440), Setting(form=int)] = 10


class InstancetypeSettings(PolicySettings, frozen=True):
    """The instancetypes policy: default instancetypes and preferences, an allow-list, and early denials.

    Attributes:
        cluster_wide: Also enforce in namespaces without the label kubevirt-webhook.github.io/instancetypes.
        default_instancetype: Instancetype of VMs and VMIs whose owners set no size, for namespaces without the
            annotation kubevirt-webhook.github.io/default-instancetype: NAME (cluster-wide) or KIND/NAME. Empty: none.
        default_preference: Preference of VMs and VMIs whose owners set none, for namespaces without the annotation
            kubevirt-webhook.github.io/default-preference: NAME (cluster-wide) or KIND/NAME. Empty: none.
        default_preference_scope: VMs that get the default preference: those whose owners set no size (unsized), or
            all. For namespaces without the annotation kubevirt-webhook.github.io/default-preference-scope.
        allowed: Instancetypes that VMs and VMIs may name, for namespaces without the annotation
            kubevirt-webhook.github.io/allowed-instancetypes: NAME (cluster-wide) or KIND/NAME, with * for any
            characters. Absent: all. A VM that sets CPU and memory itself names none, so the list does not limit it:
            docs/instancetypes.md has an admission policy that denies such sizes.
        missing: Action for a VM that names an instancetype or preference that does not exist. KubeVirt accepts the VM,
            and does not start it until they exist.
        expand: Write the values of instancetype and preference into new VMs and remove both, for namespaces without
            the annotation kubevirt-webhook.github.io/expand-instancetypes. GitOps tools then report a difference.
        virtual_machines: Apply the policy to VirtualMachines.
        virtual_machine_instances: Apply the policy to VirtualMachineInstances without a VirtualMachine.
        failure_policy: Action for new and changed VMs while kubevirt-webhook is down or cannot determine whether their
            instancetype is allowed. Ignore: they are allowed; Fail: they are denied.
    """

    default_instancetype: Annotated[Reference, Setting(examples=["u1.medium"])] = ""
    default_preference: Annotated[Reference, Setting(examples=["fedora"])] = ""
    default_preference_scope: Annotated[str, Setting(form=Literal["unsized", "all"])] = "unsized"
    allowed: Annotated[tuple[Pattern, ...] | None, Setting(examples=[["u1.*"]])] = None
    missing: Literal["warn", "deny"] = "warn"
    expand: bool = False
    virtual_machines: bool = True
    virtual_machine_instances: bool = True
    fidelity_check: FidelitySettings = FidelitySettings()
    failure_policy: FailurePolicy = "Ignore"

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
        return msgspec.structs.replace(self, **changed) if changed else self


_INSTANCETYPE_PARAMETERS: Final = {
    "default_instancetype": names.DEFAULT_INSTANCETYPE_ANNOTATION,
    "default_preference": names.DEFAULT_PREFERENCE_ANNOTATION,
    "default_preference_scope": names.DEFAULT_PREFERENCE_SCOPE_ANNOTATION,
}


class MigrationSettings(PolicySettings, frozen=True):
    """The migration policy: enforces addedNodeSelector, and denies migrations that cannot meet it.

    Attributes:
        cluster_wide: Also enforce in namespaces without the label kubevirt-webhook.github.io/migration.
        collision: Action for a selector that contradicts the VM's own requirements. ignore: KubeVirt drops the added
            value, and the migration goes to a node that the VM itself permits.
        no_eligible_node: Action for a migration without an eligible node. Use warn or ignore with an autoscaler.
        reserved_keys: Action for a selector with keys that KubeVirt itself sets, for example CPU vendors.
        require_right: Require the verb use on migrationtargets.kubevirt-webhook.github.io in the VM's namespace.
        via_virtctl: With requireRight: action for migrations by virtctl, whose user KubeVirt does not pass on.
        max_unfinished: Maximum number of unfinished user migrations in a namespace; 0: no limit.
        failure_policy: Action for new migrations with addedNodeSelector while kubevirt-webhook is down or cannot
            determine their nodes. Fail: they are denied; Ignore: they are allowed, and not enforced.
    """

    collision: Literal["deny", "warn", "ignore"] = "deny"
    no_eligible_node: Literal["deny", "warn", "ignore"] = "deny"
    reserved_keys: Literal["deny", "allow"] = "deny"
    require_right: bool = False
    via_virtctl: Literal["allow", "deny"] = "allow"
    max_unfinished: Annotated[int, Range(0, 10_000)] = 0
    failure_policy: FailurePolicy = "Fail"


Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
DAYS: Final[tuple[Day, ...]] = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

# Minutes.
_DAY: Final = 24 * 60
WEEK: Final = 7 * _DAY


def _check_end(end: str, earlier: Mapping[str, Any]) -> None:
    if end == earlier.get("begin"):
        raise SettingError("empty-time", f"begin and end are equal ({end})", "for whole days use 00:00 to 24:00")


class Blackout(msgspec.Struct, frozen=True):
    """A time of the week.

    Attributes:
        days: Days on which it begins. Absent: every day.
        begin: Begin, as HH:MM.
        end: End, as HH:MM; on the next day if it is earlier than the begin.
        time_zone: Time zone: UTC or an offset such as +02:00. Zone names are not supported.
        spans: begin and end in minutes since Monday 00:00 UTC, the end excluded; 0 <= begin < end <= `WEEK`.
    """

    days: tuple[Day, ...] = DAYS
    begin: Annotated[TimeOfDay, Setting(alias="from", examples=["08:00"], is_required=True)] = "00:00"
    end: Annotated[TimeOfDay, Setting(alias="to", examples=["18:00"], is_required=True), Check(_check_end)] = "24:00"
    time_zone: Zone = "UTC"
    spans: Annotated[tuple[tuple[int, int], ...], DERIVED] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "spans", tuple(sorted(self._spans())))

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


def _check_longest(longest: int, earlier: Mapping[str, Any]) -> None:
    shortest = earlier.get("cool_down_seconds", 0)
    if longest < shortest:
        raise SettingError(
            "too-short", f"{longest} is less than coolDownSeconds ({shortest})", f"use {shortest} or more"
        )


class EvictionSettings(PolicySettings, frozen=True):
    """The eviction policy: denies evictions by the descheduler that cannot succeed, and limits their rate.

    Attributes:
        cluster_wide: Also enforce in namespaces without the label kubevirt-webhook.github.io/eviction.
        requesters: Values of the annotation requested-by of evictions to evaluate; drains have no such annotation.
        cool_down_seconds: How long a VM is not evicted after a migration; doubled by each further migration. 0: off.
        max_cool_down_seconds: Maximum of the doubled time; at least coolDownSeconds.
        max_per_namespace: Maximum number of unfinished evacuations in a namespace; 0: no limit.
        max_per_cluster: Maximum number of unfinished evacuations in the cluster; 0: no limit. With a limit, each
            evaluated eviction lists all migrations of the cluster.
        protect_transfers_seconds: How long after its start a pod is not evicted that imports, clones, uploads, converts
            or exports a disk; 0: the policy does not evaluate evictions of such pods.
        blackouts: Times of the week when the descheduler evicts no VM.
    """

    requesters: tuple[Requester, ...] = ("sigs.k8s.io/descheduler",)
    cool_down_seconds: Annotated[int, Range(0, 86_400)] = 300
    max_cool_down_seconds: Annotated[int, Range(0, 604800), Check(_check_longest)] = 3600
    max_per_namespace: Annotated[int, Range(0, 10_000)] = 0
    max_per_cluster: Annotated[int, Range(0, 10_000)] = 0
    protect_transfers_seconds: Annotated[int, Range(0, 604_800)] = 0
    blackouts: tuple[Blackout, ...] = ()


class ExplainSettings(msgspec.Struct, frozen=True):
    """Explanations of migrations over HTTP, for tools. Changes take effect at the next start.

    Attributes:
        listen: HOST:PORT. Empty: off. On 127.0.0.1, [::1] and localhost served without TLS and authentication; on
            other addresses with TLS, to users whose bearer token permits them to get the VMI and list nodes.
    """

    listen: Annotated[OptionalAddress, Setting(examples=["127.0.0.1:8090"])] = ""


class MetricsSettings(msgspec.Struct, frozen=True):
    """Metrics. Changes take effect at the next start.

    Attributes:
        listen: HOST:PORT of a separate listener for metrics, which server.opsListen then does not serve. Empty: off.
            On 127.0.0.1, [::1] and localhost served without TLS and authentication; on other addresses with TLS, to
            users whose bearer token permits them to get the path /metrics.
    """

    listen: Annotated[OptionalAddress, Setting(examples=["0.0.0.0:8444"])] = ""


class PageSettings(msgspec.Struct, frozen=True):
    """The page for admins: decisions, health and placement. Changes take effect at the next start.

    Attributes:
        listen: HOST:PORT. Empty: off. On 127.0.0.1, [::1] and localhost served without TLS and authentication, for
            kubectl port-forward; on other addresses with TLS, to users whose bearer token permits them to get the path
            /page.
    """

    listen: Annotated[OptionalAddress, Setting(examples=["127.0.0.1:8091"])] = ""


class RegistrySettings(msgspec.Struct, frozen=True):
    """A registry that may be contacted.

    Attributes:
        ca_file: PEM file of the CA of the registry's certificate. Empty: the CAs of the system.
        plain_http: Contact the registry without TLS.
        addresses: Networks in which the registry may be. Public addresses are always allowed, except those of the
            cluster's own nodes and pods; all others only if they are listed here.
        token_hosts: Hosts of the registry's token server, if it is another host. They get the credentials of pull
            secrets.
        redirect_hosts: Other hosts to which the registry may redirect. They get no credentials.
    """

    ca_file: OptionalPath = ""
    plain_http: bool = False
    addresses: Annotated[
        tuple[Network, ...],
        Setting(
            examples=["10.20.0.0/16"],
            form=tuple[NetworkText, ...],
            read=lambda texts: tuple(map(ipaddress.ip_network, texts)),
        ),
    ] = ()
    token_hosts: Annotated[tuple[RegistryName, ...], Setting(examples=["auth.example.com"])] = ()
    redirect_hosts: tuple[RegistryName, ...] = ()


def _check_clients(client_names: tuple[str, ...], earlier: Mapping[str, Any]) -> None:
    listen = earlier.get("listen")
    if listen and earlier.get("client_ca_file") is not None and not is_loopback(listen) and not client_names:
        what = f"{listen} is not a loopback address, so clients must have a certificate"
        raise SettingError("clients-unverified", what, "set layers.clientCaFile and layers.clientNames")


class LayersSettings(msgspec.Struct, frozen=True):
    """The scheduler extender for image layers. Changes take effect at the next start.

    Attributes:
        listen: HOST:PORT for kube-scheduler. Empty: off. On 127.0.0.1, [::1] and localhost served without TLS; on
            other addresses with TLS, to clients with a certificate of clientCaFile and clientNames.
        client_ca_file: PEM file of the CA of kube-scheduler's client certificate.
        client_names: Accepted common names of kube-scheduler's client certificate.
        schedulers: Schedulers whose pods are scored; kube-scheduler calls its extenders for the pods of all its
            profiles.
        registries: The registries, by name, from which manifests are read. No other registry is contacted. Docker Hub
            is docker.io.
        pull_secrets: Read the pull secrets that pods name, to read manifests of private images. It requires permission
            to get these Secrets.
        cache_directory: Existing directory in which manifests are kept, for example on an emptyDir volume. Empty: they
            are kept in memory only.
        cache_bytes: Maximum size of the directory in bytes.
    """

    listen: Annotated[OptionalAddress, Setting(examples=["127.0.0.1:8446"])] = ""
    client_ca_file: OptionalPath = ""
    client_names: Annotated[
        tuple[str, ...], _needs("layers", "client_ca_file", "clientNames", "clientCaFile"), Check(_check_clients)
    ] = ()
    schedulers: tuple[SchedulerName, ...] = ("kubevirt",)
    registries: Annotated[Mapping[RegistryName, RegistrySettings], Setting(default={})] = MappingProxyType({})
    pull_secrets: Annotated[bool, SWITCH] = False
    cache_directory: OptionalPath = ""
    cache_bytes: Annotated[int, Range(1_048_576, 10_737_418_240)] = 67_108_864


class ServiceSettings(msgspec.Struct, frozen=True):
    """The Service that the API server calls.

    Attributes:
        namespace: Namespace of the Service and of kubevirt-webhook, which no webhook matches.
        name: Name of the Service.
        port: Port of the Service.
    """

    namespace: Namespace = "kubevirt-webhook"
    name: ServiceName = "kubevirt-webhook"
    port: Annotated[int, Range(1, 65_535)] = 443


def _check_values(values: tuple[str, ...], earlier: Mapping[str, Any]) -> None:
    operator = earlier.get("operator")
    if operator in ("In", "NotIn") and not values:
        raise SettingError("values-missing", f"{operator} requires values", "add values, or use Exists or DoesNotExist")
    if operator in ("Exists", "DoesNotExist") and values:
        raise SettingError("values-excluded", f"{operator} excludes values", "remove them, or use In or NotIn")


class MatchExpression(msgspec.Struct, frozen=True):
    """A requirement on a namespace's labels.

    Attributes:
        key: Label key.
        operator: Relation of the label to the values.
        values: At least one value for In and NotIn, none for Exists and DoesNotExist.
    """

    key: Annotated[LabelKey, Setting(examples=["kubernetes.io/metadata.name"], is_required=True)]
    operator: Annotated[Literal["In", "NotIn", "Exists", "DoesNotExist"], Setting(examples=["NotIn"], is_required=True)]
    values: Annotated[tuple[LabelValue, ...], Check(_check_values)] = ()

    def manifest(self) -> dict[str, Any]:
        """The expression as a webhook configuration has it."""
        base = {"key": self.key, "operator": self.operator}
        return {**base, "values": list(self.values)} if self.values else base


class NamespaceSelector(msgspec.Struct, frozen=True):
    """Namespaces that webhooks match at all, in addition to the policies' labels.

    Attributes:
        match_expressions: Requirements on namespaces' labels; all must be met.
    """

    match_expressions: tuple[MatchExpression, ...] = ()


class WebhookSettings(msgspec.Struct, frozen=True):
    """The webhook configurations that are installed.

    Attributes:
        timeout_seconds: How long the API server waits for an answer; it can delay every request by that long.
        namespace_selector: Namespaces that webhooks match at all, in addition to the policies' labels.
    """

    service: ServiceSettings = ServiceSettings()
    timeout_seconds: Annotated[int, Range(1, 3)] = 3
    namespace_selector: Annotated[
        tuple[Mapping[str, Any], ...],
        Setting(
            form=NamespaceSelector,
            read=lambda selector: tuple(each.manifest() for each in selector.match_expressions),
            default=NamespaceSelector(),
        ),
    ] = ()


class AuditSettings(msgspec.Struct, frozen=True):
    """Audit lines: one for every decision. Changes take effect at the next start.

    Attributes:
        output: Destination: stdout, or the absolute path of a file in an existing directory. Only one process may
            write to a file.
        max_bytes: Maximum size of the file in bytes; a full file is renamed to FILE.1, and a new one is started.
        keep: Number of renamed files to keep.
    """

    output: Annotated[Output, Setting(examples=["/var/log/kubevirt-webhook/audit.jsonl"])] = STDOUT
    max_bytes: Annotated[int, Range(1_048_576, 10_737_418_240)] = 104_857_600
    keep: Annotated[int, Range(1, 100)] = 5


class DriftSettings(msgspec.Struct, frozen=True):
    """The background scan: it looks for objects that differ from what enforce makes of them.

    Attributes:
        every_minutes: Minutes between scans, the first one at the start; 0 disables the scan. It requires permission
            to list pods, virtualmachines and virtualmachineinstances.
        policy_reports: Also write the results as PolicyReports, if the cluster serves that kind (wgpolicyk8s.io). It
            requires permission to list, create, patch and delete policyreports.
    """

    every_minutes: Annotated[float, Range(0, 1440), Setting(form=int, examples=[30])] = 0
    policy_reports: bool = True


def _check_scheduler(scheduling: Any, earlier: Mapping[str, Any]) -> Any:
    """The section, as validation has it, with the only declared scheduler where it names none."""
    declared, is_named = earlier.get("schedulers"), "scheduler_name" in scheduling.model_fields_set
    if declared and len(declared) == 1 and not is_named:
        return scheduling.model_copy(update={"scheduler_name": next(iter(declared))})
    # Topology spread constraints do not require a declared scheduler.
    if declared is not None and (declared or is_named) and scheduling.scheduler_name not in declared:
        raise undeclared(scheduling.scheduler_name, declared)
    return None


def undeclared(scheduler: str, declared: Iterable[str]) -> SettingError:
    """The error about a scheduler that ``scheduling`` names and ``schedulers`` does not declare."""
    names_of_declared = " or ".join(sorted(declared))
    fix = f"declare it, or use {names_of_declared}" if names_of_declared else "declare it"
    return SettingError("undeclared", f"{quote(scheduler)} is not declared under schedulers", fix, "schedulerName")


def _check_listener(section: Any, earlier: Mapping[str, Any]) -> None:
    """A section listens where no earlier one does."""
    server = earlier.get("server")
    if server and section.listen and not section.listen.endswith(":0"):
        places = {"server.listen": server.listen, "server.opsListen": server.ops_listen}
        others = ((name, earlier.get(name)) for name in ("explain", "metrics", "page"))
        places |= {f"{name}.listen": other.listen for name, other in others if other is not None}
        for name, taken in places.items():
            if section.listen == taken:
                raise SettingError("address-in-use", f"{taken} is the value of {name}", "use another port", "listen")


_KUBEVIRT_SCHEDULER: Final = {
    "healthCheck": "lease kubevirt-scheduler/kubevirt-scheduler",
    "assumeAlive": False,
    "onlyByWebhook": False,
}


class Settings(msgspec.Struct, frozen=True):
    """The settings of kubevirt-webhook.

    Attributes:
        excluded_namespaces: Namespaces that no webhook matches, in addition to kube-system and those of KubeVirt and
            kubevirt-webhook.
        schedulers: The schedulers, by name, whose names kubevirt-webhook may set.
        events: Write Kubernetes Events about denials and warnings. It requires permission to create and patch events
            in events.k8s.io, and sideEffects NoneOnDryRun in the webhook configurations.
        traces: Send a span for every review with OTLP, as the environment variables of OpenTelemetry say. It requires
            the extra otel: pip install kubevirt-webhook[otel]. Changes take effect at the next start.
        digest: SHA-256 of the file's bytes, hexadecimal; ``default`` where there is no file.
    """

    server: ServerSettings = ServerSettings()
    tls: TlsSettings = TlsSettings()
    kubevirt: KubeVirtSettings = KubeVirtSettings()
    excluded_namespaces: Annotated[
        frozenset[str],
        Setting(form=tuple[Namespace, ...], read=frozenset, default=("kube-system", "kube-public", "kube-node-lease")),
    ] = frozenset()
    schedulers: Annotated[
        Mapping[DeclaredName, SchedulerSettings],
        Setting(default={"kubevirt": _KUBEVIRT_SCHEDULER}, schema={"additionalProperties": False}),
    ] = MappingProxyType({})
    scheduling: Annotated[SchedulingSettings, Check(_check_scheduler)] = SchedulingSettings()
    instancetypes: InstancetypeSettings = InstancetypeSettings()
    migration: MigrationSettings = MigrationSettings()
    eviction: EvictionSettings = EvictionSettings()
    explain: Annotated[ExplainSettings, Check(_check_listener)] = ExplainSettings()
    metrics: Annotated[MetricsSettings, Check(_check_listener)] = MetricsSettings()
    page: Annotated[PageSettings, Check(_check_listener)] = PageSettings()
    layers: Annotated[LayersSettings, Check(_check_listener)] = LayersSettings()
    webhooks: WebhookSettings = WebhookSettings()
    audit: AuditSettings = AuditSettings()
    events: Annotated[bool, SWITCH] = False
    traces: Annotated[bool, SWITCH] = False
    drift_scan: DriftSettings = DriftSettings()
    digest: Annotated[str, DERIVED] = ""

    def completed(self, digest: str) -> Settings:
        """The settings of a file, with what its sections take from each other."""
        schedulers = {name: msgspec.structs.replace(each, name=name) for name, each in self.schedulers.items()}
        place = {"kubevirt_namespace": self.kubevirt.namespace}
        excluded = {"kube-system", self.webhooks.service.namespace, self.kubevirt.namespace or "kubevirt"}
        return msgspec.structs.replace(
            self,
            schedulers=schedulers,
            scheduling=msgspec.structs.replace(self.scheduling, schedulers=schedulers, **place),
            migration=msgspec.structs.replace(self.migration, **place),
            eviction=msgspec.structs.replace(self.eviction, **place),
            excluded_namespaces=self.excluded_namespaces | excluded,
            digest=digest,
        )

    def with_kubevirt_version(self, version: str) -> Settings:
        """The settings with another KubeVirt version."""
        return msgspec.structs.replace(self, kubevirt=msgspec.structs.replace(self.kubevirt, version=version))

    def policy(self, policy: Policy) -> PolicySettings:
        """The section of a policy."""
        section: PolicySettings = getattr(self, policy)
        return section
