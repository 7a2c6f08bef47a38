"""The losses of a cluster that leave VMs down, found by losing nodes in turn.

Most losses need no simulation (`_Room`): a pod that has more nodes with room than pods start gets one of them in
whatever order they start, and wherever the others go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, product
from math import comb
from typing import Final, NamedTuple

from msgspec.structs import replace

from webhook.admission.step_budget import StepBudget, spend
from webhook.errors import InputError
from webhook.forecast import loss_report
from webhook.forecast.drain import MAX_STEPS
from webhook.forecast.loss import ASSUMPTIONS, bounded, gaps_of, planned
from webhook.forecast.loss_report import Examined, FailingLoss, LossPlan
from webhook.forecast.losses import Losses
from webhook.forecast.snapshot import ClusterObjects, group
from webhook.forecast.start import has_lasting_frequency
from webhook.forecast.starts import Key, Start
from webhook.placement.nodes import HOSTNAME, ZONE
from webhook.placement.target_pods import needs_tsc_frequency

# Of those that a plan may take, the rest is for looking at the loss that it has found.
_SEARCH_STEPS: Final = MAX_STEPS // 4
MOST_FAILING: Final = 20
_FEW: Final = 5


def search(objects: ClusterObjects, any_of: int) -> LossPlan:
    """Which losses of so many nodes leave VMs down.

    Raises:
        InputError: the cluster's objects are too complex.
    """
    return bounded(lambda budget: _search(objects, any_of, budget), "name nodes")


def search_zones(objects: ClusterObjects) -> LossPlan:
    """Which losses of a whole zone leave VMs down.

    Raises:
        InputError: no node has a zone, or the cluster's objects are too complex.
    """
    return bounded(lambda budget: _search_zones(objects, budget), "name nodes")


class _Room:
    """For which losses it is certain that all pods start, whatever their order and wherever each goes.

    A pod that has more nodes with room than pods start gets one, because each of the others takes at most one node away
    from it: by what it requests, or by anti-affinity on hosts. That does not hold for pods with other rules, nor where
    the API server may deny pods, or no scheduler looks at them.

    Args:
        losses: the cluster, of which nothing is lost.
        lost: of how many nodes losses are looked at, at most.
    """

    def __init__(self, losses: Losses, lost: int) -> None:
        self._losses: Final = losses
        self._nodes: Final[dict[tuple[object, ...], int]] = {}
        by_host = Counter(node.labels[HOSTNAME] for node in losses.cluster.index if HOSTNAME in node.labels)
        self._hosts_are_nodes: Final = all(number == 1 for number in by_host.values())
        # By the TSC frequency, other nodes are eligible after the loss of two nodes than after that of one of them.
        index, configuration = losses.cluster.index, losses.cluster.objects.kubevirt
        self._keeps_frequency: Final = lost == 1 or has_lasting_frequency(index, configuration, lost)

    def nodes(self, start: Start) -> int | None:
        """The nodes that have room for a pod now, as a bitset; None: others may take more than one from it."""
        rules = start.pod.info.rules
        is_simple = not (rules.affinity or rules.spread or start.scheduled or self._losses.denial(start))
        if start.vmi and needs_tsc_frequency(start.vmi):
            is_simple = is_simple and self._keeps_frequency
        if rules.anti_affinity:
            is_simple = (
                is_simple and self._hosts_are_nodes and all(each.key == HOSTNAME for each in rules.anti_affinity)
            )
        if not is_simple or start.key[1] in self._losses.cluster.quotas:
            return None
        eligibility, info = self._losses.eligibility(start), start.pod.info
        labels = tuple(sorted(info.labels.items())) if self._losses.simulation.rules.has_rules else ()
        alike = (tuple(sorted(start.pod.requests.items())), eligibility.bitset, info.namespace, labels, rules)
        if alike not in self._nodes:
            self._nodes[alike] = self._losses.simulation.filter(start.pod, eligibility).feasible
        return self._nodes[alike]


class _Weight(NamedTuple):
    """Of one node: how many pods start anew if it is lost, and on how many nodes at least each has room.

    Attributes:
        room: None: that does not say enough.
    """

    name: str
    vms: int
    starts: int
    room: int | None

    @property
    def importance(self) -> tuple[bool, int, int, str]:
        """Sorts those first that say least, and of the others those with least room."""
        return self.room is not None, (self.room or 0) - self.starts, -self.vms, self.name

    def certifies(self, others: int, lost: int) -> bool:
        """Whether all of its pods start if so many others do, and so many nodes are lost."""
        return self.room is not None and self.room - lost >= self.starts + others


class _Found(NamedTuple):
    nodes: tuple[str, ...]
    vms: tuple[Key, ...]
    zone: str = ""


def _search(objects: ClusterObjects, any_of: int, budget: StepBudget) -> LossPlan:
    losses = Losses(objects)
    room = _Room(losses, any_of)
    weights = [_weight(losses, room, name) for name in sorted(losses.cluster.views)]
    failing: list[_Found] = []
    total, by_room, simulated, implied, left_out = 0, 0, 0, 0, 0
    for size in range(1, any_of + 1):
        broken = {each.nodes[0] for each in failing if len(each.nodes) == 1}
        sets = _Sets(weights, size, broken)
        total, implied, by_room = total + sets.total, implied + sets.implied, by_room + sets.certain
        left_out += sets.doubtful
        for part, is_certain in sets:
            if budget.spent >= _SEARCH_STEPS:
                break
            left_out -= 1
            spend(1, "losses of nodes")
            if is_certain:
                by_room += 1
                continue
            simulated += 1
            if waiting := losses.lose(part, explains=False).waiting_vms:
                failing.append(_Found(part, tuple(waiting)))
    examined = Examined(total, by_room, simulated, implied, left_out)
    return _searched(losses, failing, examined, any_of=any_of)


def _weight(losses: Losses, room: _Room, name: str) -> _Weight:
    starts, _ = losses.starting([name])
    least: int | None = len(losses.cluster.views)
    gone = losses.bits([name])
    for start in starts:
        nodes = room.nodes(start)
        if nodes is None:
            least = None
            break
        # The node itself is counted as lost where this is compared.
        least = min(least, (nodes | gone).bit_count()) if least is not None else None
    return _Weight(name, sum(each.is_vm for each in starts), len(starts), least)


class _Sets:
    """The sets of so many nodes to lose, those first that matter most.

    Args:
        weights: of each node.
        size: how many nodes a set has.
        broken: the nodes whose loss leaves VMs down already.

    Attributes:
        total: how many sets there are.
        implied: how many of them have a node whose loss leaves VMs down already.
        certain: how many leave no VM down for certain, without a look at each.
        doubtful: how many there are to look at, one by one.
    """

    def __init__(self, weights: Sequence[_Weight], size: int, broken: set[str]) -> None:
        sound = [each for each in weights if each.name not in broken]
        rest = max((each.starts for each in sound), default=0) if size > 1 else 0
        # Certain beside whatever other node.
        self._strong: Final = [each for each in sound if each.certifies(rest, size)]
        weak = [each for each in sound if not each.certifies(rest, size)]
        self._weak: Final = sorted(weak, key=lambda each: each.importance)
        self._size: Final = size
        self.total: Final = comb(len(weights), size)
        self.implied: Final = self.total - comb(len(sound), size)
        self.certain: Final = comb(len(self._strong), size)
        self.doubtful: Final = self.total - self.implied - self.certain

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], bool]]:
        """Those to look at, each with whether it leaves no VM down for certain."""
        if self._size == 1:
            yield from (((each.name,), not each.starts) for each in self._weak)
            return
        # The pairs among the first nodes come before all pairs of the first node.
        weak = self._weak
        pairs = ((weak[first], other) for number, other in enumerate(weak) for first in range(number))
        partners = sorted(self._strong, key=lambda each: (-each.starts, each.name))
        for one, other in chain(pairs, product(weak, partners)):
            is_certain = one.certifies(other.starts, 2) and other.certifies(one.starts, 2)
            names = sorted((one.name, other.name))
            yield tuple(names), is_certain or not (one.starts or other.starts)


def _search_zones(objects: ClusterObjects, budget: StepBudget) -> LossPlan:
    zones = group(((each.meta.labels or {}).get(ZONE) or "", each.meta.name or "") for each in objects.nodes)
    zones.pop("", None)
    if not zones:
        raise InputError(f"no node has the label {ZONE}", "--zone", "name nodes, or select them by a label")
    losses = Losses(objects)
    failing, left_out = [], 0
    for zone, nodes in sorted(zones.items()):
        if budget.spent >= _SEARCH_STEPS:
            left_out += 1
        elif waiting := losses.lose(nodes, explains=False).waiting_vms:
            failing.append(_Found(tuple(sorted(nodes)), tuple(waiting), zone))
    return _searched(losses, failing, Examined(len(zones), 0, len(zones) - left_out, 0, left_out), by_zone=True)


def _searched(
    losses: Losses, failing: Sequence[_Found], examined: Examined, *, any_of: int = 0, by_zone: bool = False
) -> LossPlan:
    """The plan of the smallest loss that leaves most VMs down, with the others that were found."""
    objects = losses.cluster.objects
    ordered = sorted(failing, key=lambda each: (0 if by_zone else len(each.nodes), -len(each.vms), each.nodes))
    listed = tuple(
        FailingLoss(each.nodes, len(each.vms), tuple(f"{key[1]}/{key[2]}" for key in each.vms[:_FEW]), each.zone)
        for each in ordered[:MOST_FAILING]
    )
    if ordered:
        found = planned(objects, ordered[0].nodes)
    else:
        gaps = (*objects.gaps, *gaps_of(losses, losses.cluster.views))
        found = LossPlan(loss_report.SCHEMA, 0, False, (), assumptions=ASSUMPTIONS, gaps=gaps)
    examined = replace(examined, stays_down=losses.count_staying_down())
    return replace(found, any_of=any_of, by_zone=by_zone, failing=listed, examined=examined)
