"""Which nodes the rules between pods exclude, as pods come and go.

Every rule that some pod has is tracked: how many of the pods that it means are in each domain, and, of anti-affinity,
how many pods with that rule. So a question about a node is a look-up, and a move costs as much as there are rules that
mean the pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from webhook.admission.work import spend
from webhook.forecast.drain.terms import Near, PodConstraints, SpreadRule, Wearer
from webhook.placement.index import NodeIndex

# Rules about the same pods; any tenant can write as many as there are pods. Equal ones are one.
MOST_RULES: Final = 1000

POD_AFFINITY: Final = "pod affinity"
POD_ANTI_AFFINITY: Final = "pod anti-affinity"
TOPOLOGY_SPREAD: Final = "topology spread constraints"


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


class _Tracked:
    """One rule: the pods that it means, and the pods that have it as anti-affinity."""

    def __init__(self, near: Near, domains: _Domains) -> None:
        self.near: Final = near
        self.meant: Final = _Count(domains)
        self.owners: Final = _Count(domains)


class Neighbours:
    """The pods of a cluster, by the rules that they have and that are about them.

    Args:
        index: the nodes; their labels and number must stay.

    Attributes:
        left_out: how many rules are not evaluated, because there are too many about the same pods.
    """

    def __init__(self, index: NodeIndex) -> None:
        self._index: Final = index
        self._domains: Final[dict[str, _Domains]] = {}
        self._tracked: Final[dict[Near, _Tracked]] = {}
        # By namespace, None for all namespaces, and by a label that the pods have, None for none in particular.
        self._about_pods: Final[dict[tuple[str | None, tuple[str, str] | None], list[_Tracked]]] = {}
        self.left_out = 0
        self._everywhere = 0
        for node in index:
            position = index.position(node.name)
            self._everywhere |= 0 if position is None else 1 << position

    def track(self, rules: PodConstraints) -> None:
        """Count the pods that these rules mean; to be called before any pod is added."""
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
            tracked = self._tracked[near] = _Tracked(near, self._of_key(near.key))
            for rules_there in lists:
                rules_there.append(tracked)

    def add(self, pod: Wearer, position: int, number: int = 1) -> None:
        """Count a pod that is on a node, or with -1 one that is no longer there."""
        for tracked in self._about(pod):
            tracked.meant.add(position, number)
        for near in pod.rules.anti_affinity:
            if near in self._tracked:
                self._tracked[near].owners.add(position, number)

    def excluded_nodes(self, pod: Wearer, matching: int, tolerated: int) -> Iterator[tuple[str, int]]:
        """What keeps a pod from nodes, each with the nodes, as `bits`.

        Args:
            pod: the pod that needs a node.
            matching: the nodes that its selector and affinity allow.
            tolerated: the nodes whose taints it tolerates.
        """
        against = 0
        for tracked in self._about(pod):
            against |= tracked.owners.nodes
        for near in pod.rules.anti_affinity:
            if near in self._tracked:
                against |= self._tracked[near].meant.nodes
        if against:
            yield POD_ANTI_AFFINITY, against
        near_by = all(near in self._tracked for near in pod.rules.affinity)
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

    def _together(self, pod: Wearer) -> int:
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

    def _crowded_nodes(self, pod: Wearer, spread: SpreadRule, matching: int, tolerated: int) -> int:
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
        crowded = 0
        for value, number in counts.items():
            if number > most:
                crowded |= domains.nodes[value]
        return crowded

    def _about(self, pod: Wearer) -> Iterator[_Tracked]:
        """The rules that mean a pod, each once."""
        for tracked in self._candidates(pod):
            if pod.meets(tracked.near):
                yield tracked

    def _candidates(self, pod: Wearer) -> Iterator[_Tracked]:
        spend(1 + len(pod.labels), "labels of pods")
        for place in (pod.namespace, None):
            for pair in (None, *pod.labels.items()):
                found = self._about_pods.get((place, pair))
                if found:
                    spend(len(found), "rules between pods")
                    yield from found

    def _of_key(self, key: str) -> _Domains:
        if key not in self._domains:
            self._domains[key] = _Domains(key, self._index)
        return self._domains[key]
