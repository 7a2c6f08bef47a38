"""The plan of a drain: every VM on the nodes, what becomes of it, and where it could go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from webhook.admission.work import TooComplex, Work
from webhook.errors import InputError, quote
from webhook.forecast.drain import changes, pace, report
from webhook.forecast.drain.changes import Blocked
from webhook.forecast.drain.evictions import budget_problem, fate_of
from webhook.forecast.drain.movers import Mover, after_migration, mover_of, target_pod, wearer_of
from webhook.forecast.drain.neighbours import MOST_RULES, Neighbours
from webhook.forecast.drain.packing import Candidates, Packer
from webhook.forecast.drain.report import BlockedPod, DrainPlan, Limits, Step, VmPlan
from webhook.forecast.drain.room import Amounts, Room, occupy, offers_of, requests_of
from webhook.forecast.drain.snapshot import CREATED_BY, Place, Snapshot, World, place_of
from webhook.forecast.drain.terms import Wearer
from webhook.forecast.drain.views import ConstrainedPod
from webhook.forecast.drain.wording import no_node_left
from webhook.placement.bits import positions
from webhook.placement.verdict import Verdict
from webhook.placement.vmis import Vmi
from webhook.policies.common.no_eligible_node import no_node
from webhook.text import pluralize

# 5,000 nodes drained one after the other, with 10,000 VMs, take a twentieth of it.
MAX_STEPS: Final = 20_000_000

# Of the nodes that could take a VM, in the report.
_MOST_CANDIDATES: Final = 20
_DAEMON: Final = "DaemonSet"
_PACKED: Final = (
    "there is room only if VMs are packed tightly; kube-scheduler spreads them, and may leave this one without a node"
)
_ASSUMPTIONS: Final = (
    "Nothing else in the cluster changes meanwhile: no other pod starts, and no quota is reached.",
    "kube-scheduler may choose other nodes than the plan; the plan shows that there is room for all.",
    "Pods without a VM that are evicted need room elsewhere, too, which is not set aside for them.",
    "VMs that shut down are not placed again: whatever starts them needs room for them.",
    "Each migration copies the VM's memory once; a guest that writes faster than that takes longer.",
)


def plan(snapshot: Snapshot, nodes: Sequence[str], *, rolling: bool = False, bandwidth: int | None = None) -> DrainPlan:
    """What draining nodes would do.

    Args:
        snapshot: the cluster.
        nodes: the nodes to drain, all at the same time; with ``rolling``, in this order, and empty for all nodes.
        rolling: drain one node after the other, each of which takes VMs again when the next one is drained.
        bandwidth: assumed bytes per second of one migration where KubeVirt limits none.

    Raises:
        InputError: a node does not exist or is named twice, or the cluster's objects are too complex.
    """
    try:
        return Work(MAX_STEPS).run(_plan, snapshot, nodes, rolling, bandwidth)
    except TooComplex as error:
        raise InputError(f"{error.what} take more than {MAX_STEPS} steps", "the plan", "drain fewer nodes") from None


def _plan(snapshot: Snapshot, nodes: Sequence[str], rolling: bool, bandwidth: int | None) -> DrainPlan:
    world = World(snapshot)
    named = list(nodes) or (sorted(world.views) if rolling else [])
    for number, name in enumerate(named):
        if name not in world.views:
            raise InputError(f"node {quote(name)} does not exist", fix="kubectl get nodes lists them")
        if name in named[:number] and name in nodes:
            raise InputError(f"node {quote(name)} is named twice", fix="name it once")
    limits = pace.limits_of(snapshot.kubevirt, snapshot.migrations, bandwidth)
    planner = _Planner(world, limits)
    steps = tuple(planner.step([name]) for name in named) if rolling else (planner.step(named),)
    vms = [vm for step in steps for vm in step.vms]
    return DrainPlan(
        schema=report.SCHEMA,
        rolling=rolling,
        moves=sum(vm.outcome == report.MOVES for vm in vms),
        shuts_down=sum(vm.outcome == report.SHUTS_DOWN for vm in vms),
        blocks=sum(vm.outcome == report.BLOCKS for vm in vms) + sum(len(step.blocked_pods) for step in steps),
        seconds=sum(step.seconds for step in steps),
        at_most_seconds=_total(step.at_most_seconds for step in steps),
        limits=limits,
        steps=steps,
        changes=changes.rank(planner.blocked, frozenset(named) if not rolling else frozenset()),
        assumptions=_ASSUMPTIONS,
        gaps=(*snapshot.gaps, *planner.gaps()),
    )


def _total(seconds: Iterable[int | None]) -> int | None:
    """How long all take together; None if one of them may take any time."""
    each = list(seconds)
    return None if None in each else sum(one for one in each if one is not None)


class _Planner:
    """Drains the nodes of a world, step by step.

    Args:
        world: the cluster, which is changed as drains would change it.
        limits: how many migrations run concurrently.

    Attributes:
        blocked: the VMs that block, with what could be done about each.
    """

    def __init__(self, world: World, limits: Limits) -> None:
        self._world: Final = world
        self._limits: Final = limits
        self.blocked: Final[list[Blocked]] = []
        self._on: Final[dict[str, dict[Place, ConstrainedPod]]] = {}
        self._vms: Final[dict[str, dict[Place, Vmi]]] = {}
        index = world.index
        self._names: Final = {index.position(name): name for name in world.views}
        # What is counted on the nodes of the VMs that the plan has moved.
        self._settled: Final[dict[Place, tuple[Amounts, Wearer]]] = {}
        self._offers: Final = {name: offers_of(view) for name, view in world.views.items()}
        self._room: Final = Room(index, self._offers)
        running = [pod for pod in world.snapshot.pods if pod.node_name and not pod.is_over]
        occupy(self._room, index, running)
        self._neighbours: Final = Neighbours(index)
        for pod in running:
            self._on.setdefault(pod.node_name, {})[place_of(pod)] = pod
        for vmi in world.vmis.values():
            if vmi.node_name and not vmi.has_ended:
                self._vms.setdefault(vmi.node_name, {})[place_of(vmi)] = vmi
        self._count(running)
        self._packer: Final = Packer(index, self._room, self._neighbours)

    def _count(self, running: Sequence[ConstrainedPod]) -> None:
        """Have the neighbours know all rules first, and then all pods."""
        wearers = [(wearer_of(pod, self._world.labels), pod) for pod in running]
        for wearer, _ in wearers:
            self._neighbours.track(wearer.rules)
        for vms in self._vms.values():
            for vmi in vms.values():
                self._neighbours.track(target_pod(vmi, self._world).rules)
        for wearer, pod in wearers:
            position = self._world.index.position(pod.node_name)
            if position is not None:
                self._neighbours.add(wearer, position)

    def gaps(self) -> Iterator[str]:
        """What could not be taken into account of the whole cluster, clauses."""
        if left_out := self._neighbours.left_out:
            yield f"{pluralize(left_out, 'rule')} between pods beyond the first {MOST_RULES} about the same pods"

    def step(self, nodes: Sequence[str]) -> Step:
        """Drain nodes at the same time; those that were not cordoned before take VMs again afterwards."""
        index = self._world.index
        before = [node for name in nodes if (node := index.get(name))]
        for node in before:
            index.put(msgspec.structs.replace(node, unschedulable=True))
        vms, jobs = self._drain(nodes)
        for node in before:
            index.put(node)
        other, blocked = self._others(nodes)
        return Step(
            tuple(nodes),
            tuple(vms),
            other,
            tuple(blocked),
            pace.about(jobs, self._limits),
            pace.at_most(jobs, self._limits),
        )

    def _drain(self, nodes: Sequence[str]) -> tuple[list[VmPlan], list[pace.QueuedMigration]]:
        plans: dict[Place, VmPlan] = {}
        movers = []
        leaving = [(name, vmi) for name in nodes for _, vmi in sorted(self._vms.get(name, {}).items())]
        for node, vmi in leaving:
            place, fate = place_of(vmi), fate_of(vmi, self._world)
            plans[place] = VmPlan(*place, node, fate.outcome, fate.code, fate.reason, notes=fate.notes)
            if fate.outcome == report.MOVES:
                movers.append(mover_of(vmi, self._world, self._wearer(vmi)))
            elif fate.outcome == report.BLOCKS:
                self.blocked.append(Blocked(place, fate.code, vmi))
            else:
                self._leave(vmi, node, moves=False)
        plans.update(self._find_nodes(movers, plans))
        jobs = [
            pace.QueuedMigration(each.node, each.memory, each.outcome == report.BLOCKS)
            for each in plans.values()
            if each.outcome == report.MOVES or each.code in report.PENDING
        ]
        return list(plans.values()), jobs

    def _find_nodes(self, movers: Sequence[Mover], plans: Mapping[Place, VmPlan]) -> dict[Place, VmPlan]:
        """The plans of the VMs that migrate if there is a node, and have them migrate."""
        review = [(mover, self._world.index.review(mover.requirements)) for mover in movers]
        alone = {mover.place: self._packer.candidates(mover, verdict) for mover, verdict in review}
        placed, packed = self._pack(review)
        turns = {place: turn for turn, place in enumerate(placed, 1)}
        found = {}
        for mover, verdict in review:
            place = mover.place
            plan = self._with_candidates(plans[place], mover, alone[place])
            if place not in placed:
                found[place] = self._blocked_plan(plan, mover, alone[place], self._packer.candidates(mover, verdict))
                continue
            node = self._names[placed[place]]
            found[place] = msgspec.structs.replace(plan, to=node, turn=turns[place])
            if place in packed:
                found[place] = msgspec.structs.replace(found[place], code=report.MIGRATES_IF_PACKED, reason=_PACKED)
        for mover in movers:
            if mover.place in placed:
                self._leave(mover.vmi, plans[mover.place].node, moves=True)
                self._settle(mover, found[mover.place].to)
        return found

    def _pack(self, review: Sequence[tuple[Mover, Verdict]]) -> tuple[dict[Place, int], set[Place]]:
        """Nodes for all, and the VMs that only a tight packing leaves room for."""
        by_score = self._packer.pack(review, tightly=False)
        if len(by_score) == len(review):
            return by_score, set()
        self._packer.undo(review, by_score)
        tight = self._packer.pack(review, tightly=True)
        if len(tight) > len(by_score):
            return tight, tight.keys() - by_score.keys()
        self._packer.undo(review, tight)
        return self._packer.pack(review, tightly=False), set()

    def _with_candidates(self, about: VmPlan, mover: Mover, alone: Candidates) -> VmPlan:
        nodes = islice(positions(alone.nodes), _MOST_CANDIDATES)
        return msgspec.structs.replace(
            about,
            memory=mover.memory,
            eligible=alone.verdict.count,
            with_room=alone.nodes.bit_count(),
            candidates=tuple(self._names[position] for position in nodes),
            gaps=mover.gaps,
        )

    def _blocked_plan(self, about: VmPlan, mover: Mover, alone: Candidates, left: Candidates) -> VmPlan:
        """The plan of a VM that has found no node.

        Args:
            about: what is known of it.
            mover: the VM.
            alone: the nodes for it before any other VM has moved.
            left: the nodes for it after all others have.
        """
        if not alone.verdict.count:
            code, reason = report.NO_ELIGIBLE_NODE, no_node(alone.verdict).text
        else:
            code, reason = no_node_left(mover, alone, left, self._room)
        offers = self._offers[about.node] if code == report.NO_ROOM else None
        position = self._world.index.position(about.node) or 0
        self.blocked.append(Blocked(mover.place, code, mover.vmi, mover, alone, offers, about.node, position))
        return msgspec.structs.replace(about, outcome=report.BLOCKS, code=code, reason=reason)

    def _wearer(self, vmi: Vmi) -> Wearer | None:
        """The pod that a VM runs in, as it is counted among the neighbours."""
        if settled := self._settled.get(place_of(vmi)):
            return settled[1]
        pod = self._world.pod_of(vmi)
        return wearer_of(pod, self._world.labels) if pod else None

    def _leave(self, vmi: Vmi, node: str, *, moves: bool) -> None:
        """Free what a VM has taken of its node. The rules between pods know of it already if it moves."""
        del self._vms[node][place_of(vmi)]
        pod, position = self._world.pod_of(vmi), self._world.index.position(node)
        wearer, settled = self._wearer(vmi), self._settled.get(place_of(vmi))
        if pod is None or position is None:
            return
        self._room.give_back(position, settled[0] if settled else requests_of(pod))
        self._on[node].pop(place_of(pod), None)
        if not moves and wearer is not None:
            self._neighbours.add(wearer, position, -1)

    def _settle(self, mover: Mover, node: str) -> None:
        """Have a VM run where it has moved to."""
        vmi, pod = after_migration(mover, node, self._world)
        self._settled[mover.place] = (mover.requests, mover.pod)
        self._vms.setdefault(node, {})[mover.place] = vmi
        self._world.vmis[mover.place] = vmi
        if pod is not None and vmi.meta.uid:
            self._world.launchers[vmi.meta.uid] = [pod]
            self._on.setdefault(node, {})[place_of(pod)] = pod

    def _others(self, nodes: Sequence[str]) -> tuple[int, list[BlockedPod]]:
        """The pods without a VM that are evicted, and those of them that may not be."""
        number, blocked = 0, []
        for node in nodes:
            for (namespace, name), pod in sorted(self._on.get(node, {}).items()):
                owner = pod.meta.controller_owner()
                if pod.meta.label(CREATED_BY) or (owner and owner.kind in (_DAEMON, "Node")):
                    continue
                number += 1
                if reason := budget_problem(pod, self._world.budgets.get(namespace, ())):
                    blocked.append(BlockedPod(namespace, name, reason))
        return number, blocked
