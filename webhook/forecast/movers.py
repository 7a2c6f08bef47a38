"""The VMs that need another node: what each requires, takes and prefers there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from webhook import names
from webhook.admission.step_budget import spend
from webhook.facts import Facts, Key, ListKey, ObjectKey, from_memory
from webhook.forecast.snapshot import PlannedCluster, namespaced_name
from webhook.k8s.resources import NamespacedName
from webhook.k8s.types.meta import ObjectMeta, OwnerReference
from webhook.k8s.types.scheduling import Affinity, NodeAffinity, PodAffinity, TopologySpreadConstraint
from webhook.k8s.types.selectors import IN
from webhook.placement import requirements
from webhook.placement.additions import PodAdditions
from webhook.placement.demand import MEMORY_OVERHEAD, NO_LOAD, load_of, load_of_target
from webhook.placement.groups import GROUP_LABEL, GroupPlacement
from webhook.placement.machines import (
    JOB_NAME,
    JOB_UID,
    LAUNCHER_PODS,
    MIGRATIONS,
    LauncherPod,
    PlacedVmiSpec,
    Vmi,
    entries_of,
)
from webhook.placement.nodes import CPU, HOSTNAME, MEMORY, POD_SLOTS
from webhook.placement.pod_rules import PodInfo, preferences_of, rules_of, spread_of_services
from webhook.placement.profiles import IMAGES, Profile, profile_of
from webhook.placement.quota import NO_USAGE, PodUsage, usage_of
from webhook.placement.requirements import Origin
from webhook.placement.running_pods import RunningPod, bound_info
from webhook.placement.scores import Load, preferred_terms
from webhook.placement.simulate import UNKNOWN_IMAGE, SimulatedPod
from webhook.placement.target_pods import NODE_SELECTOR_ANNOTATION
from webhook.policies.common import migration_targets

# virt-controller writes it into VMIs whose launcher has another image than it would use (setLauncherContainerInfo).
OUTDATED: Final = "kubevirt.io/outdatedLauncherImage"
# Of the pod that attaches hotplugged volumes, by default (KubeVirt, hotplugContainerRequests): 10m and 2M.
ATTACHMENT: Final = Load.of({POD_SLOTS: 1, CPU: 10, MEMORY: 2_000_000})


class Mover(msgspec.Struct, frozen=True):
    """A VM that needs another node.

    Attributes:
        pod: the target pod, with what the pod takes that attaches hotplugged volumes.
        source: the pod that it runs in now, with those that attach its volumes; None: it is not known.
        usage: what the target pod counts for in the namespace's quotas.
        scheduled: what kube-scheduler chooses a node by, where that is not all: the target pod alone. KubeVirt makes
            the other pod, for that node, once the target pod runs.
        group: that of the VM, with its rules; None: it is in none.
    """

    vmi: Vmi
    requirements: requirements.Requirements
    pod: SimulatedPod
    usage: PodUsage
    source: SimulatedPod | None = None
    gaps: tuple[str, ...] = ()
    scheduled: Mover | None = None
    group: GroupPlacement | None = None

    @property
    def requests(self) -> dict[str, int]:
        """What it takes of a node, by resource, in kube-scheduler's unit."""
        return self.pod.requests

    @property
    def key(self) -> NamespacedName:
        """The VM's namespace and name."""
        return namespaced_name(self.vmi)

    @property
    def memory(self) -> int:
        """What the target pod requests, in bytes; huge pages where its guest has them."""
        requests = (self.scheduled or self).requests
        pages = sum(amount for name, amount in requests.items() if name.startswith("hugepages-"))
        return requests.get(MEMORY, 0) + pages


class EquivalenceClasses:
    """What pods request and target pods require, computed once for all that are alike.

    A VM and its pod are reduced to what `migration_targets.of` depends on, so that nothing else can get into its
    answer, and the answer is kept by their JSON. The first node with the same labels of KubeVirt's, and as much that is
    allocatable, stands for the VM's own.

    Args:
        cluster: its VMs, pods and nodes.
        renews_launchers: whether target pods have another launcher image than all pods that run now.

    Attributes:
        unknown_launchers: the VMs whose target pods have a launcher image that is not known, and that is scored.
    """

    def __init__(self, cluster: PlannedCluster, *, renews_launchers: bool = False) -> None:
        self.cluster: Final = cluster
        self.unknown_launchers: Final[set[NamespacedName]] = set()
        self._launcher_image: Final = UNKNOWN_IMAGE if renews_launchers else _launcher_image(cluster)
        self._renews_launchers: Final = renews_launchers
        self._targets: Final[dict[bytes, tuple[migration_targets.Target, dict[str, int], int]]] = {}
        self._starts: Final[dict[bytes, tuple[migration_targets.Target, dict[str, int]]]] = {}
        self._pods: Final[dict[NamespacedName, SimulatedPod]] = {}
        self._loads: Final[dict[bytes, Load]] = {}
        self._nodes: Final[dict[bytes, str]] = {}
        self._like: Final[dict[str, str]] = {}
        self._namespaces: Final[dict[bytes, str]] = {}

    def load_of(self, pod: LauncherPod) -> Load:
        """What a pod takes of its node."""
        spec = pod.spec
        key = _encode((spec.containers, spec.init_containers, spec.resources, spec.overhead) if spec else None)
        load = self._loads.get(key)
        if load is None:
            load = self._loads[key] = load_of(spec)
        return load

    def target_of(self, vmi: Vmi) -> tuple[migration_targets.Target, dict[str, int]]:
        """The target of a migration of a VM, which is on a node, and what its pod requests."""
        meta, name, devices, pod = vmi.meta, vmi.node_name, vmi.domain.devices, self.cluster.pod_of(vmi)
        added = self._added(pod) if pod else None
        several = len(self.cluster.launchers.get(meta.uid or "", ())) > 1
        if several or added or (devices and devices.reserves_persistently):
            # It depends on other pods, which move, or on a migration of its own.
            target = from_memory(migration_targets.of(vmi, meta.namespace or "", self._facts(self.cluster.peek)))
            return target, _requested_by(target)
        # Which namespaces a group spans, the settings say by their names.
        is_grouped = meta.label(GROUP_LABEL) is not None
        selecting = meta.namespace or "" if is_grouped else self._namespace_like(meta.namespace or "")
        owner = pod.meta.controller_owner() if pod and pod.meta.namespace == meta.namespace else None
        if owner is None or owner.uid != meta.uid:
            pod = None
        node = self._node_like(name)
        reduced, alone = _reduce_vmi(vmi, node), pod and _reduce_pod(pod, node, is_orphan=added is None)
        key = _encode((selecting, reduced, alone))
        if key not in self._targets:
            facts = self._facts(partial(self._peek, alone))
            target = from_memory(migration_targets.of(reduced, selecting, facts))
            kinds = list(map(type, target.requirements))
            self._targets[key] = target, _requested_by(target), kinds.index(requirements.Elsewhere)
        target, requests, at = self._targets[key]
        own = self.cluster.index.get(name)
        elsewhere = requirements.Elsewhere(Origin.SOURCE_NODE, name, own.labels.get(HOSTNAME, "") if own else "")
        required = (*target.requirements[:at], elsewhere, *target.requirements[at + 1 :])
        return replace(target, vmi=vmi, requirements=required, pod=pod), requests

    def start_of(self, vmi: Vmi, pod: LauncherPod | None) -> tuple[migration_targets.Target, dict[str, int]]:
        """The target of a start, and what the pod requests: as `migration_targets.of_start`, which has the arguments.

        All that it depends on stays as it is in a plan, but the pods with the same reservation.
        """
        namespace = vmi.meta.namespace or ""
        devices, added = vmi.domain.devices, self._added(pod) if pod else None
        if added or (devices and devices.reserves_persistently):
            target = from_memory(migration_targets.of_start(vmi, pod, namespace, self._facts(self.cluster.peek)))
            return target, _requested_by(target)
        selecting = self._namespace_like(namespace)
        reduced = replace(_reduce_vmi(vmi, ""), status=vmi.status)
        alone = pod and _reduce_pod(pod, "", is_orphan=added is None)
        key = _encode((selecting, reduced, alone))
        if key not in self._starts:
            facts = self._facts(partial(self._peek, alone))
            target = from_memory(migration_targets.of_start(reduced, alone, selecting, facts))
            self._starts[key] = target, _requested_by(target)
        target, requests = self._starts[key]
        return replace(target, vmi=vmi, pod=pod), requests

    def target_pod(self, vmi: Vmi) -> SimulatedPod:
        """The target pod of a VM, without what it takes: what no migration changes."""
        key = namespaced_name(vmi)
        if key not in self._pods:
            self._pods[key] = self.launcher_pod(vmi, self.cluster.pod_of(vmi))
        return self._pods[key]

    def launcher_pod(self, vmi: Vmi, pod: RunningPod | None) -> SimulatedPod:
        """The next pod of a VM, without what it takes.

        Args:
            vmi: the VM.
            pod: the pod that it runs in, to which webhooks may have added; None: not known, or it says nothing.
        """
        spec, namespace, namespaces = vmi.spec or PlacedVmiSpec(), vmi.meta.namespace or "", self.cluster.labels
        own = pod.spec if pod else None
        labels = {**((pod.meta.labels if pod else None) or {}), **(vmi.meta.labels or {})}
        # A webhook may have added constraints to the pod of a VM that has none, and a scheduler.
        spread = _terms(spec.topology_spread_constraints or (own.topology_spread_constraints if own else None))
        profile = profile_of(self.cluster.objects.profiles, self.cluster.scheduler_of(vmi, pod))
        rules = rules_of(spec.affinity, spread, namespace, labels, namespaces)
        preferences = preferences_of(spec.affinity, spread, namespace, labels, namespaces)
        services = self.cluster.services.get(namespace)
        if services and not spread and profile.spreads_services:
            spend(len(services), "Services of pods")
            preferences = spread_of_services(preferences, namespace, labels, services)
        return SimulatedPod(
            PodInfo(namespace, labels, rules, preferences),
            NO_LOAD,
            tuple(each for each in spec.tolerations or () if each),
            preferred_terms(spec.affinity),
            self._images(vmi, pod, profile) if pod else (),
            pod.image_volumes if pod else (),
            profile,
        )

    def _images(self, vmi: Vmi, pod: RunningPod, profile: Profile) -> tuple[str, ...]:
        """Those of the target pod of a VM that runs in a pod: KubeVirt makes it with its launcher of then."""
        own = pod.launcher_image
        if not own or not (self._renews_launchers or vmi.meta.label(OUTDATED) is not None):
            return pod.images
        if self._launcher_image == UNKNOWN_IMAGE and profile.weight(IMAGES):
            self.unknown_launchers.add(namespaced_name(vmi))
        return tuple(self._launcher_image if image == own else image for image in pod.images)

    def running(self, pod: LauncherPod) -> SimulatedPod:
        """A pod that runs. Of its rules, only those count that are about others: anti-affinity, and what pulls them."""
        return SimulatedPod(bound_info(pod, self.cluster.labels), self.load_of(pod))

    def _added(self, pod: LauncherPod) -> dict[str, str] | None:
        """What the migration has added that made a pod, if any has; None: it is gone."""
        name = pod.meta.annotation(JOB_NAME)
        if not name:
            return {}
        migration = self.cluster.migrations.get((pod.meta.namespace or "", name))
        gone = migration is None or migration.meta.uid != pod.meta.label(JOB_UID)
        return None if gone or migration is None else migration.added_selector

    def _peek(self, pod: LauncherPod | None, key: Key[Any]) -> object:
        """The facts of a reduced VM: its pod, and no migration."""
        if isinstance(key, ListKey) and key.resource is LAUNCHER_PODS:
            return (pod,) if pod else ()
        return None if isinstance(key, ObjectKey) and key.resource is MIGRATIONS else self.cluster.peek(key)

    def _facts(self, peek: Callable[[Key[Any]], object]) -> Facts:
        return Facts(peek=peek, additions=self.cluster.additions)

    def _namespace_like(self, name: str) -> str:
        """The first namespace on which targets depend in the same way; empty: they depend on nothing of it."""
        namespace, settings = self.cluster.namespaces.get(name), self.cluster.objects.settings
        if namespace is None or namespace.meta.annotation(NODE_SELECTOR_ANNOTATION):
            return name if namespace else ""
        if settings is None:
            return ""
        alike = (name in settings.every_excluded_namespace, _own_entries(namespace.meta))
        return self._namespaces.setdefault(_encode(alike), name)

    def _node_like(self, name: str) -> str:
        like = self._like.get(name)
        if like is None:
            node = self.cluster.index.get(name)
            labels = [each for each in sorted(node.labels.items()) if _KUBEVIRT in each[0]] if node else name
            alike = _encode((labels, node and (bool(node.labels), node.allocatable)))
            like = self._like[name] = self._nodes.setdefault(alike, name)
        return like


def _launcher_image(cluster: PlannedCluster) -> str:
    """The image of most launcher pods that are not outdated, which KubeVirt makes target pods with."""
    current = (vmi for vmi in cluster.vmis.values() if vmi.node_name and vmi.meta.label(OUTDATED) is None)
    pods = filter(None, map(cluster.pod_of, current))
    counts = Counter(filter(None, (pod.launcher_image for pod in pods)))
    return counts.most_common(1)[0][0] if counts else UNKNOWN_IMAGE


# Of a reduced VM and its pod.
_UID: Final = "vm"
_GONE: Final = "gone"
_KUBEVIRT: Final = "kubevirt.io/"
_OURS: Final = f"{names.DOMAIN}/"
_encode: Final = msgspec.json.Encoder().encode


def _own_entries(meta: ObjectMeta) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The labels and annotations that are kubevirt-webhook's."""
    labels, annotations = (sorted((written or {}).items()) for written in (meta.labels, meta.annotations))
    return [each for each in labels if _OURS in each[0]], [each for each in annotations if _OURS in each[0]]


def _reduce_vmi(vmi: Vmi, node: str) -> Vmi:
    spec = vmi.spec and replace(
        vmi.spec, volumes=None, eviction_strategy=None, topology_spread_constraints=None, scheduler_name=None
    )
    status = vmi.status and type(vmi.status)(
        changed_block_tracking=vmi.status.changed_block_tracking,
        node_name=node,
        machine=vmi.status.machine,
        topology_hints=vmi.status.topology_hints,
    )
    labels, annotations = map(dict, _own_entries(vmi.meta))
    return Vmi(ObjectMeta(uid=_UID, labels=labels, annotations=annotations), spec, status)


def _reduce_pod(pod: LauncherPod, node: str, *, is_orphan: bool) -> LauncherPod:
    """The pod that a VM runs in, without what it is near to; ``is_orphan``: the migration that made it is gone."""
    kept = entries_of(pod.meta.annotations, MEMORY_OVERHEAD, names.INJECTED_TOLERATIONS_ANNOTATION)
    annotations = kept | ({JOB_NAME: _GONE} if is_orphan else {})
    meta = ObjectMeta(annotations=annotations, owner_references=[OwnerReference(uid=_UID, controller=True)])
    spec = pod.spec and replace(pod.spec, node_name=node, affinity=None, topology_spread_constraints=None)
    return LauncherPod(meta, spec)


def _requested_by(target: migration_targets.Target) -> dict[str, int]:
    required = (each for each in target.requirements if isinstance(each, requirements.Allocatable))
    return {each.resource: each.amount for each in required}


def mover_of(vmi: Vmi, classes: EquivalenceClasses, source: SimulatedPod | None) -> Mover:
    """What the next target pod of a VM requires.

    Args:
        vmi: the VM.
        classes: the VMs that are alike, of the cluster.
        source: the pod that it runs in now, with those that attach its volumes; None: not known.
    """
    namespace, cluster = vmi.meta.namespace or "", classes.cluster
    target, requests = classes.target_of(vmi)
    has_quotas = namespace in cluster.quotas
    facts = Facts(peek=cluster.peek)
    usage = from_memory(migration_targets.usage(target, namespace, facts)) if has_quotas else NO_USAGE
    required = (*target.requirements, *reachable(vmi, cluster, hotplugged=False))
    present = cluster.pod_of(vmi)
    load = load_of_target(requests, classes.load_of(present) if present else None)
    target_pod = with_additions(replace(classes.target_pod(vmi), load=load), target.additions.next)
    if group := target.additions.next.group:
        # VMs that must be together follow the first one that moves, which may go anywhere: here they prefer to.
        together = group.together and replace(group.together, required=False)
        target_pod = in_group(target_pod, replace(group, vmi=vmi.meta.uid or "", together=together), cluster)
    gaps = (*target.gaps, *profile_gaps(target_pod))
    launcher = Mover(vmi, required, target_pod, usage, source, gaps, group=target.additions.next.group)
    if not vmi.attached_volumes:
        return launcher
    attachments = cluster.attachments.get(namespaced_name(present), ()) if present else ()
    attachment = max(attachments, key=lambda pod: pod.meta.creation_timestamp or "", default=None)
    attached = classes.load_of(attachment) if attachment else ATTACHMENT
    required = (*required, *reachable(vmi, cluster, hotplugged=True))
    if has_quotas:
        own = {name: amount for name, amount in attached.requests.items() if name != POD_SLOTS}
        own_usage = usage_of(attachment, own, cluster.limit_ranges.get(namespace, ()))
        usage = replace(usage, amounts=add_amounts(usage.amounts, own_usage.amounts))
    both = replace(target_pod, load=load + attached)
    return replace(launcher, requirements=required, pod=both, usage=usage, scheduled=launcher)


def with_additions(pod: SimulatedPod, additions: PodAdditions) -> SimulatedPod:
    """The pod with what policies add of tolerations and preferences."""
    if not (additions.tolerations or additions.preferred):
        return pod
    preferred = preferred_terms(Affinity(NodeAffinity(preferred=[*additions.preferred])))
    return replace(pod, tolerations=(*pod.tolerations, *additions.tolerations), preferred=(*pod.preferred, *preferred))


def in_group(pod: SimulatedPod, group: GroupPlacement, cluster: PlannedCluster) -> SimulatedPod:
    """The pod with the rules of its VM's group about other pods."""
    added = Affinity(
        pod_affinity=PodAffinity(group.required_terms(group.together), group.preferred_terms(group.together)),
        pod_anti_affinity=PodAffinity(group.required_terms(group.apart), group.preferred_terms(group.apart)),
    )
    info = pod.info
    place = info.namespace, info.labels, cluster.labels
    rules, preferences = rules_of(added, (), *place), preferences_of(added, (), *place)
    more = replace(
        info.rules,
        affinity=(*info.rules.affinity, *rules.affinity),
        anti_affinity=(*info.rules.anti_affinity, *rules.anti_affinity),
    )
    own = info.preferences
    preferred = replace(own, near=(*own.near, *preferences.near), pulls=(*own.pulls, *preferences.pulls))
    return replace(pod, info=replace(info, rules=more, preferences=preferred))


def profile_gaps(pod: SimulatedPod) -> Iterator[str]:
    """What of a pod's scheduler is not known, clauses."""
    if pod.profile.assumed:
        yield f"the profile of its scheduler: {pod.profile.assumed}"
    if unknown := pod.profile.unknown:
        yield f"these parts of its scheduler's profile: {', '.join(unknown)}"


def add_amounts(*several: Mapping[str, int]) -> dict[str, int]:
    """The sums of amounts."""
    return dict(sum(map(Counter, several), Counter()))


def after_migration(mover: Mover, node: str, cluster: PlannedCluster) -> tuple[Vmi, RunningPod | None]:
    """The VM and its pod as they are after a migration."""
    vmi = moved(mover.vmi, node)
    pod = cluster.pod_of(mover.vmi)
    if pod is None or pod.spec is None:
        return vmi, pod
    # KubeVirt keeps the labels of the first host's CPU from the selector of one target pod to the next. What a policy
    # adds is not KubeVirt's, and is added anew.
    listed = (each for each in mover.requirements if isinstance(each, requirements.Label))
    labels = [each.expression for each in listed if each.origin != Origin.DEFAULT]
    required = {each.key: each.values[0] for each in labels if each.operator == IN}
    spec = replace(pod.spec, node_name=node, node_selector={**pod.node_selector, **required})
    return vmi, replace(pod, spec=spec)


def moved(vmi: Vmi, node: str) -> Vmi:
    """A VM after a migration, which ends the evacuation that it may have been for."""
    status = vmi.status and replace(vmi.status, node_name=node, evacuation_node_name=None, migration_state=None)
    return replace(vmi, status=status)


def reachable(vmi: Vmi, cluster: PlannedCluster, *, hotplugged: bool) -> tuple[requirements.Reachable, ...]:
    """Where the VM's volumes can be used: those of the launcher pod, or the hotplugged ones beside it."""
    attached = vmi.attached_volumes
    volumes = [each for each in (vmi.spec.volumes if vmi.spec else None) or () if each]
    claims = {each.name or "": each.claim for each in volumes if (each.name in attached) == hotplugged}
    return reachable_claims(claims, vmi.meta.namespace or "", cluster)


def reachable_claims(
    claims: Mapping[str, str], namespace: str, cluster: PlannedCluster
) -> tuple[requirements.Reachable, ...]:
    """Where the PersistentVolumes of claims can be used, by the volumes that have these claims."""
    found = []
    for volume, name in claims.items():
        claim = cluster.claims.get((namespace, name)) if name else None
        persistent = cluster.volumes.get(claim.volume) if claim else None
        if persistent and persistent.terms:
            found.append(requirements.Reachable(requirements.Origin.VOLUMES, persistent.terms, volume))
    return tuple(found)


def _terms(written: Any) -> list[TopologySpreadConstraint | None]:
    if not written:
        return []
    try:
        return msgspec.convert(written, list[TopologySpreadConstraint | None], from_attributes=True)
    except msgspec.ValidationError:
        return []
