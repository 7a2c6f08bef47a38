"""The priorities of pods, as the API server resolves them (plugin/pkg/admission/priority) when a pod is created."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object
from webhook.placement.machines import LauncherPod, Vmi

NEVER: Final = "Never"
# Every API server has them.
_BUILT_IN: Final = frozenset(("system-cluster-critical", "system-node-critical"))


class PriorityClass(Object, frozen=True):
    """A PriorityClass (scheduling.k8s.io/v1)."""

    value: int | None = None
    global_default: bool | None = None
    preemption_policy: str | None = None

    @property
    def priority(self) -> int:
        """The priority of pods that name it."""
        return self.value or 0


PRIORITY_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, PriorityClass)


class Priority(msgspec.Struct, frozen=True):
    """The priority of a pod.

    Attributes:
        preempts: whether kube-scheduler deletes pods with a lower one for it.
        class_name: the PriorityClass that it comes from; empty: none.
        problem: why the API server denies the pod, a clause; empty: it does not.
        gap: why the priority is not known, a clause; empty: it is.
    """

    value: int = 0
    preempts: bool = True
    class_name: str = ""
    problem: str = ""
    gap: str = ""


def priority_of(pod: LauncherPod) -> int:
    """The priority of a pod that exists, which the API server has resolved."""
    return (pod.spec.priority if pod.spec else None) or 0


class Priorities:
    """The PriorityClasses of a cluster.

    Args:
        classes: as far as they could be read; files may have some of them, or none.
    """

    def __init__(self, classes: Iterable[PriorityClass]) -> None:
        self._classes: Final = {each.meta.name or "": each for each in classes}
        self._are_complete: Final = self._classes.keys() >= _BUILT_IN
        defaults = (each for each in self._classes.values() if each.global_default)
        # Several are possible for a moment; the lowest one counts then (getDefaultPriorityClass).
        self._default: Final = min(defaults, key=lambda each: each.priority, default=None)

    def of_target_pod(self, vmi: Vmi, source: LauncherPod | None) -> Priority:
        """The priority of the next target pod of a VM: it has the VM's class, or the cluster's default.

        Args:
            vmi: the VM.
            source: the pod that it runs in now, which may have been created with the same class; None: not known.
        """
        name = (vmi.spec.priority_class_name if vmi.spec else None) or ""
        found = self._classes.get(name) if name else self._default
        if found:
            return Priority(found.priority, found.preemption_policy != NEVER, found.meta.name or "")
        if self._are_complete and name:
            return Priority(class_name=name, problem=f"no PriorityClass with name {name} was found")
        if self._are_complete:
            return Priority()
        # The class is not known, but the API server has resolved it once.
        spec = source.spec if source else None
        if spec and spec.priority is not None and (not name or spec.priority_class_name == name):
            return Priority(spec.priority, spec.preemption_policy != NEVER, spec.priority_class_name or "")
        if not name:
            return Priority()
        return Priority(class_name=name, gap=f"which priority PriorityClass {name} gives target pods is not known")
