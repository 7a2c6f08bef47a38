"""Finding a node for each of several VMs at once, so that no node gets more than it has room for.

There are two ways to fill nodes. As kube-scheduler's scores do it, each VM goes where most memory is free. Tightly, the
VMs that have least choice and are largest go first, each to the node that it fills best: where only that finds room for
all, kube-scheduler may leave a VM without a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from webhook.facts import Facts, Key, ListKey, ObjectKey, from_memory
from webhook.forecast.pods import Neighbors, PodConstraints, PodInfo, rules_of
from webhook.forecast.snapshot import ClusterSnapshot, Place, place_of
from webhook.k8s.quantity import nanos
from webhook.k8s.types.core import NodeWithoutImages
from webhook.k8s.types.meta import ObjectMeta, OwnerReference
from webhook.k8s.types.scheduling import TopologySpreadConstraint
from webhook.k8s.types.selectors import IN
from webhook.placement import requirements
from webhook.placement.demand import MEMORY_OVERHEAD, count_units, pod_requests
from webhook.placement.eligibility import Eligibility
from webhook.placement.index import NodeIndex, NumberIndex
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
from webhook.placement.nodes import (
    CPU,
    HOSTNAME,
    MEMORY,
    NOT_REPORTED,
    bitset_union,
    parse_allocatable,
    to_scheduler_units,
)
from webhook.placement.quota import NO_USAGE, PodUsage, usage_of
from webhook.placement.requirements import Origin
from webhook.placement.target_pods import NODE_SELECTOR_ANNOTATION
from webhook.policies.common import migration_targets

PODS: Final = "pods"
# As elsewhere, what a kubelet has not reported is never a reason against its node.
_PLENTY: Final = 2**63 - 1

# Of the pod that attaches hotplugged volumes, by default (KubeVirt, hotplugContainerRequests): 10m and 2M.
_ATTACHMENT: Final = {PODS: 1, CPU: 10, MEMORY: 2_000_000}

# Amounts by resource, in kube-scheduler's unit; with `PODS`, each pod is one.
Amounts = dict[str, int]


class Candidates(msgspec.Struct, frozen=True):
    """The nodes for one VM at one moment.

    Attributes:
        room: the nodes that have enough free, as a bitset.
        apart: what other pods keep it from, each with the nodes, as a bitset.
    """

    eligibility: Eligibility
    room: int
    apart: tuple[tuple[str, int], ...]

    @property
    def nodes(self) -> int:
        """The nodes that it can go to now, as a bitset."""
        return self.eligibility.bitset & self.room & ~self.forbidden

    @property
    def forbidden(self) -> int:
        """The nodes that other pods keep it from, as a bitset."""
        return bitset_union(nodes for _, nodes in self.apart)


def offers_of(node: NodeWithoutImages) -> Amounts:
    """What pods could request of the whole node."""
    listed = node.allocatable
    pods = listed.get(PODS)
    amount = None if pods is None else nanos(pods)
    most = _PLENTY if amount is None else to_scheduler_units(PODS, amount)
    return {**NOT_REPORTED, **parse_allocatable(listed), PODS: most}


class Packer:
    """Places VMs on nodes and takes them off again.

    The free amounts of all nodes are kept sorted, so that the nodes with enough are found without a look at each.

    Args:
        index: the nodes' positions.
        offers: what each node could give, by its name.
        neighbors: the pods on them.
    """

    def __init__(self, index: NodeIndex, offers: Mapping[str, Amounts], neighbors: Neighbors) -> None:
        self._index: Final = index
        self._neighbors: Final = neighbors
        self._free: Final[dict[int, Amounts]] = {}
        self._levels: Final[dict[str, NumberIndex]] = {}
        for name, amounts in offers.items():
            if (position := index.position(name)) is not None:
                self._free[position] = dict(amounts)
                for resource, amount in amounts.items():
                    if resource not in self._levels:
                        self._levels[resource] = NumberIndex()
                    self._levels[resource].flip(amount, 1 << position)

    def candidates(self, mover: Mover, eligibility: Eligibility) -> Candidates:
        """Where a VM can go now; ``eligibility`` has the nodes by its requirements."""
        apart, room = tuple(self._apart(mover, eligibility)), -1
        for resource, amount in mover.requests.items():
            room &= self.with_enough(resource, amount)
        return Candidates(eligibility, room, apart)

    def fits(self, mover: Mover, eligibility: Eligibility, position: int) -> bool:
        """Whether a VM can go to one eligible node now."""
        free = self._free.get(position, {})
        if any(free.get(resource, 0) < amount for resource, amount in mover.requests.items()):
            return False
        return not any(nodes >> position & 1 for _, nodes in self._apart(mover, eligibility))

    def has_capacity(self, position: int, requests: Amounts, freed: Iterable[Amounts]) -> bool:
        """Whether a node has enough free for requests once some pods are gone, whatever rules there are."""
        free = Counter(self._free.get(position, {}))
        for amounts in freed:
            free.update({name: amount for name, amount in amounts.items() if name in free})
        return all(free.get(resource, 0) >= amount for resource, amount in requests.items())

    def _apart(self, mover: Mover, eligibility: Eligibility) -> Iterator[tuple[str, int]]:
        """What other pods keep a VM from, each with the nodes, as a bitset."""
        unmatched = untolerated = 0
        for failure in eligibility.failures if mover.pod.rules.spread else ():
            required = failure.requirement
            if isinstance(required, requirements.Untainted | requirements.Uncordoned):
                untolerated |= failure.nodes
            elif isinstance(required, requirements.Label | requirements.OneOf):
                unmatched |= 0 if isinstance(required, requirements.Reachable) else failure.nodes
        return self._neighbors.excluded_nodes(mover.pod, ~unmatched, ~untolerated)

    def pack(self, movers: Iterable[tuple[Mover, Eligibility]], rounds: int, *, tightly: bool) -> dict[Place, int]:
        """The positions of nodes by the VMs' places, for VMs in their order; some find none.

        Those that find none try again after the others, at most so many rounds.
        """
        waiting = list(movers)
        placed: dict[Place, int] = {}
        for _ in range(rounds):
            left = []
            for mover, eligibility in waiting:
                nodes = eligibility.bitset and self.candidates(mover, eligibility).nodes
                if not nodes:
                    left.append((mover, eligibility))
                    continue
                placed[mover.place] = position = self.choose(nodes, mover.requests, tightly=tightly)
                self.place(mover, position)
            if not left or len(left) == len(waiting):
                break
            waiting = left
        return placed

    def place_all(self, vms: Iterable[tuple[Mover, Eligibility]], placed: dict[Place, int], *, number: int = 1) -> None:
        """Place VMs again on the nodes that they have been taken off, or with -1 take them off."""
        for mover, _ in vms:
            if (position := placed.get(mover.place)) is not None:
                self.place(mover, position, number)

    def place(self, mover: Mover, position: int, number: int = 1) -> None:
        """Move a VM to a node, where it no longer takes anything of the one that it leaves, or with -1 back."""
        source = self._index.position(mover.vmi.node_name)
        self.take(position, mover.requests, number)
        self._neighbors.add(mover.pod, position, number)
        if source is not None:
            self.take(source, mover.held, -number)
            if mover.source is not None:
                self._neighbors.add(mover.source, source, -number)

    def with_enough(self, resource: str, amount: int) -> int:
        """The nodes that have so much of one resource free, as a bitset."""
        levels = self._levels.get(resource)
        return levels.nodes & ~levels.below(amount) if levels else 0

    def take(self, position: int, requests: Mapping[str, int], number: int = 1) -> None:
        """Bind a pod to a node, or with -1 remove it."""
        free = self._free.get(position, {})
        bit = 1 << position
        # A pod that was bound before its device was taken out requests what the node no longer has.
        for resource, amount in requests.items():
            if (before := free.get(resource)) is not None:
                after = free[resource] = before - number * amount
                self._levels[resource].flip(before, bit)
                self._levels[resource].flip(after, bit)

    def choose(self, candidates: int, requests: Mapping[str, int], *, tightly: bool) -> int:
        """The position of a candidate for a pod.

        Tightly, it is the one with the least free memory, so that large gaps stay for large VMs; else the one with the
        most: about what kube-scheduler's scores prefer.
        """
        levels = self._levels[MEMORY]
        for nodes in levels.ascending(requests.get(MEMORY, -_PLENTY)) if tightly else levels.descending():
            if matches := nodes & candidates:
                return (matches & -matches).bit_length() - 1
        raise ValueError("no candidate has any memory")


class Mover(msgspec.Struct, frozen=True):
    """A VM that needs another node.

    Attributes:
        requests: what it takes of that: the target pod, and the pod that attaches hotplugged volumes.
        source: the pod that it runs in now; None: it is not known.
        usage: what the target pod counts for in the namespace's quotas.
        held: what it takes of the node that it is on.
        scheduled: what kube-scheduler chooses a node by, where that is not all: the target pod alone. KubeVirt makes
            the other pod, for that node, once the target pod runs.
    """

    vmi: Vmi
    requirements: requirements.Requirements
    requests: Amounts
    pod: PodInfo
    usage: PodUsage
    source: PodInfo | None = None
    gaps: tuple[str, ...] = ()
    held: Amounts = {}
    scheduled: Mover | None = None

    @property
    def place(self) -> Place:
        """The VM's namespace and name."""
        return place_of(self.vmi)

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
        snapshot: the cluster.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot: Final = snapshot
        self._targets: Final[dict[bytes, tuple[migration_targets.Target, Amounts, int]]] = {}
        self._pods: Final[dict[Place, PodInfo]] = {}
        self._requests: Final[dict[bytes, Amounts]] = {}
        self._nodes: Final[dict[bytes, str]] = {}
        self._like: Final[dict[str, str]] = {}

    def requests_of(self, pod: LauncherPod) -> Amounts:
        """What a pod takes of its node."""
        spec = pod.spec
        key = _encode((spec.containers, spec.init_containers, spec.resources, spec.overhead) if spec else None)
        requests = self._requests.get(key)
        if requests is None:
            counted = count_units(pod_requests(spec)) if spec else {}
            requests = {PODS: 1, **{name: amount for name, amount in counted.items() if amount > 0}}
            self._requests[key] = requests
        return requests

    def target_of(self, vmi: Vmi) -> tuple[migration_targets.Target, Amounts]:
        """The target of a migration of a VM, which is on a node, and what its pod takes of a node."""
        meta, name, devices, pod = vmi.meta, vmi.node_name, vmi.domain.devices, self.snapshot.pod_of(vmi)
        added = self._added(pod) if pod else None
        several = len(self.snapshot.launchers.get(meta.uid or "", ())) > 1
        if several or added or (devices and devices.reserves_persistently):
            # It depends on other pods, which move, or on a migration of its own.
            target = from_memory(migration_targets.of(vmi, meta.namespace or "", Facts(peek=self.snapshot.peek)))
            return target, _taken_by(target)
        namespace = self.snapshot.namespaces.get(meta.namespace or "")
        place = meta.namespace or "" if namespace and namespace.meta.annotation(NODE_SELECTOR_ANNOTATION) else ""
        owner = pod.meta.controller_owner() if pod and pod.meta.namespace == meta.namespace else None
        if owner is None or owner.uid != meta.uid:
            pod = None
        node = self._node_like(name)
        reduced, alone = _reduce_vmi(vmi, node), pod and _reduce_pod(pod, node, is_orphan=added is None)
        key = _encode((place, reduced, alone))
        if key not in self._targets:
            target = from_memory(migration_targets.of(reduced, place, Facts(peek=partial(self._peek, alone))))
            kinds = list(map(type, target.requirements))
            self._targets[key] = target, _taken_by(target), kinds.index(requirements.Elsewhere)
        target, requests, at = self._targets[key]
        own = self.snapshot.index.get(name)
        elsewhere = requirements.Elsewhere(Origin.SOURCE_NODE, name, own.labels.get(HOSTNAME, "") if own else "")
        required = (*target.requirements[:at], elsewhere, *target.requirements[at + 1 :])
        return replace(target, vmi=vmi, requirements=required, pod=pod), requests

    def target_pod(self, vmi: Vmi) -> PodInfo:
        """The target pod of a VM, by its labels and rules, which no migration changes."""
        place = place_of(vmi)
        if place not in self._pods:
            spec, pod, namespaces = vmi.spec or PlacedVmiSpec(), self.snapshot.pod_of(vmi), self.snapshot.labels
            labels = {**((pod.meta.labels if pod else None) or {}), **(vmi.meta.labels or {})}
            # A webhook may have added constraints to the pod of a VM that has none.
            own = pod.spec.topology_spread_constraints if pod and pod.spec else None
            spread = _terms(spec.topology_spread_constraints or own)
            rules = rules_of(spec.affinity, spread, place[0], labels, namespaces)
            self._pods[place] = PodInfo(place[0], labels, rules)
        return self._pods[place]

    def _added(self, pod: LauncherPod) -> dict[str, str] | None:
        """What the migration has added that made a pod, if any has; None: it is gone."""
        name = pod.meta.annotation(JOB_NAME)
        if not name:
            return {}
        migration = self.snapshot.migrations.get((pod.meta.namespace or "", name))
        gone = migration is None or migration.meta.uid != pod.meta.label(JOB_UID)
        return None if gone or migration is None else migration.added_selector

    def _peek(self, pod: LauncherPod | None, key: Key[Any]) -> object:
        """The facts of a reduced VM: its pod, and no migration."""
        if isinstance(key, ListKey) and key.resource is LAUNCHER_PODS:
            return (pod,) if pod else ()
        return None if isinstance(key, ObjectKey) and key.resource is MIGRATIONS else self.snapshot.peek(key)

    def _node_like(self, name: str) -> str:
        like = self._like.get(name)
        if like is None:
            node = self.snapshot.index.get(name)
            labels = [each for each in sorted(node.labels.items()) if _KUBEVIRT in each[0]] if node else name
            alike = _encode((labels, node and (bool(node.labels), node.allocatable)))
            like = self._like[name] = self._nodes.setdefault(alike, name)
        return like


# Of a reduced VM and its pod.
_UID: Final = "vm"
_GONE: Final = "gone"
_KUBEVIRT: Final = "kubevirt.io/"
_encode: Final = msgspec.json.Encoder().encode


def _reduce_vmi(vmi: Vmi, node: str) -> Vmi:
    spec = vmi.spec and replace(vmi.spec, volumes=None, eviction_strategy=None, topology_spread_constraints=None)
    status = vmi.status and type(vmi.status)(
        changed_block_tracking=vmi.status.changed_block_tracking,
        node_name=node,
        machine=vmi.status.machine,
        topology_hints=vmi.status.topology_hints,
    )
    return Vmi(ObjectMeta(uid=_UID), spec, status)


def _reduce_pod(pod: LauncherPod, node: str, *, is_orphan: bool) -> LauncherPod:
    """The pod that a VM runs in, without what it is near to; ``is_orphan``: the migration that made it is gone."""
    annotations = entries_of(pod.meta.annotations, MEMORY_OVERHEAD) | ({JOB_NAME: _GONE} if is_orphan else {})
    meta = ObjectMeta(annotations=annotations, owner_references=[OwnerReference(uid=_UID, controller=True)])
    spec = pod.spec and replace(pod.spec, node_name=node, affinity=None, topology_spread_constraints=None)
    return LauncherPod(meta, spec)


def _taken_by(target: migration_targets.Target) -> Amounts:
    """What a target pod takes of its node."""
    required = (each for each in target.requirements if isinstance(each, requirements.Allocatable))
    return {PODS: 1, **{each.resource: each.amount for each in required}}


def mover_of(vmi: Vmi, classes: EquivalenceClasses, held: Amounts, source: PodInfo | None) -> Mover:
    """What the next target pod of a VM requires.

    Args:
        vmi: the VM.
        classes: the VMs that are alike, of the cluster.
        held: what it takes of the node that it is on.
        source: the pod that it runs in now; None: not known.
    """
    namespace, snapshot = vmi.meta.namespace or "", classes.snapshot
    target, requests = classes.target_of(vmi)
    has_quotas = namespace in snapshot.quotas
    facts = Facts(peek=snapshot.peek)
    usage = from_memory(migration_targets.usage(target, namespace, facts)) if has_quotas else NO_USAGE
    required = (*target.requirements, *_reachable(vmi, snapshot, hotplugged=False))
    launcher = Mover(vmi, required, requests, classes.target_pod(vmi), usage, source, target.gaps, held)
    if not vmi.attached_volumes:
        return launcher
    pod = snapshot.pod_of(vmi)
    attachments = snapshot.attachments.get(place_of(pod), ()) if pod else ()
    attachment = max(attachments, key=lambda pod: pod.meta.creation_timestamp or "", default=None)
    attached = classes.requests_of(attachment) if attachment else _ATTACHMENT
    required = (*required, *_reachable(vmi, snapshot, hotplugged=True))
    both = add_amounts(launcher.requests, attached)
    if has_quotas:
        own = {name: amount for name, amount in attached.items() if name != PODS}
        own_usage = usage_of(attachment, own, snapshot.limit_ranges.get(namespace, ()))
        usage = replace(usage, amounts=add_amounts(usage.amounts, own_usage.amounts))
    return replace(launcher, requirements=required, requests=both, usage=usage, scheduled=launcher)


def add_amounts(*several: Amounts) -> Amounts:
    """The sums of amounts."""
    return dict(sum(map(Counter, several), Counter()))


def pod_info_of(pod: LauncherPod, namespaces: Mapping[str, Mapping[str, str]]) -> PodInfo:
    """A pod that runs. Of its rules, only anti-affinity still counts."""
    namespace, labels = pod.meta.namespace or "", pod.meta.labels or {}
    affinity = pod.spec.affinity if pod.spec else None
    if affinity is None or affinity.pod_anti_affinity is None:
        return PodInfo(namespace, labels)
    own = rules_of(affinity, (), namespace, labels, namespaces)
    return PodInfo(namespace, labels, PodConstraints(anti_affinity=own.anti_affinity))


def after_migration(mover: Mover, node: str, snapshot: ClusterSnapshot) -> tuple[Vmi, LauncherPod | None]:
    """The VM and its pod as they are after a migration."""
    vmi = moved(mover.vmi, node)
    pod = snapshot.pod_of(mover.vmi)
    if pod is None or pod.spec is None:
        return vmi, pod
    # KubeVirt keeps the labels of the first host's CPU from the selector of one target pod to the next.
    labels = [each.expression for each in mover.requirements if isinstance(each, requirements.Label)]
    required = {each.key: each.values[0] for each in labels if each.operator == IN}
    spec = replace(pod.spec, node_name=node, node_selector={**pod.node_selector, **required})
    return vmi, replace(pod, spec=spec)


def moved(vmi: Vmi, node: str) -> Vmi:
    """A VM after a migration, which ends the evacuation that it may have been for."""
    status = vmi.status and replace(vmi.status, node_name=node, evacuation_node_name=None, migration_state=None)
    return replace(vmi, status=status)


def _reachable(vmi: Vmi, snapshot: ClusterSnapshot, *, hotplugged: bool) -> tuple[requirements.Reachable, ...]:
    """Where the VM's volumes can be used: those of the launcher pod, or the hotplugged ones beside it."""
    reachable, attached = [], vmi.attached_volumes
    for each in (vmi.spec.volumes if vmi.spec else None) or ():
        is_asked = each is not None and ((each.name in attached) == hotplugged)
        claim = snapshot.claims.get((vmi.meta.namespace or "", each.claim)) if each and is_asked else None
        volume = snapshot.volumes.get(claim.volume) if claim else None
        if each and volume and volume.terms:
            reachable.append(requirements.Reachable(requirements.Origin.VOLUMES, volume.terms, each.name or ""))
    return tuple(reachable)


def _terms(written: Any) -> list[TopologySpreadConstraint | None]:
    if not written:
        return []
    try:
        return msgspec.convert(written, list[TopologySpreadConstraint | None], from_attributes=True)
    except msgspec.ValidationError:
        return []
