"""Pods as headroom counts them: what each takes, where it may be, and whether it starts anew once its node is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec
from cachetools import LRUCache
from msgspec.structs import replace

from webhook import names
from webhook.errors import quote
from webhook.k8s.resources import NamespacedName
from webhook.k8s.types.core import ContainerRequests, ResourceRequirements
from webhook.k8s.types.meta import Object
from webhook.k8s.types.selectors import IN, Term
from webhook.kubevirt.run_strategy import ALWAYS, HALTED, RERUN_ON_FAILURE, StartedVm
from webhook.placement.groups import CREATED_BY, parse, required_labels
from webhook.placement.machines import JOB_UID, LauncherPodSpec
from webhook.placement.nodes import CPU, EPHEMERAL_STORAGE, HUGEPAGES, MEMORY
from webhook.placement.pod_rules import PodInfo, PodSelector
from webhook.placement.profiles import SHIPPED_PROFILES
from webhook.placement.quota import NO_USAGE, PodUsage, usage_of
from webhook.placement.requirements import Label, OneOf, Requirement, Requirements
from webhook.placement.running_pods import RunningPod, incoming
from webhook.placement.simulate import SimulatedPod
from webhook.placement.target_pods import is_sticky_label, own_requirements

_Container = TypeVar("_Container", bound=ContainerRequests)

# Controllers whose pods end with their nodes.
_OF_NODES: Final = ("DaemonSet", "Node")


class PlacedPod(msgspec.Struct, frozen=True):
    """A pod that takes room, or will.

    Attributes:
        vm: the name of the VM that runs in it; empty: none does.
        vmi: the UID of its VirtualMachineInstance; empty: it has none.
        node: where it is bound; empty: nowhere yet.
        simulated: the pod that starts in its place once its node is lost.
        requirements: what that pod requires of nodes.
        of_group: those of them that its VM's group has added, for a pod without a node.
        is_recreated: whether a controller creates another one in its place, for a pod without a VM.
        is_complex: whether it has more than is evaluated: tenants write it. Then it counts by what it requests alone.
        usage: what it counts for in quotas, of a VM.
    """

    name: NamespacedName
    vm: str
    vmi: str
    node: str
    simulated: SimulatedPod
    requirements: Requirements
    priority: int = 0
    is_recreated: bool = False
    is_complex: bool = False
    usage: PodUsage = NO_USAGE
    of_group: tuple[Label, ...] = ()

    @property
    def of_vm(self) -> NamespacedName:
        """Namespace and name of its VM."""
        return self.name[0], self.vm

    @property
    def turn(self) -> tuple[int, bool, NamespacedName]:
        """Sorts pods that start anew as the scheduler's queue does, the highest priority first, and VMs by name.

        Of equal priority, other controllers create theirs at once; KubeVirt first has to delete the VMI that failed.
        """
        return -self.priority, bool(self.vm), self.of_vm if self.vm else self.name

    @property
    def turn_by_size(self) -> tuple[int, bool, int, NamespacedName]:
        """As `turn`, the smallest VMs first, which leaves least for large ones."""
        requests = self.simulated.requests
        pages = sum(amount for name, amount in requests.items() if name.startswith(HUGEPAGES))
        priority, is_vm, name = self.turn
        return priority, is_vm, requests.get(MEMORY, 0) + pages, name

    def wants(self, other: PlacedPod) -> bool:
        """Whether its rules want it near another pod, or spread with it."""
        rules = self.simulated.info.rules
        return any(map(other.simulated.info.meets, (*rules.affinity, *(each.near for each in rules.spread))))


class KnownVm(msgspec.Struct, frozen=True):
    """A VirtualMachine.

    Attributes:
        strategy: its run strategy.
        is_stopped: whether it is not to run: it is halted, or being deleted.
        is_denied: whether its last start was denied for want of headroom, as its conditions say.
    """

    strategy: str
    is_stopped: bool = False
    is_denied: bool = False

    @property
    def restarts(self) -> bool:
        """Whether KubeVirt starts it again once its node is lost."""
        return not self.is_stopped and self.strategy in (ALWAYS, RERUN_ON_FAILURE)


class KeptPod(Object, frozen=True):
    """What an informer keeps of a pod."""

    placed: PlacedPod | None = None


class KeptVm(Object, frozen=True):
    """What an informer keeps of a VirtualMachine."""

    known: KnownVm | None = None


def read_pod(pod: RunningPod) -> PlacedPod | None:
    """A pod, as it counts; None: it has ended, and takes nothing any more."""
    if pod.is_over:
        return None
    meta, spec, launcher = pod.meta, pod.spec, pod.launcher
    owner = meta.controller_owner()
    is_vm = owner is not None and owner.kind == "VirtualMachineInstance" and owner.group == names.KUBEVIRT_GROUP
    # The API server checks no names of owners.
    is_vm = is_vm and owner is not None and max(len(owner.name or ""), len(owner.uid or "")) <= _LONGEST_NAME
    is_complex = _is_long(pod)
    if not is_complex:
        simulated, required = _placement(pod, is_target=is_vm and meta.label(JOB_UID) is not None)
        is_complex = _is_complex(simulated, required)
    if is_complex:
        pod = _by_requests(pod)
        simulated, required = _placement(pod, is_target=False)[0], ()
    recreated = not is_vm and owner is not None and owner.kind not in _OF_NODES and not launcher
    return PlacedPod(
        (meta.namespace or "", meta.name or ""),
        (owner.name or "") if is_vm and owner else "",
        (owner.uid or "") if is_vm and owner else "",
        pod.node_name,
        simulated,
        _shared(required),
        (spec.priority if spec else None) or 0,
        recreated,
        is_complex,
        usage_of(pod, simulated.requests, ()) if is_vm else NO_USAGE,
        () if pod.node_name or is_complex else _of_group(pod),
    )


def _placement(pod: RunningPod, *, is_target: bool) -> tuple[SimulatedPod, Requirements]:
    """The pod that starts in the place of one, and what it requires of nodes.

    Args:
        pod: the pod.
        is_target: whether a migration has made it.
    """
    fresh = replace(pod, metadata=replace(pod.meta, deletion_timestamp=None))
    # No node's images are read.
    simulated = replace(incoming(fresh, {}, SHIPPED_PROFILES), images=(), image_volumes=())
    required: Requirements = tuple(own_requirements(pod.spec)) if pod.spec else ()
    if is_target:
        return _without_migration(simulated), tuple(filter(_is_of_start, required))
    return simulated, required


def _of_group(pod: RunningPod) -> tuple[Label, ...]:
    """What the annotation says that the group of a pod's VM requires of nodes; owners may write anything there."""
    placement = parse(pod.meta.annotation(names.INJECTED_GROUP_ANNOTATION))
    if placement is None or not placement.nodes or len(placement.nodes.labels) > _MOST_RULES:
        return ()
    source = f"group {quote(placement.group)}"
    return tuple(replace(each, source=source) for each in required_labels(placement))


def read_vm(vm: StartedVm) -> KnownVm:
    """A VirtualMachine, as it counts."""
    conditions = (vm.status.conditions if vm.status else None) or ()
    is_denied = any(_DENIED in (each.message or "") for each in conditions if each)
    stopped = vm.run_strategy == HALTED or vm.meta.deletion_timestamp is not None
    return KnownVm(vm.run_strategy, stopped, is_denied)


# All that is limited here is what tenants write, and what headroom keeps of each pod, or looks up for it.
# What of a pod's metadata and spec says where it may be, as JSON. Those that people write have some 2 KB.
_MOST_BYTES: Final = 32 * 1024
_MOST_LABELS: Final = 128
# The largest VM that KubeVirt's CRDs admit has 514.
_MOST_CONTAINERS: Final = 600
# Different ones, and which of them count where there are more: those that kubelets have by themselves.
_MOST_RESOURCES: Final = 64
_OF_KUBELETS: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, f"{HUGEPAGES}2Mi", f"{HUGEPAGES}1Gi")
_LONGEST_NAME: Final = 253
# Rules of a pod about other pods and about nodes that it prefers, and its tolerations and labels that it requires of
# nodes. KubeVirt itself writes a handful, and some dozens for a CPU model.
_MOST_RULES: Final = 16
_MOST_REQUIREMENTS: Final = 256
# Terms of its node affinity, required or preferred, with their expressions and values.
_MOST_LISTED: Final = 512
# Namespaces times values by which its rules mean other pods: so many entries are kept of them.
_MOST_MEANT: Final = 256
# How a denial of this policy begins, as KubeVirt repeats it in a condition.
_DENIED: Final = "kubevirt-webhook (headroom)"


def _is_long(pod: RunningPod) -> bool:
    """Whether a pod has so much that only its requests are read: to read all of it takes up to half a second."""
    meta, spec = pod.meta, pod.spec or LauncherPodSpec()
    if len(_containers(spec)) > _MOST_CONTAINERS or _has_many_resources(spec):
        return True
    group = meta.annotation(names.INJECTED_GROUP_ANNOTATION)
    placed = (spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints)
    return size_of((meta.labels, group, placed)) > _MOST_BYTES


def _containers(spec: LauncherPodSpec) -> list[ContainerRequests | None]:
    return [*(spec.containers or ()), *(spec.init_containers or ())]


def _has_many_resources(spec: LauncherPodSpec) -> bool:
    owners = (spec.resources, *(each.resources for each in _containers(spec) if each))
    lists = (listed for each in owners if each for listed in (each.requests, each.limits) if listed)
    return len(set().union(*lists)) > _MOST_RESOURCES


def size_of(what: object) -> int:
    """How many bytes something takes as JSON."""
    return len(msgspec.json.encode(what, enc_hook=str))


def _by_requests(pod: RunningPod) -> RunningPod:
    """A pod without anything but what its containers request, and without more of these than are read."""
    spec = pod.spec
    if spec is not None:
        few = _has_many_resources(spec)
        spec = replace(
            spec,
            node_selector=None,
            affinity=None,
            tolerations=None,
            topology_spread_constraints=None,
            containers=_first(spec.containers, few=few),
            init_containers=_first(spec.init_containers, few=few),
            resources=_of_kubelets(spec.resources) if few else spec.resources,
        )
    return replace(pod, metadata=replace(pod.meta, labels=None), spec=spec)


def _first(containers: Sequence[_Container | None] | None, *, few: bool) -> list[_Container | None]:
    first = (containers or ())[:_MOST_CONTAINERS]
    return [replace(each, resources=_of_kubelets(each.resources)) if each and few else each for each in first]


def _of_kubelets(resources: ResourceRequirements | None) -> ResourceRequirements | None:
    if resources is None:
        return None
    requests, limits = (
        {name: listed[name] for name in _OF_KUBELETS if name in listed} if listed else listed
        for listed in (resources.requests, resources.limits)
    )
    return ResourceRequirements(requests, limits)


def _is_complex(pod: SimulatedPod, required: Requirements) -> bool:
    rules, preferences = pod.info.rules, pod.info.preferences
    if len(pod.info.labels) > _MOST_LABELS:
        return True
    between = (rules.affinity, rules.anti_affinity, rules.spread, preferences.near, preferences.pulls)
    if sum(map(len, between)) + len(preferences.spread) + len(pod.preferred) > _MOST_RULES:
        return True
    if len(pod.tolerations) + len(required) > _MOST_REQUIREMENTS:
        return True
    alternatives = (term for each in required if isinstance(each, OneOf) for term in each.terms)
    if sum(map(_listed, (*alternatives, *(term for term, _ in pod.preferred)))) > _MOST_LISTED:
        return True
    return meant_by(pod.info) > _MOST_MEANT


def _listed(term: Term) -> int:
    """A term of node affinity with its expressions and their values."""
    return 1 + sum(1 + len(each.values) for each in (*term.expressions, *term.fields))


def meant_by(pod: PodInfo) -> int:
    """How many entries the rules of a pod take, at least about as many as `RuleIndex` keeps of them."""
    rules, preferences = pod.rules, pod.preferences
    constraints = (each.near for each in (*rules.spread, *preferences.spread))
    weighted = (near for near, _ in (*preferences.near, *preferences.pulls))
    terms = (*rules.affinity, *rules.anti_affinity, *constraints, *weighted)
    return sum(_meant(selector) for near in terms for selector in near.selectors)


def _meant(selector: PodSelector) -> int:
    """How many entries, or comparisons, a selector takes, at least about as many as `RuleIndex` keeps of it."""
    values = sum(max(len(each.values), 1) for each in selector.expressions or ())
    return max(len(selector.namespaces or ()), 1) * max(values, 1)


def _is_of_start(required: Requirement) -> bool:
    """Whether a VM's next start requires something too; what a migration has it take over from its host it does not."""
    return not (isinstance(required, Label) and is_sticky_label(required.expression.key))


def _without_migration(pod: SimulatedPod) -> SimulatedPod:
    """A target pod without the rule by which KubeVirt keeps it away from the pod that the VM leaves."""
    rules = pod.info.rules
    kept = tuple(
        near
        for near in rules.anti_affinity
        if not any(
            (each.key, each.operator) == (CREATED_BY, IN)
            for selector in near.selectors
            for each in selector.expressions or ()
        )
    )
    info: PodInfo = replace(pod.info, rules=replace(rules, anti_affinity=kept))
    return replace(pod, info=info)


# Those of the last pods, as JSON in bytes; in memory they take up to ten times as many.
_SHARED: Final[LRUCache[Requirements, Requirements]] = LRUCache(4 * 2**20, size_of)


def _shared(requirements: Requirements) -> Requirements:
    """The requirements, as the object that equal ones were before: thousands of pods have the same."""
    return _SHARED.setdefault(requirements, requirements)
