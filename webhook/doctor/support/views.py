"""Views of what only checks look at. As in `webhook.k8s.views`: just the fields that are read, all of them optional."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook import names
from webhook.k8s.client.resources import Resource
from webhook.k8s.types.core import PodSpec
from webhook.k8s.types.selectors import LabelSelector
from webhook.k8s.views import Condition, Object, ObjectMeta, View

REGISTRATION: Final = "admissionregistration.k8s.io"
RBAC: Final = "rbac.authorization.k8s.io"


class Rule(View, frozen=True):
    """One of the ``rules`` of a webhook entry (admissionregistration/v1 RuleWithOperations)."""

    api_groups: list[str] | None = None
    operations: list[str] | None = None
    resources: list[str] | None = None


class ClientConfig(View, frozen=True):
    """``clientConfig`` of a webhook entry (admissionregistration/v1 WebhookClientConfig); the bundle is in base64."""

    ca_bundle: str | None = None


class WebhookEntry(View, frozen=True):
    """A webhook of a configuration."""

    name: str
    client_config: ClientConfig = ClientConfig()
    rules: list[Rule] | None = None
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None
    failure_policy: str | None = None
    timeout_seconds: int | None = None


class InstalledWebhookConfiguration(Object, frozen=True):
    """Entries as plain JSON, too: they are compared with what they should be."""

    webhooks: list[dict[str, Any]] | None = None

    @property
    def entries(self) -> list[WebhookEntry]:
        """The entries that can be decoded; others are skipped."""
        entries = []
        for plain in self.webhooks or ():
            try:
                entries.append(msgspec.convert(plain, WebhookEntry))
            except msgspec.ValidationError:
                continue
        return entries

    @property
    def own_entries(self) -> list[WebhookEntry]:
        """The entries that call this server."""
        return [entry for entry in self.entries if entry.name.endswith(f".{names.DOMAIN}")]


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


class Deployment(Object, frozen=True):
    """A Deployment (apps/v1): the server's, or a scheduler's."""

    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class ConfigMap(Object, frozen=True):
    """A ConfigMap (core/v1): the settings of the server or of a scheduler."""

    data: dict[str, str] | None = None


class CaData(View, frozen=True):
    """``data`` of the managed CA's Secret: the certificate, in base64."""

    # The key beside it is skipped, not read.
    ca_crt: str = msgspec.field(default="", name="ca.crt")


class InstalledCaSecret(Object, frozen=True):
    """The Secret (core/v1) of the managed CA."""

    data: CaData | None = None


class PolicyRule(View, frozen=True):
    """One of the ``rules`` of a ClusterRole (rbac/v1 PolicyRule)."""

    verbs: list[str] | None = None
    api_groups: list[str] | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None


class AggregationRule(View, frozen=True):
    """``aggregationRule`` of a ClusterRole: which other ones it adds up."""

    cluster_role_selectors: list[LabelSelector] | None = None


class Role(Object, frozen=True):
    """A ClusterRole or a Role (rbac/v1)."""

    rules: list[PolicyRule] | None = None
    aggregation_rule: AggregationRule | None = None


class RoleRef(View, frozen=True):
    """``roleRef`` of a ClusterRoleBinding or RoleBinding."""

    kind: str = ""
    name: str = ""


class Subject(View, frozen=True):
    """One of the ``subjects`` of a binding (rbac/v1 Subject)."""

    kind: str = ""
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Binding(Object, frozen=True):
    """A ClusterRoleBinding or RoleBinding (rbac/v1)."""

    role_ref: RoleRef = RoleRef()
    subjects: list[Subject] | None = None


class AdmissionPolicy(Object, frozen=True):
    """A ValidatingAdmissionPolicy, or a binding of one, as plain JSON: it is compared with what it should be."""

    spec: dict[str, Any] | None = None


CONFIGURATIONS: Final = {
    kind: Resource(REGISTRATION, "v1", f"{kind.lower()}s", kind, False, InstalledWebhookConfiguration)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", True, Deployment)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", True, ConfigMap)
SECRETS: Final = Resource("", "v1", "secrets", "Secret", True, InstalledCaSecret)
BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, Object)
FLOW: Final = tuple(
    Resource("flowcontrol.apiserver.k8s.io", "v1", f"{kind.lower()}s", kind, False, Object)
    for kind in ("PriorityLevelConfiguration", "FlowSchema")
)
CLUSTER_ROLES: Final = Resource(RBAC, "v1", "clusterroles", "ClusterRole", False, Role)
CLUSTER_ROLE_BINDINGS: Final = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False, Binding)
ROLES: Final = Resource(RBAC, "v1", "roles", "Role", True, Role)
ROLE_BINDINGS: Final = Resource(RBAC, "v1", "rolebindings", "RoleBinding", True, Binding)
POLICIES: Final = {
    kind: Resource(REGISTRATION, "v1", plural, kind, False, AdmissionPolicy)
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    )
}


def title(resource: Resource[Any], meta: ObjectMeta) -> str:
    """``KIND NAME`` or ``KIND NAMESPACE/NAME``."""
    return f"{resource.kind} {meta.namespace}/{meta.name}" if meta.namespace else f"{resource.kind} {meta.name}"
