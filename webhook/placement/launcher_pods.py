"""Launcher pods, as far as they decide over nodes."""

from __future__ import annotations

from typing import Any, Final

from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Object, ObjectMeta, View
from webhook.placement.affinity import Placed
from webhook.placement.migrations import ENDED_PHASES, entries_of
from webhook.placement.podrequests import Container, ResourceRequirements
from webhook.placement.resources import Listed

# Of a target pod, which keeps them when the migration is over: the migration's UID, a label, and name, an annotation.
JOB_UID: Final = "kubevirt.io/migrationJobUID"
JOB_NAME: Final = "kubevirt.io/migrationJobName"
# Labels of pods whose VMs may reserve a LUN, each with the UID of its claim; any user can write more into a pod.
_RESERVATION: Final = "pr.kubevirt.io/"
MOST_RESERVATIONS: Final = 8


class LauncherPodSpec(Placed, frozen=True):
    """``spec`` of a launcher pod."""

    node_name: str | None = None
    containers: list[Container | None] | None = None
    init_containers: list[Container | None] | None = None
    resources: ResourceRequirements | None = None
    overhead: Listed | None = None
    runtime_class_name: str | None = None
    resource_claims: list[Any] | None = None


class LauncherPodStatus(View, frozen=True):
    """``status`` of a launcher pod."""

    phase: str | None = None


class LauncherPod(Object, frozen=True):
    """A Pod (core/v1) in which KubeVirt runs a VM."""

    spec: LauncherPodSpec | None = None
    status: LauncherPodStatus | None = None

    @property
    def node_name(self) -> str:
        """The node to which the pod is bound; empty: none yet."""
        return (self.spec.node_name if self.spec else None) or ""

    @property
    def phase(self) -> str:
        """The pod's phase, for example ``Running``; empty: the kubelet has not written any."""
        return (self.status.phase if self.status else None) or ""

    @property
    def node_selector(self) -> dict[str, str]:
        """The pod's ``nodeSelector``; empty where it has none."""
        return (self.spec.node_selector if self.spec else None) or {}

    @property
    def reservations(self) -> tuple[str, ...]:
        """The labels of the LUNs that the VM may reserve, sorted; at most `MOST_RESERVATIONS`."""
        found = sorted(each for each in self.meta.labels or () if each.startswith(_RESERVATION))
        return tuple(found[:MOST_RESERVATIONS])

    @property
    def is_over(self) -> bool:
        """Whether all containers of the pod have ended, so that it no longer takes anything of its node."""
        return self.phase in ENDED_PHASES


def _reduce_pod(pod: LauncherPod) -> LauncherPod | None:
    """What lists keep of a launcher pod that has not ended. Any user can label a pod, however large."""
    meta, owner = pod.meta, pod.meta.controller_owner()
    if pod.is_over or owner is None:
        return None
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        labels=entries_of(meta.labels, JOB_UID, *pod.reservations),
        annotations=entries_of(meta.annotations, JOB_NAME),
        owner_references=[owner],
        creation_timestamp=meta.creation_timestamp,
    )
    return LauncherPod(kept, pod.spec, pod.status)


LAUNCHER_PODS: Final = Resource("", "v1", "pods", "Pod", True, LauncherPod, _reduce_pod)
