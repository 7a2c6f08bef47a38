"""What pods and VMIs ask of nodes by selectors, affinity and tolerations, as they are written."""

from __future__ import annotations

from typing import Any

from webhook.k8s.views import View
from webhook.placement.expression import Expression, Term


class ExpressionView(View, frozen=True):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None

    def expression(self) -> Expression:
        return Expression(self.key or "", self.operator or "", tuple(self.values or ()))


class TermView(View, frozen=True):
    match_expressions: list[ExpressionView | None] | None = None
    match_fields: list[ExpressionView | None] | None = None

    @property
    def size(self) -> int:
        """The expressions and their values."""
        views = (*(self.match_expressions or ()), *(self.match_fields or ()))
        return len(views) + sum(len(view.values or ()) for view in views if view)

    def term(self, path: str) -> Term:
        return Term.of(_expressions(self.match_expressions), _expressions(self.match_fields), path)


def _expressions(views: list[ExpressionView | None] | None) -> tuple[Expression, ...]:
    return tuple((view or ExpressionView()).expression() for view in views or ())


class NodeSelector(View, frozen=True):
    node_selector_terms: list[TermView | None] | None = None

    @property
    def size(self) -> int:
        """The terms, their expressions, and the values of those."""
        views = self.node_selector_terms or ()
        return len(views) + sum(view.size for view in views if view)

    def terms(self) -> tuple[Term, ...]:
        """In their order; the empty ones too, which match nothing."""
        views = enumerate(self.node_selector_terms or ())
        return tuple((view or TermView()).term(f"nodeSelectorTerms[{index}]") for index, view in views)


class NodeAffinity(View, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None

    @property
    def required(self) -> NodeSelector | None:
        return self.required_during_scheduling_ignored_during_execution


class PodAffinity(View, frozen=True):
    required_during_scheduling_ignored_during_execution: list[Any] | None = None

    @property
    def is_required(self) -> bool:
        return bool(self.required_during_scheduling_ignored_during_execution)


class Affinity(View, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(View, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Placed(View, frozen=True):
    """What the specs of pods and of VMIs have in common."""

    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration | None] | None = None

    @property
    def required_affinity(self) -> NodeSelector | None:
        node = self.affinity.node_affinity if self.affinity else None
        return node.required if node else None
