"""The rules between pods: which pods they are about, which nodes they exclude and prefer as pods come and go.

Affinity and anti-affinity, and topology spread constraints, as kube-scheduler reads them
(pkg/scheduler/framework/plugins, interpodaffinity and podtopologyspread). Every rule that some pod has is tracked: how
many of the pods that it matches are in each domain, how many pods have it as anti-affinity, and how much the pods that
have it pull others there. So a question about a node is a look-up, and a move costs as much as there are rules that
match the pod.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from webhook.admission.step_budget import spend
from webhook.k8s.types.meta import View
from webhook.k8s.types.scheduling import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from webhook.k8s.types.selectors import IN, NOT_IN, Expression, LabelSelector
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import HOSTNAME, ZONE, bitset_union

Labels: TypeAlias = Mapping[str, str]
# Nodes by a number, as bitsets that have no node in common.
NodesByNumber: TypeAlias = dict[int, int]
MAX_SCORE: Final = 100
# Rules about the same pods; any tenant can write as many as there are pods. Equal ones are one.
MOST_RULES: Final = 1000

POD_AFFINITY: Final = "pod affinity"
POD_ANTI_AFFINITY: Final = "pod anti-affinity"
TOPOLOGY_SPREAD: Final = "topology spread constraints"


class PodSelector(msgspec.Struct, frozen=True):
    """Pods by namespace (None: any) and labels, of which all expressions must hold (None: no pod is meant)."""

    namespaces: frozenset[str] | None
    expressions: tuple[Expression, ...] | None

    def matches(self, namespace: str, labels: Labels) -> bool:
        """Whether a pod with these labels is meant."""
        if self.expressions is None or (self.namespaces is not None and namespace not in self.namespaces):
            return False
        return all(one.accepts(labels.get(one.key)) for one in self.expressions)

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Labels of which every pod that is meant has one; empty: there are none to look pods up by."""
        equal = next((one for one in self.expressions or () if one.operator == IN), None)
        return tuple((equal.key, value) for value in equal.values) if equal else ()


def expressions_of(selector: LabelSelector | None, *more: Expression) -> tuple[Expression, ...] | None:
    """The expressions of a label selector, and more; None where it matches nothing: an absent or a malformed one."""
    return selector.expressions(*more) if selector else None


def of_labels(keys: list[str] | None, labels: Labels, operator: str = IN) -> Iterator[Expression]:
    """What ``matchLabelKeys`` (with `NOT_IN`: ``mismatchLabelKeys``) add to the selector of a pod with labels."""
    for key in keys or ():
        if key in labels:
            yield Expression(key, operator, (labels[key],))


class AffinityTerm(msgspec.Struct, frozen=True):
    """Nodes in the same domain as pods that all selectors mean.

    Attributes:
        selectors: of affinity those of all terms, for a pod counts only if it meets all.
        skips_terminating: whether pods that are being deleted do not count: PodTopologySpread leaves them out
            (``countPodsMatchSelector``), InterPodAffinity counts them.
    """

    key: str
    selectors: tuple[PodSelector, ...]
    skips_terminating: bool = False


class SpreadRule(msgspec.Struct, frozen=True):
    """A topology spread constraint.

    Attributes:
        near: the domains and the pods that are counted in them. A selector that selects everything counts none.
        max_skew: how many more pods than the emptiest domain a domain may have.
        min_domains: with fewer domains, the emptiest counts as empty.
        by_affinity: only domains of nodes that the pod's selector and affinity allow count.
        by_taints: only domains of nodes whose taints the pod tolerates count.
        counts_itself: whether the selector selects the pod that has the constraint.
    """

    near: AffinityTerm
    max_skew: int
    min_domains: int
    by_affinity: bool
    by_taints: bool
    counts_itself: bool


class PodConstraints(msgspec.Struct, frozen=True):
    """All rules of one pod.

    Attributes:
        affinity: a pod of each must be in the node's domain.
        anti_affinity: no pod of any may be there.
    """

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadRule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.spread)


class PodPreferences(msgspec.Struct, frozen=True):
    """What of the rules of one pod excludes no node.

    Attributes:
        near: the preferred terms, with their weights; of anti-affinity those are negative.
        pulls: how much the pod, where it runs, pulls pods there that its terms mean: its preferred terms, and those
            that it requires for itself.
        spread: the soft constraints.
        spread_by_default: whether these are kube-scheduler's own; nodes without one of their keys are scored, too.
    """

    near: tuple[tuple[AffinityTerm, int], ...] = ()
    pulls: tuple[tuple[AffinityTerm, int], ...] = ()
    spread: tuple[SpreadRule, ...] = ()
    spread_by_default: bool = False

    def __bool__(self) -> bool:
        return bool(self.near or self.pulls or self.spread)


NO_PREFERENCES: Final = PodPreferences()


class PodInfo(msgspec.Struct, frozen=True):
    """A pod as rules see it: its namespace and labels, its own rules, and whether it is being deleted."""

    namespace: str
    labels: dict[str, str]
    rules: PodConstraints = PodConstraints()
    preferences: PodPreferences = NO_PREFERENCES
    is_terminating: bool = False

    def meets(self, near: AffinityTerm) -> bool:
        """Whether this pod is one of those that a rule means."""
        if self.is_terminating and near.skips_terminating:
            return False
        return all(selector.matches(self.namespace, self.labels) for selector in near.selectors)


def rules_of(
    affinity: Affinity | None,
    spread: Sequence[TopologySpreadConstraint | None] | None,
    namespace: str,
    labels: Labels,
    namespaces: Mapping[str, Labels],
) -> PodConstraints:
    """The rules of a pod's spec that exclude nodes."""
    if affinity is None and not spread:
        return PodConstraints()
    near = affinity or Affinity()
    together = [*_required(near.pod_affinity, namespace, labels, namespaces)]
    all_selectors = tuple(selector for _, selector in together)
    apart = _required(near.pod_anti_affinity, namespace, labels, namespaces)
    hard = (each for each in spread or () if each and each.when_unsatisfiable == "DoNotSchedule")
    return PodConstraints(
        tuple(AffinityTerm(key, all_selectors) for key in dict.fromkeys(key for key, _ in together)),
        tuple(dict.fromkeys(AffinityTerm(key, (selector,)) for key, selector in apart)),
        tuple(_spread(each, namespace, labels) for each in hard),
    )


def preferences_of(
    affinity: Affinity | None,
    spread: Sequence[TopologySpreadConstraint | None] | None,
    namespace: str,
    labels: Labels,
    namespaces: Mapping[str, Labels],
) -> PodPreferences:
    """The rules of a pod's spec that exclude no node."""
    if affinity is None and not spread:
        return NO_PREFERENCES
    both = affinity or Affinity()
    near = (
        *_preferred(both.pod_affinity, 1, namespace, labels, namespaces),
        *_preferred(both.pod_anti_affinity, -1, namespace, labels, namespaces),
    )
    required = _required(both.pod_affinity, namespace, labels, namespaces)
    pulls = (*near, *((AffinityTerm(key, (selector,)), _PULL_OF_REQUIRED) for key, selector in required))
    soft = (each for each in spread or () if each and each.when_unsatisfiable == "ScheduleAnyway")
    found = PodPreferences(near, pulls, tuple(_spread(each, namespace, labels) for each in soft))
    return found or NO_PREFERENCES


# What kube-scheduler spreads pods of Services over, softly, that have no constraints of their own: keys and skews.
_BY_DEFAULT: Final = ((HOSTNAME, 3), (ZONE, 5))


def spread_of_services(
    preferences: PodPreferences, namespace: str, labels: Labels, services: Iterable[Mapping[str, str]]
) -> PodPreferences:
    """The preferences of a pod without constraints of its own, with those by which kube-scheduler spreads Services.

    Args:
        preferences: those that the pod's spec has.
        namespace: the pod's.
        labels: the pod's.
        services: the selectors of the Services of the namespace.
    """
    merged: dict[str, str] = {}
    for selector in services:
        if selector.items() <= labels.items():
            merged |= selector
    if not merged:
        return preferences
    expressions = tuple(Expression.equals(*each) for each in sorted(merged.items()))
    selectors = (PodSelector(frozenset((namespace,)), expressions),)
    nearby = ((AffinityTerm(key, selectors, skips_terminating=True), skew) for key, skew in _BY_DEFAULT)
    rules = tuple(SpreadRule(near, skew, 1, True, False, True) for near, skew in nearby)
    return msgspec.structs.replace(preferences, spread=rules, spread_by_default=True)


# ``hardPodAffinityWeight`` of the plugin InterPodAffinity.
_PULL_OF_REQUIRED: Final = 1


def _required(
    affinity: PodAffinity | None, namespace: str, labels: Labels, namespaces: Mapping[str, Labels]
) -> Iterator[tuple[str, PodSelector]]:
    for written in (affinity.required if affinity else None) or ():
        yield _selector(_term(written), namespace, labels, namespaces)


def _preferred(
    affinity: PodAffinity | None, sign: int, namespace: str, labels: Labels, namespaces: Mapping[str, Labels]
) -> Iterator[tuple[AffinityTerm, int]]:
    for written in (affinity.preferred if affinity else None) or ():
        try:
            weighted = msgspec.convert(written, _WeightedTerm)
        except msgspec.ValidationError:
            continue  # as in `_term`
        key, selector = _selector(weighted.pod_affinity_term, namespace, labels, namespaces)
        yield AffinityTerm(key, (selector,)), sign * weighted.weight


def _selector(
    term: PodAffinityTerm, namespace: str, labels: Labels, namespaces: Mapping[str, Labels]
) -> tuple[str, PodSelector]:
    """The topology key of a term, and the pods that it means."""
    more = (*of_labels(term.match_label_keys, labels), *of_labels(term.mismatch_label_keys, labels, NOT_IN))
    selector = PodSelector(_namespaces(term, namespace, namespaces), expressions_of(term.label_selector, *more))
    return term.topology_key or "", selector


class _WeightedTerm(View, frozen=True):
    """A preferred term of pod affinity or anti-affinity (core/v1 WeightedPodAffinityTerm)."""

    weight: int
    pod_affinity_term: PodAffinityTerm


def _term(written: Any) -> PodAffinityTerm:
    try:
        return msgspec.convert(written, PodAffinityTerm)
    except msgspec.ValidationError:
        # The API server accepts no such term; if one is there all the same, it means no pod.
        return PodAffinityTerm()


def _namespaces(term: PodAffinityTerm, own: str, namespaces: Mapping[str, Labels]) -> frozenset[str] | None:
    """The namespaces that a term is about; None: all, whichever there are."""
    if term.namespace_selector is None:
        return frozenset(term.namespaces or (own,))
    expressions = expressions_of(term.namespace_selector)
    if expressions == ():
        return None
    selected = (name for name, labels in namespaces.items() if PodSelector(None, expressions).matches(name, labels))
    return frozenset((*selected, *(term.namespaces or ())))


def _spread(term: TopologySpreadConstraint, namespace: str, labels: Labels) -> SpreadRule:
    expressions = expressions_of(term.label_selector, *of_labels(term.match_label_keys, labels))
    selector = PodSelector(frozenset((namespace,)), expressions)
    counts_itself = selector.matches(namespace, labels)
    if expressions == ():
        # countPodsMatchSelector takes a selector of everything for one of nothing.
        selector = PodSelector(frozenset((namespace,)), None)
    near = AffinityTerm(term.topology_key or "", (selector,), skips_terminating=True)
    max_skew = 1 if term.max_skew is None else term.max_skew
    by_affinity, by_taints = term.node_affinity_policy != "Ignore", term.node_taints_policy == "Honor"
    return SpreadRule(near, max_skew, term.min_domains or 1, by_affinity, by_taints, counts_itself)


class _Domains:
    """The values of one node label, and the nodes that have each."""

    def __init__(self, key: str, index: NodeIndex) -> None:
        self.nodes: Final[dict[str, int]] = {}
        self.of: Final[dict[int, str]] = {}
        self.all = 0
        for node in index:
            value, position = node.labels.get(key), index.position(node.name)
            if value is not None and position is not None:
                self.nodes[value] = self.nodes.get(value, 0) | 1 << position
                self.of[position] = value
                self.all |= 1 << position


class _Count:
    """Pods, or their weights, by domain.

    Attributes:
        at: those of each node that has any.
        occupied: these nodes, as a bitset.
        by_number: the nodes of the domains that have any, by how many those have.
        nodes: all of these, as a bitset.
    """

    def __init__(self, domains: _Domains) -> None:
        self._domains: Final = domains
        self._number: Final[Counter[str]] = Counter()
        self.at: Final[Counter[int]] = Counter()
        self.by_number: Final[NodesByNumber] = {}
        self.nodes = 0
        self.occupied = 0

    def add(self, position: int, number: int) -> None:
        """Count a pod on a node, or with -1 no longer."""
        before = self.at[position]
        self.at[position] = before + number
        if not before or not self.at[position]:
            self.occupied ^= 1 << position
        if not self.at[position]:
            del self.at[position]
        value = self._domains.of.get(position)
        if value is None:
            return
        before = self._number[value]
        after = self._number[value] = before + number
        nodes = self._domains.nodes[value]
        for count in (before, after):
            if count:
                self.by_number[count] = self.by_number.get(count, 0) ^ nodes
                self.nodes ^= nodes
                if not self.by_number[count]:
                    del self.by_number[count]

    def in_domain(self, position: int) -> int:
        """Those in the domain of a node."""
        value = self._domains.of.get(position)
        return self._number[value] if value is not None else 0

    def within(self, scope: int) -> Counter[str]:
        """The pods by domain that are on some of the nodes alone."""
        domains, counts = self._domains, Counter[str]()
        spend(len(self.at), "pods that are to be spread")
        for position, number in self.at.items():
            if scope >> position & 1 and position in domains.of:
                counts[domains.of[position]] += number
        return counts


class _Tracked(NamedTuple):
    """One rule: the pods that it means, those that have it as anti-affinity, and how much those that have it pull."""

    near: AffinityTerm
    meant: _Count
    owners: _Count
    pulls: _Count


class RuleIndex:
    """The pods of a cluster, by the rules that they have and that are about them.

    Args:
        index: the nodes; their labels must stay, and their number but for those that `lose` takes away.

    Attributes:
        left_out: how many rules are not evaluated, because there are too many about the same pods.
        most_of_all: how many about pods of all namespaces may be about the same; a pod of any namespace is looked up
            by each of them.
    """

    def __init__(self, index: NodeIndex) -> None:
        self.most_of_all = MOST_RULES
        self._index: Final = index
        self._domains: Final[dict[str, _Domains]] = {}
        self._tracked: Final[dict[AffinityTerm, _Tracked]] = {}
        # By namespace, None for all namespaces, and by a label that the pods have, None for none in particular.
        self._about_pods: Final[dict[tuple[str | None, tuple[str, str] | None], list[_Tracked]]] = {}
        self.left_out = 0
        self._everywhere = index.review(()).bitset

    @property
    def has_rules(self) -> bool:
        """Whether any pod has rules that are evaluated."""
        return bool(self._tracked)

    def lose(self, nodes: int) -> None:
        """Have nodes be gone, or have those that were gone be back: their domains count only as long as they exist."""
        self._everywhere ^= nodes

    def track(self, pod: PodInfo) -> None:
        """Count the pods that a pod's rules mean; to be called before any pod is added."""
        rules, preferences = pod.rules, pod.preferences
        if not rules and not preferences:
            return
        constraints = (each.near for each in (*rules.spread, *preferences.spread))
        weighted = (near for near, _ in preferences.pulls)
        for near in (*rules.affinity, *rules.anti_affinity, *constraints, *weighted):
            if near in self._tracked:
                continue
            selector = near.selectors[0]
            namespaces: list[str | None] = [None] if selector.namespaces is None else [*sorted(selector.namespaces)]
            pairs: list[tuple[str, str] | None] = [*selector.pairs()] or [None]
            spend(len(namespaces) * len(pairs), "rules between pods")
            lists = [self._about_pods.setdefault((namespace, pair), []) for namespace in namespaces for pair in pairs]
            most = MOST_RULES if selector.namespaces is not None else self.most_of_all
            if any(len(rules_there) >= most for rules_there in lists):
                self.left_out += 1
                continue
            domains = self._of_key(near.key)
            tracked = self._tracked[near] = _Tracked(near, _Count(domains), _Count(domains), _Count(domains))
            for rules_there in lists:
                rules_there.append(tracked)

    def track_late(self, pod: PodInfo, bound: Callable[[frozenset[str] | None], Iterable[tuple[PodInfo, int]]]) -> int:
        """Count the pods that a pod's rules mean, those too that have been added before; how many rules are new.

        Args:
            pod: the pod.
            bound: returns those that have been added, of some namespaces or of all, each with the position of its node.
        """
        before = len(self._tracked)
        self.track(pod)
        fresh = list(islice(self._tracked.values(), before, None))
        meant = [tracked.near.selectors[0].namespaces for tracked in fresh]
        namespaces = None if None in meant else frozenset[str]().union(*filter(None, meant))
        for info, position in bound(namespaces) if fresh else ():
            for tracked in fresh:
                if info.meets(tracked.near):
                    tracked.meant.add(position, 1)
        return len(fresh)

    def keeps_away(self, pod: PodInfo) -> bool:
        """Whether any pod that is on a node has anti-affinity to a pod."""
        return any(tracked.owners.at for tracked in self._about(pod))

    def kept_away(self, pod: PodInfo) -> set[int]:
        """The positions of nodes with pods to which a pod has anti-affinity."""
        terms = (self._tracked[near] for near in pod.rules.anti_affinity if near in self._tracked)
        return {position for tracked in terms for position in tracked.meant.at}

    def kept_from(self, pod: PodInfo) -> Iterator[tuple[AffinityTerm, int]]:
        """The nodes that anti-affinity keeps a pod from, as a bitset for each term, that of pods there and its own."""
        for tracked in self._about(pod):
            if tracked.owners.nodes:
                yield tracked.near, tracked.owners.nodes
        for near in pod.rules.anti_affinity:
            if near in self._tracked and self._tracked[near].meant.nodes:
                yield near, self._tracked[near].meant.nodes

    def add(self, pod: PodInfo, position: int, number: int = 1) -> None:
        """Count a pod that is on a node, or with -1 one that is no longer there."""
        for tracked in self._about(pod):
            tracked.meant.add(position, number)
        for near in pod.rules.anti_affinity:
            if near in self._tracked:
                self._tracked[near].owners.add(position, number)
        for near, weight in pod.preferences.pulls:
            if near in self._tracked:
                self._tracked[near].pulls.add(position, weight * number)

    def excluded_nodes(self, pod: PodInfo, matching: int, tolerated: int) -> Iterator[tuple[str, int]]:
        """What keeps a pod from nodes, each with the nodes, as a bitset.

        Args:
            pod: the pod that needs a node.
            matching: the nodes that its selector and affinity allow.
            tolerated: the nodes whose taints it tolerates.
        """
        against = bitset_union(nodes for _, nodes in self.kept_from(pod))
        if against:
            yield POD_ANTI_AFFINITY, against
        near_by = bool(pod.rules.affinity) and all(near in self._tracked for near in pod.rules.affinity)
        if near_by and (apart := self._everywhere & ~self._together(pod)):
            yield POD_AFFINITY, apart
        too_many = 0
        for spread in pod.rules.spread:
            if spread.near not in self._tracked:
                continue
            too_many |= self._everywhere & ~self._of_key(spread.near.key).all
            too_many |= self._crowded_nodes(pod, spread, matching, tolerated)
        if too_many:
            yield TOPOLOGY_SPREAD, too_many

    def affinity_scores(self, pod: PodInfo, feasible: int) -> NodesByNumber:
        """What InterPodAffinity gives to feasible nodes, by what pods prefer; empty: it gives all of them the same."""
        terms = [
            (tracked.meant.by_number, weight)
            for near, weight in pod.preferences.near
            if (tracked := self._tracked.get(near)) and tracked.meant.by_number
        ]
        terms += [(tracked.pulls.by_number, 1) for tracked in self._about(pod) if tracked.pulls.by_number]
        if not terms:
            return {}
        sums = {0: feasible}
        for by_number, weight in terms:
            spend(len(by_number), "rules between pods")
            sums = add_numbers(sums, {weight * number: nodes for number, nodes in by_number.items()})
        least, most = min(sums), max(sums)
        return group_by_number(
            (int(MAX_SCORE * ((total - least) / (most - least))) if most > least else 0, nodes)
            for total, nodes in sums.items()
        )

    def spread_scores(self, pod: PodInfo, feasible: int, matching: int, tolerated: int) -> NodesByNumber:
        """What PodTopologySpread gives to feasible nodes by soft constraints; empty: it gives all of them the same.

        Args:
            pod: the pod that needs a node.
            feasible: the nodes that it can go to.
            matching: the nodes that its selector and affinity allow.
            tolerated: the nodes whose taints it tolerates.
        """
        constraints = [each for each in pod.preferences.spread if each.near in self._tracked]
        if not constraints:
            return {}
        keyed = self._everywhere
        for each in () if pod.preferences.spread_by_default else constraints:
            keyed &= self._of_key(each.near.key).all
        scored = feasible & keyed
        crowds: dict[float, int] = {0.0: scored}
        for each in constraints:
            # Of a constraint on all nodes, every node is a domain.
            scope = keyed & (matching if each.by_affinity else -1) & (tolerated if each.by_taints else -1)
            by_number, domains = self._soft_counts(each, scored, scope)
            weight = math.log(domains + 2)
            crowds = add_numbers(crowds, {number * weight + each.max_skew - 1: at for number, at in by_number.items()})
        rounded = group_by_number((math.floor(crowd + 0.5), nodes) for crowd, nodes in crowds.items())
        least, most = min(rounded, default=0), max(rounded, default=0)
        ignored = [(0, feasible & ~keyed)] if feasible & ~keyed else []
        return group_by_number(
            (
                *(
                    (MAX_SCORE * (most + least - crowd) // most if most else MAX_SCORE, at)
                    for crowd, at in rounded.items()
                ),
                *ignored,
            )
        )

    def terms_about(self, pod: PodInfo) -> Iterator[AffinityTerm]:
        """The terms of rules that mean a pod, each once."""
        return (tracked.near for tracked in self._about(pod))

    def domain(self, key: str, position: int) -> str | None:
        """The domain in which a node is; None: it does not have the label."""
        return self._of_key(key).of.get(position)

    def number_near(self, near: AffinityTerm, position: int) -> int:
        """How many of the pods that a tracked term means are in the domain of a node."""
        return self._tracked[near].meant.in_domain(position)

    def skew(self, pod: PodInfo, spread: SpreadRule, matching: int, tolerated: int) -> int:
        """How many more pods the fullest domain has than the emptiest, by a constraint of a pod; 0: it is not tracked.

        Args:
            pod: the pod that has the constraint.
            spread: the constraint.
            matching: the nodes that its selector and affinity allow.
            tolerated: the nodes whose taints it tolerates.
        """
        if spread.near not in self._tracked:
            return 0
        counts, least = self._counts(pod, spread, matching, tolerated)
        return max(counts.values(), default=0) - least

    def _soft_counts(self, spread: SpreadRule, scored: int, scope: int) -> tuple[NodesByNumber, int]:
        """The nodes by how many pods are in their domains, and the number of domains; without nodes in none."""
        domains, meant = self._of_key(spread.near.key), self._tracked[spread.near].meant
        if spread.near.key == HOSTNAME:
            by_number, size = meant.by_number, scored.bit_count()
        else:
            spend(len(domains.nodes), "domains of topology spread constraints")
            present = [(value, nodes & scored) for value, nodes in domains.nodes.items() if nodes & scored]
            size = len(present) + bool(scored & ~domains.all)
            if meant.occupied & domains.all & ~scope:
                counts = meant.within(scope)
                by_number = group_by_number((counts[value], nodes) for value, nodes in present)
            else:
                by_number = meant.by_number
        known = {number: nodes & scored for number, nodes in by_number.items() if number and nodes & scored}
        rest = scored & domains.all & ~bitset_union(known.values())
        return {**known, **({0: rest} if rest else {})}, size

    def _together(self, pod: PodInfo) -> int:
        """The nodes that have what the pod's affinity asks for."""
        nodes = -1
        for near in pod.rules.affinity:
            nodes &= self._tracked[near].meant.nodes
        first = not any(self._tracked[near].meant.nodes for near in pod.rules.affinity)
        if first and all(pod.meets(near) for near in pod.rules.affinity):
            # The first of pods that want to be together may go to any domain.
            nodes = -1
            for near in pod.rules.affinity:
                nodes &= self._of_key(near.key).all
        return nodes

    def _crowded_nodes(self, pod: PodInfo, spread: SpreadRule, matching: int, tolerated: int) -> int:
        """The nodes of domains that have too many pods already."""
        counts, least = self._counts(pod, spread, matching, tolerated)
        most = spread.max_skew + least - spread.counts_itself
        domains = self._of_key(spread.near.key)
        return bitset_union(domains.nodes[value] for value, number in counts.items() if number > most)

    def _counts(self, pod: PodInfo, spread: SpreadRule, matching: int, tolerated: int) -> tuple[Counter[str], int]:
        """The pods that are to be spread, by domain, and how many the emptiest has."""
        scope = self._everywhere
        for each in pod.rules.spread:
            scope &= self._of_key(each.near.key).all
        if spread.by_affinity:
            scope &= matching
        if spread.by_taints:
            scope &= tolerated
        domains = self._of_key(spread.near.key)
        spend(len(domains.nodes), "pods that are to be spread")
        counts = self._tracked[spread.near].meant.within(scope)
        present = [value for value, nodes in domains.nodes.items() if nodes & scope]
        return counts, min((counts[value] for value in present), default=0) if len(present) >= spread.min_domains else 0

    def _about(self, pod: PodInfo) -> Iterator[_Tracked]:
        """The rules that mean a pod, each once."""
        spend(1 + len(pod.labels), "labels of pods")
        for namespace in (pod.namespace, None) if self._about_pods else ():
            for pair in (None, *pod.labels.items()):
                if rules := self._about_pods.get((namespace, pair)):
                    spend(len(rules), "rules between pods")
                    yield from (tracked for tracked in rules if pod.meets(tracked.near))

    def _of_key(self, key: str) -> _Domains:
        if key not in self._domains:
            self._domains[key] = _Domains(key, self._index)
        return self._domains[key]


def group_by_number(pairs: Iterable[tuple[int, int]]) -> NodesByNumber:
    """The nodes by their numbers, of pairs in which a number may be more than once."""
    by_number: NodesByNumber = {}
    for number, nodes in pairs:
        by_number[number] = by_number.get(number, 0) | nodes
    return by_number


_Number = TypeVar("_Number", int, float)


def add_numbers(first: Mapping[_Number, int], second: Mapping[_Number, int]) -> dict[_Number, int]:
    """The nodes of the first by the sums of their numbers in both; what the second does not have, counts as 0 there."""
    sums: dict[_Number, int] = {}
    for one, nodes in first.items():
        rest = nodes
        for two, others in second.items():
            if both := nodes & others:
                sums[one + two] = sums.get(one + two, 0) | both
                rest ^= both
        if rest:
            sums[one] = sums.get(one, 0) | rest
    return sums
