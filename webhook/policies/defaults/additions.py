"""What launcher pods have from defaults, for forecasts of where they go: as `default_pod` would write it, or has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from webhook.admission.step_budget import spend
from webhook.k8s.json_tree import lookup
from webhook.k8s.types.scheduling import Toleration
from webhook.k8s.types.selectors import Expression
from webhook.placement.additions import NO_POD_ADDITIONS, PodAdditions
from webhook.placement.machines import LauncherPod, PlacedVmiSpec, Vmi
from webhook.placement.nodes import CPU_MODEL, NO_EXECUTE
from webhook.placement.requirements import Label, Origin
from webhook.policies.common.affinity import missing
from webhook.policies.defaults import rows
from webhook.policies.defaults.pods import default_labels, default_term, recorded_in
from webhook.policies.defaults.settings import DefaultsSettings
from webhook.policies.defaults.views import DefaultedPod, has_opted_out

# The API server adds them before webhooks see a pod (DefaultTolerationSeconds).
_BEFORE_WEBHOOKS: Final = [
    {"key": f"node.kubernetes.io/{condition}", "effect": NO_EXECUTE} for condition in ("not-ready", "unreachable")
]


def added_to_next(vmi: Vmi, settings: DefaultsSettings) -> PodAdditions:
    """What the next pod of a VMI gets."""
    if has_opted_out(vmi):
        return PodAdditions(sources=_sources(vmi))
    pod = _rendered(vmi)
    present = (pod.spec.tolerations if pod.spec else None) or []
    preferred = lookup(pod, rows.PREFERRED_AFFINITY.in_objects.field)
    own = preferred if isinstance(preferred, list) else []
    selector = default_labels(pod, settings) or {}
    terms = default_term(pod, settings) or [{"matchExpressions": []}]
    return PodAdditions(
        selector=_labels(_equal(selector), settings.source_of("node_selector")),
        required=_labels(_expressions(terms[0]["matchExpressions"]), settings.source_of("node_affinity")),
        tolerations=_tolerations(rows.other_tolerations([*present, *_BEFORE_WEBHOOKS], settings.plain_tolerations)),
        preferred=tuple(missing(own, settings.plain_preferences)),
        sources=_sources(vmi),
    )


def added_to_present(vmi: Vmi, pod: LauncherPod | None) -> PodAdditions:
    """What the pod that a VMI runs in can have, by the annotations that say so."""
    if pod is None:
        return NO_POD_ADDITIONS
    # KubeVirt copies the record of the VMI to each of its pods; it keeps what its owner has.
    own = _rendered(vmi)
    selector, affinity = recorded_in(vmi, rows.NODE_SELECTOR), recorded_in(vmi, rows.REQUIRED_AFFINITY)
    added = recorded_in(pod, rows.TOLERATIONS)
    expressions = []
    match affinity:
        case [{"matchExpressions": [*listed]}]:
            expressions = listed
    present = (own.spec.tolerations if own.spec else None) or []
    listed = [each for each in added if isinstance(each, dict)] if isinstance(added, list) else []
    return PodAdditions(
        selector=_labels(_equal(selector if isinstance(selector, dict) else {})),
        required=_labels(_expressions(expressions)),
        tolerations=_tolerations(rows.other_tolerations(present, listed)),
    )


def _rendered(vmi: Vmi) -> DefaultedPod:
    """The pod that KubeVirt makes of a VMI, as far as defaults read it."""
    spec = vmi.spec or PlacedVmiSpec()
    placed = {"nodeSelector": spec.node_selector, "affinity": spec.affinity, "tolerations": spec.tolerations}
    rendered = msgspec.to_builtins({"spec": placed})
    return msgspec.structs.replace(msgspec.convert(rendered, DefaultedPod), metadata=vmi.metadata)


def _sources(vmi: Vmi) -> dict[str, str]:
    """The label that KubeVirt requires for a CPU model, where that is a default."""
    model = vmi.meta.annotation(rows.CPU_MODEL.annotation)
    is_default = model and model == vmi.cpu.model
    return {f"{CPU_MODEL}{model}": "the default cpuModel that the VM got at its start"} if is_default else {}


def _equal(selector: dict[Any, Any]) -> list[Expression]:
    spend(len(selector), "labels of the default node selector")
    return [Expression.equals(key, value) for key, value in selector.items() if isinstance(value, str)]


def _expressions(listed: Iterable[Any]) -> list[Expression]:
    """The expressions of a term; what tenants wrote into a record may be anything."""
    found = []
    for each in listed:
        spend(1, "expressions of the default node affinity")
        try:
            found.append(msgspec.convert(each, _Requirement).expression)
        except msgspec.ValidationError:
            continue
    return found


class _Requirement(msgspec.Struct, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()

    @property
    def expression(self) -> Expression:
        return Expression(self.key, self.operator, self.values)


def _labels(expressions: Iterable[Expression], source: str = "") -> tuple[Label, ...]:
    return tuple([Label(Origin.DEFAULT, each, source) for each in expressions])


def _tolerations(listed: Iterable[Any]) -> tuple[Toleration, ...]:
    found = []
    for each in listed:
        spend(1, "default tolerations")
        try:
            found.append(msgspec.convert(each, Toleration))
        except msgspec.ValidationError:
            continue
    return tuple(found)
