"""What kube-scheduler does with pods: where each fits, which of these nodes it chooses, and what is left then.

A `Simulation` is a cluster at one moment: nodes with what is left of each, and pods with their rules. `filter` says
which nodes are feasible for a pod, and `schedule` which of these kube-scheduler chooses by its scores. `bind` and
`unbind` put pods on nodes and take them away, in any order, so that a plan can try something and take it back.

The words are kube-scheduler's: nodes that pass all filters are feasible, and only these are scored. (What it calls a
candidate is a node with pods to preempt: `webhook.forecast.preemption`.)

Each filter and each score is a few sets of nodes, as bitsets, which a move changes at the nodes that it touches. The
score by what is left of nodes is kept for each size of pod (what it requests, and its scheduler's profile), and is
counted again for nodes that have changed since it was asked for last: a step costs as much as has changed, whatever the
number of nodes. It is kept for the first `MOST_SIZES` sizes. For a pod of any other size, as many nodes are scored as
kube-scheduler scores: those with most free memory, or with least for a profile that fills nodes.

Of nodes that tie kube-scheduler takes any (pkg/scheduler, schedule_one.go). Until Kubernetes 1.34 chance decides, and
still does among nodes that an extender has scored. Since 1.35 it is the root of a heap, and so mostly the node whose
filters have ended first: they run beside each other, in an order that begins at the same node for each pod as long as
all nodes are looked at. What is chosen here is therefore one of the nodes that it may choose, the same one each time.

In a cluster of more than 100 nodes it stops looking once enough are found that fit (`percentageOfNodesToScore`, at
least 100), and scores these.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from webhook.admission.step_budget import spend
from webhook.k8s.quantity import nanos
from webhook.k8s.types.core import Node as NodeWithImages
from webhook.k8s.types.core import NodeWithoutImages
from webhook.k8s.types.scheduling import Taint, Toleration
from webhook.k8s.types.selectors import Term
from webhook.placement import profiles, requirements, scores
from webhook.placement.eligibility import Eligibility
from webhook.placement.index import NodeIndex, NumberIndex
from webhook.placement.nodes import (
    CPU,
    MEMORY,
    NOT_REPORTED,
    POD_SLOTS,
    Tolerated,
    bitset_positions,
    bitset_union,
    parse_allocatable,
    to_scheduler_units,
)
from webhook.placement.pod_rules import NodesByNumber, PodInfo, RuleIndex, add_numbers, group_by_number
from webhook.placement.profiles import Profile
from webhook.placement.requirements import Origin
from webhook.placement.scores import ImageIndex, KubernetesVersion, Load, NodeResources, ResourceScorer

# As elsewhere, what a kubelet has not reported is never a reason against its node.
_PLENTY: Final = 2**63 - 1
_PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
_NO_LIMITS: Final[Mapping[str, int]] = {}
# What requires labels of nodes otherwise than by the pod's own selector and node affinity: rules between pods, and
# where volumes are. PodTopologySpread counts the pods there.
_NOT_OF_THE_POD: Final = (
    *(Origin.RESERVATION, Origin.SPREAD, Origin.POD_AFFINITY, Origin.VOLUMES),
    *(Origin.APART, Origin.TOGETHER),
)
# Sizes of pods whose scores are kept; each takes some 50 KB with 5,000 nodes.
MOST_SIZES: Final = 1000
# Changes that are kept for those scores; a simulation of losses makes thousands of them a second.
_MOST_CHANGES: Final = 100_000
# kube-scheduler's minFeasibleNodesToFind and minFeasibleNodesPercentageToFind.
_LEAST_TO_SCORE: Final = 100
_LEAST_PERCENTAGE_TO_SCORE: Final = 5
# Scoring a node takes a fraction of a step.
_NODES_A_STEP: Final = 8


# It scores nothing, as one that no node lists, or all do.
UNKNOWN_IMAGE: Final = ""


class SimulatedPod(msgspec.Struct, frozen=True):
    """A pod: what it takes, its rules about other pods, and what it prefers of nodes.

    Attributes:
        tolerations: of these, those for taints with the effect PreferNoSchedule count.
        preferred: the preferred terms of its node affinity, each with its weight.
        images: those of its containers, init containers too, as they are written; `UNKNOWN_IMAGE` for one that is not
            known.
        image_volumes: the images that it mounts as volumes.
        profile: that of its scheduler.
    """

    info: PodInfo
    load: Load
    tolerations: tuple[Toleration, ...] = ()
    preferred: tuple[tuple[Term, int], ...] = ()
    images: tuple[str, ...] = ()
    image_volumes: tuple[str, ...] = ()
    profile: Profile = profiles.STOCK

    @property
    def requests(self) -> dict[str, int]:
        """What it takes of its node, by resource, in kube-scheduler's unit."""
        return self.load.requests


class FilterResult(msgspec.Struct, frozen=True):
    """The nodes for one pod at one moment, by kube-scheduler's filters.

    Attributes:
        eligibility: the nodes by what the pod requires of them.
        with_free: the nodes that have enough free, as a bitset.
        apart: what other pods keep it from, each with the nodes, as a bitset.
    """

    eligibility: Eligibility
    with_free: int
    apart: tuple[tuple[str, int], ...]

    @property
    def feasible(self) -> int:
        """The nodes that it can go to now, as a bitset."""
        return self.eligibility.bitset & self.with_free & ~self.forbidden

    @property
    def forbidden(self) -> int:
        """The nodes that other pods keep it from, as a bitset."""
        return bitset_union(nodes for _, nodes in self.apart)


class ScheduleResult(msgspec.Struct, frozen=True):
    """Where kube-scheduler sends a pod.

    Attributes:
        filtered: the nodes that are feasible.
        best: the highest sum of their scores, without what all nodes have the same of; 0 for a single node.
        ties: the nodes that have it, as a bitset: kube-scheduler may choose any of them.
        position: the one that is chosen here.
    """

    filtered: FilterResult
    best: int
    ties: int
    position: int


# Which of the nodes that tie is taken: its position.
TieBreak: TypeAlias = Callable[[int], int]


class Simulation:
    """The nodes of a cluster, and the pods on them.

    Args:
        index: the nodes. Their labels and taints stay; they may be cordoned and uncordoned.
        views: the same nodes by name, as the API server has them; with images where ImageLocality is to count.
        version: that of kube-scheduler.
        most: of some resources, no more than so much of each node counts as allocatable.

    Attributes:
        rules: the pods, by the rules that they have and that are about them. They have to be tracked before pods are
            bound that they are about.
        has_sampled: whether a pod was beyond the first `MOST_SIZES` sizes, so that only some nodes were scored for it.
    """

    def __init__(
        self,
        index: NodeIndex,
        views: Mapping[str, NodeWithoutImages],
        version: KubernetesVersion = scores.NEWEST,
        most: Mapping[str, int] = _NO_LIMITS,
    ) -> None:
        self.rules: Final = RuleIndex(index)
        self.has_sampled = False
        self._version: Final = version
        self._resources: Final[dict[int, NodeResources]] = {}
        self._free: Final[dict[str, NumberIndex]] = {}
        self._everyone = 0
        self._taints: Final[dict[Taint, int]] = {}
        self._index: Final = index
        self._most: Final = most
        for name, view in views.items():
            self.add_node(name, view)
        self._images: Final = ImageIndex(
            (position, _image_sizes(view))
            for name, view in views.items()
            if isinstance(view, NodeWithImages) and (position := index.position(name)) is not None
        )
        # What does not change: by tolerations, by preferred terms, by images.
        self._soft_taints: Final[dict[tuple[Toleration, ...], NodesByNumber]] = {}
        self._preferred: Final[dict[tuple[tuple[Term, int], ...], NodesByNumber]] = {}
        self._listed: Final[dict[tuple[str, ...], NodesByNumber]] = {}
        # The positions of nodes on which something is free or taken that was not, in order.
        self._changes: Final[list[int]] = []
        self._kept_scores: Final[dict[tuple[object, ...], _ResourceScores]] = {}

    def add_node(self, name: str, view: NodeWithoutImages) -> None:
        """Have one node more of the index, whose images do not count, before any pod is on it."""
        position = self._index.position(name)
        if position is None:
            return
        bit = 1 << position
        self._everyone |= bit
        most = self._most
        allocatable = {
            resource: min(amount, most.get(resource, amount)) for resource, amount in allocatable_of(view).items()
        }
        self._resources[position] = NodeResources(allocatable)
        for resource, amount in allocatable.items():
            if resource not in self._free:
                self._free[resource] = NumberIndex()
            self._free[resource].flip(amount, bit)
        for taint in {*((view.spec.taints if view.spec else None) or ())}:
            if taint.effect == _PREFER_NO_SCHEDULE:
                self._taints[taint] = self._taints.get(taint, 0) | bit

    def resources(self, position: int) -> NodeResources:
        """What pods can request of a node, and what is left of it."""
        return self._resources[position]

    # -- filters -------------------------------------------------------------------------------------------------------

    def filter(self, pod: SimulatedPod, eligibility: Eligibility) -> FilterResult:
        """Where a pod fits now; ``eligibility`` has the nodes by what it requires of them."""
        apart, with_free = tuple(self._apart(pod, eligibility)), -1
        for resource, amount in pod.requests.items():
            with_free &= self.with_free(resource, amount)
        return FilterResult(eligibility, with_free, apart)

    def fits(self, pod: SimulatedPod, eligibility: Eligibility, position: int) -> bool:
        """Whether a pod fits on one eligible node now."""
        if not self.has_free(position, pod.requests, ()):
            return False
        return not any(nodes >> position & 1 for _, nodes in self._apart(pod, eligibility))

    def has_free(self, position: int, requests: Mapping[str, int], freed: Iterable[Load]) -> bool:
        """Whether a node has enough free for requests once some pods are gone, whatever rules there are."""
        resources = self._resources.get(position)
        free = resources.free if resources else {}
        gone = [each.requests for each in freed]
        return all(
            amount <= 0 or (name in free and free[name] + sum(each.get(name, 0) for each in gone) >= amount)
            for name, amount in requests.items()
        )

    def with_free(self, resource: str, amount: int) -> int:
        """The nodes that have so much of one resource free, as a bitset.

        For a request of nothing they are all nodes, also those that are overcommitted in the resource or do not have
        it (pkg/scheduler/framework/plugins/noderesources/fit.go, fitsRequest).
        """
        if amount <= 0:
            return self._everyone
        free = self._free.get(resource)
        return free.nodes & ~free.below(amount) if free else 0

    def _apart(self, pod: SimulatedPod, eligibility: Eligibility) -> Iterator[tuple[str, int]]:
        """What other pods keep a pod from, each with the nodes, as a bitset."""
        matching, tolerated = inclusion(eligibility) if pod.info.rules.spread else (-1, -1)
        return self.rules.excluded_nodes(pod.info, matching, tolerated)

    # -- scores --------------------------------------------------------------------------------------------------------

    def schedule(
        self, pod: SimulatedPod, eligibility: Eligibility, tie_break: TieBreak | None = None
    ) -> ScheduleResult | None:
        """Where kube-scheduler sends a pod now; None: it fits nowhere.

        Args:
            pod: the pod, which is not bound.
            eligibility: the nodes by what it requires of them.
            tie_break: chooses one of the nodes that tie; None: the one with most free memory.
        """
        filtered = self.filter(pod, eligibility)
        nodes = filtered.feasible
        if not nodes:
            return None
        best, ties = self._rank(pod, eligibility, nodes)
        is_single = not ties & (ties - 1)
        position = ties.bit_length() - 1 if is_single else (tie_break or self.most_free)(ties)
        return ScheduleResult(filtered, best, ties, position)

    def scores(self, pod: SimulatedPod, eligibility: Eligibility, nodes: int) -> dict[str, NodesByNumber]:
        """What each plugin gives to feasible nodes now, weighted, as `schedule` adds it up; nothing where all get 0."""
        if not nodes:
            return {}
        found = dict(self._other_scores(pod, eligibility, nodes))
        found |= self._by_resources(ResourceScorer(pod.profile, pod.load, self._version), nodes)
        return found

    def most_free(self, nodes: int) -> int:
        """The position of the node with most free memory, the first of several."""
        position = self.most_free_of(nodes, MEMORY)
        if position is None:
            raise ValueError("no node has any memory")
        return position

    def most_free_of(self, nodes: int, resource: str) -> int | None:
        """The position of the node with most of a resource free, the first of several; None: none has the resource."""
        free = self._free.get(resource)
        for alike in free.descending() if free else ():
            if matches := alike & nodes:
                return (matches & -matches).bit_length() - 1
        return None

    def least_free(self, nodes: int, pod: SimulatedPod) -> int:
        """The position of the node that a pod fills best: with the least free memory of those with enough."""
        for alike in self._free[MEMORY].ascending(pod.requests.get(MEMORY) or -_PLENTY):
            if matches := alike & nodes:
                return (matches & -matches).bit_length() - 1
        raise ValueError("no node has enough memory")

    def _rank(self, pod: SimulatedPod, eligibility: Eligibility, nodes: int) -> tuple[int, int]:
        """The highest sum of scores among feasible nodes, and those that have it."""
        if not nodes & (nodes - 1):
            return 0, nodes  # kube-scheduler does not score a single one
        sums: NodesByNumber = {0: nodes}
        for _, scored in self._other_scores(pod, eligibility, nodes):
            sums = add_numbers(sums, scored)
        by_resources = self._resource_scores(pod, sums)
        descending = sorted(by_resources, reverse=True)
        best, ties = -1, 0
        # From the highest scores on, until no sum can be as high.
        for other in sorted(sums, reverse=True):
            for score in descending:
                total = other + score
                if total < best:
                    break
                if at := by_resources[score] & sums[other]:
                    ties = at if total > best else ties | at
                    best = total
                    break
        return best, ties

    def _other_scores(
        self, pod: SimulatedPod, eligibility: Eligibility, nodes: int
    ) -> Iterator[tuple[str, NodesByNumber]]:
        """What depends on something else than the nodes' resources, weighted, where it differs."""
        profile, preferences = pod.profile, pod.info.preferences
        if self._taints:
            yield from _weighted(
                profile, profiles.TAINTS, scores.normalize(self._untolerated(pod), nodes, reverse=True)
            )
        if pod.preferred:
            scored = scores.normalize(self._preferring(pod), nodes)
            yield from _weighted(profile, profiles.NODE_AFFINITY, scored)
        if preferences.spread and profile.weight(profiles.SPREAD):
            scored = self.rules.spread_scores(pod.info, nodes, *inclusion(eligibility))
            yield from _weighted(profile, profiles.SPREAD, scored)
        if profile.weight(profiles.POD_AFFINITY):
            yield from _weighted(profile, profiles.POD_AFFINITY, self.rules.affinity_scores(pod.info, nodes))
        images = pod.images
        if self._version >= scores.IMAGE_VOLUMES_SCORED_SINCE:
            images += pod.image_volumes
        if images and profile.weight(profiles.IMAGES):
            if images not in self._listed:
                self._listed[images] = self._images.scores(images, self._everyone)
            own = {score: at & nodes for score, at in self._listed[images].items() if at & nodes}
            yield from _weighted(profile, profiles.IMAGES, own)

    def _untolerated(self, pod: SimulatedPod) -> NodesByNumber:
        """The nodes by how many of their soft taints a pod does not tolerate."""
        key = tuple(each for each in pod.tolerations if (each.effect or _PREFER_NO_SCHEDULE) == _PREFER_NO_SCHEDULE)
        if key not in self._soft_taints:
            spend(len(key) + len(self._taints), "tolerations")
            tolerated, counts = Tolerated(key), {0: self._everyone}
            for taint, nodes in self._taints.items():
                if not tolerated.covers(taint):
                    counts = add_numbers(counts, {1: nodes})
            self._soft_taints[key] = counts
        return self._soft_taints[key]

    def _preferring(self, pod: SimulatedPod) -> NodesByNumber:
        """The nodes by the weights of the terms of a pod's node affinity that they match."""
        if pod.preferred not in self._preferred:
            sums = {0: self._everyone}
            for term, weight in pod.preferred:
                unmatched = self._index.review((requirements.OneOf(Origin.AFFINITY, (term,)),)).failures
                nodes = self._everyone & ~bitset_union(failure.nodes for failure in unmatched)
                sums = add_numbers(sums, {weight: nodes})
            self._preferred[pod.preferred] = sums
        return self._preferred[pod.preferred]

    def _resource_scores(self, pod: SimulatedPod, sums: NodesByNumber) -> NodesByNumber:
        """What the nodes' resources give to a pod of this size now, where they are kept also of infeasible nodes.

        ``sums`` are the sums of all other scores, with the feasible nodes.
        """
        profile, load = pod.profile, pod.load
        counted = tuple((name, load.requests.get(name, 0)) for name, _ in profile.resources)
        key = (profile, load.cpu, load.memory, load.requests.get(CPU, 0), load.requests.get(MEMORY, 0), counted)
        kept = self._kept_scores.get(key)
        if kept is None:
            scorer = ResourceScorer(profile, load, self._version)
            if len(self._kept_scores) >= MOST_SIZES:
                self.has_sampled = True
                sample = self._sample(sums, fills=profile.fills)
                spend(sample.bit_count() // _NODES_A_STEP, "nodes that are scored")
                return group_by_number((scorer.total(self._resources[at]), 1 << at) for at in bitset_positions(sample))
            kept = self._kept_scores[key] = _ResourceScores(scorer, self._resources)
        kept.update(self._changes)
        return kept.nodes

    def _sample(self, sums: NodesByNumber, *, fills: bool) -> int:
        """As many feasible nodes as kube-scheduler scores, as a bitset.

        Those come first that get most by other scores, and of these the ones with most free memory, or with least.
        """
        left, sample = nodes_to_score(len(self._resources)), 0
        for score in sorted(sums, reverse=True):
            nodes = sums[score]
            if nodes.bit_count() > left:
                memory = self._free[MEMORY]
                for alike in memory.ascending(-_PLENTY) if fills else memory.descending():
                    some = bitset_union(1 << at for at in islice(bitset_positions(alike & nodes), left))
                    sample |= some
                    left -= some.bit_count()
                    if not left:
                        break
                return sample
            sample |= nodes
            left -= nodes.bit_count()
        return sample

    def _by_resources(self, scorer: ResourceScorer, nodes: int) -> dict[str, NodesByNumber]:
        """What the nodes' resources give to a pod, by plugin."""
        nodes_at = [(position, self._resources[position]) for position in bitset_positions(nodes)]
        found = {}
        if weight := scorer.fit_weight:
            found[profiles.FIT] = group_by_number(
                (weight * scorer.fit(node), 1 << position) for position, node in nodes_at
            )
        if weight := scorer.balance_weight:
            scored = group_by_number((weight * scorer.balance(node), 1 << position) for position, node in nodes_at)
            found[profiles.BALANCE] = scored
        return found

    # -- moves ---------------------------------------------------------------------------------------------------------

    def lose(self, nodes: int) -> None:
        """Have nodes be gone, as a bitset, or have those that were gone be back, before and after their pods.

        No eligibility of theirs may be asked about meanwhile (`Eligibility.without`).
        """
        self._everyone ^= nodes
        self.rules.lose(nodes)
        # Of images, it counts how many nodes have them.
        self._listed.clear()

    def bind(self, pod: SimulatedPod, position: int) -> None:
        """Have a pod be on a node, whether it fits there or not."""
        self._change(pod, position, 1)

    def unbind(self, pod: SimulatedPod, position: int) -> None:
        """Have a pod be gone from a node."""
        self._change(pod, position, -1)

    def _change(self, pod: SimulatedPod, position: int, number: int) -> None:
        resources, load, bit = self._resources.get(position), pod.load, 1 << position
        if resources is not None:
            before = [(resource, resources.free[resource]) for resource in load.requests if resource in resources.free]
            resources.take(load, number)
            for resource, amount in before:
                self._free[resource].flip(amount, bit)
                self._free[resource].flip(resources.free[resource], bit)
            if len(self._changes) >= _MOST_CHANGES:
                # Each size is scored anew then, when it is asked about next.
                self._changes.clear()
                self._kept_scores.clear()
            self._changes.append(position)
        self.rules.add(pod.info, position, number)


class _ResourceScores:
    """What NodeResourcesFit and NodeResourcesBalancedAllocation give together to one size of pod.

    Attributes:
        nodes: the nodes by their scores.
    """

    def __init__(self, scorer: ResourceScorer, resources: Mapping[int, NodeResources]) -> None:
        self._scorer: Final = scorer
        self._resources: Final = resources
        self._scores: Final = array("l", [-1]) * (max(resources, default=-1) + 1)
        self.nodes: Final[NodesByNumber] = {}
        self._seen = -1

    def update(self, changes: list[int]) -> None:
        """Count again for the nodes that have changed since the last time; all, the first time."""
        if self._seen == len(changes):
            return
        resources, known, nodes, score_of = self._resources, self._scores, self.nodes, self._scorer.total
        changed: Collection[int] = resources if self._seen < 0 else {*changes[self._seen :]}
        # Before anything is noted: a review that ends here leaves the scores as they are.
        spend(len(changed) // _NODES_A_STEP, "nodes that are scored")
        self._seen = len(changes)
        for position in changed:
            before, after = known[position], score_of(resources[position])
            if before == after:
                continue
            bit = 1 << position
            if before >= 0:
                left = nodes[before] ^ bit
                if left:
                    nodes[before] = left
                else:
                    del nodes[before]
            nodes[after] = nodes.get(after, 0) | bit
            known[position] = after


def _weighted(profile: Profile, plugin: str, scored: NodesByNumber) -> Iterator[tuple[str, NodesByNumber]]:
    """What a plugin gives, by its weight; nothing where it gives all nodes the same."""
    weight = profile.weight(plugin)
    if weight and len(scored) > 1:
        yield plugin, {weight * score: nodes for score, nodes in scored.items()}


def inclusion(eligibility: Eligibility) -> tuple[int, int]:
    """The nodes that a pod's selector and affinity allow, and those whose taints it tolerates, as bitsets."""
    unmatched = untolerated = 0
    for failure in eligibility.failures:
        required = failure.requirement
        if isinstance(required, requirements.Untainted | requirements.Uncordoned):
            untolerated |= failure.nodes
        elif isinstance(required, requirements.Label | requirements.OneOf) and required.origin not in _NOT_OF_THE_POD:
            unmatched |= failure.nodes
    return ~unmatched, ~untolerated


def nodes_to_score(nodes: int) -> int:
    """Of so many nodes, how many kube-scheduler scores for one pod where its configuration says nothing.

    Source: pkg/scheduler/schedule_one.go, numFeasibleNodesToFind.
    """
    percentage = max(_LEAST_PERCENTAGE_TO_SCORE, 50 - nodes // 125)
    return min(nodes, max(_LEAST_TO_SCORE, nodes * percentage // 100))


def allocatable_of(node: NodeWithoutImages) -> dict[str, int]:
    """What pods could request of the whole node."""
    listed = node.allocatable
    pods = listed.get(POD_SLOTS)
    amount = None if pods is None else nanos(pods)
    most = _PLENTY if amount is None else to_scheduler_units(POD_SLOTS, amount)
    return {**NOT_REPORTED, **parse_allocatable(listed), POD_SLOTS: most}


def _image_sizes(node: NodeWithImages) -> dict[str, int]:
    """The images of a node by their names, with the size in bytes."""
    sizes: dict[str, int] = {}
    for image in node.images:
        for name in image.names or ():
            sizes.setdefault(name, image.size_bytes or 0)
    return sizes
