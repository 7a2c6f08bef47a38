"""A cluster that loses nodes, and what follows: which pods start anew, and where.

The nodes are gone with all their pods. What has run there is created anew and goes through the scheduler's queue: the
highest priority first, of equal ones the pods of other controllers before those of VMs, and these by name, which is the
plan's choice, because KubeVirt has no order. Each goes where the scheduler's scores send it; where no node has room,
kube-scheduler deletes pods of lower priority, which then are created anew, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from webhook.admission.step_budget import spend
from webhook.forecast import report
from webhook.forecast.drain import attaching, shortage
from webhook.forecast.movers import EquivalenceClasses
from webhook.forecast.preemption import Occupant, Preemption, Victims, lowest_priority
from webhook.forecast.priorities import priority_of
from webhook.forecast.snapshot import ClusterObjects, PlannedCluster, namespaced_name
from webhook.forecast.starts import POD, VM, Key, Start, Starts
from webhook.k8s.resources import NamespacedName
from webhook.placement.eligibility import Eligibility, Failure
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.machines import LauncherPod, Vmi
from webhook.placement.nodes import bitset_union
from webhook.placement.pod_rules import AffinityTerm
from webhook.placement.quota import PodUsage, add_usages, review_quotas, usage_of
from webhook.placement.requirements import Requirement, Requirements
from webhook.placement.running_pods import RunningPod
from webhook.placement.simulate import FilterResult, SimulatedPod, Simulation
from webhook.policies.common.migration_targets import no_node
from webhook.text import pluralize

# Which of the nodes that tie for a pod is taken: its position; None: the simulation's choice.
TieBreak: TypeAlias = Callable[[Key, int], int | None]


class Placement(NamedTuple):
    """Where a pod has started."""

    start: Start
    position: int
    ties: int
    turn: int
    victims: Victims | None = None


class Left(NamedTuple):
    """A pod that has found no node, or was denied."""

    start: Start
    code: str
    reason: str
    alone: FilterResult | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What one loss leads to.

    Attributes:
        placed: where pods have started.
        left: the pods that have found no node, or were denied.
        alone: which nodes had room for each pod before any other started.
        strays: more nodes that kube-scheduler may choose, and that cannot attach the VM's volumes, as bitsets.
        down: the VMs that nothing starts again, each with its code and why.
        from_where: the nodes of all VMs.
        others: how many pods without a VM are created anew.
        notes: of VMs.
    """

    placed: dict[Key, Placement]
    left: dict[Key, Left]
    alone: dict[Key, FilterResult]
    strays: dict[Key, int]
    down: list[tuple[Vmi, str, str]]
    from_where: dict[Key, str]
    others: int
    notes: dict[Key, list[str]]

    @property
    def waiting_vms(self) -> list[Key]:
        """The VMs that do not start, sorted."""
        return sorted(key for key in self.left if key[0] == VM)


class Losses:
    """A cluster that loses nodes, and gets them back.

    Args:
        objects: the cluster.
        tie_break: chooses one of the nodes that tie, or None: the simulation's choice.
    """

    def __init__(self, objects: ClusterObjects, tie_break: TieBreak | None = None) -> None:
        cluster = self.cluster = PlannedCluster(objects)
        classes = EquivalenceClasses(cluster)
        self.starts: Final = Starts(cluster, classes)
        self.simulation: Final = Simulation(cluster.index, cluster.views, objects.kubernetes)
        self.names: Final = {cluster.index.position(name) or 0: name for name in cluster.views}
        self.tie_break: Final = tie_break
        self.on: Final[dict[str, dict[NamespacedName, RunningPod]]] = {}
        self.vms: Final[dict[str, list[Vmi]]] = {}
        self.simulated: Final[dict[NamespacedName, SimulatedPod]] = {}
        self._everything: Final = cluster.index.review(())
        self._failures: Final[dict[Requirement, tuple[Failure, ...]]] = {}
        self._eligibility: Final[dict[Key, tuple[Requirements, Eligibility]]] = {}
        for pod in objects.pods:
            if pod.node_name and not pod.is_over:
                self.on.setdefault(pod.node_name, {})[namespaced_name(pod)] = pod
                self.simulated[namespaced_name(pod)] = classes.running(pod)
        for _, vmi in sorted(cluster.vmis.items()):
            if vmi.node_name and not vmi.has_ended:
                self.vms.setdefault(vmi.node_name, []).append(vmi)
        self.carried: Final = {
            namespaced_name(pod): vmi
            for vms in self.vms.values()
            for vmi in vms
            for pod in filter(None, [cluster.pod_of(vmi)])
        }
        self.lowest_priority: Final = lowest_priority(self.on)
        self._classes: Final = classes
        self._bind_all()

    def _bind_all(self) -> None:
        """The simulation knows all rules first, and then all pods."""
        rules = self.simulation.rules
        for each in self.simulated.values():
            rules.track(each.info)
        for vms in self.vms.values():
            for vmi in vms:
                rules.track(self.starts.pod_of_vm(vmi).info)
                if vmi.meta.label(GROUP_LABEL) is not None:
                    rules.track(self.starts.of_vm(vmi).pod.info)
        for pods in self.on.values():
            for pod in pods.values():
                if start := self.starts.of_pod(pod):
                    rules.track(start.pod.info)
        for name, pods in self.on.items():
            position = self.cluster.index.position(name)
            if position is not None:
                for key in pods:
                    self.simulation.bind(self.simulated[key], position)

    def eligibility(self, start: Start) -> Eligibility:
        """Which nodes meet what a pod requires; a loss changes nothing of the others."""
        known = self._eligibility.get(start.key)
        # Of a VM that needs a TSC frequency, they depend on the loss.
        if known is not None and known[0] is start.requirements:
            return known[1]
        failures: list[Failure] = []
        for each in start.requirements:
            if each not in self._failures:
                self._failures[each] = self.cluster.index.review((each,)).failures
            failures += self._failures[each]
        found = self._everything.failing(failures)
        self._eligibility[start.key] = start.requirements, found
        return found

    def bits(self, nodes: Iterable[str]) -> int:
        """Nodes as a bitset, as far as they exist."""
        positions = map(self.cluster.index.position, nodes)
        return bitset_union(1 << at for at in positions if at is not None)

    def usage_of(self, pod: RunningPod) -> PodUsage:
        """What a pod counts for in quotas that is there now."""
        return usage_of(pod, self._classes.load_of(pod).requests, ())

    def occupant(self, pod: RunningPod) -> Occupant:
        """A pod that is there now; with that of a VM go those that attach its volumes."""
        simulated = self.simulated[namespaced_name(pod)]
        for each in self.cluster.attachments.get(namespaced_name(pod), ()):
            simulated = replace(simulated, load=simulated.load + self._classes.load_of(each))
        return Occupant(pod, simulated)

    def starting(self, nodes: Iterable[str]) -> tuple[list[Start], list[tuple[Vmi, str, str]]]:
        """The pods that are created anew if nodes are lost, and the VMs that nothing starts again, with why."""
        lost = frozenset(nodes)
        starts: list[Start] = []
        down: list[tuple[Vmi, str, str]] = []
        for name in sorted(lost):
            starts += filter(None, (self.starts.of_pod(pod) for pod in self.on.get(name, {}).values()))
            for vmi in self.vms.get(name, ()):
                if why := self.starts.staying_down(vmi):
                    down.append((vmi, *why))
                else:
                    starts.append(self.starts.of_vm(vmi, lost))
        return starts, down

    def denial(self, start: Start) -> tuple[str, str] | None:
        """Why no scheduler looks at a pod, whatever else starts, a code and a clause; None: only quotas may deny it."""
        if start.problem:
            return report.NO_VMI, start.problem
        if start.priority.problem:
            return report.NO_PRIORITY_CLASS, f"its pod would be denied: {start.priority.problem}"
        if start.vmi and (why := self.cluster.scheduler_problem(start.vmi, start.model)):
            return report.SCHEDULER_DOWN, f"{why}; its pod waits for it"
        return None

    def count_staying_down(self) -> int:
        """How many VMs nothing starts again if their node is lost, of all nodes."""
        return sum(bool(self.starts.staying_down(vmi)) for vmis in self.vms.values() for vmi in vmis)

    def lose(self, nodes: Sequence[str], *, by_size: bool = False, explains: bool = True) -> Outcome:
        """What the loss of nodes leads to; afterwards all is as before.

        Args:
            nodes: the nodes. Those that are not in the cluster have left their pods behind.
            by_size: whether of equal priority the smallest VMs start first.
            explains: whether it is said why pods find no node.
        """
        return _Loss(self, nodes, by_size=by_size, explains=explains).outcome()


class _Loss:
    """One loss, and what follows."""

    def __init__(self, losses: Losses, nodes: Sequence[str], *, by_size: bool, explains: bool) -> None:
        self._losses: Final = losses
        self._simulation: Final = losses.simulation
        self._nodes: Final = nodes
        self._lost: Final = losses.bits(nodes)
        self._by_size: Final = by_size
        self._explains: Final = explains
        self._log: Final[list[tuple[SimulatedPod, int, int]]] = []
        self._gone: Final[set[NamespacedName]] = set()
        self._heap: Final[list[tuple[tuple[object, ...], Start]]] = []
        self._waiting: Final = _Waiting()
        # Whether pods have been preempted since pods that wait were looked at.
        self._has_freed = False
        self._new: Final[dict[int, dict[Key, Start]]] = {}
        # By namespace, what pods have freed in its quotas, and what new ones take, as sums.
        self._usages: Final[dict[str, tuple[PodUsage, ...]]] = {}
        self._eligibility: Final[dict[Key, Eligibility]] = {}
        objects = losses.cluster.objects
        self._preemption: Final = Preemption(
            self._simulation, self._occupants, losses.cluster.budgets_of, objects.kubernetes
        )
        self._lowest = losses.lowest_priority
        self._outcome: Final = Outcome({}, {}, {}, {}, [], {}, 0, {})

    def outcome(self) -> Outcome:
        """What it leads to; the simulation is as before."""
        try:
            starts, down = self._take_away()
            self._simulation.lose(self._lost)
            try:
                self._outcome.down.extend(down)
                for vmi, _, _ in down:
                    self._outcome.from_where[VM, *namespaced_name(vmi)] = vmi.node_name
                for start in sorted(starts, key=self._turn):
                    self._create(start)
                self._place_all()
                return replace(self._outcome, others=sum(not each.is_vm for each in starts))
            finally:
                self._simulation.lose(self._lost)
        finally:
            for pod, position, number in reversed(self._log):
                (self._simulation.unbind if number > 0 else self._simulation.bind)(pod, position)

    def _turn(self, start: Start) -> tuple[object, ...]:
        return start.turn_by_size if self._by_size else start.turn

    def _bind(self, pod: SimulatedPod, position: int) -> None:
        self._simulation.bind(pod, position)
        self._log.append((pod, position, 1))

    def _unbind(self, pod: SimulatedPod, position: int) -> None:
        self._simulation.unbind(pod, position)
        self._log.append((pod, position, -1))

    def _take_away(self) -> tuple[list[Start], list[tuple[Vmi, str, str]]]:
        """Have all pods be gone that go with the nodes, and what starts anew then."""
        losses, cluster = self._losses, self._losses.cluster
        starts, down = losses.starting(self._nodes)
        for name in self._nodes:
            for pod in losses.on.get(name, {}).values():
                self._remove(pod)
            for vmi in losses.vms.get(name, ()):
                self._outcome.from_where[VM, *namespaced_name(vmi)] = name
                # The target pod of a migration ends with the VMI.
                for pod in cluster.launchers.get(vmi.meta.uid or "", ()):
                    for each in (pod, *cluster.attachments.get(namespaced_name(pod), ())):
                        if each.node_name:
                            self._remove(each)
        return starts, down

    def _remove(self, pod: RunningPod) -> None:
        key, cluster = namespaced_name(pod), self._losses.cluster
        if key in self._gone:
            return
        self._gone.add(key)
        position = cluster.index.position(pod.node_name)
        if position is not None and key in self._losses.simulated:
            self._unbind(self._losses.simulated[key], position)
        if key[0] in cluster.quotas:
            self._count(key[0], self._losses.usage_of(pod).negated)

    def _count(self, namespace: str, usage: PodUsage) -> None:
        self._usages[namespace] = add_usages((*self._usages.get(namespace, ()), usage))

    def _create(self, start: Start) -> None:
        """Have a pod be created, if the API server admits it; then it waits for the scheduler."""
        if denial := self._losses.denial(start) or self._denial_by_quota(start):
            self._outcome.left[start.key] = Left(start, *denial)
            return
        self._eligibility[start.key] = self._losses.eligibility(start).without(self._lost)
        self._lowest = min(self._lowest, start.priority.value)
        heapq.heappush(self._heap, (self._turn(start), start))

    def _denial_by_quota(self, start: Start) -> tuple[str, str] | None:
        """Why the namespace's quotas leave no room for a pod, a code and a clause; None: they do, and count it now."""
        namespace = start.key[1]
        if quotas := self._losses.cluster.quotas.get(namespace):
            beside = self._usages.get(namespace, ())
            if denied := review_quotas(quotas, start.usage, beside=beside).problem:
                return report.QUOTA, f"its pod would be denied: {denied}"
            self._count(namespace, start.usage)
        return None

    def _place_all(self) -> None:
        """Have the scheduler take all pods from its queue."""
        if self._explains:
            for _, start in self._heap:
                self._look(start)
        while self._heap:
            _, start = heapq.heappop(self._heap)
            if self._schedule(start):
                self._try_again(start)
            else:
                self._waiting.add(start)
        for start in self._waiting.pods.values():
            code, reason = self._why(start) if self._explains else (report.NO_ROOM, "")
            alone = self._outcome.alone.get(start.key)
            self._outcome.left[start.key] = Left(start, code, reason, alone)
        self._heap.clear()

    def _try_again(self, started: Start) -> None:
        """Have the scheduler look again at pods that wait, and that one which has started may help.

        It helps those alone that want to be near it, or that are spread with it (kube-scheduler's queueing hints). What
        is preempted may help any.
        """
        recent, helped, others = started, dict[int, Start](), self._waiting.by_rules()
        while True:
            left = []
            for near, pods in others:
                if _is_about(near, recent):
                    helped |= pods
                else:
                    left.append((near, pods))
            if len(left) < len(others):
                helped, others = dict(sorted(helped.items())), left
            looked_at = self._waiting.pods if self._has_freed else helped
            number = next((number for number, each in looked_at.items() if self._schedule(each)), None)
            if number is None:
                self._has_freed = False
                return
            helped.pop(number, None)
            recent = self._waiting.take(number)

    def _look(self, start: Start) -> None:
        """Note which nodes have room for a pod before any other starts."""
        alone = self._simulation.filter(start.pod, self._eligibility[start.key])
        self._outcome.alone[start.key] = alone
        if strays := self._strays(start) & ~alone.feasible:
            self._outcome.strays[start.key] = strays

    def _strays(self, start: Start) -> int:
        """The nodes that kube-scheduler may choose for the launcher pod alone of a VM with hotplugged volumes."""
        if start.scheduled is None:
            return 0
        eligibility = self._losses.cluster.index.review(start.scheduled.requirements).without(self._lost)
        return self._simulation.filter(start.scheduled.pod, eligibility).feasible

    def _schedule(self, start: Start) -> bool:
        """Have the scheduler look for a node for a pod; whether it has one then."""
        spend(1, "pods that start")
        eligibility, chosen = self._eligibility[start.key], self._losses.tie_break
        victims, ties = None, 0
        if not eligibility.bitset:
            return False
        if result := self._simulation.schedule(start.pod, eligibility):
            ties, position = result.ties, result.position
            if chosen is not None:
                own = chosen(start.key, ties)
                position = position if own is None else own
        else:
            value = start.priority.value
            if start.priority.preempts and not start.priority.gap and value > self._lowest:
                victims = self._preemption.victims(start.pod, eligibility, value)
            if victims is None:
                return False
            position = victims.position
        turn = len(self._outcome.placed) + 1
        self._outcome.placed[start.key] = Placement(start, position, ties, turn, victims)
        for each in victims.pods if victims else ():
            self._has_freed = True
            self._preempt(each, position, start)
        self._bind(start.pod, position)
        self._new.setdefault(position, {})[start.key] = start
        return True

    def _occupants(self, position: int, priority: int) -> Iterator[Occupant]:
        """The pods on a node now that have a lower priority."""
        losses, attachments = self._losses, self._losses.cluster.attachments
        for key, pod in losses.on.get(losses.names[position], {}).items():
            if priority_of(pod) < priority and key not in self._gone and (key[0], pod.launcher) not in attachments:
                yield losses.occupant(pod)
        for start in self._new.get(position, {}).values():
            if start.priority.value < priority:
                yield Occupant(_as_pod(start), start.pod)

    def _preempt(self, occupant: Occupant, position: int, start: Start) -> None:
        """Have a pod be deleted for another, and be created anew if something does that."""
        losses, outcome, key = self._losses, self._outcome, namespaced_name(occupant.pod)
        node, why = losses.names[position], f"kube-scheduler preempts it there for {_named(start.key)}"
        new = self._new.get(position, {})
        if own := next((each for each in new.values() if namespaced_name(_as_pod(each)) == key), None):
            self._unbind(own.pod, position)
            del new[own.key]
            del outcome.placed[own.key]
            outcome.notes.setdefault(own.key, []).append(f"{why}, on {node}")
            self._replace(own)
            return
        pod = losses.on[node][key]
        for each in (pod, *losses.cluster.attachments.get(key, ())):
            self._remove(each)
        vmi = losses.carried.get(key)
        if vmi is None:
            if again := losses.starts.of_pod(pod):
                self._create_anew(again)
            return
        vm = (VM, *namespaced_name(vmi))
        outcome.from_where[vm] = node
        outcome.notes.setdefault(vm, []).append(why)
        if down := losses.starts.staying_down(vmi, has_failed=False):
            outcome.down.append((vmi, *down))
        else:
            self._create_anew(losses.starts.of_vm(vmi, frozenset(self._nodes)))

    def _create_anew(self, start: Start) -> None:
        self._create(start)
        if self._explains and start.key in self._eligibility:
            self._look(start)

    def _replace(self, start: Start) -> None:
        """Have a pod be created once more, which quotas have counted already."""
        heapq.heappush(self._heap, (self._turn(start), start))

    def _why(self, start: Start) -> tuple[str, str]:
        """Why a pod has found no node, the code and a clause."""
        alone = self._outcome.alone[start.key]
        left = self._simulation.filter(start.pod, self._eligibility[start.key])
        if start.vmi and (strays := self._strays(start)):
            count = pluralize(strays.bit_count(), "node")
            return report.NO_ATTACHMENT, f"{attaching(start.vmi)}, and none of the {count} with room can"
        if not left.eligibility.count:
            return report.NO_ELIGIBLE_NODE, no_node(left.eligibility).text
        eligible = left.eligibility.bitset
        with_room = eligible & left.with_free
        if with_room:
            rules = " and ".join(name for name, nodes in left.apart if nodes & with_room)
            where = "" if with_room == eligible else f" with room ({with_room.bit_count()} of them)"
            count = pluralize(eligible.bit_count(), "eligible node")
            return report.PODS_APART, f"other pods keep it from the {count}{where}: {rules}"
        if feasible := alone.feasible.bit_count():
            verb = "has" if feasible == 1 else "have"
            text = (
                f"{pluralize(feasible, 'node')} {verb} room for it alone, but not beside the pods that start before it"
            )
            return report.NO_ROOM, text
        return report.NO_ROOM, shortage(start.pod.requests, left.eligibility, self._simulation)


class _Waiting:
    """The pods that have found no node.

    Attributes:
        pods: by their numbers, in the order in which the scheduler has looked at them.
    """

    def __init__(self) -> None:
        self.pods: Final[dict[int, Start]] = {}
        self._added = 0
        # Most pods have no such rules, and those of one owner often the same.
        self._by_rules: Final[dict[tuple[AffinityTerm, ...], dict[int, Start]]] = {}

    def add(self, start: Start) -> None:
        """Have a pod wait."""
        self._added += 1
        self.pods[self._added] = start
        if near := _near(start):
            self._by_rules.setdefault(near, {})[self._added] = start

    def take(self, number: int) -> Start:
        """The pod with a number, which waits no more."""
        start = self.pods.pop(number)
        near = _near(start)
        if near:
            del self._by_rules[near][number]
            if not self._by_rules[near]:
                del self._by_rules[near]
        return start

    def by_rules(self) -> list[tuple[tuple[AffinityTerm, ...], dict[int, Start]]]:
        """Those that want to be near others, or that are spread with them, by the pods that they mean."""
        return [*self._by_rules.items()]


def _near(start: Start) -> tuple[AffinityTerm, ...]:
    """Which pods the rules mean by which a pod wants to be near others, or is spread with them, in whatever domain."""
    rules = start.pod.info.rules
    terms = (*rules.affinity, *(each.near for each in rules.spread))
    return tuple(dict.fromkeys(replace(each, key="") for each in terms))


def _is_about(near: Sequence[AffinityTerm], other: Start) -> bool:
    """Whether rules mean a pod."""
    spend(sum(len(each.selectors) for each in near), "rules of VMs that find no node")
    return any(map(other.pod.info.meets, near))


def _as_pod(start: Start) -> LauncherPod:
    """A pod that has just started, as preemption looks at it."""
    model = start.model or _EMPTY
    name = start.key[2] if start.key[0] == POD else f"virt-launcher-{start.key[2]}"
    meta = replace(model.meta, namespace=start.key[1], name=name, labels=start.pod.info.labels)
    spec = replace(model.spec, priority=start.priority.value) if model.spec else None
    return replace(model, metadata=meta, spec=spec, status=None)


# Of a VM whose pod is not known.
_EMPTY: Final = msgspec.convert({"spec": {}}, RunningPod)


def _named(key: Key) -> str:
    return f"{'the VM' if key[0] == VM else 'pod'} {key[1]}/{key[2]}"
