"""The plan of a loss of nodes: which VMs start again, which do not, and what would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

from msgspec.structs import replace

from webhook.admission.step_budget import StepBudget, TooComplex
from webhook.errors import InputError, quote
from webhook.forecast import loss_report, report
from webhook.forecast.drain import MAX_STEPS, attaching, with_spare
from webhook.forecast.loss_report import LossPlan, SpareNode, StartPlan, WaitingPod
from webhook.forecast.losses import Left, Losses, Outcome, Placement, TieBreak
from webhook.forecast.preemption import Occupant, Victims
from webhook.forecast.report import PreemptedPod, Remedy
from webhook.forecast.snapshot import ClusterObjects, namespaced_name
from webhook.forecast.starts import POD, VM, Key, Start
from webhook.k8s.resources import NamespacedName
from webhook.k8s.types.core import NodeWithoutImages
from webhook.placement.eligibility import Group
from webhook.placement.nodes import CORDON, CPU, MEMORY, Departure, bitset_positions, format_amount
from webhook.placement.pod_rules import MOST_RULES
from webhook.placement.requirements import Origin
from webhook.placement.simulate import MOST_SIZES, FilterResult
from webhook.policies.common.openings import change_of
from webhook.text import abbreviate, pluralize

_MOST_CHANGES: Final = 10
_MOST_UNCORDONED: Final = 3
_MOST_TIES: Final = 20
# Parts of the nodes that were named are lost alone, to say which are enough.
_MOST_PARTS: Final = 200
_NOT_LOOKED_AT: Final = (
    "whether fewer of the nodes are enough to leave VMs down, beyond the {parts} of them that could be looked at"
)
_FEW: Final = 5
_GONE: Final = (
    "The nodes are gone: deleted, or tainted with node.kubernetes.io/out-of-service. Until then their pods stay"
    " Terminating, and no VM of theirs starts elsewhere."
)
_IN_ORDER: Final = (
    "Pods are created in the order of their priority, those of other controllers first, and VMs by name. KubeVirt has"
    " no order; the plan says what differs if the smallest VMs start first."
)
_BY_SCORES: Final = (
    "Each pod goes where its scheduler's scores send it. Of nodes that tie, and of more than 100 nodes, kube-scheduler"
    " may choose others than the plan."
)
ASSUMPTIONS: Final = (
    _GONE,
    _IN_ORDER,
    _BY_SCORES,
    "A VM starts again as it runs now, or as its template is where that has changes that need a restart.",
    "Nothing else in the cluster changes meanwhile: pods that wait for a node already get none before these do.",
    "VMs that nothing starts again need no room; whoever starts them by hand needs it.",
)
_DETACHED: Final = (
    "{vms} a volume that one node at a time can attach (ReadWriteOnce). Kubernetes detaches it from a lost node after"
    " 6 minutes, or at once if the node has the taint node.kubernetes.io/out-of-service; until then the VM waits on its"
    " new node."
)
_UNKNOWN_STRATEGY: Final = "the runStrategy of {vms} without a VirtualMachine that can be read, which counts as Always"
_RESERVING: Final = "whether VMs with the same persistent reservation that start at once keep off each other"
_SHARED: Final = "give the VMs whose volumes only certain nodes reach volumes that others reach, too (ReadWriteMany)"
_BY_CODE: Final = {
    report.QUOTA: "raise the ResourceQuotas",
    report.NO_PRIORITY_CLASS: "create the PriorityClasses that VMs name",
    report.SCHEDULER_DOWN: "start the schedulers that VMs name",
    report.PODS_APART: "relax the rules between pods (affinity, anti-affinity, topology spread) of the VMs that they"
    " keep down",
    report.NO_ATTACHMENT: "unplug the hotplugged volumes that no other node can attach",
    report.NO_VMI: "correct the templates of VMs that KubeVirt makes no VirtualMachineInstance of",
}
# What changes cost, the cheapest first.
_UNCORDON, _OBJECT, _VM, _VOLUME, _NODE = range(5)
_COSTS: Final = {
    _BY_CODE[report.QUOTA]: _OBJECT,
    _BY_CODE[report.NO_PRIORITY_CLASS]: _OBJECT,
    _BY_CODE[report.NO_ATTACHMENT]: _VOLUME,
    _SHARED: _VOLUME,
}


def plan(objects: ClusterObjects, nodes: Sequence[str], tie_break: TieBreak | None = None) -> LossPlan:
    """What the loss of nodes leads to, all at the same time.

    Args:
        objects: the cluster.
        nodes: the nodes that are lost.
        tie_break: chooses one of the nodes that tie for a pod; None: the one with most free memory.

    Raises:
        InputError: a node does not exist or is named twice, or the cluster's objects are too complex.
    """
    existing = {each.meta.name for each in objects.nodes}
    for name, times in Counter(nodes).items():
        if name not in existing:
            raise InputError(f"node {quote(name)} does not exist", fix="kubectl get nodes lists them")
        if times > 1:
            raise InputError(f"node {quote(name)} is named twice", fix="name it once")
    return bounded(lambda budget: _with_smallest(objects, nodes, tie_break, budget), "lose fewer nodes")


def bounded(planning: Callable[[StepBudget], LossPlan], fix: str) -> LossPlan:
    """What a function finds within the steps that a plan may take; an `InputError` with a fix beyond them."""
    budget = StepBudget(MAX_STEPS)
    try:
        return budget.run(planning, budget)
    except TooComplex as error:
        raise InputError(f"{error.what} take more than {MAX_STEPS} steps", "the plan", fix) from None


def _with_smallest(
    objects: ClusterObjects, nodes: Sequence[str], tie_break: TieBreak | None, budget: StepBudget
) -> LossPlan:
    found = planned(objects, nodes, tie_break)
    if not found.waits or len(nodes) == 1:
        return found
    # The plan has lost all nodes twice: no part of them takes more steps than half of the plan.
    if budget.spent >= MAX_STEPS // 2:
        return _with_gap(found, 0)
    losses = Losses(objects, tie_break)
    for number, part in enumerate(_parts(_most_likely_first(found, losses))):
        if number == _MOST_PARTS or budget.spent >= MAX_STEPS // 2:
            return _with_gap(found, number)
        if losses.lose(part, explains=False).waiting_vms:
            return replace(found, smallest=part)
    return found


def _with_gap(found: LossPlan, parts: int) -> LossPlan:
    """A plan that has looked at so many parts of its nodes, of which none is enough, and not at others."""
    return replace(found, gaps=(*found.gaps, _NOT_LOOKED_AT.format(parts=pluralize(parts, "part"))))


def _most_likely_first(plan: LossPlan, losses: Losses) -> list[str]:
    """The nodes of a plan, those first where VMs ran that find no node, and then others that could take these."""
    waiting = {(VM, vm.namespace, vm.name): vm.node for vm in plan.vms if vm.outcome == report.WAITS}
    rank = Counter(waiting.values())
    theirs = {*rank}
    for start in losses.starting(plan.nodes)[0]:
        if start.key in waiting:
            rank.update(name for name in losses.eligibility(start).names() if name in plan.nodes)
    return sorted(plan.nodes, key=lambda name: (name not in theirs, -rank[name], name))


def _parts(nodes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The parts of nodes, but not all of them, the smallest first; of equal ones those of the first nodes."""
    for size in range(1, len(nodes)):
        for last in range(size - 1, len(nodes)):
            for others in combinations(nodes[:last], size - 1):
                yield tuple(sorted((*others, nodes[last])))


def planned(objects: ClusterObjects, nodes: Sequence[str], tie_break: TieBreak | None = None) -> LossPlan:
    """The plan of one loss, of a cluster that is made without the nodes."""
    losses = losses_without(objects, nodes, tie_break)
    outcome = losses.lose(nodes)
    by_size = losses.lose(nodes, by_size=True, explains=False)
    shaky = {key for key in by_size.waiting_vms if key in outcome.placed}
    lucky = {key for key in outcome.waiting_vms if key in by_size.placed}
    vms = tuple(sorted(_vm_plans(losses, outcome, shaky, lucky), key=lambda vm: (vm.namespace, vm.name)))
    waiting = outcome.waiting_vms
    started = [each for key, each in outcome.placed.items() if key[0] == VM]
    changes = _changes(objects, nodes, losses, outcome) if waiting else ()
    return LossPlan(
        schema=loss_report.SCHEMA,
        any_of=0,
        by_zone=False,
        nodes=tuple(nodes),
        starts=len(started),
        waits=len(waiting),
        stays_down=len(outcome.down),
        preempted=sum(len(each.victims.pods) for each in outcome.placed.values() if each.victims),
        other_pods=outcome.others,
        vms=vms,
        waiting_pods=tuple(_waiting_pods(outcome)),
        smallest=(),
        failing=(),
        examined=None,
        changes=changes,
        spare=_spare(objects, nodes, outcome),
        notes=tuple(_notes(losses, outcome)),
        assumptions=ASSUMPTIONS,
        gaps=(*objects.gaps, *gaps_of(losses, nodes)),
    )


def losses_without(objects: ClusterObjects, nodes: Sequence[str], tie_break: TieBreak | None = None) -> Losses:
    """The cluster as if nodes had never been there, but for the pods that they leave."""
    left = tuple(each for each in objects.nodes if each.meta.name not in nodes)
    return Losses(replace(objects, nodes=left), tie_break)


def _vm_plans(losses: Losses, outcome: Outcome, shaky: set[Key], lucky: set[Key]) -> Iterator[StartPlan]:
    for vmi, code, reason in outcome.down:
        key = (VM, *namespaced_name(vmi))
        notes = tuple(outcome.notes.get(key, ()))
        yield StartPlan(*namespaced_name(vmi), outcome.from_where[key], report.DOWN, code, reason, notes=notes)
    for key, left in outcome.left.items():
        if key[0] == VM:
            more = ["if the smallest VMs start first, it finds a node"] if key in lucky else []
            yield _vm_plan(losses, outcome, left.start, left.code, left.reason, more)
    for key, placed in outcome.placed.items():
        if key[0] == VM:
            yield _placed_plan(losses, outcome, placed, is_shaky=key in shaky)


def _vm_plan(
    losses: Losses, outcome: Outcome, start: Start, code: str, reason: str, more: Iterable[str] = ()
) -> StartPlan:
    result = report.WAITS if code in report.CODES[report.WAITS] else report.STARTS
    alone = outcome.alone.get(start.key)
    if start.priority.value > losses.lowest_priority and not start.priority.preempts and result == report.WAITS:
        why = f"its PriorityClass {start.priority.class_name} has the preemptionPolicy Never"
        more = (*more, f"kube-scheduler preempts no pod: {why}")
    return StartPlan(
        *(start.key[1], start.key[2], outcome.from_where[start.key], result, code, reason),
        memory=start.memory,
        eligible=alone.eligibility.count if alone else 0,
        with_room=alone.feasible.bit_count() if alone else 0,
        priority=start.priority.value,
        notes=(*outcome.notes.get(start.key, ()), *start.notes, *more),
        gaps=start.gaps,
    )


def _placed_plan(losses: Losses, outcome: Outcome, placed: Placement, *, is_shaky: bool) -> StartPlan:
    start, node = placed.start, losses.names[placed.position]
    code, reason = report.HAS_ROOM, ""
    preempts: tuple[PreemptedPod, ...] = ()
    if placed.victims:
        preempts = tuple(_preempted(losses, each, placed.victims) for each in placed.victims.pods)
        named = abbreviate([_victim(each) for each in preempts])
        code = report.PREEMPTS
        reason = (
            f"no node has room for it, so kube-scheduler deletes pods on {node} whose priority is lower than"
            f" {start.priority.value}: {named}"
        )
    elif is_shaky:
        code, reason = report.MAY_NOT_START, "if smaller VMs start before it, no node has room for it"
    elif start.vmi and (by_kubelet := start.vmi.cpu.decided_by_kubelet):
        what = " and ".join(by_kubelet)
        code = report.MAY_NOT_FIT
        reason = (
            f"it may not fit, because it has {what}, for which the kubelet decides by NUMA node whether there is room"
        )
    elif start.vmi and (strays := outcome.strays.get(start.key, 0)):
        every = strays | outcome.alone[start.key].feasible
        count = f"{strays.bit_count()} of the {every.bit_count()} nodes with room"
        code = report.MAY_NOT_ATTACH
        reason = f"it may not start, because {attaching(start.vmi)}, and {count} cannot"
    notes = []
    if departure := Departure.of(losses.cluster.views[node]):
        notes.append(f"{node} {departure.clause(losses.cluster.objects.now)}")
    made = _vm_plan(losses, outcome, start, code, reason, notes)
    ties = tuple(losses.names[at] for at in bitset_positions(placed.ties)) if placed.ties & (placed.ties - 1) else ()
    return replace(made, to=node, turn=placed.turn, preempts=preempts, ties=ties[:_MOST_TIES])


def _preempted(losses: Losses, occupant: Occupant, victims: Victims) -> PreemptedPod:
    key = namespaced_name(occupant.pod)
    vmi = losses.carried.get(key)
    return PreemptedPod(*key, occupant.priority, (vmi.meta.name or "") if vmi else "", key in victims.protected)


def _victim(pod: PreemptedPod) -> str:
    what = f"the VM {pod.namespace}/{pod.vm}" if pod.vm else f"pod {pod.namespace}/{pod.name}"
    against = ", against its PodDisruptionBudget" if pod.violates_budget else ""
    return f"{what} (priority {pod.priority}{against})"


def _waiting_pods(outcome: Outcome) -> Iterator[WaitingPod]:
    for key, left in sorted(outcome.left.items()):
        if key[0] == POD:
            owner = left.start.model.meta.controller_owner() if left.start.model else None
            yield WaitingPod(key[1], key[2], f"{owner.kind or ''} {owner.name or ''}" if owner else "", left.reason)


def _notes(losses: Losses, outcome: Outcome) -> Iterator[str]:
    """What else decides over the whole plan, sentences."""
    detached = 0
    for key in (*outcome.placed, *outcome.left):
        start = (outcome.placed.get(key) or outcome.left[key]).start
        volumes = (start.vmi.spec.volumes if start.vmi and start.vmi.spec else None) or ()
        claims = (losses.cluster.claims.get((key[1], each.claim)) for each in volumes if each and each.claim)
        detached += any(claim.is_for_one_node for claim in claims if claim)
    if detached:
        yield _DETACHED.format(vms=f"{pluralize(detached, 'VM')} {'has' if detached == 1 else 'have'}")


def gaps_of(losses: Losses, nodes: Iterable[str]) -> Iterator[str]:
    """What could not be taken into account, clauses."""
    vms = [vmi for name in nodes for vmi in losses.vms.get(name, ())]
    if unknown := sum(map(losses.starts.has_unknown_strategy, vms)):
        yield _UNKNOWN_STRATEGY.format(vms=pluralize(unknown, "VM"))
    if any(vmi.domain.devices and vmi.domain.devices.reserves_persistently for vmi in vms):
        yield _RESERVING
    if left_out := losses.simulation.rules.left_out:
        yield f"{pluralize(left_out, 'rule')} between pods beyond the first {MOST_RULES} about the same pods"
    if losses.simulation.has_sampled:
        yield f"scores of VMs beyond the first {MOST_SIZES} sizes, which are compared among some nodes only"


# -- what would help ---------------------------------------------------------------------------------------------------


def _changes(objects: ClusterObjects, nodes: Sequence[str], losses: Losses, outcome: Outcome) -> tuple[Remedy, ...]:
    """Single changes, the cheapest first, and the VMs that would start by each."""
    freed: dict[str, set[NamespacedName]] = {}
    costs: dict[str, int] = {}
    waiting = [outcome.left[key] for key in outcome.waiting_vms]
    cordoned: Counter[str] = Counter()
    for left in waiting:
        for cost, change, node in _changes_for(left, losses):
            if node:
                cordoned[node] += 1
                continue
            costs[change] = min(cost, costs.get(change, cost))
            freed.setdefault(change, set()).add((left.start.key[1], left.start.key[2]))
    for node, _ in sorted(cordoned.items(), key=lambda each: (-each[1], each[0]))[:_MOST_UNCORDONED]:
        open_again = tuple(_uncordoned(each) if each.meta.name == node else each for each in objects.nodes)
        after = losses_without(replace(objects, nodes=open_again), nodes).lose(nodes, explains=False)
        if helped := {left.start.key[1:] for left in waiting} - {key[1:] for key in after.waiting_vms}:
            change = f"uncordon {quote(node)}"
            costs[change], freed[change] = _UNCORDON, {(each[0], each[1]) for each in helped}
    ranked = sorted(freed.items(), key=lambda item: (costs[item[0]], -len(item[1]), item[0]))
    return tuple(Remedy(change, tuple(map("/".join, sorted(vms)))) for change, vms in ranked[:_MOST_CHANGES])


def _changes_for(left: Left, losses: Losses) -> Iterator[tuple[int, str, str]]:
    """The cost and the text of each single change after which a VM has a node; of a cordoned node its name instead."""
    if change := _BY_CODE.get(left.code):
        yield _COSTS.get(change, _VM), change, ""
    alone = left.alone
    if alone is None:
        return
    owner = losses.cluster.objects.kubevirt.owner
    for opening in alone.eligibility.openings():
        required = opening.failures[0].requirement
        usable = opening.nodes & alone.with_free & ~alone.forbidden
        if not usable:
            continue
        if required.origin == Origin.CORDONED:
            for name in alone.eligibility.names(Group((), usable))[:_FEW]:
                yield _UNCORDON, "", name
        elif change := change_of(opening.failures[0], owner):
            yield _OBJECT if required.origin == Origin.SCHEDULABLE else _VM, change, ""
    if any(each.requirement.origin == Origin.VOLUMES for each in alone.eligibility.failures) and not alone.feasible:
        yield _VOLUME, _SHARED, ""
    if left.code == report.NO_ROOM and (largest := _largest_fit(left.start, alone, losses)):
        yield _VM, largest, ""


def _largest_fit(start: Start, alone: FilterResult, losses: Losses) -> str:
    """By how much a VM would have to request less to have room alone, an imperative; empty: that is not all."""
    if alone.feasible:
        return ""
    requests, simulation = start.pod.requests, losses.simulation
    for resource in (MEMORY, CPU):
        wanted, nodes = requests.get(resource, 0), alone.eligibility.bitset & ~alone.forbidden
        for other, amount in requests.items():
            nodes &= simulation.with_free(other, amount) if other != resource else -1
        most = max((simulation.resources(at).free.get(resource, 0) for at in bitset_positions(nodes)), default=0)
        if 0 < most < wanted:
            both = format_amount(resource, most), format_amount(resource, wanted)
            return f"lower the {resource} that a VM requests from {both[1]} to {both[0]}"
    return ""


def _uncordoned(node: NodeWithoutImages) -> NodeWithoutImages:
    spec = node.spec
    if spec is None:
        return node
    return replace(
        node,
        spec=replace(spec, unschedulable=None, taints=[each for each in spec.taints or () if each.key != CORDON.key]),
    )


def _spare(objects: ClusterObjects, nodes: Sequence[str], outcome: Outcome) -> SpareNode | None:
    """What one more node would change, like the one on which most VMs have run that find no room."""
    lacking = (key for key in outcome.waiting_vms if outcome.left[key].code in report.PENDING)
    like = Counter(outcome.from_where[key] for key in lacking).most_common()
    if not like:
        return None
    name = min(like, key=lambda each: (-each[1], each[0]))[0]
    after = losses_without(with_spare(objects, name), nodes).lose(nodes, explains=False)
    waits = len(after.waiting_vms)
    return SpareNode(name, waits) if waits < len(outcome.waiting_vms) else None
