"""VirtualMachineInstancePresets, which give VMIs by their labels what they do not say themselves.

They are deprecated, and KubeVirt still applies them when a VMI is created (KubeVirt, pkg/virt-api/webhooks/
mutating-webhook/mutators/preset.go). Here they only count as an admin's choice of a size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from webhook.kubevirt.vm.size import size_field

_EXCLUDED: Final = "virtualmachineinstancepresets.admission.kubevirt.io/exclude"


def sizing_preset(presets: Iterable[Any], metadata: Any) -> tuple[str, str] | None:
    """The first preset that gives a VMI a size, and the field of its ``spec.domain`` that says it; None if none does.

    Args:
        presets: plain JSON, those of the VMI's namespace.
        metadata: the VMI's, or its VM's template's; plain JSON of whatever types.
    """
    if _member(metadata, "annotations").get(_EXCLUDED) == "true":
        return None
    labels = _member(metadata, "labels")
    for preset in presets:
        spec = _member(preset, "spec")
        field = size_field(spec.get("domain"))
        if field and _selects(spec.get("selector"), labels):
            return str(_member(preset, "metadata").get("name", "")), field
    return None


def _selects(selector: Any, labels: Mapping[str, Any]) -> bool:
    """Whether a label selector, all of whose requirements must hold, matches; an empty one does."""
    if not isinstance(selector, dict):
        return False
    equal = all(labels.get(key) == value for key, value in _member(selector, "matchLabels").items())
    expressions = selector.get("matchExpressions") or ()
    return (
        equal
        and isinstance(expressions, list | tuple)
        and all(_holds(expression, labels) for expression in expressions)
    )


def _holds(expression: Any, labels: Mapping[str, Any]) -> bool:
    """Whether one requirement holds; one that Kubernetes cannot read never does."""
    if not isinstance(expression, dict):
        return False
    key, operator, values = expression.get("key"), expression.get("operator"), expression.get("values")
    if not isinstance(key, str) or not isinstance(values or [], list):
        return False
    is_listed = key in labels and labels[key] in (values or [])
    return {
        "In": is_listed,
        "NotIn": not is_listed,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }.get(str(operator), False)


def _member(value: Any, name: str) -> dict[str, Any]:
    member = value.get(name) if isinstance(value, dict) else None
    return member if isinstance(member, dict) else {}
