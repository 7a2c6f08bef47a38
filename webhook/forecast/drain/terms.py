"""The rules between pods that one pod has: required affinity and anti-affinity, and hard topology spread constraints.

As kube-scheduler reads them (pkg/scheduler/framework/plugins, interpodaffinity and podtopologyspread).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from webhook.forecast.drain.selectors import Labels, PodSelector, expressions_of, of_labels, select_namespaces
from webhook.forecast.drain.views import PodTerm, SpreadTerm
from webhook.placement.affinity import Affinity, PodAffinity
from webhook.placement.expression import NOT_IN

_HARD: Final = "DoNotSchedule"
_IGNORE: Final = "Ignore"
_HONOR: Final = "Honor"


class Near(msgspec.Struct, frozen=True):
    """Nodes in the same domain as pods that all selectors mean.

    Attributes:
        key: the node label whose values are the domains.
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

    near: Near
    max_skew: int
    min_domains: int
    by_affinity: bool
    by_taints: bool


class PodConstraints(msgspec.Struct, frozen=True):
    """All rules of one pod.

    Attributes:
        affinity: a pod of each must be in the node's domain.
        anti_affinity: no pod of any may be there.
        spread: hard constraints.
    """

    affinity: tuple[Near, ...] = ()
    anti_affinity: tuple[Near, ...] = ()
    spread: tuple[SpreadRule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.spread)


class Wearer(msgspec.Struct, frozen=True):
    """A pod as rules see it: its namespace and labels, and its own rules."""

    namespace: str
    labels: dict[str, str]
    rules: PodConstraints = PodConstraints()

    def meets(self, near: Near) -> bool:
        """Whether this pod is one of those that a rule means."""
        return all(selector.matches(self.namespace, self.labels) for selector in near.selectors)


def rules_of(
    affinity: Affinity | None,
    spread: Sequence[SpreadTerm | None] | None,
    namespace: str,
    labels: Labels,
    namespaces: Mapping[str, Labels],
) -> PodConstraints:
    """The rules that a pod's spec has.

    Args:
        affinity: ``affinity`` of the pod or VMI.
        spread: ``topologySpreadConstraints``.
        namespace: the pod's.
        labels: the pod's.
        namespaces: the labels of all namespaces.
    """
    if affinity is None and not spread:
        return PodConstraints()
    near = affinity or Affinity()
    together = [*_selectors(near.pod_affinity, namespace, labels, namespaces)]
    all_selectors = tuple(selector for _, selector in together)
    return PodConstraints(
        tuple(Near(key, all_selectors) for key in dict.fromkeys(key for key, _ in together)),
        tuple(
            dict.fromkeys(
                Near(key, (selector,))
                for key, selector in _selectors(near.pod_anti_affinity, namespace, labels, namespaces)
            )
        ),
        tuple(_spread(each, namespace, labels) for each in spread or () if each and each.when_unsatisfiable == _HARD),
    )


def _selectors(
    affinity: PodAffinity | None, namespace: str, labels: Labels, namespaces: Mapping[str, Labels]
) -> Iterator[tuple[str, PodSelector]]:
    for written in (affinity.required_during_scheduling_ignored_during_execution if affinity else None) or ():
        term = _term(written)
        more = (
            *of_labels(term.match_label_keys, labels),
            *of_labels(term.mismatch_label_keys, labels, NOT_IN),
        )
        selector = PodSelector(_namespaces(term, namespace, namespaces), expressions_of(term.label_selector, more))
        yield term.topology_key or "", selector


def _term(written: Any) -> PodTerm:
    try:
        return msgspec.convert(written, PodTerm)
    except msgspec.ValidationError:
        # The API server accepts no such term; if one is there all the same, it means no pod.
        return PodTerm()


def _namespaces(term: PodTerm, own: str, namespaces: Mapping[str, Labels]) -> frozenset[str] | None:
    if term.namespace_selector is None:
        return frozenset(term.namespaces or (own,))
    selected = select_namespaces(term.namespace_selector, namespaces)
    return None if selected is None else selected | frozenset(term.namespaces or ())


def _spread(term: SpreadTerm, namespace: str, labels: Labels) -> SpreadRule:
    expressions = expressions_of(term.label_selector, tuple(of_labels(term.match_label_keys, labels)))
    selector = PodSelector(frozenset((namespace,)), expressions)
    return SpreadRule(
        Near(term.topology_key or "", (selector,)),
        1 if term.max_skew is None else term.max_skew,
        term.min_domains or 1,
        term.node_affinity_policy != _IGNORE,
        term.node_taints_policy == _HONOR,
    )
