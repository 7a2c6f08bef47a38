"""What Kubernetes' own admission plugins add to the node selector and the tolerations of every pod.

RuntimeClass merges the class's ``scheduling`` into pods that name it, as launcher pods do where KubeVirt's
configuration has a ``defaultRuntimeClass``. PodNodeSelector, where the API server has it switched on, merges an
annotation of the namespace. Both reject a pod whose own node selector has another value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Object, View
from webhook.kubevirt.config import ClusterConfig
from webhook.placement import generated, requirement
from webhook.placement.affinity import Toleration
from webhook.placement.expression import Expression
from webhook.placement.launcher_pods import LauncherPod
from webhook.placement.requirement import Label
from webhook.placement.vmis import PlacedVmiSpec, Vmi

NODE_SELECTOR: Final = "scheduler.alpha.kubernetes.io/node-selector"

_KUBEVIRT: Final = "kubevirt.io"
# In a message; a pod can have thousands.
_TOLD: Final = 5


class RuntimeClassScheduling(View, frozen=True):
    """``scheduling`` of a RuntimeClass (node.k8s.io/v1)."""

    node_selector: dict[str, str] | None = None
    tolerations: list[Toleration | None] | None = None


class RuntimeClass(Object, frozen=True):
    """A RuntimeClass (node.k8s.io/v1), whose admission plugin merges its ``scheduling`` into pods."""

    scheduling: RuntimeClassScheduling | None = None

    @property
    def labels(self) -> tuple[Label, ...]:
        """What it requires of nodes."""
        selector = (self.scheduling.node_selector if self.scheduling else None) or {}
        return tuple(_equals(requirement.RUNTIME_CLASS, selector))

    @property
    def tolerations(self) -> tuple[Toleration, ...]:
        """What it tolerates of nodes."""
        listed = (self.scheduling.tolerations if self.scheduling else None) or ()
        return tuple(toleration or Toleration() for toleration in listed)


RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, RuntimeClass)


def unexplained_labels(
    pod: LauncherPod, vmi: Vmi, configuration: ClusterConfig, added: Mapping[str, str], labels: tuple[Label, ...] = ()
) -> dict[str, str]:
    """What the present pod's node selector has from elsewhere than KubeVirt, its settings, the VM and a migration.

    Args:
        pod: the VM's present launcher pod.
        vmi: the VMI that the pod runs.
        configuration: the cluster's configuration of KubeVirt.
        added: the labels that the migration which created the pod added; empty: no migration created it.
        labels: the labels that the pod's RuntimeClass requires.
    """
    spec = vmi.spec or PlacedVmiSpec()
    known = {**added, **configuration.node_selectors, **(spec.node_selector or {})}
    known |= {label.expression.key: label.expression.values[0] for label in labels}
    return {
        key: value
        for key, value in pod.node_selector.items()
        if known.get(key) != value and key != generated.ARCHITECTURE and not _is_kubevirts(key)
    }


def of_namespace(annotation: str | None, shown: Mapping[str, str]) -> tuple[Label, ...]:
    """What the namespace's annotation requires.

    Args:
        annotation: the value of ``scheduler.alpha.kubernetes.io/node-selector``; None: the namespace does not have it.
        shown: the labels that only this plugin can have put into the present pod: proof that it is switched on.
    """
    pairs = (pair.partition("=") for pair in (annotation or "").split(","))
    wanted = {key.strip(): value.strip() for key, _, value in pairs}
    return tuple(
        _equals(requirement.NAMESPACE, {key: value for key, value in wanted.items() if shown.get(key) == value})
    )


def gap(left: Mapping[str, str]) -> str:
    """That a node selector is not taken into account, a clause."""
    listed = ", ".join(f"{key}={value}" for key, value in sorted(left.items())[:_TOLD])
    more = f" and {len(left) - _TOLD} more" if len(left) > _TOLD else ""
    return (
        f"the current pod's node selector requires {listed}{more}, which neither the VM, KubeVirt, a RuntimeClass, nor"
        " the namespace requires now"
    )


def _equals(origin: str, selector: Mapping[str, str]) -> Iterator[Label]:
    return (Label(origin, Expression.equals(key, value)) for key, value in selector.items())


def _is_kubevirts(key: str) -> bool:
    domain = key.partition("/")[0]
    return domain == _KUBEVIRT or domain.endswith(f".{_KUBEVIRT}") or key == generated.CPU_MANAGER_BEFORE
