"""What pods and VMIs require of nodes by selectors, affinity, and tolerations (core/v1), as they are written."""

from __future__ import annotations

from typing import Any

from webhook.k8s.types.selectors import Expression, Term
from webhook.k8s.views import View


class ExpressionView(View, frozen=True):
    """An expression over node labels or fields (core/v1 NodeSelectorRequirement)."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None

    def expression(self) -> Expression:
        """The expression in the form that is evaluated; an absent key or operator is the empty string."""
        return Expression(self.key or "", self.operator or "", tuple(self.values or ()))


class TermView(View, frozen=True):
    """One of the alternatives of required node affinity (core/v1 NodeSelectorTerm)."""

    match_expressions: list[ExpressionView | None] | None = None
    match_fields: list[ExpressionView | None] | None = None

    @property
    def size(self) -> int:
        """The expressions and their values."""
        views = (*(self.match_expressions or ()), *(self.match_fields or ()))
        return len(views) + sum(len(view.values or ()) for view in views if view)

    def term(self, path: str) -> Term:
        """The term in the form that is evaluated.

        Args:
            path: the place of the term in its list, for messages.
        """
        return Term.of(_expressions(self.match_expressions), _expressions(self.match_fields), path)


def _expressions(views: list[ExpressionView | None] | None) -> tuple[Expression, ...]:
    return tuple((view or ExpressionView()).expression() for view in views or ())


class NodeSelector(View, frozen=True):
    """Required node affinity, of which one term must match (core/v1 NodeSelector)."""

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
    """``nodeAffinity`` of a Pod or a VMI (core/v1 NodeAffinity); preferred terms exclude no node and are not read."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None

    @property
    def required(self) -> NodeSelector | None:
        """The required node affinity, by a shorter name; None where there is none."""
        return self.required_during_scheduling_ignored_during_execution


class PodAffinity(View, frozen=True):
    """``podAffinity`` or ``podAntiAffinity`` of a Pod or a VMI (core/v1), whose terms depend on other pods."""

    required_during_scheduling_ignored_during_execution: list[Any] | None = None

    @property
    def is_required(self) -> bool:
        """Whether there is at least one required term."""
        return bool(self.required_during_scheduling_ignored_during_execution)


class Affinity(View, frozen=True):
    """``spec.affinity`` of a Pod or a VMI (core/v1 Affinity)."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(View, frozen=True):
    """One of the ``spec.tolerations`` of a Pod or a VMI (core/v1); `webhook.placement.nodes` evaluates it."""

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
        """The required node affinity; None where there is none."""
        node = self.affinity.node_affinity if self.affinity else None
        return node.required if node else None
