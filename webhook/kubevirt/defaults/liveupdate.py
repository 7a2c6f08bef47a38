"""How much a VMI may grow while it runs: sockets and memory (KubeVirt, pkg/liveupdate).

All functions change the domain that they are given; see `instancetype`.
"""

from __future__ import annotations

from typing import Final

from webhook.k8s import quantity
from webhook.k8s.quantity import Format, Quantity, int64
from webhook.kubevirt.config import AMD64, ClusterConfig
from webhook.kubevirt.go_json.origins import Note, Origin
from webhook.kubevirt.go_json.structs import Json

_MAX_VCPUS: Final = 512
_MIB: Final = 2**20
_GIB: Final = 2**30


def max_sockets(cpu: Json, configuration: ClusterConfig, note: Note) -> None:
    """The most sockets that the VMI may get, where the user has not said so."""
    if cpu.get("maxSockets"):
        return
    sockets = cpu.get("sockets", 0)
    if configuration.max_cpu_sockets:
        cpu["maxSockets"] = max(configuration.max_cpu_sockets, sockets)
        note(Origin.CLUSTER)
        return
    # uint32 in Go, which wraps around.
    most = sockets * configuration.max_hotplug_ratio % 2**32
    siblings = cpu.get("cores", 0) * cpu.get("threads", 0) % 2**32
    if most * siblings % 2**32 > _MAX_VCPUS:
        most = max(_MAX_VCPUS // siblings, sockets)
    cpu["maxSockets"] = most
    note(configuration.origin("max_hotplug_ratio"))


def max_guest(domain: Json, architecture: str, configuration: ClusterConfig, note: Note) -> None:
    """The most memory that the guest may get, where the user has not said so and memory can be plugged at all."""
    memory = domain.get("memory", {})
    if "guest" not in memory or "maxGuest" in memory:
        return
    guest = quantity.parse(memory["guest"])
    most, origin = configuration.max_guest, Origin.CLUSTER
    if most is None:
        most = Quantity.of(int64(guest.value * configuration.max_hotplug_ratio), Format.BINARY_SI)
        origin = configuration.origin("max_hotplug_ratio")
    if architecture == AMD64 and _pluggable(domain, guest, most):
        memory["maxGuest"] = str(most)
        note(origin)


def _pluggable(domain: Json, guest: Quantity, most: Quantity) -> bool:
    cpu = domain.get("cpu", {})
    if "realtime" in cpu or "guestMappingPassthrough" in cpu.get("numa", {}) or "launchSecurity" in domain:
        return False
    page = domain["memory"].get("hugepages", {}).get("pageSize")
    block = _GIB if page == "1Gi" else 2 * _MIB
    aligned = guest.value % block == 0 and most.value % block == 0
    return aligned and guest.value >= _GIB and guest <= most
