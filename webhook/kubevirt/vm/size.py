"""Whether a VM has a size already, so that a default one would be in the way."""

from __future__ import annotations

from typing import Any, Final

_AMOUNTS: Final = ("cpu", "memory")
# The members of a ``spec.domain`` in which a size stands.
_SIZES: Final = ("cpu", "memory", "resources")


def size_field(domain: Any) -> str | None:
    """The field of a VMI's ``spec.domain`` that says a size, as a path below it; None if none does.

    Any CPU topology or model, CPU or memory request or limit, guest memory or hugepages. Zeros and empty texts say
    nothing (they are what Go's types take for absent), but any amount does, even 0.

    Args:
        domain: plain JSON of whatever types.
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
    """Whether a VMI's ``spec.domain`` says how much memory the guest gets, without which KubeVirt starts none.

    Args:
        domain: plain JSON of whatever types.
    """
    memory, resources = _member(domain, "memory"), _member(domain, "resources")
    if any(memory.get(name) is not None for name in ("guest", "hugepages")):
        return True
    return any(_member(resources, kind).get("memory") is not None for kind in ("requests", "limits"))


def _member(value: Any, name: str) -> dict[str, Any]:
    member = value.get(name) if isinstance(value, dict) else None
    return member if isinstance(member, dict) else {}
