"""The installation that checks look at, and its objects."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from certs.rotation import RETIRED
from webhook import names
from webhook.cluster.reader import ObjectReader, kubernetes_version
from webhook.errors import Unavailable
from webhook.install.apply import FIELD_MANAGER
from webhook.install.plan import shipped
from webhook.install.registration import Manifest, RegistrationTarget, configurations
from webhook.install.stored_settings import NAME
from webhook.install.webhooks import CONFIGURATIONS, REGISTRATION, InstalledWebhookConfiguration
from webhook.k8s.client.clock import Clock
from webhook.k8s.resources import NAMESPACES, Resource
from webhook.k8s.types.core import PodSpec
from webhook.k8s.types.meta import Condition, Namespace, Object, ObjectMeta, Unstructured, View
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.settings.model import Settings
from webhook.text import abbreviate


class Reference(View, frozen=True):
    """What an object names: a binding's role or one of its subjects, or an object of a Plugin."""

    kind: str = ""
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Template(View, frozen=True):
    """``spec.template`` of a Deployment."""

    spec: PodSpec = PodSpec()


class DeploymentSpec(View, frozen=True):
    """``spec`` of a Deployment."""

    replicas: int | None = None
    template: Template = Template()


class DeploymentStatus(View, frozen=True):
    """``status`` of a Deployment, as far as it shows a roll-out."""

    ready_replicas: int | None = None
    updated_replicas: int | None = None
    conditions: list[Condition] | None = None


class FieldManager(View, frozen=True):
    """One of the ``metadata.managedFields`` of an object: who wrote fields, and of which subresource."""

    manager: str = ""
    subresource: str = ""


class ManagedMeta(ObjectMeta, frozen=True):
    """Metadata with those who wrote the object's fields."""

    managed_fields: list[FieldManager] | None = None


class Deployment(Object, frozen=True):
    """A Deployment (apps/v1): the server's, or a scheduler's."""

    metadata: ManagedMeta | None = None
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class CaData(View, frozen=True):
    """``data`` of the managed CA's Secret: the certificate, and those that no longer sign, in base64."""

    # The keys beside them are skipped, not read.
    ca_crt: str = msgspec.field(default="", name="ca.crt")
    retired: str = msgspec.field(default="", name=RETIRED)


class InstalledCaSecret(Object, frozen=True):
    """The Secret (core/v1) of the managed CA."""

    data: CaData | None = None


# As plain JSON: they are compared with what they should be.
ADMISSION_POLICIES: Final = {
    kind: Resource(REGISTRATION, "v1", plural, kind, False, Unstructured)
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    )
}
# Helm annotates what it installs.
_HELM_RELEASE: Final = "meta.helm.sh/release-name"
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", True, Deployment)
SECRETS: Final = Resource("", "v1", "secrets", "Secret", True, InstalledCaSecret)


@dataclass(frozen=True)
class Installation:
    """The argument of every check.

    Attributes:
        reader: where the objects are read.
        url: ``https://HOST:PORT`` of a server outside the cluster; if empty, the settings' Service is used.
        manifests: the directory of the manifests.
    """

    reader: ObjectReader
    settings: Settings
    url: str
    manifests: Path
    clock: Clock

    @property
    def namespace(self) -> str:
        """The namespace of kubevirt-webhook."""
        return self.settings.webhooks.service.namespace

    def expected_configurations(self) -> list[Manifest]:
        """The webhook configurations that the settings require."""
        return configurations(self.settings, RegistrationTarget(url=self.url))

    async def every_configuration(self) -> tuple[tuple[str, InstalledWebhookConfiguration], ...] | Unavailable:
        """All of both kinds, each with its kind."""
        pairs: list[tuple[str, InstalledWebhookConfiguration]] = []
        for kind, resource in CONFIGURATIONS.items():
            live = await self.reader.all(resource)
            if isinstance(live, Unavailable):
                return live
            pairs += [(kind, configuration) for configuration in live]
        return tuple(pairs)

    async def kubernetes_version(self) -> tuple[int, int] | Unavailable:
        """Major and minor version of the API server, because kube-scheduler does not report its own."""
        api = self.reader.api
        return api if isinstance(api, Unavailable) else await kubernetes_version(api)

    async def deployment(self) -> Deployment | Unavailable | None:
        """The Deployment of kubevirt-webhook; None where it does not exist."""
        return await self.reader.get(DEPLOYMENTS, self.namespace, NAME)

    async def remedy(self) -> str:
        """How to bring back what is missing or differs, by the tool that made the Deployment, as a clause."""
        if self.url:
            return f'apply the output of "kubevirt-webhook manifests webhooks --config FILE --url {self.url}"'
        deployment = await self.deployment()
        meta = deployment.metadata if isinstance(deployment, Deployment) else None
        release = meta.annotation(_HELM_RELEASE) if meta else None
        writers = {each.manager for each in (meta and meta.managed_fields) or () if not each.subresource}
        # Helm's annotation can be left of a release that `install` took over.
        if FIELD_MANAGER in writers:
            return 'run "kubevirt-webhook install"'
        if release:
            return f'run "helm upgrade {release} charts/kubevirt-webhook --namespace {self.namespace} --reuse-values"'
        if others := sorted(writers):
            return f"apply the installation again with the tool that made it ({abbreviate(others)})"
        return 'run "kubevirt-webhook install", or apply the installation again with the tool that made it'

    async def tls_mode(self) -> str:
        """Where the serving certificate comes from: the replicas' argument takes precedence over the settings."""
        deployment = await self.deployment()
        containers = deployment.spec.template.spec.containers if isinstance(deployment, Deployment) else None
        arguments = [argument for container in containers or () for argument in container.args or ()]
        for argument, following in itertools.pairwise((*arguments, "")):
            option, _, value = argument.partition("=")
            if option == "--tls":
                return value or following
        return self.settings.tls.mode

    async def manages_certificates(self) -> bool:
        """Whether kubevirt-webhook makes its certificates; outside the cluster, the CA's Secret shows it."""
        return await self.tls_mode() == "managed" or (bool(self.url) and await self.ca_secret() is not None)

    async def ca_secret(self) -> InstalledCaSecret | Unavailable | None:
        """The Secret of the managed CA; None where it does not exist."""
        return await self.reader.get(SECRETS, self.namespace, self.settings.tls.secret_name)

    async def lacking_policies(self) -> list[str] | Unavailable:
        """The admission policies of the manifests, and their bindings, that are missing or differ in the cluster."""
        lacking = []
        for manifest in shipped(self.manifests / "rendered" / "kubernetes.yaml"):
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            live = await self.reader.get(ADMISSION_POLICIES[kind], "", name) if kind in ADMISSION_POLICIES else None
            if isinstance(live, Unavailable):
                return live
            if kind in ADMISSION_POLICIES and not (live and _has(live.spec, manifest["spec"])):
                lacking.append(f"{kind} {name}")
        return lacking

    def spread(self, namespace: Namespace) -> str:
        """The value of the spread setting for launcher pods there; ``off`` where the policy does not act."""
        if self.mode(namespace, names.SCHEDULING) != names.ENFORCE:
            return names.OFF
        return self.settings.of(SchedulingSettings).with_annotations(namespace.meta.annotations or {}).spread

    async def modes(self, policy: names.PolicyName) -> dict[str, str] | Unavailable:
        """The modes of a policy by namespace."""
        namespaces = await self.reader.all(NAMESPACES)
        if isinstance(namespaces, Unavailable):
            return namespaces
        return {namespace.meta.name or "": self.mode(namespace, policy) for namespace in namespaces}

    def mode(self, namespace: Namespace, policy: names.PolicyName) -> str:
        """The mode of a policy there; empty for none, or the invalid value of the label."""
        meta = namespace.meta
        return self.settings.written_mode(policy, meta.name or "", meta.labels or {})


def _has(live: Any, planned: Any) -> bool:
    """Whether plain JSON has all that was planned; the API server adds defaults."""
    if isinstance(planned, dict):
        return isinstance(live, dict) and all(_has(live.get(key), value) for key, value in planned.items())
    if isinstance(planned, list):
        return isinstance(live, list) and len(live) == len(planned) and all(map(_has, live, planned))
    return bool(live == planned)
