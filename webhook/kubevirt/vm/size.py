"""Whether a VM has a size already, by itself or by a preset, so that a default one would be in the way.

VirtualMachineInstancePresets give VMIs by their labels what they do not say themselves. They are deprecated, and
KubeVirt still applies them when a VMI is created (KubeVirt, pkg/virt-api/webhooks/mutating-webhook/mutators/preset.go).
Here they only count as an admin's choice of a size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

_AMOUNTS: Final = ("cpu", "memory")
# The members of a ``spec.domain`` in which a size stands.
_SIZES: Final = ("cpu", "memory", "resources")


def size_field(domain: Any) -> str | None:
    """The field of a VMI's ``spec.domain`` that says a size, as a path below it; None if none does.

    Any CPU topology or model, CPU or memory request or limit, guest memory or hugepages. Zeros and empty texts say
    nothing (they are what Go's types take for absent), but any amount does, even 0. The domain may be any JSON.
    """
    # Most of those that are asked about say nothing at all.
    if not isinstance(domain, dict) or not any(map(domain.get, _SIZES)):
        return None
    cpu, memory, resources = (_member(domain, name) for name in ("cpu", "memory", "resources"))
    for name in ("sockets", "cores", "threads", "model"):
        if cpu.get(name):
            return f"cpu.{name}"
    for kind in ("requests", "limits"):
        for name in _AMOUNTS:
            if _member(resources, kind).get(name) is not None:
                return f"resources.{kind}.{name}"
    for name in ("guest", "hugepages"):
        if memory.get(name) is not None:
            return f"memory.{name}"
    return None


def has_memory(domain: Any) -> bool:
    """Whether a VMI's ``spec.domain``, any JSON, says how much memory the guest gets; KubeVirt starts none without."""
    memory, resources = _member(domain, "memory"), _member(domain, "resources")
    if any(memory.get(name) is not None for name in ("guest", "hugepages")):
        return True
    return any(_member(resources, kind).get("memory") is not None for kind in ("requests", "limits"))


def _member(value: Any, name: str) -> dict[str, Any]:
    member = value.get(name) if isinstance(value, dict) else None
    return member if isinstance(member, dict) else {}


_EXCLUDED: Final = "virtualmachineinstancepresets.admission.kubevirt.io/exclude"


def sizing_preset(presets: Iterable[Any], metadata: Any) -> tuple[str, str] | None:
    """The first preset that gives a VMI a size, and the field of its ``spec.domain`` that says it; None if none does.

    The presets are those of the VMI's namespace, the metadata the VMI's, or its VM's template's; both may be any JSON.
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
    return {"In": is_listed, "NotIn": not is_listed, "Exists": key in labels, "DoesNotExist": key not in labels}.get(
        str(operator), False
    )
