"""The rules between pods: which pods they are about, and which nodes they exclude as pods come and go.

Required affinity and anti-affinity, and hard topology spread constraints, as kube-scheduler reads them
(pkg/scheduler/framework/plugins, interpodaffinity and podtopologyspread). Every rule that some pod has is tracked: how
many of the pods that it matches are in each domain, and, of anti-affinity, how many pods with that rule. So a question
about a node is a look-up, and a move costs as much as there are rules that match the pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from webhook.admission.step_budget import spend
from webhook.k8s.types.scheduling import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from webhook.k8s.types.selectors import IN, NOT_IN, Expression, LabelSelector
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import bitset_union

Labels = Mapping[str, str]
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
    """

    key: str
    selectors: tuple[PodSelector, ...]


class SpreadRule(msgspec.Struct, frozen=True):
    """A hard topology spread constraint.

    Attributes:
        near: the domains and the pods that are counted in them.
        max_skew: how many more pods than the emptiest domain a domain may have.
        min_domains: with fewer domains, the emptiest counts as empty.
        by_affinity: only domains of nodes that the pod's selector and affinity allow count.
        by_taints: only domains of nodes whose taints the pod tolerates count.
    """

    near: AffinityTerm
    max_skew: int
    min_domains: int
    by_affinity: bool
    by_taints: bool


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


class PodInfo(msgspec.Struct, frozen=True):
    """A pod as rules see it: its namespace and labels, and its own rules."""

    namespace: str
    labels: dict[str, str]
    rules: PodConstraints = PodConstraints()

    def meets(self, near: AffinityTerm) -> bool:
        """Whether this pod is one of those that a rule means."""
        return all(selector.matches(self.namespace, self.labels) for selector in near.selectors)


def rules_of(
    affinity: Affinity | None,
    spread: Sequence[TopologySpreadConstraint | None] | None,
    namespace: str,
    labels: Labels,
    namespaces: Mapping[str, Labels],
) -> PodConstraints:
    """The rules that a pod's spec has."""
    if affinity is None and not spread:
        return PodConstraints()
    near = affinity or Affinity()
    together = [*_selectors(near.pod_affinity, namespace, labels, namespaces)]
    all_selectors = tuple(selector for _, selector in together)
    apart = _selectors(near.pod_anti_affinity, namespace, labels, namespaces)
    hard = (each for each in spread or () if each and each.when_unsatisfiable == "DoNotSchedule")
    return PodConstraints(
        tuple(AffinityTerm(key, all_selectors) for key in dict.fromkeys(key for key, _ in together)),
        tuple(dict.fromkeys(AffinityTerm(key, (selector,)) for key, selector in apart)),
        tuple(_spread(each, namespace, labels) for each in hard),
    )


def _selectors(
    affinity: PodAffinity | None, namespace: str, labels: Labels, namespaces: Mapping[str, Labels]
) -> Iterator[tuple[str, PodSelector]]:
    for written in (affinity.required if affinity else None) or ():
        term = _term(written)
        more = (*of_labels(term.match_label_keys, labels), *of_labels(term.mismatch_label_keys, labels, NOT_IN))
        selector = PodSelector(_namespaces(term, namespace, namespaces), expressions_of(term.label_selector, *more))
        yield term.topology_key or "", selector


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
    near, max_skew = AffinityTerm(term.topology_key or "", (selector,)), 1 if term.max_skew is None else term.max_skew
    by_affinity, by_taints = term.node_affinity_policy != "Ignore", term.node_taints_policy == "Honor"
    return SpreadRule(near, max_skew, term.min_domains or 1, by_affinity, by_taints)


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
    """Pods by domain, and the nodes of the domains that have any."""

    def __init__(self, domains: _Domains) -> None:
        self._domains: Final = domains
        self._number: Final[Counter[str]] = Counter()
        self.at: Final[Counter[int]] = Counter()
        self.nodes = 0

    def add(self, position: int, number: int) -> None:
        """Count a pod on a node, or with -1 no longer."""
        self.at[position] += number
        if not self.at[position]:
            del self.at[position]
        value = self._domains.of.get(position)
        if value is None:
            return
        before = self._number[value]
        self._number[value] = before + number
        if bool(before) != bool(self._number[value]):
            self.nodes ^= self._domains.nodes[value]


class _Tracked(NamedTuple):
    """One rule: the pods that it means, and the pods that have it as anti-affinity."""

    near: AffinityTerm
    meant: _Count
    owners: _Count


class Neighbors:
    """The pods of a cluster, by the rules that they have and that are about them.

    Args:
        index: the nodes; their labels and number must stay.

    Attributes:
        left_out: how many rules are not evaluated, because there are too many about the same pods.
    """

    def __init__(self, index: NodeIndex) -> None:
        self._index: Final = index
        self._domains: Final[dict[str, _Domains]] = {}
        self._tracked: Final[dict[AffinityTerm, _Tracked]] = {}
        # By namespace, None for all namespaces, and by a label that the pods have, None for none in particular.
        self._about_pods: Final[dict[tuple[str | None, tuple[str, str] | None], list[_Tracked]]] = {}
        self.left_out = 0
        self._everywhere: Final = index.review(()).bitset

    def track(self, rules: PodConstraints) -> None:
        """Count the pods that these rules mean; to be called before any pod is added."""
        if not rules:
            return
        for near in (*rules.affinity, *rules.anti_affinity, *(each.near for each in rules.spread)):
            if near in self._tracked:
                continue
            selector = near.selectors[0]
            places: list[str | None] = [None] if selector.namespaces is None else [*sorted(selector.namespaces)]
            pairs: list[tuple[str, str] | None] = [*selector.pairs()] or [None]
            spend(len(places) * len(pairs), "rules between pods")
            lists = [self._about_pods.setdefault((place, pair), []) for place in places for pair in pairs]
            if any(len(rules_there) >= MOST_RULES for rules_there in lists):
                self.left_out += 1
                continue
            domains = self._of_key(near.key)
            tracked = self._tracked[near] = _Tracked(near, _Count(domains), _Count(domains))
            for rules_there in lists:
                rules_there.append(tracked)

    def add(self, pod: PodInfo, position: int, number: int = 1) -> None:
        """Count a pod that is on a node, or with -1 one that is no longer there."""
        for tracked in self._about(pod):
            tracked.meant.add(position, number)
        for near in pod.rules.anti_affinity:
            if near in self._tracked:
                self._tracked[near].owners.add(position, number)

    def excluded_nodes(self, pod: PodInfo, matching: int, tolerated: int) -> Iterator[tuple[str, int]]:
        """What keeps a pod from nodes, each with the nodes, as a bitset.

        Args:
            pod: the pod that needs a node.
            matching: the nodes that its selector and affinity allow.
            tolerated: the nodes whose taints it tolerates.
        """
        against = bitset_union(tracked.owners.nodes for tracked in self._about(pod))
        for near in pod.rules.anti_affinity:
            if near in self._tracked:
                against |= self._tracked[near].meant.nodes
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

    def _together(self, pod: PodInfo) -> int:
        """The nodes that have what the pod's affinity asks for."""
        nodes = -1
        for near in pod.rules.affinity:
            nodes &= self._tracked[near].meant.nodes
        first = not any(self._tracked[near].meant.at for near in pod.rules.affinity)
        if first and all(pod.meets(near) for near in pod.rules.affinity):
            # The first of pods that want to be together may go to any domain.
            nodes = -1
            for near in pod.rules.affinity:
                nodes &= self._of_key(near.key).all
        return nodes

    def _crowded_nodes(self, pod: PodInfo, spread: SpreadRule, matching: int, tolerated: int) -> int:
        """The nodes of domains that have too many pods already."""
        scope = self._everywhere
        for each in pod.rules.spread:
            scope &= self._of_key(each.near.key).all
        if spread.by_affinity:
            scope &= matching
        if spread.by_taints:
            scope &= tolerated
        domains = self._of_key(spread.near.key)
        counts: Counter[str] = Counter()
        meant = self._tracked[spread.near].meant.at
        spend(len(meant) + len(domains.nodes), "pods that are to be spread")
        for position, number in meant.items():
            if scope >> position & 1:
                counts[domains.of[position]] += number
        present = [value for value, nodes in domains.nodes.items() if nodes & scope]
        least = min((counts[value] for value in present), default=0) if len(present) >= spread.min_domains else 0
        most = spread.max_skew + least - pod.meets(spread.near)
        return bitset_union(domains.nodes[value] for value, number in counts.items() if number > most)

    def _about(self, pod: PodInfo) -> Iterator[_Tracked]:
        """The rules that mean a pod, each once."""
        spend(1 + len(pod.labels), "labels of pods")
        for place in (pod.namespace, None) if self._about_pods else ():
            for pair in (None, *pod.labels.items()):
                if rules := self._about_pods.get((place, pair)):
                    spend(len(rules), "rules between pods")
                    yield from (tracked for tracked in rules if pod.meets(tracked.near))

    def _of_key(self, key: str) -> _Domains:
        if key not in self._domains:
            self._domains[key] = _Domains(key, self._index)
        return self._domains[key]
