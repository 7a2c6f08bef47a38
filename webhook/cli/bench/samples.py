"""What is sent to the API server: objects of each kind that policies evaluate, and one that no webhook looks at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from webhook import names
from webhook.install.webhooks import WebhookEntry
from webhook.k8s.paths import object_path

Json = dict[str, Any]
PREFIX: Final = "kubevirt-webhook-bench-"
# The node selector of the migration: each node that runs VMs meets it.
_ADDED: Final = {"kubernetes.io/os": "linux"}
MIGRATION: Final = "VirtualMachineInstanceMigration"
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


class SampleKind(msgspec.Struct, frozen=True):
    """A kind of object, with one of it that the API server takes.

    Attributes:
        kind: as in manifests.
        api_version: as in manifests.
        plural: the resource.
        content: of the object, without its kind and metadata.
        labels: of the object.
        annotations: of the object.
        owners: its ownerReferences.
    """

    kind: str
    api_version: str
    plural: str
    content: Json
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    owners: tuple[Json, ...] = ()

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """The resource as RBAC and kubectl write it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str) -> str:
        """Where it is created."""
        return object_path(self.api_version, self.plural, namespace)

    def body(self) -> Json:
        """An object without a name: the API server makes one for each request."""
        metadata: Json = {
            "generateName": PREFIX,
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "ownerReferences": list(self.owners),
        }
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata, **self.content}


# As the Pod Security Standard "restricted" wants it: nothing of this ever runs.
_CONTAINER: Final = {
    "name": "compute",
    "image": "registry.k8s.io/pause:3.10",
    "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}},
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 107,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
# Of the kinds that webhooks seldom look at, the first that none does is the baseline.
BASELINES: Final = (
    SampleKind("ConfigMap", "v1", "configmaps", {"data": {"key": "value"}}),
    SampleKind("Lease", "coordination.k8s.io/v1", "leases", {"spec": {"holderIdentity": "nobody"}}),
    SampleKind("PodTemplate", "v1", "podtemplates", {"template": {"spec": {"containers": [_CONTAINER]}}}),
)
_GUEST: Final = {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}
VM: Final = SampleKind(
    "VirtualMachine",
    "kubevirt.io/v1",
    "virtualmachines",
    {"spec": {"runStrategy": "Halted", "template": {"metadata": {}, "spec": _GUEST}}},
)
VMI: Final = SampleKind("VirtualMachineInstance", "kubevirt.io/v1", "virtualmachineinstances", {"spec": _GUEST})


class RunningVmi(NamedTuple):
    """A VMI of the namespace, by which policies know whose pod or migration they evaluate."""

    name: str
    uid: str


def pod(vmi: RunningVmi | None) -> SampleKind:
    """A launcher pod of a VMI; without one, policies leave it alone, and measure less."""
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "controller": True}
    return SampleKind(
        "Pod",
        "v1",
        "pods",
        {"spec": {"automountServiceAccountToken": False, "restartPolicy": "Never", "containers": [_CONTAINER]}},
        labels={names.APP_LABEL: names.LAUNCHER_APP},
        annotations={"kubevirt.io/domain": vmi.name if vmi else "kubevirt-webhook-bench"},
        owners=({**owner, "name": vmi.name, "uid": vmi.uid},) if vmi else (),
    )


def migration(vmi: RunningVmi) -> SampleKind:
    """A migration of a VMI with a node selector of its own."""
    content = {"spec": {"vmiName": vmi.name, "addedNodeSelector": _ADDED}}
    return SampleKind(MIGRATION, "kubevirt.io/v1", "virtualmachineinstancemigrations", content)


def calls(entry: WebhookEntry, kind: SampleKind, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether the API server may call a webhook for the CREATE of an object in a namespace with these labels.

    matchConditions are not evaluated: they can only keep it from being called.
    """
    selected = entry.namespace_selector is None or entry.namespace_selector.matches(
        {**labels, _NAMESPACE_NAME: namespace}, malformed=True
    )
    objects = entry.object_selector is None or entry.object_selector.matches(kind.labels, malformed=True)
    return (
        selected
        and objects
        and any(
            {kind.group, "*"} & set(rule.api_groups or ())
            and {"CREATE", "*"} & set(rule.operations or ())
            and {kind.plural, "*", "*/*"} & set(rule.resources or ())
            for rule in entry.rules or ()
        )
    )


def baseline(
    entries: Iterable[WebhookEntry], namespace: str, labels: Mapping[str, str]
) -> tuple[SampleKind, list[str]]:
    """The baseline, and the webhooks that are called for it nevertheless, by their names."""
    entries = tuple(entries)
    called = {kind.kind: [each.name for each in entries if calls(each, kind, namespace, labels)] for kind in BASELINES}
    chosen = min(BASELINES, key=lambda kind: len(called[kind.kind]))
    return chosen, called[chosen.kind]
