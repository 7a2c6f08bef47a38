"""Views of KubeVirt's objects: only the fields that policies and look-ups read."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.k8s.pods import SpreadConstraint
from webhook.k8s.views import Object, OwnedMeta, Unstructured, View


class ActiveStatus(View, frozen=True):
    active_pods: dict[str, str] | None = None


class ActiveVmi(Object, frozen=True):
    """A VMI as its pods are checked against it: virt-controller lists them by UID in the status."""

    status: ActiveStatus | None = None

    @property
    def active_pods(self) -> dict[str, str]:
        return (self.status.active_pods if self.status else None) or {}


class MatcherView(View, frozen=True):
    """``spec.instancetype`` or ``spec.preference`` of a VM."""

    name: str | None = None
    kind: str | None = None
    revision_name: str | None = None
    infer_from_volume: str | None = None


class TemplateMeta(View, frozen=True):
    # The CRD has no schema for it (x-kubernetes-preserve-unknown-fields), so values may be of any type.
    annotations: dict[str, Any] | None = None

    def annotation(self, key: str) -> Any:
        return self.annotations.get(key) if self.annotations else None


class VmiSpec(View, frozen=True):
    scheduler_name: str | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None


class TemplateSpec(View, frozen=True):
    scheduler_name: str | None = None
    # Plain JSON, for what is the owner's of it is written back as it was.
    topology_spread_constraints: list[dict[str, Any]] | None = None


class VmTemplate(View, frozen=True):
    metadata: TemplateMeta | None = None
    spec: TemplateSpec | None = None


class VmSpec(View, frozen=True):
    instancetype: MatcherView | None = None
    template: VmTemplate | None = None


class RevisionRef(View, frozen=True):
    name: str | None = None


class StatusRef(View, frozen=True):
    controller_revision_ref: RevisionRef | None = None


class VmStatus(View, frozen=True):
    instancetype_ref: StatusRef | None = None


class VirtualMachine(Object, frozen=True):
    metadata: OwnedMeta | None = None
    spec: VmSpec | None = None
    status: VmStatus | None = None

    @property
    def template(self) -> VmTemplate | None:
        return self.spec.template if self.spec else None

    @property
    def scheduler_name(self) -> str:
        """What the template chooses; an empty or null name equals an absent one."""
        template = self.template
        return (template.spec.scheduler_name if template and template.spec else None) or ""


class VirtualMachineInstance(Object, frozen=True):
    spec: VmiSpec | None = None

    @property
    def scheduler_name(self) -> str:
        """What the owner chose, ``""`` for nothing: the CRD has no default, so an explicit default is visible."""
        return (self.spec.scheduler_name if self.spec else None) or ""


class InstancetypeSpec(View, frozen=True):
    scheduler_name: str | None = None


class Instancetype(Object, frozen=True):
    """VirtualMachineInstancetype or VirtualMachineClusterInstancetype."""

    spec: InstancetypeSpec | None = None


class RevisionData(View, frozen=True):
    kind: str | None = None
    spec: InstancetypeSpec | None = None
    api_version: str | None = None


class ControllerRevision(Object, frozen=True):
    data: RevisionData | None = None


class KubeVirtSpec(View, frozen=True):
    configuration: dict[str, Any] | None = None


class KubeVirtStatus(View, frozen=True):
    phase: str | None = None
    default_architecture: str | None = None
    observed_kube_virt_version: str | None = None
    target_kube_virt_version: str | None = None
    operator_version: str | None = None


class KubeVirt(Object, frozen=True):
    spec: KubeVirtSpec | None = None
    status: KubeVirtStatus | None = None


class UnstructuredVm(Unstructured, frozen=True):
    """A VM for the same rules, with the record of who wrote which field."""

    metadata: OwnedMeta | None = None

    def _plain_metadata(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self.meta, builtin_types=(msgspec.Raw,))
        plain.pop("managedFields", None)
        return plain


class StartedStatus(View, frozen=True):
    created: bool | None = None


class StartedVm(Object, frozen=True):
    """A VM as a list shows which ones have a VMI."""

    status: StartedStatus | None = None

    @property
    def has_started(self) -> bool:
        return bool(self.status and self.status.created)
