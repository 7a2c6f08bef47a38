"""The rules between VMs that a migration would leave broken.

kube-scheduler asks about required affinity and topology spread of a pod that needs a node, and of no pod that has one.
So it lets a VM leave others that must be near it, and counts a VM that migrates on both nodes: what is evenly spread
then may not be once the first pod has ended. Required anti-affinity is no matter here, for it is asked about in both
directions, and who leaves breaks none.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple

from webhook.forecast.drain import Planner
from webhook.forecast.movers import Mover
from webhook.forecast.snapshot import PlannedCluster, group, namespaced_name
from webhook.k8s.resources import NamespacedName
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.pod_rules import POD_AFFINITY, TOPOLOGY_SPREAD, AffinityTerm, PodInfo, SpreadRule


class _Spread(NamedTuple):
    """A topology spread constraint, with the nodes on which it counts pods, by bitsets and by the labels they have."""

    rule: SpreadRule
    matching: int
    tolerated: int
    keys: frozenset[str]


class KeptRules:
    """The rules about other VMs that VMs have, wherever those are in a plan."""

    def __init__(self, cluster: PlannedCluster, planner: Planner) -> None:
        self._cluster: Final = cluster
        self._planner: Final = planner
        self._infos: Final[dict[NamespacedName, PodInfo]] = {}
        near: list[tuple[AffinityTerm, NamespacedName]] = []
        spread: list[tuple[AffinityTerm, NamespacedName]] = []
        members: list[tuple[str, NamespacedName]] = []
        for name in cluster.views:
            for vmi in planner.vms_on(name):
                key, info = namespaced_name(vmi), planner.pod_info(vmi)
                near += [(term, key) for term in info.rules.affinity]
                spread += [(each.near, key) for each in info.rules.spread]
                members += [(label, key) for label in (vmi.meta.label(GROUP_LABEL),) if label]
                self._infos[key] = info
        # The VMs that have rules, by the terms of these, and those of groups.
        self._near: Final = group(near)
        self._spread: Final = group(spread)
        self._members: Final = group(members)
        # What of the constraints with a term was asked for.
        self._constraints: Final[dict[AffinityTerm, dict[_Spread, NamespacedName]]] = {}

    def is_free(self, mover: Mover) -> bool:
        """Whether no rule is about a VM, wherever it goes."""
        placement = mover.group
        if placement and placement.together and placement.together.required:
            return False
        about = self._planner.rules.terms_about(mover.pod.info)
        return not any(near in self._near or near in self._spread for near in about)

    def problem(self, mover: Mover, to: str) -> str:
        """Which rule that holds now would not hold once a VM has moved to a node, a clause; empty: all would."""
        source = self._cluster.index.position(mover.vmi.node_name)
        position = self._cluster.index.position(to)
        if source is None or position is None:
            return ""
        about = [*self._planner.rules.terms_about(mover.pod.info)]
        problems = chain(
            self._left_alone(mover, about, source, position),
            self._parted(mover, source, position),
            self._uneven(mover, about, to),
        )
        return next(problems, "")

    def _left_alone(self, mover: Mover, about: list[AffinityTerm], source: int, to: int) -> Iterator[str]:
        """The VMs that must be near one like this, and would be near none."""
        rules = self._planner.rules
        for near in about:
            domain = rules.domain(near.key, source)
            if near not in self._near or domain is None or domain == rules.domain(near.key, to):
                continue
            left = rules.number_near(near, source) - 1
            # Of one that is meant itself, another one has to be there.
            for key in self._near[near] if left < 2 else ():
                own = self._infos[key].meets(near)
                if key != mover.key and left - own < 1 and rules.domain(near.key, self._position(key)) == domain:
                    yield f"{POD_AFFINITY} of {'/'.join(key)} would not hold any more"

    def _parted(self, mover: Mover, source: int, to: int) -> Iterator[str]:
        """The VMs of its group with which it must be."""
        placement, rules = mover.group, self._planner.rules
        if not (placement and placement.together and placement.together.required):
            return
        key = placement.together.topology_key
        domain = rules.domain(key, source)
        namespaces = placement.namespaces or (mover.key[0],)
        for other in self._members.get(placement.group, ()) if domain != rules.domain(key, to) else ():
            if other != mover.key and other[0] in namespaces and rules.domain(key, self._position(other)) == domain:
                yield f"its group {placement.group} would not be together any more"

    def _uneven(self, mover: Mover, about: list[AffinityTerm], to: str) -> Iterator[str]:
        """The VMs that are spread with this one, and would not be spread as they must."""
        found = [pair for near in about if near in self._spread for pair in self._constraints_with(near).items()]
        if not found:
            return
        before = [self._skew(each, key) for each, key in found]
        with self._planner.trying(mover, to):
            after = [self._skew(each, key) for each, key in found]
        for (each, key), earlier, later in zip(found, before, after, strict=True):
            if later > max(each.rule.max_skew, earlier):
                yield f"{TOPOLOGY_SPREAD} of {'/'.join(key)} would not hold any more"

    def _constraints_with(self, near: AffinityTerm) -> dict[_Spread, NamespacedName]:
        """The constraints with a term that differ, each with a VM that has it."""
        if near not in self._constraints:
            found = self._constraints[near] = {}
            for key in self._spread[near]:
                spread = self._infos[key].rules.spread
                matching, tolerated = self._planner.scope_of(self._planner.mover(self._cluster.vmis[key]))
                keys = frozenset(each.near.key for each in spread)
                for rule in spread:
                    if rule.near == near:
                        found.setdefault(_Spread(rule, matching, tolerated, keys), key)
        return self._constraints[near]

    def _skew(self, each: _Spread, key: NamespacedName) -> int:
        return self._planner.rules.skew(self._infos[key], each.rule, each.matching, each.tolerated)

    def _position(self, key: NamespacedName) -> int:
        return self._cluster.index.position(self._cluster.vmis[key].node_name) or 0
