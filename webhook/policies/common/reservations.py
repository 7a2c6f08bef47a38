"""The nodes that a VM's persistent reservations keep it from (KubeVirt, pkg/storage/reservation).

From 1.9 on, KubeVirt labels launcher pods with the claims of the LUNs that their VMs may reserve, and keeps pods with
the same label apart by a required anti-affinity between pods.
"""

from __future__ import annotations

from typing import Final

import msgspec

from webhook.errors import Unavailable
from webhook.facts import Facts, ListKey
from webhook.k8s.types.selectors import NOT_IN, Expression
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.releases.capabilities import SEPARATES_PERSISTENT_RESERVATIONS
from webhook.placement.index import NodeIndex
from webhook.placement.machines import LAUNCHER_PODS, MOST_RESERVATIONS, LauncherPod, Vmi
from webhook.placement.nodes import HOSTNAME
from webhook.placement.requirements import Label, Origin

_APART: Final = "KubeVirt keeps VMs with the same persistent reservation on different nodes"


class Apart(msgspec.Struct, frozen=True):
    """What reservations require of the target's node.

    Attributes:
        labels: the requirements on nodes.
        gaps: what could not be taken into account, clauses.
    """

    labels: tuple[Label, ...] = ()
    gaps: tuple[str, ...] = ()


def keep_apart(
    vmi: Vmi, pod: LauncherPod | None, namespace: str, nodes: NodeIndex, configuration: ClusterConfig, facts: Facts
) -> Apart:
    """Where pods of other VMs with the same reservations are, as requirements on nodes.

    Args:
        vmi: the VMI that migrates.
        pod: the launcher pod that the VM runs in, which shows the reservations; None: it is not known.
        namespace: the VMI's namespace. Anti-affinity ends there.
        nodes: all nodes.
        configuration: the cluster's configuration of KubeVirt.
        facts: the review's facts.

    Raises:
        NotRead: the pods have not been read yet; for the Reviewer.
    """
    devices = vmi.domain.devices
    if not (devices and devices.reserves_persistently and configuration.release.has(SEPARATES_PERSISTENT_RESERVATIONS)):
        return Apart()
    reservations = pod.reservations if pod else ()
    if not reservations:
        return Apart(gaps=(f"{_APART}, and the VM's current pod does not show which ones those are",))
    gaps, hosts = [], set()
    if len(reservations) == MOST_RESERVATIONS:
        gaps.append(f"{_APART}, of which at most {MOST_RESERVATIONS} are evaluated here")
    for reservation in reservations:
        others = facts.get(ListKey(LAUNCHER_PODS, namespace, f"{reservation}="))
        if isinstance(others, Unavailable):
            gaps.append(f"{_APART}, and the pods of these cannot be read: {others.why}")
            continue
        names = {other.node_name for other in others or () if not other.is_over} - {"", vmi.node_name}
        hosts |= {node.labels[HOSTNAME] for name in names if (node := nodes.get(name)) and HOSTNAME in node.labels}
    label = Label(Origin.RESERVATION, Expression(HOSTNAME, NOT_IN, tuple(sorted(hosts))))
    return Apart((label,) if hosts else (), tuple(gaps))
