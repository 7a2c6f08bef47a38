"""Where the other VMs of a group run. They are read where a VM is to move, and never where VMs start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from webhook import names
from webhook.facts import Facts, Key, ListKey
from webhook.placement.groups import GROUP_LABEL, GroupPlacement
from webhook.placement.machines import LAUNCHER_PODS, LauncherPod
from webhook.policies.common.required_facts import require


def keys(placement: GroupPlacement, namespace: str) -> tuple[Key[Any], ...]:
    """What `others` reads of the group of a VM in a namespace."""
    label = f"{GROUP_LABEL}={placement.group}"
    return tuple(ListKey(LAUNCHER_PODS, each, label) for each in placement.namespaces or (namespace,))


async def others(placement: GroupPlacement, namespace: str, uid: str, facts: Facts) -> list[LauncherPod]:
    """The launcher pods of the group that have a node, but those of the VMI with this UID.

    Raises:
        Unreadable: they cannot be listed.
    """
    found: list[LauncherPod] = []
    for answer in await facts.all(*keys(placement, namespace)):
        found += others_of(require(answer, f"the VMs of group {placement.group}") or (), uid)
    return found


def others_of(pods: Iterable[LauncherPod], uid: str) -> list[LauncherPod]:
    """Those of the pods with a group's label that have a node and carry a VM, but the VMI with this UID."""
    return [pod for pod in pods if _is_member(pod) and not _belongs_to(pod, uid)]


def _is_member(pod: LauncherPod) -> bool:
    return bool(pod.node_name) and not pod.is_over and pod.meta.label(names.APP_LABEL) == names.LAUNCHER_APP


def _belongs_to(pod: LauncherPod, uid: str) -> bool:
    owner = pod.meta.controller_owner()
    return owner is not None and owner.uid == uid
