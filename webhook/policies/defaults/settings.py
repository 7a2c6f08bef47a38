"""The section ``defaults`` of the settings, and the annotations of namespaces that replace its rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal, Self

import msgspec
from pydantic import Field, ValidationError

from webhook import names
from webhook.errors import quote
from webhook.k8s.documents import format_path
from webhook.policies.defaults.fields import CpuModel, Json, NodeAffinity, PriorityClassName, Seconds, Toleration, plain
from webhook.settings.fields import Derived, Items, LabelKey, LabelValue, derived
from webhook.settings.policy_section import PolicySettings

# For each row, by attribute, the annotation of a namespace that replaces it.
ANNOTATIONS: Final = {
    "tolerations": f"{names.DOMAIN}/default-tolerations",
    "node_selector": f"{names.DOMAIN}/default-node-selector",
    "node_affinity": f"{names.DOMAIN}/default-node-affinity",
    "priority_class_name": f"{names.DOMAIN}/default-priority-class-name",
    "eviction_strategy": f"{names.DOMAIN}/default-eviction-strategy",
    "termination_grace_period_seconds": f"{names.DOMAIN}/default-termination-grace-period-seconds",
    "cpu_model": f"{names.DOMAIN}/default-cpu-model",
}
# These are plain text in an annotation; the others are JSON, as Kubernetes' own annotations for defaults are.
TEXTS: Final = ("priority_class_name", "eviction_strategy", "cpu_model")
# Of an annotation, in bytes: some hundred tolerations.
_MAX_BYTES: Final = 16 * 1024
# Of pydantic's errors.
_CLAUSES: Final = {
    **dict.fromkeys(("model_type", "dict_type", "mapping_type"), "must be a mapping"),
    "tuple_type": "must be a list",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "missing": "is missing",
    "extra_forbidden": "is not a field",
}


class DefaultsSettings(PolicySettings):
    """The defaults policy: tolerations, node selectors, affinity, priority and more of VMs whose owners set none."""

    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/defaults."
    )
    tolerations: Items[Toleration] = Field(
        default=(),
        description=(
            "Tolerations of launcher pods that have none of the same key and effect, for namespaces without the"
            " annotation kubevirt-webhook.github.io/default-tolerations."
        ),
    )
    node_selector: Mapping[LabelKey, LabelValue] = Field(
        default={},
        examples=[{"pool": "vms"}],
        description=(
            "Node selector of launcher pods, for the keys that the owner's nodeSelector and required node affinity do"
            " not have, and for namespaces without the annotation kubevirt-webhook.github.io/default-node-selector."
        ),
    )
    node_affinity: NodeAffinity = NodeAffinity()
    priority_class_name: PriorityClassName = Field(
        default="",
        examples=["vms"],
        description=(
            "PriorityClass of VMIs without one, for namespaces without the annotation"
            " kubevirt-webhook.github.io/default-priority-class-name. Empty: none."
        ),
    )
    eviction_strategy: Literal["", "None", "LiveMigrate", "LiveMigrateIfPossible", "External"] = Field(
        default="",
        description=(
            "evictionStrategy of VMIs without one, for namespaces without the annotation"
            " kubevirt-webhook.github.io/default-eviction-strategy. Empty: KubeVirt's own default."
        ),
    )
    termination_grace_period_seconds: Seconds | None = Field(
        default=None,
        description=(
            "terminationGracePeriodSeconds of VMIs without one, for namespaces without the annotation"
            " kubevirt-webhook.github.io/default-termination-grace-period-seconds. Absent: KubeVirt's own default."
        ),
    )
    cpu_model: CpuModel = Field(
        default="",
        examples=["Skylake-Server"],
        description=(
            "CPU model of VMIs without one, for namespaces without the annotation"
            " kubevirt-webhook.github.io/default-cpu-model. Empty: KubeVirt's own default."
        ),
    )
    # What is wrong with annotations of the namespace, by their keys; such an annotation counts as absent.
    mistakes: Derived[Mapping[str, str]] = derived({})

    def with_annotations(self, annotations: Mapping[str, str]) -> Self:
        """The section with the namespace's own rows; ``off`` is an empty one."""
        changed: dict[str, Any] = {}
        mistakes = {}
        for name, annotation in ANNOTATIONS.items():
            text = annotations.get(annotation, "").strip()
            if not text:
                continue
            try:
                changed[name] = self._row(name, text)
            except ValueError as error:
                mistakes[annotation] = _sentence(error)
        return self.model_copy(update=changed | {"mistakes": mistakes}) if changed or mistakes else self

    @classmethod
    def _row(cls, name: str, text: str) -> Any:
        """A row as an annotation has it.

        Raises:
            ValueError: it isn't one.
        """
        if text == names.OFF:
            return cls.model_fields[name].default
        if len(text.encode(errors="replace")) > _MAX_BYTES:
            raise ValueError(f"it is longer than {_MAX_BYTES} bytes")
        field = cls.model_fields[name].alias or name
        try:
            value = text if name in TEXTS else msgspec.json.decode(text.encode(errors="replace"))
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        return getattr(cls.model_validate({field: value}, by_alias=True, by_name=False), name)

    @cached_property
    def plain_tolerations(self) -> list[Json]:
        """The tolerations as Kubernetes writes them."""
        return [plain(each) for each in self.tolerations]

    @cached_property
    def plain_preferences(self) -> list[Json]:
        """The preferred node affinity as Kubernetes writes it."""
        return [plain(each) for each in self.node_affinity.preferred]


def _sentence(error: ValueError) -> str:
    """What is wrong with an annotation, as a clause."""
    if isinstance(error, msgspec.DecodeError):
        return "it is not valid JSON"
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=True)[0]
    context = first.get("ctx") or {}
    # The row itself goes without saying.
    where = format_path([part for part in first["loc"][1:] if part != "[key]"])
    if clause := _CLAUSES.get(first["type"]):
        return f"{where or 'it'} {clause}"
    what, fix = context.get("what") or first["msg"], context.get("fix")
    if first["type"] in ("greater_than_equal", "less_than_equal"):
        what = f"must be at least {context['ge']}" if "ge" in context else f"must be at most {context['le']}"
    if first["type"] == "literal_error":
        choices = str(context["expected"]).replace("'", "").removeprefix(", ")
        what = f"{quote(str(first['input']))} is not one of {choices}"
    clause = f"{where}: {what}" if where else what
    return f"{clause}; {fix}" if fix else clause
