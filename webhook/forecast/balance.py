"""A short, ordered list of migrations after which no node stands out, each of which fits when its turn comes.

A search by numbers (`webhook.forecast.balance_search`) finds few moves that are enough; they come in the order in which
the highest node gets lower soonest. A VM goes only to a node that kube-scheduler's filters find feasible while the VM
still takes its place on its own node, and where its namespace's quotas leave room for a second pod. What its owner has
said no to is never moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Final

import msgspec

from webhook.admission.step_budget import StepBudget, TooComplex
from webhook.errors import InputError, quote
from webhook.forecast import report
from webhook.forecast.balance_report import BY_REQUESTS, BY_USAGE, SCHEMA, BalancePlan, Move, NodeLoad, Staying
from webhook.forecast.balance_search import LEAST_GAIN, Candidate, Search, Share, Step
from webhook.forecast.balance_search import after as load_after
from webhook.forecast.drain import MAX_STEPS, Planner, migration_plan
from webhook.forecast.kept_rules import KeptRules
from webhook.forecast.movers import Mover
from webhook.forecast.node_loads import NodeLoads
from webhook.forecast.report import Limits, QueuedMigration
from webhook.forecast.snapshot import ClusterObjects, PlannedCluster, group, namespaced_name
from webhook.forecast.usage import RESOURCES, Usage
from webhook.k8s.resources import NamespacedName
from webhook.k8s.types.meta import unix_time
from webhook.kubevirt.heartbeat import SCHEDULABLE
from webhook.placement.machines import Vmi
from webhook.placement.migrations import EvictionEffect, evacuated_node, eviction_effect, own_strategy, stale_evacuation
from webhook.placement.nodes import HOSTNAME, TRUE

# The descheduler's annotation of pods that it is to leave alone; KubeVirt copies it from VMs to pods.
_PREFERS_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
# Of the nodes that are feasible for a VM, those that stand out least are compared.
_MOST_TARGETS: Final = 50
_MOST_VMS: Final = 50
# Of a search whose moves do not fit one after the other.
_MOST_SEARCHES: Final = 8
_BY: Final = {
    BY_REQUESTS: "Nodes are compared by what pods request, of CPU and memory. What guests use is not known here.",
    BY_USAGE: (
        "Nodes are compared by what they use, of CPU and memory ({source}), and a VM uses as much on another node. Room"
        " is what pods do not request, as for kube-scheduler."
    ),
}


def _assumptions(usage: Usage | None) -> tuple[str, ...]:
    by = _BY[BY_USAGE].format(source=usage.source) if usage else _BY[BY_REQUESTS]
    return (
        "The migrations run one after the other, in this order: each begins when the one before it has ended.",
        "Nothing else in the cluster changes meanwhile: no other pod starts.",
        by,
        "Each migration copies the VM's memory once; a guest that writes faster than that takes longer.",
    )


class Wanted(msgspec.Struct, frozen=True):
    """What is asked of a plan.

    Attributes:
        target: how far above the mean a node may be, in percentage points.
        nodes: those to compare, and to move VMs between; empty: all that take VMs.
        most: how many migrations, at most.
        bandwidth: assumed bytes per second of one migration where KubeVirt limits none.
        cool_down: for how many seconds a VM stays after a migration of it has ended.
        usage: by what nodes use, before the first move; None: by what pods request.
    """

    target: float
    nodes: tuple[str, ...] = ()
    most: int = 20
    bandwidth: int | None = None
    cool_down: float = 0.0
    usage: Usage | None = None


class Course(msgspec.Struct, frozen=True):
    """A plan that is being carried out, and the moves that have been made already; their VMs stay."""

    plan: BalancePlan | None = None
    made: tuple[Move, ...] = ()

    @property
    def moved(self) -> frozenset[NamespacedName]:
        """The VMs that have been moved."""
        return frozenset((each.namespace, each.name) for each in self.made)

    @property
    def left(self) -> tuple[Move, ...]:
        """The moves that are still to be made."""
        planned, moved = self.plan.moves if self.plan else (), self.moved
        return tuple(each for each in planned if (each.namespace, each.name) not in moved)


def plan(objects: ClusterObjects, wanted: Wanted, course: Course | None = None) -> BalancePlan:
    """The migrations that balance nodes.

    Args:
        objects: the cluster.
        wanted: what is asked for.
        course: what of it is done. As long as the moves that are left fit and end where they should, they are the plan.

    Raises:
        InputError: a node does not exist, or takes no VMs, or the cluster's objects are too complex.
    """
    budget = StepBudget(MAX_STEPS)
    try:
        return budget.run(lambda: _Balancer(objects, wanted, course or Course()).plan())
    except TooComplex as error:
        what = f"{error.what} take more than {MAX_STEPS} steps"
        raise InputError(what, "the plan", "name fewer nodes, or fewer moves") from None


class _Balancer:
    """Moves VMs between the nodes of a cluster."""

    def __init__(self, objects: ClusterObjects, wanted: Wanted, course: Course) -> None:
        self._wanted: Final = wanted
        self._course: Final = course
        self._cluster: Final = PlannedCluster(objects)
        self._limits: Final[Limits] = report.limits_of(objects.kubevirt, objects.migrations, wanted.bandwidth)
        self._planner: Final = Planner(self._cluster, self._limits)
        self._target: Final = wanted.target
        self._names: Final = self._compared(wanted.nodes)
        self._positions: Final = {name: self._cluster.index.position(name) or 0 for name in self._names}
        self._by_position: Final = {position: name for name, position in self._positions.items()}
        self._bits: Final = sum(1 << position for position in self._by_position)
        self._loads: Final = NodeLoads(self._planner, self._names, wanted.usage, course.made)
        self._used: Final = {name: self._loads.of(name) for name in self._names}
        means = self._loads.means()
        # The nodes, those first that stand out least at the beginning.
        self._least_first: Final = sorted(self._names, key=lambda name: self._excess(self._used[name], means))
        self._kept: Final = KeptRules(self._cluster, self._planner)
        self._movers: Final[dict[NamespacedName, Mover]] = {}
        # The VMs that may be moved, by the positions of their nodes, and where some of them cannot go after all.
        self._ready: Final[dict[int, list[Candidate]]] = {}
        self._banned: Final[dict[NamespacedName, int]] = {}
        # The VMs that stay, each with a code and why.
        self._staying: Final[dict[tuple[str, str], tuple[str, str]]] = {}
        self._moved: Final = {*course.moved}
        # When the last migration of each VM ended.
        self._ended: Final[dict[NamespacedName, float]] = {}
        for each in objects.migrations:
            key = each.meta.namespace or "", each.vmi_name
            if (end := each.ended_at) is not None:
                self._ended[key] = max(end, self._ended.get(key, end))

    def _compared(self, nodes: Sequence[str]) -> list[str]:
        """The nodes that take VMs: virt-handler works there, and they are not cordoned or being emptied."""
        index, takes = self._cluster.index, []
        for name in self._cluster.views:
            node = index.get(name)
            hostnames = node.labels.get(HOSTNAME) if node else None
            if node and hostnames and node.labels.get(SCHEDULABLE) == TRUE and not node.unschedulable:
                takes += [] if node.is_being_emptied else [name]
        for name in nodes:
            if name not in self._cluster.views:
                raise InputError(f"node {quote(name)} does not exist", fix="kubectl get nodes lists them")
            if name not in takes:
                what = (
                    f"node {quote(name)} takes no VMs: it is cordoned or being emptied, or virt-handler does not work"
                )
                raise InputError(what, fix="leave it out")
        return sorted(set(nodes)) or takes

    def _excess(self, used: Share, means: tuple[float, float]) -> float:
        """How far above the mean a node is, of the resource that stands out more."""
        return max(used[0] - means[0], used[1] - means[1])

    def _deviation(self) -> float:
        means = self._loads.means()
        return max((self._excess(used, means) for used in self._used.values()), default=0.0)

    def plan(self) -> BalancePlan:
        """The plan."""
        loads, first, means = dict(self._used), self._deviation(), self._loads.means()
        order = sorted(self._names, key=lambda name: -self._excess(loads[name], means))
        moves = [self._move(step) for step in self._resumed() or self._found()]
        after = self._deviation()
        means = self._loads.means()
        standing_out = [name for name, used in self._used.items() if self._excess(used, means) > self._target]
        return BalancePlan(
            schema=SCHEMA,
            by=BY_USAGE if self._wanted.usage else BY_REQUESTS,
            target=self._target,
            deviation=round(first, 2),
            deviation_after=round(after, 2),
            is_reached=after <= self._target,
            memory=sum(each.memory for each in moves),
            seconds=sum(each.seconds for each in moves),
            moves=tuple(moves),
            loads=tuple(NodeLoad(name, *map(_rounded, (*loads[name][:2], *self._used[name][:2]))) for name in order),
            staying=tuple(self._why(standing_out, means)),
            notes=(*self._loads.notes(), *self._planner.notes()),
            assumptions=_assumptions(self._wanted.usage),
            gaps=(*self._cluster.objects.gaps, *self._planner.gaps()),
        )

    def _search(self) -> Search:
        used = {self._positions[name]: load for name, load in self._used.items()}
        return Search(used, self._loads.means(), self._target, self._candidates)

    def _found(self) -> Sequence[Step]:
        """The moves to make, each of which fits when its turn comes."""
        ordered: Sequence[Step] = ()
        for _ in range(_MOST_SEARCHES):
            ordered, left = self._ordered(self._search().find(self._wanted.most))
            if not left:
                return ordered
            # They keep each other from where they would go: rules between those that move, or a quota.
            for step in left:
                key = step.candidate.key
                self._banned[key] = self._banned.get(key, 0) | 1 << step.to
        return ordered if self._highest_after(ordered) <= self._deviation() else ()

    def _resumed(self) -> Sequence[Step]:
        """The moves of an earlier plan that are left; none, if they do not all fit, or end higher than it said."""
        steps = []
        for move in self._course.left[: self._wanted.most]:
            source, to = self._positions.get(move.source), self._positions.get(move.to)
            candidates = () if source is None else self._candidates(source)
            candidate = next((each for each in candidates if each.key == (move.namespace, move.name)), None)
            if source is None or to is None or candidate is None:
                return ()
            steps.append(Step(candidate, source, to))
        ordered, left = self._ordered(steps)
        planned = self._course.plan.deviation_after if self._course.plan else 0.0
        ends_there = self._highest_after(ordered) <= max(self._target, planned + LEAST_GAIN)
        return ordered if ends_there and not left else ()

    def _highest_after(self, steps: Sequence[Step]) -> float:
        loads: dict[int, Share] = {}
        for step in steps:
            loads |= self._loads_after(step, loads)
        return self._search().highest(loads)

    def _loads_after(self, step: Step, loads: Mapping[int, Share]) -> dict[int, Share]:
        """What is used of the two nodes of a step after it."""
        now = [loads.get(each) or self._used[self._by_position[each]] for each in (step.source, step.to)]
        return dict(zip((step.source, step.to), load_after(step, *now), strict=True))

    def _ordered(self, steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
        """Moves in an order in which each fits in its turn, those first that help most; and those that do not fit."""
        ordered: list[Step] = []
        left, loads, search = [*steps], dict[int, Share](), self._search()
        with ExitStack() as tried:
            while left:
                fitting = [step for step in left if self._fits(step)]
                if not fitting:
                    break
                after = {id(step): self._loads_after(step, loads) for step in fitting}
                best = min(fitting, key=lambda step: (search.highest({**loads, **after[id(step)]}), *_by_size(step)))
                ordered.append(best)
                left.remove(best)
                loads |= after[id(best)]
                tried.enter_context(self._planner.trying(self._movers[best.candidate.key], self._by_position[best.to]))
        return ordered, left

    def _fits(self, step: Step) -> bool:
        """Whether a move can be made now."""
        mover, to = self._movers[step.candidate.key], step.to
        if self._planner.quota_problem(mover) or not self._planner.filter(mover).feasible >> to & 1:
            return False
        return not self._kept.problem(mover, self._by_position[to])

    def _moved_ago(self, vmi: Vmi) -> float | None:
        """Seconds since the last migration of a VM ended, failed ones too; None: none is known.

        KubeVirt keeps some finished migrations of each VM, and the last one in the VMI's status.
        """
        state = vmi.status.migration_state if vmi.status else None
        ends = [self._ended.get(namespaced_name(vmi)), unix_time(state.end_timestamp if state else None)]
        return min((self._cluster.objects.now - end for end in ends if end is not None), default=None)

    def _candidates(self, position: int) -> Sequence[Candidate]:
        """The VMs on a node that may be moved. Why others stay is noted."""
        if position not in self._ready:
            found = (self._candidate(vmi, position) for vmi in self._planner.vms_on(self._by_position[position]))
            self._ready[position] = [each for each in found if each]
        banned = self._banned
        return [
            each._replace(nodes=each.nodes & ~banned[each.key]) if each.key in banned else each
            for each in self._ready[position]
        ]

    def _candidate(self, vmi: Vmi, position: int) -> Candidate | None:
        key = namespaced_name(vmi)
        if key in self._moved:
            self._staying[key] = report.NO_BETTER_NODE, "it has moved in this plan already"
            return None
        if refusal := self._refusal(vmi):
            self._staying[key] = refusal
            return None
        mover = self._movers[key] = self._planner.mover(vmi)
        if problem := self._planner.quota_problem(mover):
            self._staying[key] = report.QUOTA, problem
            return None
        nodes = self._planner.nodes_for(mover, whatever=RESOURCES) & self._bits & ~(1 << position)
        if not self._kept.is_free(mover):
            nodes = self._keeping(mover, nodes)
        leaves = self._loads.leaves(mover, self._by_position[position])
        return Candidate(key, leaves, lambda to: self._loads.takes(mover, self._by_position[to]), nodes, mover.memory)

    def _keeping(self, mover: Mover, nodes: int) -> int:
        """Those of nodes to which a VM may go and leave no rule broken; of the first, for there may be thousands."""
        found, problem = 0, ""
        positions = (self._positions[name] for name in self._least_first if nodes >> self._positions[name] & 1)
        for position in islice(positions, _MOST_TARGETS):
            if why := self._kept.problem(mover, self._by_position[position]):
                problem = problem or why
            else:
                found |= 1 << position
        if problem and not found:
            self._staying[mover.key] = report.PODS_APART, problem
        return found

    def _refusal(self, vmi: Vmi) -> tuple[str, str] | None:
        """Why a VM is not to be moved, or cannot be, a code and a clause; None: it may."""
        default = self._cluster.objects.kubevirt.eviction_strategy
        effect = eviction_effect(vmi, default)
        if effect in (EvictionEffect.STOPS, EvictionEffect.HANDED_OVER, EvictionEffect.UNKNOWN):
            whose = "its evictionStrategy" if own_strategy(vmi) else "KubeVirt's evictionStrategy for VMIs without one"
            return report.OWNER_SAYS_NO, f"{whose} is {own_strategy(vmi) or default or 'None'}"
        pod = self._cluster.pod_of(vmi)
        if any(_PREFERS_NO_EVICTION in (each.annotations or {}) for each in (vmi.meta, *([pod.meta] if pod else []))):
            return report.OWNER_SAYS_NO, f"it has the annotation {_PREFERS_NO_EVICTION}"
        if effect is not EvictionEffect.MIGRATES:
            condition = vmi.condition("LiveMigratable")
            why = f" ({condition.reason})" if condition and condition.reason else ""
            return report.NOT_MIGRATABLE, f"it cannot be live-migrated{why}"
        if self._cluster.unfinished.get(namespaced_name(vmi)) or namespaced_name(vmi) in self._cluster.arrivals:
            return report.ALREADY_MIGRATING, "a migration of it has not ended"
        if (node := evacuated_node(vmi)) and not stale_evacuation(vmi):
            return report.ALREADY_MIGRATING, f"KubeVirt is to migrate it away from {node} already"
        if (ago := self._moved_ago(vmi)) is not None and ago < self._wanted.cool_down:
            return report.JUST_MOVED, f"a migration of it ended less than {self._wanted.cool_down:g}s ago"
        decided = migration_plan(vmi, self._cluster)
        return (decided.code, decided.reason) if decided.outcome == report.BLOCKS else None

    def _move(self, step: Step) -> Move:
        mover = self._movers[step.candidate.key]
        source, to = self._by_position[step.source], self._by_position[step.to]
        namespace, name = mover.key
        node = self._cluster.index.get(to)
        before = self._used[source]
        self._planner.move(mover, to)
        self._moved.add(mover.key)
        self._staying.pop(mover.key, None)
        leaves, takes = self._loads.move(mover, source, to)
        for each in (source, to):
            self._used[each] = self._loads.of(each)
        gain = max(before[0] - self._used[source][0], before[1] - self._used[source][1])
        return Move(
            namespace=namespace,
            name=name,
            source=source,
            to=to,
            hostname=node.labels[HOSTNAME] if node else to,
            gain=round(gain, 2),
            deviation=round(self._deviation(), 2),
            memory=mover.memory,
            seconds=report.about([QueuedMigration(source, mover.memory)], self._limits),
            leaves=leaves,
            takes=takes,
        )

    def _why(self, nodes: Iterable[str], means: tuple[float, float]) -> Iterator[Staying]:
        """What keeps VMs on nodes that stand out still, by reason."""
        self._ready.clear()
        on = [(vmi, name) for name in nodes for vmi in self._planner.vms_on(name)]
        pairs = [(self._reason(vmi, name, means), "/".join(namespaced_name(vmi))) for vmi, name in on]
        for (code, reason), vms in sorted(group((why, vm) for why, vm in pairs if why).items()):
            yield Staying(code, reason, tuple(sorted(vms)[:_MOST_VMS]))

    def _reason(self, vmi: Vmi, source: str, means: tuple[float, float]) -> tuple[str, str] | None:
        """Why a VM stays, a code and a clause; None: it could move, but that is not enough, or too much."""
        key, position = namespaced_name(vmi), self._positions[source]
        candidate = next((each for each in self._candidates(position) if each.key == key), None)
        if candidate is None or key in self._staying:
            return self._staying.get(key)
        feasible = self._planner.filter(self._movers[key]).feasible & candidate.nodes
        if not feasible:
            return report.NO_ROOM, "no other node can take it now"
        worst = self._excess(self._used[source], means)
        taking = (name for name in self._least_first if feasible >> self._positions[name] & 1)
        for name in islice(taking, _MOST_TARGETS):
            step = Step(candidate, position, self._positions[name])
            if max(self._excess(load, means) for load in self._loads_after(step, {}).values()) <= worst - LEAST_GAIN:
                return None
        return report.NO_BETTER_NODE, "no node that can take it would stand out less"


def _by_size(step: Step) -> tuple[int, NamespacedName]:
    return step.candidate.memory, step.candidate.key


def _rounded(number: float) -> float:
    return round(number, 1)
