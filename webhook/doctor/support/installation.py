"""The installation that checks look at: its settings, and the cluster around it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from webhook import names
from webhook.cluster.reader import Reader
from webhook.doctor.support.views import (
    CONFIGURATIONS,
    DEPLOYMENTS,
    POLICIES,
    SECRETS,
    Deployment,
    InstalledCaSecret,
    InstalledWebhookConfiguration,
)
from webhook.errors import Unavailable
from webhook.install.plan import shipped
from webhook.install.registration import Manifest, RegistrationTarget, configurations
from webhook.k8s.client.clock import Clock
from webhook.k8s.client.resources import NAMESPACES
from webhook.k8s.views import Namespace
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.kubevirt.types.views import KubeVirt
from webhook.settings.snapshot import Settings

# Of all objects of an installation.
NAME: Final = "kubevirt-webhook"
_TLS: Final = "--tls"
# Of both the policy for labels and annotations of namespaces and its binding.
LABEL_POLICY: Final = "kubevirt-webhook-namespaces"


@dataclass(frozen=True)
class Installation:
    """The argument of every check.

    Attributes:
        url: ``https://HOST:PORT`` of a server outside the cluster; if empty, the settings' Service is used.
        manifests: the directory of the manifests.
        clock: the clock of this host.
    """

    reader: Reader
    settings: Settings
    url: str
    manifests: Path
    clock: Clock

    @property
    def namespace(self) -> str:
        """The namespace of kubevirt-webhook."""
        return self.settings.webhooks.service_namespace

    def expected_configurations(self) -> list[Manifest]:
        """The webhook configurations that the settings require."""
        return configurations(self.settings, RegistrationTarget(url=self.url))

    async def configurations(self, kind: str) -> tuple[InstalledWebhookConfiguration, ...] | Unavailable:
        """All of one kind, including those of other programs."""
        return await self.reader.all(CONFIGURATIONS[kind])

    async def every_configuration(self) -> tuple[tuple[str, InstalledWebhookConfiguration], ...] | Unavailable:
        """All of both kinds, each with its kind."""
        configurations: list[tuple[str, InstalledWebhookConfiguration]] = []
        for kind in CONFIGURATIONS:
            live = await self.configurations(kind)
            if isinstance(live, Unavailable):
                return live
            configurations += [(kind, configuration) for configuration in live]
        return tuple(configurations)

    async def namespaces(self) -> tuple[Namespace, ...] | Unavailable:
        """All namespaces of the cluster; `Unavailable` where they cannot be listed."""
        return await self.reader.all(NAMESPACES)

    async def kubevirts(self) -> tuple[KubeVirt, ...] | Unavailable:
        """The KubeVirt objects, of which a cluster has one."""
        return await self.reader.all(KUBEVIRTS)

    async def deployment(self) -> Deployment | Unavailable | None:
        """The Deployment of kubevirt-webhook; None where it does not exist."""
        return await self.reader.get(DEPLOYMENTS, self.namespace, NAME)

    async def tls_mode(self) -> str:
        """Where the serving certificate comes from: the replicas' argument takes precedence over the sett."""
        deployment = await self.deployment()
        arguments: list[Any] = []
        if isinstance(deployment, Deployment):
            for container in deployment.spec.template.spec.containers or ():
                arguments += container.args or ()
        for index, argument in enumerate(arguments):
            option, _, value = argument.partition("=")
            if option == _TLS:
                return value or "".join(arguments[index + 1 : index + 2])
        return self.settings.server.tls_mode

    async def manages_certificates(self) -> bool:
        """Whether kubevirt-webhook makes its certificates; outside the cluster, the CA's Secret shows it."""
        if await self.tls_mode() == "managed":
            return True
        return bool(self.url) and await self.ca_secret() is not None

    async def ca_secret(self) -> InstalledCaSecret | Unavailable | None:
        """The Secret of the managed CA; None where it does not exist."""
        return await self.reader.get(SECRETS, self.namespace, self.settings.server.ca_secret)

    async def lacking_policies(self) -> list[str] | Unavailable:
        """The admission policies of the manifests, and their bindings, that are missing or differ in the cluster."""
        lacking = []
        for manifest in shipped(self.manifests / "rendered" / "kubernetes.yaml"):
            if manifest["kind"] not in POLICIES:
                continue
            name = manifest["metadata"]["name"]
            live = await self.reader.get(POLICIES[manifest["kind"]], "", name)
            if isinstance(live, Unavailable):
                return live
            if live is None or not _has(live.spec, manifest["spec"]):
                lacking.append(f"{manifest['kind']} {name}")
        return lacking

    async def is_label_policy_installed(self) -> bool:
        """Whether the API server denies changes of namespaces' labels through subresources."""
        lacking = await self.lacking_policies()
        return not isinstance(lacking, Unavailable) and not any(one.endswith(f" {LABEL_POLICY}") for one in lacking)

    def mode(self, namespace: Namespace, policy: names.Policy) -> str:
        """The mode of a policy there; empty for none, or the invalid value of the label."""
        if namespace.meta.name in self.settings.excluded_namespaces:
            return ""
        label = namespace.meta.label(names.policy_label(policy))
        if label is None:
            return names.ENFORCE if self.settings.policy(policy).cluster_wide else ""
        return label


def _has(live: Any, planned: Any) -> bool:
    """Whether plain JSON has all that was planned; the API server adds defaults."""
    if isinstance(planned, dict):
        return isinstance(live, dict) and all(_has(live.get(key), value) for key, value in planned.items())
    if isinstance(planned, list):
        return isinstance(live, list) and len(live) == len(planned) and all(map(_has, live, planned))
    return bool(live == planned)
