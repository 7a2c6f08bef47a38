"""Labels, and the selectors over them: their syntax, and what they match.

The syntax is that of k8s.io/apimachinery (pkg/api/validate/content). virt-api does not check it: with an invalid label
value virt-controller never succeeds in creating a migration's target pod, and meanwhile the VM cannot be drained.

Expressions are evaluated as kube-scheduler does (k8s.io/component-helpers, scheduling/corev1/nodeaffinity, and
apimachinery's pkg/labels): terms are ORed, expressions within a term ANDed; a term without any matches nothing; one
with a malformed expression matches nothing either, while the other terms still count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from webhook.errors import InputError, quote
from webhook.k8s.types.meta import View

_LABEL_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
_NAME_LENGTH: Final = 63
_SUBDOMAIN_LENGTH: Final = 253
_CHARACTERS: Final = "it must consist of letters, digits, '-', '_', and '.', and begin and end with a letter or digit"


def key_problem(key: str) -> str | None:
    """Why a text is not a valid label key, as a clause; None if it is."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return "has more than one '/'"
    if slash and not prefix:
        return "has no prefix before its '/'"
    if slash and len(prefix) > _SUBDOMAIN_LENGTH:
        return f"has a prefix of {len(prefix)} characters (limit {_SUBDOMAIN_LENGTH})"
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        return "has a prefix that is not a valid DNS name: it must consist of lower case letters, digits, '-', and '.'"
    if not name:
        return "has no name"
    if len(name) > _NAME_LENGTH:
        return f"has a name of {len(name)} characters (limit {_NAME_LENGTH})"
    if not _LABEL_NAME.fullmatch(name):
        return f"has an invalid name: {_CHARACTERS}"
    return None


def value_problem(value: str) -> str | None:
    """Why a text is not a valid label value, as a clause; None if it is, as the empty text."""
    if len(value) > _NAME_LENGTH:
        return f"has {len(value)} characters (limit {_NAME_LENGTH})"
    if value and not _LABEL_NAME.fullmatch(value):
        return f"is not valid: {_CHARACTERS}"
    return None


def is_name(text: str) -> bool:
    """Whether a text can be the name of a VM, a namespace or a node (a DNS subdomain)."""
    return len(text) <= _SUBDOMAIN_LENGTH and _SUBDOMAIN.fullmatch(text) is not None


def parse_selector(texts: Iterable[str], where: str) -> dict[str, str]:
    """A node selector as people write it, a ``KEY=VALUE`` for each label; ``where`` is the option, for messages.

    An `InputError` where a text is not one, names an impossible label, or there are two values of one label.
    """
    labels: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{quote(text)} is not a valid KEY=VALUE", where, "write, for example, zone=b")
        if labels.setdefault(key, value) != value:
            what = f"{quote(key)} cannot be both {quote(labels[key])} and {quote(value)}"
            raise InputError(what, where, "a node has one value of a label; keep one")
    for mistake in find_malformed(labels, where):
        raise mistake
    return labels


def find_malformed(selector: Mapping[str, str], where: str) -> tuple[InputError, ...]:
    """What is wrong with the keys and values of a node selector at a path; empty if all can be labels."""
    mistakes = []
    for key, value in sorted(selector.items()):
        if problem := key_problem(key):
            mistakes.append(InputError(f"key {quote(key)} {problem}", where, "no node can have such a label"))
        if problem := value_problem(value):
            what = f"value {quote(value)} of key {quote(key)} {problem}"
            mistakes.append(InputError(what, where, "no node can have such a label"))
    return tuple(mistakes)


IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS: Final = "Exists"
DOES_NOT_EXIST: Final = "DoesNotExist"
GREATER: Final = "Gt"
LESS: Final = "Lt"
_OPERATORS: Final = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST, GREATER, LESS)
_FIELD_OPERATORS: Final = (IN, NOT_IN)

NAME_FIELD: Final = "metadata.name"

_INTEGER: Final = re.compile("[+-]?[0-9]+")
_INT64_DIGITS: Final = 19
_INT64: Final = range(-(2**63), 2**63)


def integer(text: str) -> int | None:
    """A decimal number as Go's ``strconv.ParseInt(text, 10, 64)`` reads it; None where that fails."""
    # Stripped first: Python does not read very long numbers.
    digits = text.lstrip("+-0") or "0"
    if not _INTEGER.fullmatch(text) or len(digits) > _INT64_DIGITS:
        return None
    number = -int(digits) if text.startswith("-") else int(digits)
    return number if number in _INT64 else None


class Expression(msgspec.Struct, frozen=True):
    """A condition on one label, or on one field of a node; Gt and Lt have one value, Exists and DoesNotExist none."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    @classmethod
    def equals(cls, key: str, value: str) -> Expression:
        """What an entry of a ``nodeSelector`` means."""
        return cls(key, IN, (value,))

    def accepts(self, value: str | None) -> bool:
        """Whether a node with this value of the label, None for no such label, satisfies the expression."""
        if self.operator == IN:
            return value is not None and value in self.values
        if self.operator == NOT_IN:
            return value is None or value not in self.values
        if self.operator == EXISTS:
            return value is not None
        if self.operator == DOES_NOT_EXIST:
            return value is None
        have, bound = None if value is None else integer(value), integer(self.values[0])
        if have is None or bound is None:
            return False
        return have > bound if self.operator == GREATER else have < bound

    def problems(self) -> tuple[str, ...]:
        """Why Kubernetes cannot evaluate it, clauses; empty where it can."""
        clauses = []
        if problem := key_problem(self.key):
            clauses.append(f"key {quote(self.key)} {problem}")
        if self.operator not in _OPERATORS:
            return (*clauses, _no_operator(self.operator, _OPERATORS))
        if self.operator in {IN, NOT_IN} and not self.values:
            clauses.append(f"{self.operator} requires a value")
        if self.operator in {EXISTS, DOES_NOT_EXIST} and self.values:
            clauses.append(f"{self.operator} takes no value")
        if self.operator in {GREATER, LESS}:
            if len(self.values) != 1:
                clauses.append(f"{self.operator} takes one value, not {len(self.values)}")
            clauses += [f"{quote(value)} is not a valid integer" for value in self.values if integer(value) is None]
        for value in self.values:
            if problem := value_problem(value):
                clauses.append(f"value {quote(value)} {problem}")
        return tuple(clauses)

    def field_problems(self) -> tuple[str, ...]:
        """Why the expression can match no node when it stands over fields instead of labels; empty if it can."""
        if self.operator not in _FIELD_OPERATORS:
            return (_no_operator(self.operator, _FIELD_OPERATORS),)
        if len(self.values) != 1:
            return (f"{self.operator} takes one value over a field, not {len(self.values)}",)
        return ()

    @property
    def lacking(self) -> str:
        """What a node is that does not satisfy it: ``without zone=b``, ``with disk``."""
        if self.operator == DOES_NOT_EXIST:
            return f"with {self.key}"
        if self.operator == NOT_IN:
            return f"with {Expression(self.key, IN, self.values)}"
        return f"without {self}"

    def __str__(self) -> str:
        values = ", ".join(self.values)
        if self.operator in {IN, NOT_IN} and len(self.values) == 1:
            return f"{self.key}{'=' if self.operator == IN else '!='}{values}"
        if self.operator in {GREATER, LESS}:
            return f"{self.key} {'>' if self.operator == GREATER else '<'} {values}"
        if self.operator in {EXISTS, DOES_NOT_EXIST}:
            return self.key if self.operator == EXISTS else f"no {self.key}"
        return f"{self.key} { {IN: 'in', NOT_IN: 'not in'}.get(self.operator, self.operator) } ({values})"


def _no_operator(operator: str, operators: tuple[str, ...]) -> str:
    *first, last = operators
    listed = f"{', '.join(first)}, or {last}" if len(operators) > 2 else " or ".join(operators)
    return f"operator {quote(operator)} is not valid; use {listed}"


def field_value(field: str, name: str) -> str:
    """The value of a node's field; only its name is one, all others count as empty."""
    return name if field == NAME_FIELD else ""


class Term(msgspec.Struct, frozen=True):
    """An alternative over labels and fields of a node; with problems, each with its path, it matches no node."""

    expressions: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, expressions: tuple[Expression, ...], fields: tuple[Expression, ...], path: str) -> Term:
        """A term with its problems found; ``path`` is where it stands."""
        entries = [(f"matchExpressions[{index}]", each.problems()) for index, each in enumerate(expressions)]
        entries += [(f"matchFields[{index}]", each.field_problems()) for index, each in enumerate(fields)]
        problems = tuple(f"{path}.{place}: {problem}" for place, clauses in entries for problem in clauses)
        return cls(expressions, fields, problems)

    @property
    def hopeless(self) -> bool:
        """Whether no node at all can match: the term is empty or malformed."""
        return bool(self.problems) or not (self.expressions or self.fields)

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether a node of this name with these labels does."""
        return (
            not self.hopeless
            and all(expression.accepts(labels.get(expression.key)) for expression in self.expressions)
            and all(field.accepts(field_value(field.key, name)) for field in self.fields)
        )

    def __str__(self) -> str:
        if self.problems:
            return f"an invalid term ({'; '.join(self.problems)})"
        return " and ".join(str(part) for part in (*self.expressions, *self.fields)) or "an empty term"


class SelectorRequirement(View, frozen=True):
    """A requirement on a label or on a field of a node (LabelSelectorRequirement and NodeSelectorRequirement)."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None

    def expression(self) -> Expression:
        """The expression in the form that is evaluated; an absent key or operator is the empty string."""
        return Expression(self.key or "", self.operator or "", tuple(self.values or ()))


class LabelSelector(View, frozen=True):
    """A label selector (metav1.LabelSelector)."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement | None] | None = None

    def expressions(self, *more: Expression) -> tuple[Expression, ...] | None:
        """All that an object must satisfy, and more; None where Kubernetes cannot evaluate it."""
        labels = (Expression.equals(key, value) for key, value in (self.match_labels or {}).items())
        # A requirement that is null has no operator; Gt and Lt are of nodes alone.
        written = [(each or SelectorRequirement()).expression() for each in self.match_expressions or ()]
        expressions = (*labels, *written, *more)
        return None if any(each.operator in (GREATER, LESS) or each.problems() for each in expressions) else expressions

    def matches(self, labels: Mapping[str, Any], *, malformed: bool = False) -> bool:
        """Whether it selects an object with these labels; ``malformed`` where Kubernetes cannot evaluate it."""
        expressions = self.expressions()
        return malformed if expressions is None else all(each.accepts(labels.get(each.key)) for each in expressions)


class NodeSelectorTerm(View, frozen=True):
    """One of the alternatives of required node affinity (core/v1 NodeSelectorTerm)."""

    match_expressions: list[SelectorRequirement | None] | None = None
    match_fields: list[SelectorRequirement | None] | None = None

    @property
    def size(self) -> int:
        """The expressions and their values."""
        views = (*(self.match_expressions or ()), *(self.match_fields or ()))
        return len(views) + sum(len(view.values or ()) for view in views if view)

    def term(self, path: str) -> Term:
        """The term in the form that is evaluated; ``path`` is its place in its list, for messages."""
        expressions = [(each or SelectorRequirement()).expression() for each in self.match_expressions or ()]
        fields = [(each or SelectorRequirement()).expression() for each in self.match_fields or ()]
        return Term.of(tuple(expressions), tuple(fields), path)


class NodeSelector(View, frozen=True):
    """Required node affinity, of which one term must match (core/v1 NodeSelector)."""

    node_selector_terms: list[NodeSelectorTerm | None] | None = None

    @property
    def size(self) -> int:
        """The terms, their expressions, and the values of those."""
        views = self.node_selector_terms or ()
        return len(views) + sum(view.size for view in views if view)

    def terms(self) -> tuple[Term, ...]:
        """In their order; the empty ones too, which match nothing."""
        views = enumerate(self.node_selector_terms or ())
        return tuple((view or NodeSelectorTerm()).term(f"nodeSelectorTerms[{index}]") for index, view in views)
