"""What places VMs, as settings and annotations have it: Kubernetes' fields, with Kubernetes' rules (pkg/apis/core)."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from webhook.k8s.types.scheduling import PREFERRED, REQUIRED
from webhook.settings.fields import SUBDOMAIN, Items, LabelKey, LabelValue, Syntax, mistake
from webhook.settings.section import Section

_LISTS: Final = ("In", "NotIn")
_NUMBERS: Final = ("Gt", "Lt")
# A year.
_LONGEST: Final = 366 * 86_400
Seconds = Annotated[int, Field(ge=0, le=_LONGEST)]
Json = dict[str, Any]
_EXPRESSION: Final = {"key": "pool", "operator": "Exists"}
TERM: Final = {"matchExpressions": [_EXPRESSION]}
PriorityClassName = Annotated[str, Syntax("PriorityClass name", SUBDOMAIN, 253, "use the name of one").or_empty()]
CpuModel = Annotated[
    str, Syntax("CPU model", "[A-Za-z0-9][-A-Za-z0-9_.]*", 63, "use a name such as Skylake-Server").or_empty()
]


class Toleration(Section):
    """A toleration. The operator is required, so that a forgotten one is no toleration of one value alone."""

    key: LabelKey | None = Field(
        default=None, examples=["dedicated"], description="Key of the taint. Absent, with Exists: every key."
    )
    operator: Literal["Exists", "Equal"] = Field(
        examples=["Exists"], description="Exists tolerates every value of the key."
    )
    value: LabelValue = Field(default="", description="Value of the taint, with Equal.")
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="", description="Effect of the taint; empty: every effect."
    )
    toleration_seconds: Seconds | None = Field(
        default=None, description="With NoExecute: how long a tainted node is tolerated. Absent: for good."
    )

    @model_validator(mode="after")
    def _check_operator(self) -> Toleration:
        if self.operator == "Exists" and self.value:
            raise mistake("toleration", "a toleration with operator Exists has a value", "remove it, or use Equal")
        if self.operator == "Equal" and not self.key:
            raise mistake("toleration", "a toleration with operator Equal has no key", "name the key, or use Exists")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            what = "tolerationSeconds are set, and the effect is not NoExecute"
            raise mistake("toleration", what, "remove them, or use NoExecute")
        return self


class NodeSelectorRequirement(Section):
    """A requirement on one label of a node."""

    key: LabelKey = Field(examples=["pool"], description="Key of the label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        examples=["In"], description="How the label's value is compared."
    )
    values: Items[str] = Field(
        default=(), validate_default=True, description="Values for In and NotIn; one number for Gt and Lt."
    )

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        operator = info.data.get("operator", "")
        if operator in _LISTS and not values:
            raise mistake("values", f"operator {operator} has no values", "name at least one")
        if operator in _NUMBERS and not (len(values) == 1 and _is_integer(values[0])):
            raise mistake("values", f"operator {operator} does not have one whole number", 'use for example ["4"]')
        if operator in ("Exists", "DoesNotExist") and values:
            raise mistake("values", f"operator {operator} has values", "remove them")
        return values


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isascii() and text.removeprefix("-").isdecimal()


class NodeSelectorTerm(Section):
    """Requirements on a node, all of which it must meet."""

    match_expressions: Items[NodeSelectorRequirement] = Field(
        examples=[[_EXPRESSION]], description="Requirements on the node's labels."
    )

    @field_validator("match_expressions")
    @classmethod
    def _check_listed(cls, listed: tuple[NodeSelectorRequirement, ...]) -> tuple[NodeSelectorRequirement, ...]:
        if not listed:
            raise mistake("empty-term", "a term without requirements matches no node", "name a requirement")
        return listed


class NodeSelector(Section):
    """Required node affinity: one term, since it is added to each of the owner's."""

    node_selector_terms: Items[NodeSelectorTerm] = Field(examples=[[TERM]], description="One term.")

    @field_validator("node_selector_terms")
    @classmethod
    def _check_terms(cls, terms: tuple[NodeSelectorTerm, ...]) -> tuple[NodeSelectorTerm, ...]:
        if len(terms) != 1:
            what = f"there are {len(terms)} terms: the owner's terms are alternatives, and one is added to each of them"
            raise mistake("terms", what, "use one term")
        return terms


class PreferredSchedulingTerm(Section):
    """A term that the scheduler prefers."""

    weight: int = Field(ge=1, le=100, examples=[1], description="How much it counts, from 1 to 100.")
    preference: NodeSelectorTerm = Field(examples=[TERM], description="What is preferred.")


class NodeAffinity(Section):
    """Node affinity, required and preferred."""

    required: NodeSelector | None = Field(
        default=None,
        validation_alias=REQUIRED,
        serialization_alias=REQUIRED,
        description="What every node of a VM must have; it is added to each of the owner's terms.",
    )
    preferred: Items[PreferredSchedulingTerm] = Field(
        default=(),
        validation_alias=PREFERRED,
        serialization_alias=PREFERRED,
        description="What the scheduler prefers, beside what the owner prefers.",
    )

    @cached_property
    def expressions(self) -> list[Json]:
        """What is required, as Kubernetes writes it."""
        if self.required is None:
            return []
        return [plain(each) for each in self.required.node_selector_terms[0].match_expressions]


def plain(section: Section) -> Json:
    """A section as Kubernetes writes it."""
    return section.model_dump(mode="json", by_alias=True, exclude_defaults=True)
