"""The settings file's shape: every key with its type, default, limits and description, and the snapshot made of it.

Keys are camelCase, null means absent, unknown keys are denied, values are not converted. Only here is pydantic.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from webhook.errors import quote
from webhook.settings import snapshot
from webhook.settings.address import is_loopback
from webhook.settings.policies import EvictionModel, InstancetypesModel, MigrationModel, SchedulingModel
from webhook.settings.syntax import (
    STDOUT,
    Address,
    DeclaredName,
    GuardText,
    KubeVirtVersion,
    LabelKey,
    LabelValue,
    Namespace,
    NetworkText,
    OptionalAddress,
    OptionalNamespace,
    OptionalPath,
    Output,
    RegistryName,
    SchedulerName,
    SecretName,
    Section,
    ServiceName,
    Switch,
    mistake,
)


class Server(Section):
    """The listeners. Changes take effect at the next start."""

    listen: Address = Field(
        default="0.0.0.0:8443", description="HOST:PORT for admission requests, served with TLS. Port 0: any free port."
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
    drain_seconds: int = Field(
        default=10,
        ge=0,
        le=120,
        description="How long to serve requests after SIGTERM while not ready, until the API server stops calling.",
    )

    @field_validator("ops_listen")
    @classmethod
    def _check_ops_listen(cls, address: str, info: ValidationInfo) -> str:
        if address == info.data.get("listen") and not address.endswith(":0"):
            raise mistake("address-in-use", f"{address} is the value of server.listen", "use another port")
        return address


class Tls(Section):
    """The serving certificate. Changes take effect at the next start."""

    cert_file: str = Field(
        default="", description="PEM file of the certificate and its chain. Empty: generated at the start."
    )
    key_file: str = Field(default="", description="PEM file of the private key; required with certFile.")
    mode: Literal["managed", "mounted", "self-signed"] = Field(
        default="self-signed",
        description="managed: signed by a CA that kubevirt-webhook keeps in a Secret, renews and writes into the "
        "caBundles; mounted: certFile and keyFile, reloaded when they change; self-signed: generated at the start, "
        "for local use. Absent: mounted with certFile, otherwise self-signed.",
    )
    secret_name: SecretName = Field(
        default="kubevirt-webhook-ca", description="Secret of the managed CA, in the namespace of webhooks.service."
    )
    leaf_expiration_seconds: int = Field(
        default=7 * 86_400,
        ge=10,
        le=90 * 86_400,
        description="Lifetime of a managed serving certificate; a replaced CA is trusted for that long.",
    )
    ca_expiration_seconds: int = Field(
        default=365 * 86_400, ge=60, le=3650 * 86_400, description="Lifetime of the managed CA."
    )
    client_ca_file: str = Field(
        default="",
        description="PEM file of the CA of the API server's client certificate, reloaded when it changes. "
        "Empty: clients need no certificate.",
    )
    client_names: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="Accepted common names of client certificates; required with clientCaFile."
    )

    @model_validator(mode="before")
    @classmethod
    def _files_are_mounted(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and value.get("certFile") and value.get("mode") is None:
            return {**value, "mode": "mounted"}
        return value

    @field_validator("key_file")
    @classmethod
    def _both_or_none(cls, key_file: str, info: ValidationInfo) -> str:
        cert_file = info.data.get("cert_file")
        if cert_file is not None and bool(cert_file) != bool(key_file):
            given, missing = ("certFile", "keyFile") if cert_file else ("keyFile", "certFile")
            raise mistake("counterpart-missing", f"tls.{given} requires tls.{missing}", "set both or neither")
        return key_file

    @field_validator("mode")
    @classmethod
    def _has_its_files(cls, mode: str, info: ValidationInfo) -> str:
        files = info.data.get("cert_file")
        if files is not None and bool(files) != (mode == "mounted"):
            requirement = "requires tls.certFile and tls.keyFile" if mode == "mounted" else "excludes tls.certFile"
            fix = "set them" if mode == "mounted" else "remove tls.certFile, or use mounted"
            raise mistake("mode-and-files", f"{mode} {requirement}", fix)
        return mode

    @field_validator("ca_expiration_seconds")
    @classmethod
    def _outlives_its_leaves(cls, seconds: int, info: ValidationInfo) -> int:
        leaf = info.data.get("leaf_expiration_seconds")
        if leaf is not None and seconds < 4 * leaf:
            what = f"{seconds} is less than four times leafExpirationSeconds ({leaf})"
            raise mistake("too-short", what, f"use {4 * leaf} or more")
        return seconds

    @field_validator("client_names")
    @classmethod
    def _go_with_their_ca(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        file = info.data.get("client_ca_file")
        if file is not None and bool(file) != bool(names):
            # A cluster's CA signs certificates of many clients, not only of the API server.
            given, missing = ("clientCaFile", "clientNames") if file else ("clientNames", "clientCaFile")
            raise mistake("counterpart-missing", f"tls.{given} requires tls.{missing}", "set both or neither")
        return names


class Kubevirt(Section):
    """The KubeVirt installation."""

    namespace: OptionalNamespace = Field(
        default="",
        description="Namespace of KubeVirt, which no webhook matches. Empty: that of the KubeVirt object.",
    )
    version: KubeVirtVersion = Field(
        default="",
        description="KubeVirt version whose rules apply, for example 1.8 or v1.8.4. Empty: that in the status of the "
        "KubeVirt object.",
        examples=["v1.8.4"],
    )


class Scheduler(Section):
    """A scheduler whose name kubevirt-webhook may set."""

    guard: GuardText = Field(
        description="Health check: lease NAMESPACE/NAME (its leader election Lease, and pods that it does not try to "
        "schedule), pods (only those pods) or off.",
        examples=["pods"],
    )
    assume_alive: bool = Field(
        default=False,
        description="Set its name also while its health is unknown, for example directly after the start.",
    )
    only_by_webhook: bool = Field(
        default=False,
        description="No VM owner chooses this scheduler, so its name counts as set by kubevirt-webhook even if the "
        "annotation injected-scheduler is missing, for example in a clone that filters annotations.",
    )

    def snapshot(self, name: str) -> snapshot.SchedulerSettings:
        """The section as the request path reads it.

        Args:
            name: the scheduler's profile name, which is the section's key.
        """
        if self.guard.startswith("lease"):
            namespace, _, lease = self.guard.removeprefix("lease").strip().partition("/")
            guard = snapshot.SchedulerHealthSettings("lease", namespace, lease)
        else:
            guard = snapshot.SchedulerHealthSettings("pods" if self.guard == "pods" else "off")
        return snapshot.SchedulerSettings(name, guard, self.assume_alive, self.only_by_webhook)


class Explain(Section):
    """Explanations of migrations over HTTP, for tools. Changes take effect at the next start."""

    listen: OptionalAddress = Field(
        default="",
        description="HOST:PORT. Empty: off. On 127.0.0.1, [::1] and localhost served without TLS and authentication; "
        "on other addresses with TLS, to users whose bearer token permits them to get the VMI and list nodes.",
        examples=["127.0.0.1:8090"],
    )


class MetricsModel(Section):
    """Metrics. Changes take effect at the next start."""

    listen: OptionalAddress = Field(
        default="",
        description="HOST:PORT of a separate listener for metrics, which server.opsListen then does not serve. Empty: "
        "off. On 127.0.0.1, [::1] and localhost served without TLS and authentication; on other addresses with TLS, to "
        "users whose bearer token permits them to get the path /metrics.",
        examples=["0.0.0.0:8444"],
    )


class PageModel(Section):
    """The page for admins: decisions, health and placement. Changes take effect at the next start."""

    listen: OptionalAddress = Field(
        default="",
        description="HOST:PORT. Empty: off. On 127.0.0.1, [::1] and localhost served without TLS and authentication, "
        "for kubectl port-forward; on other addresses with TLS, to users whose bearer token permits them to get the "
        "path /page.",
        examples=["127.0.0.1:8091"],
    )


class RegistryModel(Section):
    """A registry that may be contacted."""

    ca_file: OptionalPath = Field(
        default="", description="PEM file of the CA of the registry's certificate. Empty: the CAs of the system."
    )
    plain_http: bool = Field(default=False, description="Contact the registry without TLS.")
    addresses: Annotated[tuple[NetworkText, ...], Field(strict=False)] = Field(
        default=(),
        description="Networks in which the registry may be. Public addresses are always allowed, except those of the "
        "cluster's own nodes and pods; all others only if they are listed here.",
        examples=["10.20.0.0/16"],
    )
    token_hosts: Annotated[tuple[RegistryName, ...], Field(strict=False)] = Field(
        default=(),
        description="Hosts of the registry's token server, if it is another host. They get the credentials of pull "
        "secrets.",
        examples=["auth.example.com"],
    )
    redirect_hosts: Annotated[tuple[RegistryName, ...], Field(strict=False)] = Field(
        default=(), description="Other hosts to which the registry may redirect. They get no credentials."
    )

    def snapshot(self) -> snapshot.RegistrySettings:
        """The section as the server reads it."""
        networks = tuple(ipaddress.ip_network(text) for text in self.addresses)
        return snapshot.RegistrySettings(**self.fields(snapshot.RegistrySettings) | {"addresses": networks})


class LayersModel(Section):
    """The scheduler extender for image layers. Changes take effect at the next start."""

    listen: OptionalAddress = Field(
        default="",
        description="HOST:PORT for kube-scheduler. Empty: off. On 127.0.0.1, [::1] and localhost served without TLS; "
        "on other addresses with TLS, to clients with a certificate of clientCaFile and clientNames.",
        examples=["127.0.0.1:8446"],
    )
    client_ca_file: OptionalPath = Field(
        default="", description="PEM file of the CA of kube-scheduler's client certificate."
    )
    client_names: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="Accepted common names of kube-scheduler's client certificate."
    )
    schedulers: Annotated[tuple[SchedulerName, ...], Field(strict=False)] = Field(
        default=("kubevirt",),
        description="Schedulers whose pods are scored; kube-scheduler calls its extenders for the pods of all its "
        "profiles.",
    )
    registries: dict[RegistryName, RegistryModel] = Field(
        default={},
        description="The registries, by name, from which manifests are read. No other registry is contacted. Docker "
        "Hub is docker.io.",
    )
    pull_secrets: Switch = Field(
        default="off",
        description="Read the pull secrets that pods name, to read manifests of private images. It requires permission "
        "to get these Secrets.",
    )
    cache_directory: OptionalPath = Field(
        default="",
        description="Existing directory in which manifests are kept, for example on an emptyDir volume. Empty: they "
        "are kept in memory only.",
    )
    cache_bytes: int = Field(
        default=67_108_864, ge=1_048_576, le=10_737_418_240, description="Maximum size of the directory in bytes."
    )

    @field_validator("client_names")
    @classmethod
    def _verifies_its_clients(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        listen, file = info.data.get("listen"), info.data.get("client_ca_file")
        if listen is None or file is None:
            return names
        if bool(file) != bool(names):
            given, missing = ("clientCaFile", "clientNames") if file else ("clientNames", "clientCaFile")
            raise mistake("counterpart-missing", f"layers.{given} requires layers.{missing}", "set both or neither")
        if listen and not is_loopback(listen) and not names:
            what = f"{listen} is not a loopback address, so clients must have a certificate"
            raise mistake("clients-unverified", what, "set layers.clientCaFile and layers.clientNames")
        return names

    def snapshot(self) -> snapshot.LayersSettings:
        """The section as the server reads it."""
        registries = {name: registry.snapshot() for name, registry in self.registries.items()}
        changed = {"registries": registries, "pull_secrets": self.pull_secrets == "on"}
        return snapshot.LayersSettings(**self.fields(snapshot.LayersSettings) | changed)


class Service(Section):
    """The Service that the API server calls."""

    namespace: Namespace = Field(
        default="kubevirt-webhook",
        description="Namespace of the Service and of kubevirt-webhook, which no webhook matches.",
    )
    name: ServiceName = Field(default="kubevirt-webhook", description="Name of the Service.")
    port: int = Field(default=443, ge=1, le=65535, description="Port of the Service.")


class MatchExpression(Section):
    """A requirement on a namespace's labels."""

    key: LabelKey = Field(description="Label key.", examples=["kubernetes.io/metadata.name"])
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="Relation of the label to the values.", examples=["NotIn"]
    )
    values: Annotated[tuple[LabelValue, ...], Field(strict=False)] = Field(
        default=(), description="At least one value for In and NotIn, none for Exists and DoesNotExist."
    )

    @field_validator("values")
    @classmethod
    def _check_operator(cls, values: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        operator = info.data.get("operator")
        if operator in ("In", "NotIn") and not values:
            raise mistake("values-missing", f"{operator} requires values", "add values, or use Exists or DoesNotExist")
        if operator in ("Exists", "DoesNotExist") and values:
            raise mistake("values-excluded", f"{operator} excludes values", "remove them, or use In or NotIn")
        return values

    def snapshot(self) -> Mapping[str, Any]:
        """The expression as a webhook configuration has it."""
        base = {"key": self.key, "operator": self.operator}
        return {**base, "values": list(self.values)} if self.values else base


class NamespaceSelector(Section):
    """Namespaces that webhooks match at all, in addition to the policies' labels."""

    match_expressions: Annotated[tuple[MatchExpression, ...], Field(strict=False)] = Field(
        default=(), description="Requirements on namespaces' labels; all must be met."
    )


class Webhooks(Section):
    """The webhook configurations that are installed."""

    service: Service = Field(default=Service(), description=Service.__doc__)
    timeout_seconds: int = Field(
        default=3,
        ge=1,
        le=3,
        description="How long the API server waits for an answer; it can delay every request by that long.",
    )
    namespace_selector: NamespaceSelector = Field(default=NamespaceSelector(), description=NamespaceSelector.__doc__)


class Audit(Section):
    """Audit lines: one for every decision. Changes take effect at the next start."""

    output: Output = Field(
        default=STDOUT,
        description="Destination: stdout, or the absolute path of a file in an existing directory. Only one process "
        "may write to a file.",
        examples=["/var/log/kubevirt-webhook/audit.jsonl"],
    )
    max_bytes: int = Field(
        default=104_857_600,
        ge=1_048_576,
        le=10_737_418_240,
        description="Maximum size of the file in bytes; a full file is renamed to FILE.1, and a new one is started.",
    )
    keep: int = Field(default=5, ge=1, le=100, description="Number of renamed files to keep.")

    def snapshot(self) -> snapshot.AuditSettings:
        """The section as the server reads it."""
        output = "" if self.output == STDOUT else self.output
        return snapshot.AuditSettings(**self.fields(snapshot.AuditSettings) | {"output": output})


class Drift(Section):
    """The background scan: it looks for objects that differ from what enforce makes of them."""

    every_minutes: int = Field(
        default=0,
        ge=0,
        le=1440,
        description="Minutes between scans, the first one at the start; 0 disables the scan. It requires permission to "
        "list pods, virtualmachines and virtualmachineinstances.",
        examples=[30],
    )
    policy_reports: bool = Field(
        default=True,
        description="Also write the results as PolicyReports, if the cluster serves that kind (wgpolicyk8s.io). It "
        "requires permission to list, create, patch and delete policyreports.",
    )

    def snapshot(self) -> snapshot.DriftSettings:
        """The section as the request path reads it."""
        return snapshot.DriftSettings(every_seconds=60.0 * self.every_minutes, policy_reports=self.policy_reports)


Listening = TypeVar("Listening", Explain, MetricsModel, PageModel, LayersModel)


class SettingsModel(Section):
    """The settings of kubevirt-webhook."""

    server: Server = Field(default=Server(), description=Server.__doc__)
    tls: Tls = Field(default=Tls(), description=Tls.__doc__)
    kubevirt: Kubevirt = Field(default=Kubevirt(), description=Kubevirt.__doc__)
    excluded_namespaces: Annotated[tuple[Namespace, ...], Field(strict=False)] = Field(
        default=("kube-system", "kube-public", "kube-node-lease"),
        description="Namespaces that no webhook matches, in addition to kube-system and those of KubeVirt and "
        "kubevirt-webhook.",
    )
    schedulers: dict[DeclaredName, Scheduler] = Field(
        default={"kubevirt": Scheduler(guard="lease kubevirt-scheduler/kubevirt-scheduler")},
        description="The schedulers, by name, whose names kubevirt-webhook may set.",
        json_schema_extra={"additionalProperties": False},
    )
    scheduling: SchedulingModel = Field(default=SchedulingModel(), description=SchedulingModel.__doc__)
    instancetypes: InstancetypesModel = Field(default=InstancetypesModel(), description=InstancetypesModel.__doc__)
    migration: MigrationModel = Field(default=MigrationModel(), description=MigrationModel.__doc__)
    eviction: EvictionModel = Field(default=EvictionModel(), description=EvictionModel.__doc__)
    explain: Explain = Field(default=Explain(), description=Explain.__doc__)
    metrics: MetricsModel = Field(default=MetricsModel(), description=MetricsModel.__doc__)
    page: PageModel = Field(default=PageModel(), description=PageModel.__doc__)
    layers: LayersModel = Field(default=LayersModel(), description=LayersModel.__doc__)
    webhooks: Webhooks = Field(default=Webhooks(), description=Webhooks.__doc__)
    audit: Audit = Field(default=Audit(), description=Audit.__doc__)
    events: Switch = Field(
        default="off",
        description="Write Kubernetes Events about denials and warnings. It requires permission to create and patch "
        "events in events.k8s.io, and sideEffects NoneOnDryRun in the webhook configurations.",
    )
    traces: Switch = Field(
        default="off",
        description="Send a span for every review with OTLP, as the environment variables of OpenTelemetry say. It "
        "requires the extra otel: pip install kubevirt-webhook[otel]. Changes take effect at the next start.",
    )
    unenforced: Drift = Field(default=Drift(), description=Drift.__doc__)

    @field_validator("explain", "metrics", "page", "layers")
    @classmethod
    def _listens_alone(cls, section: Listening, info: ValidationInfo) -> Listening:
        server = info.data.get("server")
        if server and section.listen and not section.listen.endswith(":0"):
            places = {"server.listen": server.listen, "server.opsListen": server.ops_listen}
            # Those that were validated before this one.
            others = ((name, info.data.get(name)) for name in ("explain", "metrics", "page"))
            places |= {f"{name}.listen": other.listen for name, other in others if other is not None}
            for name, taken in places.items():
                if section.listen == taken:
                    raise mistake("address-in-use", f"{taken} is the value of {name}", "use another port", "listen")
        return section

    @field_validator("scheduling")
    @classmethod
    def _names_a_declared_scheduler(cls, scheduling: SchedulingModel, info: ValidationInfo) -> SchedulingModel:
        declared = info.data.get("schedulers")
        if declared and len(declared) == 1 and "scheduler_name" not in scheduling.model_fields_set:
            return scheduling.model_copy(update={"scheduler_name": next(iter(declared))})
        if not declared and "scheduler_name" not in scheduling.model_fields_set:
            # Topology spread constraints do not require a declared scheduler.
            return scheduling
        if declared is not None and scheduling.scheduler_name not in declared:
            fix = f"declare it, or use {' or '.join(sorted(declared))}" if declared else "declare it"
            what = f"{quote(scheduling.scheduler_name)} is not declared under schedulers"
            raise mistake("undeclared", what, fix, "schedulerName")
        return scheduling

    def snapshot(self, digest: str) -> snapshot.Settings:
        """The settings as the request path reads them.

        Args:
            digest: the digest of the settings file; see `snapshot.Settings`.
        """
        service = self.webhooks.service
        kubevirt = self.kubevirt.namespace or "kubevirt"
        return snapshot.Settings(
            server=snapshot.ServerSettings(
                **self.server.fields(snapshot.ServerSettings),
                **self.tls.fields(snapshot.ServerSettings),
                tls_mode=self.tls.mode,
                ca_secret=self.tls.secret_name,
                leaf_seconds=self.tls.leaf_expiration_seconds,
                ca_seconds=self.tls.ca_expiration_seconds,
                explain_listen=self.explain.listen,
                metrics_listen=self.metrics.listen,
                page_listen=self.page.listen,
                audit=self.audit.snapshot(),
                layers=self.layers.snapshot(),
                traces=self.traces == "on",
            ),
            webhooks=snapshot.WebhookSettings(
                service_namespace=service.namespace,
                service_name=service.name,
                service_port=service.port,
                timeout_seconds=self.webhooks.timeout_seconds,
                namespace_selector=tuple(
                    expression.snapshot() for expression in self.webhooks.namespace_selector.match_expressions
                ),
            ),
            scheduling=snapshot.SchedulingSettings(
                **self.scheduling.fields(snapshot.SchedulingSettings),
                schedulers={name: scheduler.snapshot(name) for name, scheduler in self.schedulers.items()},
                kubevirt_namespace=self.kubevirt.namespace,
            ),
            instancetypes=self.instancetypes.snapshot(),
            migration=snapshot.MigrationSettings(
                **self.migration.fields(snapshot.MigrationSettings), kubevirt_namespace=self.kubevirt.namespace
            ),
            eviction=self.eviction.snapshot(self.kubevirt.namespace),
            excluded_namespaces=frozenset({"kube-system", *self.excluded_namespaces, service.namespace, kubevirt}),
            digest=digest,
            events=self.events == "on",
            kubevirt_version=self.kubevirt.version,
            unenforced=self.unenforced.snapshot(),
        )
