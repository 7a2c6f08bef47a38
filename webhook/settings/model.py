"""The settings: every key of the file with its type, default, limits and description.

The sections are plain pydantic models, which are frozen: policies read them as they are, and a reload makes others and
swaps the reference, so that a review sees one state from its first byte to its last. Keys are camelCase, null means
absent, unknown keys are denied, and values are not converted. A policy's section is in the policy's directory, and
`with_policies` adds it. `webhook.settings.validation` reads a file, and says all of its mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Self, TypeVar

from pydantic import (
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from webhook.names import ENFORCE, PolicyName, policy_label
from webhook.settings.fields import (
    OFF_BY_DEFAULT,
    STDOUT,
    Address,
    ClientName,
    Derived,
    Items,
    KubeVirtVersion,
    LabelKey,
    LabelValue,
    Namespace,
    Network,
    OptionalAddress,
    OptionalNamespace,
    OptionalPath,
    Output,
    RegistryName,
    SchedulerName,
    SecretName,
    ServiceName,
    Switch,
    derived,
    is_loopback,
    mistake,
)
from webhook.settings.policy_section import PolicySettings
from webhook.settings.schedulers import DeclaredName, SchedulerSettings
from webhook.settings.section import Section, check_counterpart

TlsMode = Literal["managed", "mounted", "self-signed"]


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
        description=(
            "Maximum number of reviews evaluated concurrently. Others wait; those that wait too long are denied with"
            " status 429 by endpoints that deny, in mode enforce, and allowed without changes by others."
        ),
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
        check_counterpart("tls", "certFile", info.data.get("cert_file"), "keyFile", file)
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
        check_counterpart("tls", "clientCaFile", info.data.get("client_ca_file"), "clientNames", client_names)
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
        json_schema_extra=OFF_BY_DEFAULT,
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
        check_counterpart("layers", "clientCaFile", authorities, "clientNames", client_names)
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
        description=(
            "How long the API server waits for an answer to each call. Policies that change objects are called one"
            " after the other, so a replica that hangs delays a request by that long for each of them, and once for all"
            " that validate."
        ),
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


P = TypeVar("P", bound=PolicySettings)
_Listening = TypeVar("_Listening", AdminSettings, LayersSettings)


class _BeforePolicies(Section):
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


class _AfterPolicies(Section):
    admin: AdminSettings = AdminSettings()
    layers: LayersSettings = LayersSettings()
    webhooks: WebhookSettings = WebhookSettings()
    audit: AuditSettings = AuditSettings()
    events: Switch = Field(
        default=False,
        json_schema_extra=OFF_BY_DEFAULT,
        description=(
            "Write Kubernetes Events about denials and warnings. It requires permission to create and patch events in"
            " events.k8s.io, and sideEffects NoneOnDryRun in the webhook configurations."
        ),
    )
    traces: Switch = Field(
        default=False,
        json_schema_extra=OFF_BY_DEFAULT,
        description=(
            "Send a span for every review with OTLP, as the environment variables of OpenTelemetry say. It requires the"
            " extra otel: pip install kubevirt-webhook[otel]. Changes take effect at the next start."
        ),
    )
    drift_scan: DriftSettings = DriftSettings()
    # SHA-256 of the file's bytes, hexadecimal; ``default`` where there is no file.
    digest: Derived[str] = derived("")
    # Why these stand in for the installed settings, which could not be read, a clause; empty: these are in force.
    gap: Derived[str] = derived("")

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


# pydantic lists a class's fields after those of its bases, from the last base to the first.
class Settings(_AfterPolicies, _BeforePolicies):
    """The settings of kubevirt-webhook."""

    @cached_property
    def every_excluded_namespace(self) -> frozenset[str]:
        """Namespaces that no webhook matches, with kube-system and those of KubeVirt and kubevirt-webhook."""
        own = ("kube-system", self.webhooks.service.namespace, self.kubevirt.namespace or "kubevirt")
        return frozenset((*self.excluded_namespaces, *own))

    def completed(self, digest: str) -> Self:
        """The settings of a file, with what its sections take from each other."""
        schedulers = {name: each.model_copy(update={"name": name}) for name, each in self.schedulers.items()}
        policies = {
            name: section.completed(self.kubevirt.namespace, schedulers) for name, section in self.policies.items()
        }
        return self.model_copy(update={"schedulers": schedulers, **policies, "digest": digest})

    def with_kubevirt_version(self, version: str) -> Self:
        """The settings with another KubeVirt version."""
        return self.model_copy(update={"kubevirt": self.kubevirt.model_copy(update={"version": version})})

    def standing_in(self, gap: str) -> Self:
        """The settings in place of those that are installed, and why these could not be read, a clause."""
        return self.model_copy(update={"gap": gap})

    @property
    def policies(self) -> dict[PolicyName, PolicySettings]:
        """The sections of policies, by name."""
        sections = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: section for name, section in sections if isinstance(section, PolicySettings)}

    def policy(self, policy: PolicyName) -> PolicySettings:
        """The section of a policy."""
        section: PolicySettings = getattr(self, policy)
        return section

    def written_mode(self, policy: PolicyName, namespace: str, labels: Mapping[str, str]) -> str:
        """The mode that a namespace's labels, or the settings, choose for a policy; empty for none.

        It is the label's value even where that is no mode, which has the policy off there. A policy that is not built
        in has none.
        """
        section: PolicySettings | None = getattr(self, policy, None)
        if section is None or namespace in self.every_excluded_namespace:
            return ""
        return labels.get(policy_label(policy), ENFORCE if section.cluster_wide else "")

    @property
    def watched_schedulers(self) -> dict[str, SchedulerSettings]:
        """The schedulers, by name, whose health a policy asks for."""
        return {name: each for section in self.policies.values() for name, each in section.watched_schedulers.items()}

    def of(self, section: type[P]) -> P:
        """The section of a class; its defaults where there is no such policy."""
        return next((each for each in self.policies.values() if isinstance(each, section)), section())


def with_policies(policies: Mapping[PolicyName, type[PolicySettings]]) -> type[Settings]:
    """`Settings` with a section for each policy."""

    def check(section: PolicySettings, info: ValidationInfo) -> PolicySettings:
        declared = info.data.get("schedulers")
        return section if declared is None else section.checked(declared)

    sections: dict[str, Any] = {name: (each, each()) for name, each in policies.items()}
    checks: dict[str, Any] = {"_check": field_validator(*sections)(check)} if sections else {}
    between = create_model("Policies", __base__=_BeforePolicies, __validators__=checks, **sections)
    bases: Any = (Settings, between)
    made: type[Settings] = create_model("Settings", __base__=bases, __doc__=Settings.__doc__)
    return made
