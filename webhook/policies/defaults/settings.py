"""The section ``defaults`` of the settings, and the annotations of namespaces that replace its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any, Final, Literal, Self

from pydantic import Field

from webhook import names
from webhook.k8s.types.scheduling import REQUIRED
from webhook.policies.defaults.fields import (
    TERM,
    CpuModel,
    Json,
    NodeAffinity,
    PriorityClassName,
    Seconds,
    Toleration,
    plain,
)
from webhook.settings.annotations import read_json, read_text
from webhook.settings.fields import Derived, Items, LabelKey, LabelValue, derived
from webhook.settings.policy_section import PolicySettings

# For each row, by attribute, the annotation of a namespace that replaces it.
DEFAULTS: Final = "defaults"
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


class DefaultsSettings(PolicySettings):
    """The defaults policy: tolerations, node selectors, affinity, priority and more of VMs whose owners set none."""

    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/defaults."
    )
    tolerations: Items[Toleration] = Field(
        default=(),
        examples=[[{"key": "gpu", "operator": "Exists"}]],
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
    node_affinity: NodeAffinity = Field(
        default=NodeAffinity(), examples=[{REQUIRED: {"nodeSelectorTerms": [TERM]}}], description=NodeAffinity.__doc__
    )
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
        examples=[60],
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
    # The rows, by attribute, that the namespace's annotations replace.
    of_namespace: Derived[frozenset[str]] = derived(frozenset())

    def with_annotations(self, annotations: Mapping[str, str]) -> Self:
        """The section with the namespace's own rows; ``off`` is an empty one."""
        own = self.replace_by(annotations, {key: partial(self._row, name) for name, key in ANNOTATIONS.items()})
        if own is self:
            return self
        replaced = (
            name
            for name, key in ANNOTATIONS.items()
            if annotations.get(key, "").strip() and key not in own.annotation_mistakes
        )
        return own.model_copy(update={"of_namespace": frozenset(replaced)})

    def source_of(self, row: str) -> str:
        """Who gives a default, by its attribute, a noun phrase."""
        field = type(self).model_fields[row].alias or row
        return f"the namespace's default {field}" if row in self.of_namespace else f"the settings' default {field}"

    @classmethod
    def _row(cls, name: str, text: str) -> Mapping[str, Any]:
        """A row as an annotation has it, by its attribute; an empty annotation has none.

        Raises:
            InputError: what is wrong with it.
        """
        if not text.strip():
            return {}
        if text.strip() == names.OFF:
            return {name: cls.model_fields[name].default}
        if name in TEXTS:
            return {name: read_text(text, cls, name)}
        examples = cls.model_fields[name].examples
        return {name: read_json(text, cls, name, json.dumps(examples[0]) if examples else "")}

    @cached_property
    def plain_tolerations(self) -> list[Json]:
        """The tolerations as Kubernetes writes them."""
        return [plain(each) for each in self.tolerations]

    @cached_property
    def plain_preferences(self) -> list[Json]:
        """The preferred node affinity as Kubernetes writes it."""
        return [plain(each) for each in self.node_affinity.preferred]
