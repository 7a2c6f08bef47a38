"""Views of Kubernetes objects: only the fields that we read, decoded in one pass by msgspec.

A view is not a model. Everything else in the object is skipped while decoding, which is what makes a 20 KB pod cost
microseconds, and it never comes back out: patches name paths, views are never serialised into objects. Every field
may be absent or null, as Kubernetes allows; a value of another type is a `msgspec.ValidationError` with its path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from webhook import names


class View(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Base of all views: camelCase on the wire, immutable, invisible to the cyclic collector (trees have no cycles)."""


class OwnerReference(View, frozen=True):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None

    @property
    def group(self) -> str:
        """The API group; the version says nothing (old owners still read ``kubevirt.io/v1alpha3``)."""
        group, slash, _ = (self.api_version or "").partition("/")
        return group if slash else ""


class ObjectMeta(View, frozen=True):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    def label(self, key: str) -> str | None:
        return self.labels.get(key) if self.labels else None

    def annotation(self, key: str) -> str | None:
        return self.annotations.get(key) if self.annotations else None

    def controller_owner(self) -> OwnerReference | None:
        """The owner reference with ``controller: true``; Kubernetes allows at most one."""
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None


NO_META: Final = ObjectMeta()


class OwnedMeta(ObjectMeta, frozen=True):
    """Metadata with the record of who wrote which field, not decoded: few reviews need it."""

    managed_fields: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Object(View, frozen=True):
    """What every object has; a view of a kind adds its own ``spec``."""

    metadata: ObjectMeta | None = None

    @property
    def meta(self) -> ObjectMeta:
        return self.metadata or NO_META


class SpreadExpression(View, frozen=True):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class SpreadSelector(View, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[SpreadExpression] | None = None


class SpreadConstraint(View, frozen=True):
    """A topology spread constraint, whole: whether it is the injected one depends on every field."""

    max_skew: int | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None
    label_selector: SpreadSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class PodSpec(View, frozen=True):
    scheduler_name: str | None = None
    node_name: str | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None


class Pod(Object, frozen=True):
    spec: PodSpec | None = None


class DeleteOptions(View, frozen=True):
    dry_run: list[str] | None = None


class Eviction(Object, frozen=True):
    """What is posted to ``pods/eviction``; its name is the pod's."""

    delete_options: DeleteOptions | None = None

    @property
    def dry_run(self) -> bool:
        """Whether its own options say that nothing shall happen; the request's may say so instead."""
        return "All" in ((self.delete_options.dry_run if self.delete_options else None) or ())


class NodeAffinityTerms(View, frozen=True):
    node_selector_terms: list[dict[str, Any]] | None = None


class PodNodeAffinity(View, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeAffinityTerms | None = None


class PodAffinity(View, frozen=True):
    node_affinity: PodNodeAffinity | None = None


class TargetPodSpec(View, frozen=True):
    node_selector: dict[str, str] | None = None
    affinity: PodAffinity | None = None


class TargetPod(Object, frozen=True):
    """A migration's target pod, with the terms of its required node affinity as plain JSON."""

    spec: TargetPodSpec | None = None

    @property
    def terms(self) -> list[dict[str, Any]] | None:
        """Without any, nothing matches; None: every node does."""
        node = self.spec.affinity.node_affinity if self.spec and self.spec.affinity else None
        required = node.required_during_scheduling_ignored_during_execution if node else None
        return (required.node_selector_terms or []) if required else None


class PodCondition(View, frozen=True):
    type: str | None = None


class PodStatus(View, frozen=True):
    phase: str | None = None
    conditions: list[PodCondition] | None = None
    nominated_node_name: str | None = None


class PodVolume(View, frozen=True):
    persistent_volume_claim: Any = None
    ephemeral: Any = None


class PendingPodSpec(PodSpec, frozen=True):
    """With all that keeps a live scheduler from writing a condition into a pod (kube-scheduler 1.34 to 1.36).

    ``PreEnqueue`` holds pods back for gates, claims and groups: plugins SchedulingGates, DynamicResources,
    GangScheduling, DefaultPreemption. ``PreBind`` waits for the volumes of claims (plugin VolumeBinding).
    """

    scheduling_gates: list[Any] | None = None
    resource_claims: list[Any] | None = None
    scheduling_group: Any = None
    workload_ref: Any = None
    volumes: list[PodVolume] | None = None

    @property
    def is_gated(self) -> bool:
        """Whether a scheduler may leave the pod aside for as long as anything else lasts."""
        held = (self.scheduling_gates, self.resource_claims, self.scheduling_group, self.workload_ref)
        return any(each not in (None, []) for each in held)

    @property
    def has_claims(self) -> bool:
        """Whether a scheduler may wait for volumes before it binds the pod."""
        return any((volume.persistent_volume_claim, volume.ephemeral) != (None, None) for volume in self.volumes or ())


class PendingPod(Object, frozen=True):
    """A pod as the scheduler's guard watches it."""

    spec: PendingPodSpec | None = None
    status: PodStatus | None = None

    @property
    def looked_at(self) -> bool:
        """Whether a scheduler, or the API server for a gated pod, has written a ``PodScheduled`` condition."""
        status = self.status
        if status is None:
            return False
        return bool(status.nominated_node_name) or any(
            condition.type == "PodScheduled" for condition in status.conditions or ()
        )

    @property
    def unnoticed(self) -> bool:
        """Whether the pod waits for a scheduler that has not looked at it.

        A scheduler passes over a pod that is being deleted; one with a node needs none.
        """
        return not (self.looked_at or self.meta.deletion_timestamp or (self.spec and self.spec.node_name))


class ActiveStatus(View, frozen=True):
    active_pods: dict[str, str] | None = None


class ActiveVmi(Object, frozen=True):
    """A VMI as its pods are checked against it: virt-controller lists them by UID in the status."""

    status: ActiveStatus | None = None

    @property
    def active_pods(self) -> dict[str, str]:
        return (self.status.active_pods if self.status else None) or {}


class Matcher(View, frozen=True):
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
    instancetype: Matcher | None = None
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


class Namespace(Object, frozen=True):
    pass


class KubeVirtSpec(View, frozen=True):
    configuration: dict[str, Any] | None = None


class KubeVirtStatus(View, frozen=True):
    phase: str | None = None
    default_architecture: str | None = None


class KubeVirt(Object, frozen=True):
    spec: KubeVirtSpec | None = None
    status: KubeVirtStatus | None = None


class Whole(Object, frozen=True):
    """An object for the rules that know whole objects: all but the metadata is plain JSON, not to be changed."""

    api_version: str | None = None
    kind: str | None = None
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None
    data: dict[str, Any] | None = None

    def plain(self) -> dict[str, Any]:
        """The object as plain JSON; its ``spec``, ``status`` and ``data`` are shared, its metadata what we read."""
        known = {"apiVersion": self.api_version, "kind": self.kind, "metadata": self._plain_metadata()}
        rest = {"spec": self.spec, "status": self.status, "data": self.data}
        return known | {name: value for name, value in rest.items() if value is not None}

    def _plain_metadata(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self.meta)
        return plain


class WholeVm(Whole, frozen=True):
    """A VM for the same rules, with the record of who wrote which field."""

    metadata: OwnedMeta | None = None

    def _plain_metadata(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self.meta, builtin_types=(msgspec.Raw,))
        plain.pop("managedFields", None)
        return plain


class Taint(View, frozen=True):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSpec(View, frozen=True):
    taints: list[Taint] | None = None
    unschedulable: bool | None = None


class NodeStatus(View, frozen=True):
    allocatable: dict[str, str | int | float | None] | None = None


class Node(Object, frozen=True):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class StoredMeta(ObjectMeta, frozen=True):
    generation: int | None = None


class Stored(Whole, frozen=True):
    """The same as `Whole` of an object that the API server has stored, which counts its changes."""

    metadata: StoredMeta | None = None


class StartedStatus(View, frozen=True):
    created: bool | None = None


class StartedVm(Object, frozen=True):
    """A VM as a list shows which ones have a VMI."""

    status: StartedStatus | None = None

    @property
    def started(self) -> bool:
        return bool(self.status and self.status.created)


class LeaseSpec(View, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class Lease(Object, frozen=True):
    spec: LeaseSpec | None = None


class Anything(Object, frozen=True):
    """An object of which only the metadata is read."""


V = TypeVar("V", bound=Object)


class Resource(msgspec.Struct, Generic[V], frozen=True):
    """Where a kind lives in the API, and the view to decode it with.

    Attributes:
        keep: what lists keep of an object, None for nothing; without it the whole view.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    view: type[V]
    keep: Callable[[V], V | None] | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "") -> str:
        """The URL path of the collection (of all namespaces where none is given) or of one object."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{inside}/{self.plural}" + (f"/{name}" if name else "")


NODES: Final = Resource("", "v1", "nodes", "Node", False, Node)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False, Namespace)
PODS: Final = Resource("", "v1", "pods", "Pod", True, PendingPod)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, Lease)
REVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision", True, ControllerRevision)
KUBEVIRTS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "kubevirts", "KubeVirt", True, KubeVirt)
VMIS: Final = Resource(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, VirtualMachineInstance
)
ACTIVE_VMIS: Final = Resource(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, ActiveVmi
)
INSTANCETYPES: Final = Resource(
    names.INSTANCETYPE_GROUP, "v1beta1", "virtualmachineinstancetypes", "VirtualMachineInstancetype", True, Instancetype
)
CLUSTER_INSTANCETYPES: Final = Resource(
    names.INSTANCETYPE_GROUP,
    "v1beta1",
    "virtualmachineclusterinstancetypes",
    "VirtualMachineClusterInstancetype",
    False,
    Instancetype,
)

# What we write. Events of this group carry a series, which is what repeats of the same become.
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", True, Anything)
POLICY_REPORTS: Final = Resource("wgpolicyk8s.io", "v1alpha2", "policyreports", "PolicyReport", True, Anything)

# As the look-out for objects that passed us by reads them.
WHOLE_PODS: Final = Resource("", "v1", "pods", "Pod", True, Whole)
WHOLE_VMS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "virtualmachines", "VirtualMachine", True, Whole)
WHOLE_VMIS: Final = Resource(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, Whole
)

# As the parity watch reads them.
STARTED_VMS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "virtualmachines", "VirtualMachine", True, StartedVm)
STORED_VMS: Final = Resource(names.KUBEVIRT_GROUP, "v1", "virtualmachines", "VirtualMachine", True, Stored)
STORED_VMIS: Final = Resource(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance", True, Stored
)


def _whole(group: str, version: str, plural: str, kind: str, *, namespaced: bool) -> Resource[Whole]:
    return Resource(group, version, plural, kind, namespaced, Whole)


# What sizes VMIs by their labels.
PRESETS: Final = _whole(
    names.KUBEVIRT_GROUP, "v1", "virtualmachineinstancepresets", "VirtualMachineInstancePreset", namespaced=True
)

# What KubeVirt's rules look up, by kind.
WHOLE: Final = {
    resource.kind: resource
    for resource in (
        _whole("apps", "v1", "controllerrevisions", "ControllerRevision", namespaced=True),
        *(
            _whole(names.INSTANCETYPE_GROUP, "v1beta1", f"{kind.lower()}s", kind, namespaced="Cluster" not in kind)
            for kind in (
                "VirtualMachineInstancetype",
                "VirtualMachineClusterInstancetype",
                "VirtualMachinePreference",
                "VirtualMachineClusterPreference",
            )
        ),
    )
}
