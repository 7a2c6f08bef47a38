"""The settings as the request path reads them: plain, frozen, already checked.

`webhook.settings.model` makes a snapshot from the file; a reload makes another one and swaps the reference, so that a
review sees one state from its first byte to its last. Nothing here imports pydantic.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, Self

import msgspec

from webhook import names
from webhook.names import Policy


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


class SchedulerSettings(msgspec.Struct, frozen=True):
    """One scheduler profile that the server may write into VMs and pods.

    Attributes:
        name: the profile name.
        guard: how its health is watched.
        assume_alive: inject it also while its health is not known (not while it is known to be unavailable).
        only_by_webhook: only this server ever chooses it, so it counts as injected even without an annotation.
    """

    name: str
    guard: SchedulerHealthSettings
    assume_alive: bool = False
    only_by_webhook: bool = False


# What becomes of a request that cannot be evaluated; as in a webhook configuration.
FailurePolicy = Literal["Ignore", "Fail"]


class PolicySettings(Protocol):
    """What every policy's section has."""

    @property
    def cluster_wide(self) -> bool:
        """Whether namespaces without the policy's label count as ``enforce``."""

    @property
    def failure_policy(self) -> FailurePolicy:
        """The failurePolicy of the entries that may deny requests."""

    def under(self, parameters: Mapping[str, str]) -> Self:
        """The section with a namespace's parameters, its annotations, worked in."""


class SchedulingSettings(msgspec.Struct, frozen=True):
    """The ``scheduling`` policy.

    Attributes:
        cluster_wide: namespaces without a label count as ``enforce``.
        scheduler_name: where a namespace names none.
        virtual_machines: write the name into VMs too, at CREATE.
        virtual_machine_instances: write the name into VMIs too, at CREATE, those of VMs among them.
        schedulers: the only names that may be written, by name.
        kubevirt_namespace: where KubeVirt runs; empty: wherever a KubeVirt object is.
        spread: which topology spread constraints launcher pods get: ``off``, ``hostname``, ``zone`` or ``both``. A
            namespace's own value stands here as it was written, valid or not.
        spread_virtual_machines: write the constraints into VMs too, at CREATE.
        spread_virtual_machine_instances: write the constraints into VMIs too, at CREATE, those of VMs among them.
    """

    cluster_wide: bool
    scheduler_name: str
    virtual_machines: bool
    virtual_machine_instances: bool
    schedulers: Mapping[str, SchedulerSettings]
    kubevirt_namespace: str
    spread: str = "off"
    spread_virtual_machines: bool = False
    spread_virtual_machine_instances: bool = False

    @property
    def looks_at_virtual_machines(self) -> bool:
        """Whether anything may be written into VMs."""
        return self.virtual_machines or self.spread_virtual_machines

    @property
    def looks_at_virtual_machine_instances(self) -> bool:
        """Whether anything may be written into VMIs."""
        return self.virtual_machine_instances or self.spread_virtual_machine_instances

    @property
    def failure_policy(self) -> FailurePolicy:
        """Always Ignore: the policy denies no requests."""
        return "Ignore"

    @property
    def only_by_webhook(self) -> list[str]:
        """The schedulers that only this server ever chooses, sorted."""
        return sorted(name for name, declared in self.schedulers.items() if declared.only_by_webhook)

    def under(self, parameters: Mapping[str, str]) -> SchedulingSettings:
        """The section with the namespace's own choices, whether or not they can be followed."""
        scheduler_name = parameters.get(names.SCHEDULER_NAME_ANNOTATION) or self.scheduler_name
        spread = (parameters.get(names.SPREAD_ANNOTATION) or self.spread).strip()
        if scheduler_name == self.scheduler_name and spread == self.spread:
            return self
        return msgspec.structs.replace(self, scheduler_name=scheduler_name, spread=spread)


class FidelitySettings(msgspec.Struct, frozen=True):
    """How often running VMs are compared with what they should be.

    Attributes:
        sample: VMs in a round; 0: none ever are.
        every_seconds: between the beginnings of two rounds.
    """

    sample: int = 0
    every_seconds: float = 600.0


class InstancetypeSettings(msgspec.Struct, frozen=True):
    """The ``instancetypes`` policy. Instancetypes and preferences are written ``NAME``, cluster-wide, or ``KIND/NAME``.

    Attributes:
        cluster_wide: namespaces without a label count as ``enforce``.
        default_instancetype: the reference for VMs and VMIs whose owners chose no size; empty: none.
        default_preference: the reference for VMs and VMIs without a preference; empty: none.
        preference_scope: ``unsized``: only where the owner chose no size; ``all``: everywhere.
        allowed: patterns of the instancetypes that may be named; None: all.
        missing: what becomes of a VM that names what is not there.
        expand: new VMs get what their instancetype and preference say written out, and lose both.
        virtual_machines: evaluate VMs.
        virtual_machine_instances: fill VMIs that no VM stands behind.
        parity: the fidelity check outside admission.
        failure_policy: the failurePolicy of the validation, and with it of the allow-list.
    """

    cluster_wide: bool = False
    default_instancetype: str = ""
    default_preference: str = ""
    preference_scope: str = "unsized"
    allowed: tuple[str, ...] | None = None
    missing: Literal["warn", "deny"] = "warn"
    expand: bool = False
    virtual_machines: bool = True
    virtual_machine_instances: bool = True
    parity: FidelitySettings = FidelitySettings()
    failure_policy: FailurePolicy = "Ignore"

    def under(self, parameters: Mapping[str, str]) -> InstancetypeSettings:
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


class MigrationSettings(msgspec.Struct, frozen=True):
    """The ``migration`` policy: user migrations with ``addedNodeSelector``.

    Attributes:
        cluster_wide: namespaces without a label count as ``enforce``.
        collision: what becomes of a selector that contradicts what the VM requires anyway. ``ignore``: what KubeVirt
            documents, the VM's own value stays and the added one is dropped.
        no_eligible_node: what becomes of a migration that no node is eligible for now.
        reserved_keys: what becomes of keys that KubeVirt itself writes.
        require_right: users need the right to pin VMs to nodes, see `webhook.policies.migration`.
        via_virtctl: whether KubeVirt's API account may, which hides the user of virtctl.
        max_unfinished: unfinished user migrations a namespace may have; 0: any number.
        kubevirt_namespace: where KubeVirt runs; empty: wherever a KubeVirt object is.
        failure_policy: the failurePolicy of the validation of migrations that add a selector.
    """

    cluster_wide: bool = False
    collision: Literal["deny", "warn", "ignore"] = "deny"
    no_eligible_node: Literal["deny", "warn", "ignore"] = "deny"
    reserved_keys: Literal["deny", "allow"] = "deny"
    require_right: bool = False
    via_virtctl: Literal["allow", "deny"] = "allow"
    max_unfinished: int = 0
    kubevirt_namespace: str = ""
    failure_policy: FailurePolicy = "Fail"

    def under(self, parameters: Mapping[str, str]) -> MigrationSettings:
        """The section as it is: namespaces have no parameters."""
        return self


# Minutes.
WEEK: Final = 7 * 24 * 60


class Blackout(msgspec.Struct, frozen=True):
    """A time of the week when the descheduler evicts no VM.

    Attributes:
        text: the window as the admin wrote it, for people.
        spans: begin and end in minutes since Monday 00:00 UTC, the end excluded; 0 <= begin < end <= `WEEK`.
    """

    text: str
    spans: tuple[tuple[int, int], ...]


class EvictionSettings(msgspec.Struct, frozen=True):
    """The ``eviction`` policy: the descheduler's evictions of VMs.

    Attributes:
        cluster_wide: namespaces without a label count as ``enforce``.
        requesters: only evictions whose annotation ``requested-by`` is one of these are evaluated.
        cool_down_seconds: how long a VM is kept where it is after a migration; 0: not at all.
        max_cool_down_seconds: the upper bound of this time where migrations follow each other.
        max_per_namespace: unfinished evacuations that a namespace may have; 0: any number.
        max_per_cluster: unfinished evacuations that the cluster may have; 0: any number.
        blackouts: the times at which all evictions are denied.
        kubevirt_namespace: where KubeVirt runs; empty: wherever a KubeVirt object is.
    """

    cluster_wide: bool = False
    requesters: tuple[str, ...] = ("sigs.k8s.io/descheduler",)
    cool_down_seconds: int = 300
    max_cool_down_seconds: int = 3600
    max_per_namespace: int = 0
    max_per_cluster: int = 0
    blackouts: tuple[Blackout, ...] = ()
    kubevirt_namespace: str = ""

    @property
    def failure_policy(self) -> FailurePolicy:
        """Evictions that cannot be evaluated are allowed."""
        return "Ignore"

    def under(self, parameters: Mapping[str, str]) -> EvictionSettings:
        """The section as it is: namespaces have no parameters."""
        return self


_INSTANCETYPE_PARAMETERS: Final = {
    "default_instancetype": names.DEFAULT_INSTANCETYPE_ANNOTATION,
    "default_preference": names.DEFAULT_PREFERENCE_ANNOTATION,
    "preference_scope": names.DEFAULT_PREFERENCE_SCOPE_ANNOTATION,
}


class AuditSettings(msgspec.Struct, frozen=True):
    """Where audit lines go.

    Attributes:
        output: an absolute path; empty: standard output.
        max_bytes: size of one file; then it makes room for a new one.
        keep: full files that are kept.
    """

    output: str = ""
    max_bytes: int = 104_857_600
    keep: int = 5


class DriftSettings(msgspec.Struct, frozen=True):
    """How often objects are looked for that are not as enforce would make them.

    Attributes:
        every_seconds: between the beginnings of two rounds; 0: they never are.
        policy_reports: write PolicyReports too.
    """

    every_seconds: float = 0.0
    policy_reports: bool = True


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class RegistrySettings(msgspec.Struct, frozen=True):
    """A registry that may be contacted.

    Attributes:
        ca_file: PEM file of the CAs that sign its certificate; empty: those of the system.
        plain_http: it is reached without TLS.
        addresses: networks that it may be in although their addresses are not public, or the cluster's own.
        token_hosts: ``HOST`` or ``HOST:PORT`` of token servers, beside the registry itself, that get credentials.
        redirect_hosts: ``HOST`` or ``HOST:PORT`` to which it may redirect; these get no credentials.
    """

    ca_file: str = ""
    plain_http: bool = False
    addresses: tuple[Network, ...] = ()
    token_hosts: tuple[str, ...] = ()
    redirect_hosts: tuple[str, ...] = ()


class LayersSettings(msgspec.Struct, frozen=True):
    """The scheduler extender that scores nodes by the image layers that they already have.

    Attributes:
        listen: ``HOST:PORT`` (plain HTTP on a loopback address, else TLS with client certificates); empty: off.
        schedulers: pods of these schedulers are scored.
        client_ca_file: PEM file of the CAs of kube-scheduler's client certificate.
        client_names: common names of kube-scheduler's client certificate.
        registries: by name; no other is contacted.
        pull_secrets: read the pull secrets that pods name.
        cache_directory: directory for manifests; empty: memory only.
        cache_bytes: size of the directory at most.
    """

    listen: str = ""
    schedulers: tuple[str, ...] = ("kubevirt",)
    client_ca_file: str = ""
    client_names: tuple[str, ...] = ()
    registries: Mapping[str, RegistrySettings] = MappingProxyType({})
    pull_secrets: bool = False
    cache_directory: str = ""
    cache_bytes: int = 67_108_864


OFF: Final = LayersSettings()

TlsMode = Literal["managed", "mounted", "self-signed"]


class ServerSettings(msgspec.Struct, frozen=True):
    """The listeners. A change needs a restart.

    Attributes:
        listen: ``HOST:PORT`` of the webhooks (TLS).
        ops_listen: ``HOST:PORT`` of health and metrics (plain HTTP).
        max_in_flight: reviews that are evaluated concurrently; more wait, then get 429.
        cert_file: PEM file of the mounted serving certificate; else empty.
        key_file: PEM file of its key.
        tls_mode: where the serving certificate comes from.
        ca_secret: name of the managed CA's Secret, in the server's own namespace.
        leaf_seconds: life of a managed serving certificate.
        ca_seconds: life of the managed CA.
        client_ca_file: PEM file of the CAs of clients; empty: any client may send reviews.
        client_names: common names of clients.
        drain_seconds: how long to serve on after SIGTERM.
        explain_listen: ``HOST:PORT`` of explanations (plain HTTP on a loopback address, else TLS); empty: none.
        metrics_listen: ``HOST:PORT`` of metrics (plain HTTP on a loopback address, else TLS); empty: they are served
            with health.
        page_listen: ``HOST:PORT`` of the page for admins (plain HTTP on a loopback address, else TLS); empty: none.
        audit: where audit lines are written.
        layers: the scheduler extender for image layers.
        traces: send a span for every review.
    """

    listen: str
    ops_listen: str
    max_in_flight: int
    cert_file: str
    key_file: str
    tls_mode: TlsMode
    ca_secret: str
    leaf_seconds: int
    ca_seconds: int
    client_ca_file: str
    client_names: tuple[str, ...]
    drain_seconds: int
    explain_listen: str = ""
    metrics_listen: str = ""
    page_listen: str = ""
    audit: AuditSettings = AuditSettings()
    layers: LayersSettings = OFF
    traces: bool = False


class WebhookSettings(msgspec.Struct, frozen=True):
    """What the webhook configurations say beyond what the policies say.

    Attributes:
        service_namespace: namespace of the Service that the API server calls, which is also the server's own namespace.
        service_name: name of that Service.
        service_port: port of that Service.
        timeout_seconds: 1 to 3; the timeouts of all webhooks for an object add up.
        namespace_selector: further ``matchExpressions`` for every entry, ANDed.
    """

    service_namespace: str
    service_name: str
    service_port: int
    timeout_seconds: int
    namespace_selector: tuple[Mapping[str, Any], ...]


class Settings(msgspec.Struct, frozen=True):
    """One state of the whole file.

    Attributes:
        server: the listeners.
        webhooks: the webhook configurations.
        scheduling: the section of the policy.
        instancetypes: the section of the policy.
        migration: the section of the policy.
        eviction: the section of the policy.
        excluded_namespaces: namespaces that no webhook entry matches, whatever their labels; the server's own is among
            them.
        digest: SHA-256 of the file's bytes, hexadecimal; ``default`` where there is no file.
        events: write Kubernetes Events.
        kubevirt_version: the KubeVirt version whose rules count; empty: the one that the KubeVirt object names.
        unenforced: the background scan for objects that are not as enforce would make them.
    """

    server: ServerSettings
    webhooks: WebhookSettings
    scheduling: SchedulingSettings
    instancetypes: InstancetypeSettings
    migration: MigrationSettings
    eviction: EvictionSettings
    excluded_namespaces: frozenset[str]
    digest: str
    events: bool = False
    kubevirt_version: str = ""
    unenforced: DriftSettings = DriftSettings()

    def policy(self, policy: Policy) -> PolicySettings:
        """The section of a policy.

        Raises:
            KeyError: the policy has no section.
        """
        sections: dict[str, PolicySettings] = {
            names.SCHEDULING: self.scheduling,
            names.INSTANCETYPES: self.instancetypes,
            names.MIGRATION: self.migration,
            names.EVICTION: self.eviction,
        }
        return sections[policy]
