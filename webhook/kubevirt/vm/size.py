"""Whether a VM has a size already, by itself or by a preset, so that a default one would be in the way.

VirtualMachineInstancePresets give VMIs by their labels what they do not say themselves. They are deprecated, and
KubeVirt still applies them when a VMI is created (KubeVirt, pkg/virt-api/webhooks/mutating-webhook/mutators/preset.go).
Here they only count as an admin's choice of a size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from webhook.k8s.json_tree import member
from webhook.k8s.types.selectors import LabelSelector

# What says a size, by paths below a VMI's ``spec.domain``, and of that what says how much memory the guest gets.
_CPU: Final = ("cpu.sockets", "cpu.cores", "cpu.threads", "cpu.model")
_AMOUNTS: Final = tuple(f"resources.{kind}.{name}" for kind in ("requests", "limits") for name in ("cpu", "memory"))
_GUEST: Final = ("memory.guest", "memory.hugepages")
_MEMORY: Final = (*_GUEST, "resources.requests.memory", "resources.limits.memory")


def size_field(domain: Any) -> str | None:
    """The field of a VMI's ``spec.domain`` that says a size, as a path below it; None if none does.

    Any CPU topology or model, CPU or memory request or limit, guest memory or hugepages. Zeros and empty texts say
    nothing (they are what Go's types take for absent), but any amount does, even 0. The domain may be any JSON.
    """
    # Most of those that are asked about say nothing at all.
    if not isinstance(domain, dict) or not (domain.get("cpu") or domain.get("memory") or domain.get("resources")):
        return None
    for path in _CPU:
        if member(domain, path):
            return path
    for path in (*_AMOUNTS, *_GUEST):
        if member(domain, path) is not None:
            return path
    return None


def has_memory(domain: Any) -> bool:
    """Whether a VMI's ``spec.domain``, any JSON, says how much memory the guest gets; KubeVirt starts none without."""
    return any(member(domain, path) is not None for path in _MEMORY)


def gives_memory(presets: Iterable[Any], metadata: Any) -> bool:
    """Whether one of the presets says how much memory a VMI's guest gets; arguments as in `sizing_preset`."""
    giving = (preset for preset in presets if has_memory(member(preset, "spec.domain")))
    return any(True for _ in matching_presets(giving, metadata))


_EXCLUDED: Final = "virtualmachineinstancepresets.admission.kubevirt.io/exclude"


def sizing_preset(presets: Iterable[Any], metadata: Any) -> tuple[str, str] | None:
    """The first preset that gives a VMI a size, and the field of its ``spec.domain`` that says it; None if none does.

    The presets are those of the VMI's namespace, the metadata the VMI's, or its VM's template's; both may be any JSON.
    """
    sizing = (preset for preset in presets if size_field(member(preset, "spec.domain")))
    # Once for all of them: an owner's labels may be as many as the presets.
    for preset in matching_presets(sizing, metadata):
        return str(member(preset, "metadata.name") or ""), size_field(member(preset, "spec.domain")) or ""
    return None


def matching_presets(presets: Iterable[Any], metadata: Any) -> Iterator[Any]:
    """The presets that KubeVirt applies to a VMI with such metadata; arguments as in `sizing_preset`."""
    annotations, labels = member(metadata, "annotations"), member(metadata, "labels")
    if isinstance(annotations, dict) and annotations.get(_EXCLUDED) == "true":
        return
    # Go reads null as the empty text.
    texts = {key: "" if value is None else value for key, value in labels.items()} if isinstance(labels, dict) else {}
    for preset in presets:
        if _selects(member(preset, "spec.selector"), texts):
            yield preset


def _selects(selector: Any, labels: Mapping[str, Any]) -> bool:
    """Whether a label selector, which may be any JSON, matches; none that Kubernetes cannot read does."""
    try:
        return msgspec.convert(selector, LabelSelector).matches(labels)
    except msgspec.ValidationError:
        return False
