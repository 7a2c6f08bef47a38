"""The settings file's shape: every key with its type, default, limits and description, and the snapshot made of it.

Keys are camelCase as everywhere in Kubernetes, null means absent, nothing unknown is accepted and no value is turned
into another type. `webhook.settings.file` tells the mistakes; pydantic stays in this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from webhook.settings import snapshot
from webhook.settings.observability import Audit, Switch, Unenforced
from webhook.settings.policies import EvictionModel, InstancetypesModel, MigrationModel, SchedulingModel
from webhook.settings.section import Section
from webhook.settings.syntax import (
    Address,
    DeclaredName,
    GuardText,
    KubeVirtVersion,
    LabelKey,
    LabelValue,
    Namespace,
    OptionalAddress,
    OptionalNamespace,
    SecretName,
    ServiceName,
    mistake,
)


class Server(Section):
    """The listeners. Changes take effect at the next start."""

    listen: Address = Field(
        default="0.0.0.0:8443", description="HOST:PORT of the webhooks, served with TLS; port 0: any."
    )
    ops_listen: Address = Field(
        default="0.0.0.0:8080", description="HOST:PORT of health and metrics, served without TLS; port 0: any."
    )
    max_in_flight: int = Field(
        default=64, ge=1, le=10_000, description="Reviews judged at the same time; more of them wait, then get 429."
    )
    drain_seconds: int = Field(
        default=10,
        ge=0,
        le=120,
        description="How long to go on serving after SIGTERM, not ready, until nobody calls us any more.",
    )

    @field_validator("ops_listen")
    @classmethod
    def _is_another(cls, address: str, info: ValidationInfo) -> str:
        if address == info.data.get("listen") and not address.endswith(":0"):
            raise mistake(f"{address} is server.listen already", "choose another port")
        return address


class Tls(Section):
    """The serving certificate. Changes take effect at the next start."""

    cert_file: str = Field(default="", description="PEM file of the certificate and its chain; empty: made at start.")
    key_file: str = Field(default="", description="PEM file of the certificate's key; needed with certFile.")
    mode: Literal["managed", "mounted", "self-signed"] = Field(
        default="self-signed",
        description="managed: of a CA of our own, kept in a Secret, renewed and made known to the API server by us; "
        "mounted: certFile and keyFile, followed as they change; self-signed: made at start, for local use. "
        "Where it isn't given, mounted with certFile, else self-signed.",
    )
    secret_name: SecretName = Field(
        default="kubevirt-webhook-ca", description="The managed CA's Secret, in the namespace of webhooks.service."
    )
    leaf_expiration_seconds: int = Field(
        default=7 * 86_400,
        ge=10,
        le=90 * 86_400,
        description="Life of a managed serving certificate; an old CA stays trusted for that long.",
    )
    ca_expiration_seconds: int = Field(
        default=365 * 86_400, ge=60, le=3650 * 86_400, description="Life of the managed CA."
    )
    client_ca_file: str = Field(
        default="",
        description="PEM file of the CA of the API server's client certificate, followed as it changes; "
        "empty: anybody may call us.",
    )
    client_names: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="Common names that a client's certificate may have; needed with clientCaFile."
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
            raise mistake(f"tls.{given} is given without tls.{missing}", "give both or none")
        return key_file

    @field_validator("mode")
    @classmethod
    def _has_its_files(cls, mode: str, info: ValidationInfo) -> str:
        files = info.data.get("cert_file")
        if files is not None and bool(files) != (mode == "mounted"):
            what = "needs tls.certFile and tls.keyFile" if mode == "mounted" else "has no use for tls.certFile"
            raise mistake(f"{mode} {what}", "add them" if mode == "mounted" else "remove it, or use mounted")
        return mode

    @field_validator("ca_expiration_seconds")
    @classmethod
    def _outlives_its_leaves(cls, seconds: int, info: ValidationInfo) -> int:
        leaf = info.data.get("leaf_expiration_seconds")
        if leaf is not None and seconds < 4 * leaf:
            raise mistake(f"{seconds} is less than four times leafExpirationSeconds", f"use {4 * leaf} or more")
        return seconds

    @field_validator("client_names")
    @classmethod
    def _go_with_their_ca(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        file = info.data.get("client_ca_file")
        if file is not None and bool(file) != bool(names):
            # A cluster's CA signs for many others than the API server.
            given, missing = ("clientCaFile", "clientNames") if file else ("clientNames", "clientCaFile")
            raise mistake(f"tls.{given} is given without tls.{missing}", "give both or none")
        return names


class Kubevirt(Section):
    """KubeVirt itself."""

    namespace: OptionalNamespace = Field(
        default="",
        description="Where KubeVirt runs; empty: found by its KubeVirt object. Never matched by any webhook.",
    )
    version: KubeVirtVersion = Field(
        default="",
        description="The KubeVirt version whose rules count, such as 1.8 or v1.8.4, whatever the KubeVirt object says; "
        "empty: the one that its status names.",
        examples=["v1.8.4"],
    )


class Scheduler(Section):
    """A scheduler profile that may be written into objects."""

    guard: GuardText = Field(
        description="How its health is watched: lease NAMESPACE/NAME (its leader election Lease, and pods that nobody "
        "looks at), pods (only those pods) or off.",
        examples=["pods"],
    )
    assume_alive: bool = Field(
        default=False,
        description="Inject its name also while nothing is known of its health, as right after our start.",
    )
    only_by_webhook: bool = Field(
        default=False,
        description="No VM owner ever chooses this scheduler, so its name is kubevirt-webhook's choice even where "
        "the annotation injected-scheduler is missing, as in a clone that filters annotations.",
    )

    def snapshot(self, name: str) -> snapshot.SchedulerSettings:
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
        description="HOST:PORT; empty: off. On 127.0.0.1, [::1] and localhost served without TLS to whoever is there; "
        "on any other with TLS, to bearers of tokens who may get the VMI and list nodes.",
        examples=["127.0.0.1:8090"],
    )


class MetricsModel(Section):
    """Metrics. Changes take effect at the next start."""

    listen: OptionalAddress = Field(
        default="",
        description="HOST:PORT of a listener for metrics alone, which server.opsListen then has no more; empty: off. "
        "On 127.0.0.1, [::1] and localhost served without TLS to whoever is there; on any other with TLS, to bearers "
        "of tokens who may get the path /metrics.",
        examples=["0.0.0.0:8444"],
    )


class Service(Section):
    """The Service that the API server calls."""

    namespace: Namespace = Field(default="kubevirt-webhook", description="Its namespace, and our own; never matched.")
    name: ServiceName = Field(default="kubevirt-webhook", description="Its name.")
    port: int = Field(default=443, ge=1, le=65535, description="Its port.")


class MatchExpression(Section):
    """A requirement on a namespace's labels."""

    key: LabelKey = Field(description="The label's key.", examples=["kubernetes.io/metadata.name"])
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How the label relates to the values.", examples=["NotIn"]
    )
    values: Annotated[tuple[LabelValue, ...], Field(strict=False)] = Field(
        default=(), description="At least one for In and NotIn, none for Exists and DoesNotExist."
    )

    @field_validator("values")
    @classmethod
    def _check_operator(cls, values: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        operator = info.data.get("operator")
        if operator in ("In", "NotIn") and not values:
            raise mistake(f"{operator} needs at least one value", "list values, or use Exists or DoesNotExist")
        if operator in ("Exists", "DoesNotExist") and values:
            raise mistake(f"{operator} takes no values", "remove them, or use In or NotIn")
        return values

    def snapshot(self) -> Mapping[str, Any]:
        base = {"key": self.key, "operator": self.operator}
        return {**base, "values": list(self.values)} if self.values else base


class NamespaceSelector(Section):
    """Which namespaces are matched at all, beside what the policies' labels say."""

    match_expressions: Annotated[tuple[MatchExpression, ...], Field(strict=False)] = Field(
        default=(), description="Requirements on namespaces' labels; all must hold."
    )


class Webhooks(Section):
    """The webhook configurations that are installed."""

    service: Service = Field(default=Service(), description=Service.__doc__)
    timeout_seconds: int = Field(
        default=3,
        ge=1,
        le=3,
        description="How long the API server waits for us, in seconds; it adds to every request's time.",
    )
    namespace_selector: NamespaceSelector = Field(default=NamespaceSelector(), description=NamespaceSelector.__doc__)


class SettingsModel(Section):
    """The settings of kubevirt-webhook."""

    server: Server = Field(default=Server(), description=Server.__doc__)
    tls: Tls = Field(default=Tls(), description=Tls.__doc__)
    kubevirt: Kubevirt = Field(default=Kubevirt(), description=Kubevirt.__doc__)
    excluded_namespaces: Annotated[tuple[Namespace, ...], Field(strict=False)] = Field(
        default=("kube-system", "kube-public", "kube-node-lease"),
        description="Never matched, whatever their labels say; nor are kube-system, KubeVirt's namespace and our own.",
    )
    schedulers: dict[DeclaredName, Scheduler] = Field(
        default={"kubevirt": Scheduler(guard="lease kubevirt-scheduler/kubevirt-scheduler")},
        description="The scheduler profiles that may be written into objects, by name; no other name ever is.",
    )
    scheduling: SchedulingModel = Field(default=SchedulingModel(), description=SchedulingModel.__doc__)
    instancetypes: InstancetypesModel = Field(default=InstancetypesModel(), description=InstancetypesModel.__doc__)
    migration: MigrationModel = Field(default=MigrationModel(), description=MigrationModel.__doc__)
    eviction: EvictionModel = Field(default=EvictionModel(), description=EvictionModel.__doc__)
    explain: Explain = Field(default=Explain(), description=Explain.__doc__)
    metrics: MetricsModel = Field(default=MetricsModel(), description=MetricsModel.__doc__)
    webhooks: Webhooks = Field(default=Webhooks(), description=Webhooks.__doc__)
    audit: Audit = Field(default=Audit(), description=Audit.__doc__)
    events: Switch = Field(
        default="off",
        description="Write Kubernetes Events about refusals and about what users should know. It needs the "
        "rights to create and patch events in events.k8s.io; the webhook configurations then say NoneOnDryRun.",
    )
    unenforced: Unenforced = Field(default=Unenforced(), description=Unenforced.__doc__)

    @field_validator("explain")
    @classmethod
    def _listens_elsewhere(cls, explain: Explain, info: ValidationInfo) -> Explain:
        server = info.data.get("server")
        if server and explain.listen and not explain.listen.endswith(":0"):
            for name, taken in (("listen", server.listen), ("opsListen", server.ops_listen)):
                if explain.listen == taken:
                    raise mistake(f"{taken} is server.{name} already", "choose another port", "listen")
        return explain

    @field_validator("metrics")
    @classmethod
    def _listens_alone(cls, metrics: MetricsModel, info: ValidationInfo) -> MetricsModel:
        server, explain = info.data.get("server"), info.data.get("explain")
        if server and explain and metrics.listen and not metrics.listen.endswith(":0"):
            places = {
                "server.listen": server.listen,
                "server.opsListen": server.ops_listen,
                "explain.listen": explain.listen,
            }
            for name, taken in places.items():
                if metrics.listen == taken:
                    raise mistake(f"{taken} is {name} already", "choose another port", "listen")
        return metrics

    @field_validator("scheduling")
    @classmethod
    def _names_a_declared_scheduler(cls, scheduling: SchedulingModel, info: ValidationInfo) -> SchedulingModel:
        declared = info.data.get("schedulers")
        if declared and len(declared) == 1 and "scheduler_name" not in scheduling.model_fields_set:
            return scheduling.model_copy(update={"scheduler_name": next(iter(declared))})
        if not declared and "scheduler_name" not in scheduling.model_fields_set:
            # Constraints need no scheduler of their own.
            return scheduling
        if declared is not None and scheduling.scheduler_name not in declared:
            fix = f"declare it there, or use {' or '.join(sorted(declared))}" if declared else "declare it there"
            raise mistake(f"{scheduling.scheduler_name} is not declared under schedulers", fix, "schedulerName")
        return scheduling

    def snapshot(self, digest: str) -> snapshot.Settings:
        """The settings as the request path reads them.

        Args:
            digest: of the file that they were read from; see `snapshot.Settings`.
        """
        service = self.webhooks.service
        return snapshot.Settings(
            server=snapshot.ServerSettings(
                listen=self.server.listen,
                ops_listen=self.server.ops_listen,
                max_in_flight=self.server.max_in_flight,
                cert_file=self.tls.cert_file,
                key_file=self.tls.key_file,
                tls_mode=self.tls.mode,
                ca_secret=self.tls.secret_name,
                leaf_seconds=self.tls.leaf_expiration_seconds,
                ca_seconds=self.tls.ca_expiration_seconds,
                client_ca_file=self.tls.client_ca_file,
                client_names=self.tls.client_names,
                drain_seconds=self.server.drain_seconds,
                explain_listen=self.explain.listen,
                metrics_listen=self.metrics.listen,
                audit=self.audit.snapshot(),
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
                cluster_wide=self.scheduling.cluster_wide,
                scheduler_name=self.scheduling.scheduler_name,
                virtual_machines=self.scheduling.virtual_machines,
                virtual_machine_instances=self.scheduling.virtual_machine_instances,
                schedulers={name: scheduler.snapshot(name) for name, scheduler in self.schedulers.items()},
                kubevirt_namespace=self.kubevirt.namespace,
                spread=self.scheduling.spread,
                spread_virtual_machines=self.scheduling.spread_virtual_machines,
                spread_virtual_machine_instances=self.scheduling.spread_virtual_machine_instances,
            ),
            instancetypes=self.instancetypes.snapshot(),
            migration=self.migration.snapshot(self.kubevirt.namespace),
            eviction=self.eviction.snapshot(self.kubevirt.namespace),
            excluded_namespaces=frozenset(
                {"kube-system", *self.excluded_namespaces, service.namespace, self.kubevirt.namespace or "kubevirt"}
            ),
            digest=digest,
            events=self.events == "on",
            kubevirt_version=self.kubevirt.version,
            unenforced=self.unenforced.snapshot(),
        )
