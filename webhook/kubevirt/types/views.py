"""Views of KubeVirt's objects: only the fields that policies and look-ups read."""

from __future__ import annotations

from typing import Any

from webhook.k8s.types.core import LocalObjectReference
from webhook.k8s.types.meta import Object, OwnedMeta, Unstructured, View
from webhook.k8s.types.scheduling import TopologySpreadConstraint


class ActiveStatus(View, frozen=True):
    """``status`` of a VMI, as far as it names the VMI's pods."""

    active_pods: dict[str, str] | None = None


class ActiveVmi(Object, frozen=True):
    """A VMI as its pods are checked against it: virt-controller lists them by UID in the status."""

    status: ActiveStatus | None = None

    @property
    def active_pods(self) -> dict[str, str]:
        """The name of the node by the UID of each launcher pod; empty before the first one."""
        return (self.status.active_pods if self.status else None) or {}


class MatcherView(View, frozen=True):
    """``spec.instancetype`` or ``spec.preference`` of a VM."""

    name: str | None = None
    kind: str | None = None
    revision_name: str | None = None
    infer_from_volume: str | None = None


class TemplateMeta(View, frozen=True):
    """``spec.template.metadata`` of a VirtualMachine."""

    # The CRD has no schema for it (x-kubernetes-preserve-unknown-fields), so values may be of any type.
    annotations: dict[str, Any] | None = None

    def annotation(self, key: str) -> str | None:
        """The text of an annotation; None where the template has none, or a value of another type."""
        value = self.annotations.get(key) if self.annotations else None
        return value if isinstance(value, str) else None


class VmiSpec(View, frozen=True):
    """``spec`` of a VirtualMachineInstance, as far as the scheduling policy reads it."""

    scheduler_name: str | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None


class TemplateSpec(View, frozen=True):
    """``spec.template.spec`` of a VirtualMachine, as far as the scheduling policy reads it."""

    scheduler_name: str | None = None
    # Plain JSON, for what is the owner's of it is written back as it was.
    topology_spread_constraints: list[dict[str, Any]] | None = None


class VmTemplate(View, frozen=True):
    """``spec.template`` of a VirtualMachine."""

    metadata: TemplateMeta | None = None
    spec: TemplateSpec | None = None


class VmSpec(View, frozen=True):
    """``spec`` of a VirtualMachine, as far as the scheduling policy reads it."""

    instancetype: MatcherView | None = None
    template: VmTemplate | None = None


class StatusRef(View, frozen=True):
    """``status.instancetypeRef`` of a VirtualMachine."""

    controller_revision_ref: LocalObjectReference | None = None


class VmStatus(View, frozen=True):
    """``status`` of a VirtualMachine, as far as it pins an instancetype."""

    instancetype_ref: StatusRef | None = None


class VirtualMachine(Object, frozen=True):
    """A VirtualMachine (kubevirt.io/v1), as the scheduling policy reads it."""

    metadata: OwnedMeta | None = None
    spec: VmSpec | None = None
    status: VmStatus | None = None

    @property
    def template(self) -> VmTemplate | None:
        """``spec.template``; None where the VM has none."""
        return self.spec.template if self.spec else None

    @property
    def scheduler_name(self) -> str:
        """What the template chooses; an empty or null name equals an absent one."""
        template = self.template
        return (template.spec.scheduler_name if template and template.spec else None) or ""


class VirtualMachineInstance(Object, frozen=True):
    """A VirtualMachineInstance (kubevirt.io/v1), as the scheduling policy reads it."""

    spec: VmiSpec | None = None

    @property
    def scheduler_name(self) -> str:
        """What the owner chose, ``""`` for nothing: the CRD has no default, so an explicit default is visible."""
        return (self.spec.scheduler_name if self.spec else None) or ""


class InstancetypeSpec(View, frozen=True):
    """``spec`` of an instancetype of either scope, as far as it conflicts with a scheduler."""

    scheduler_name: str | None = None


class Instancetype(Object, frozen=True):
    """VirtualMachineInstancetype or VirtualMachineClusterInstancetype."""

    spec: InstancetypeSpec | None = None


class RevisionData(View, frozen=True):
    """``data`` of a ControllerRevision: the instancetype or preference that virt-controller captured."""

    kind: str | None = None
    spec: InstancetypeSpec | None = None
    api_version: str | None = None


class ControllerRevision(Object, frozen=True):
    """A ControllerRevision (apps/v1), in which virt-controller keeps the instancetype of a VM that has started."""

    data: RevisionData | None = None


class WorkloadUpdateStrategy(View, frozen=True):
    """``spec.workloadUpdateStrategy`` of a KubeVirt object; the interval is a duration as Go writes it."""

    workload_update_methods: list[str] | None = None
    batch_eviction_size: int | None = None
    batch_eviction_interval: str | None = None


class KubeVirtSpec(View, frozen=True):
    """``spec`` of a KubeVirt object, its configuration as plain JSON."""

    configuration: dict[str, Any] | None = None
    workload_update_strategy: WorkloadUpdateStrategy | None = None


class KubeVirtStatus(View, frozen=True):
    """``status`` of a KubeVirt object, with the versions by which its release is detected."""

    phase: str | None = None
    default_architecture: str | None = None
    observed_kube_virt_version: str | None = None
    target_kube_virt_version: str | None = None
    operator_version: str | None = None


class KubeVirt(Object, frozen=True):
    """A KubeVirt object (kubevirt.io/v1): the cluster's installation and its configuration."""

    spec: KubeVirtSpec | None = None
    status: KubeVirtStatus | None = None

    @property
    def is_in_use(self) -> bool:
        """Whether KubeVirt's operator has taken the object up; KubeVirt ignores the configuration of any other."""
        return bool(self.status and self.status.phase)

    @property
    def versions(self) -> tuple[str, str, str]:
        """The versions by which `webhook.kubevirt.releases.release.detect` finds the release, in its order."""
        status = self.status or KubeVirtStatus()
        return (
            status.observed_kube_virt_version or "",
            status.target_kube_virt_version or "",
            status.operator_version or "",
        )


class UnstructuredVm(Unstructured, frozen=True):
    """A VirtualMachine as plain JSON for KubeVirt's rules, with the record of who wrote which field."""

    metadata: OwnedMeta | None = None


class StartedStatus(View, frozen=True):
    """``status`` of a VirtualMachine, as far as it shows whether a VMI exists."""

    created: bool | None = None


class StartedVm(Object, frozen=True):
    """A VM as a list shows which ones have a VMI."""

    status: StartedStatus | None = None

    @property
    def has_started(self) -> bool:
        """Whether the VM's VMI exists, as virt-controller reports it."""
        return bool(self.status and self.status.created)
