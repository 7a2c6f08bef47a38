"""How a number of vCPUs becomes sockets, cores and threads (KubeVirt, pkg/instancetype/apply/cpu.go)."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.conflict import Cause, Crash

GUEST_FIELD: Final = "instancetype.spec.cpu.guest"


class Topology(Enum):
    """The preferred topology; the values are KubeVirt's current names."""

    SOCKETS = "sockets"
    CORES = "cores"
    THREADS = "threads"
    SPREAD = "spread"
    ANY = "any"


DEPRECATED: Final = {
    "preferSockets": Topology.SOCKETS,
    "preferCores": Topology.CORES,
    "preferThreads": Topology.THREADS,
    "preferSpread": Topology.SPREAD,
    "preferAny": Topology.ANY,
}
_NAMES: Final = {topology.value: topology for topology in Topology} | DEPRECATED

SOCKETS_CORES: Final = "SocketsCores"
CORES_THREADS: Final = "CoresThreads"
SOCKETS_CORES_THREADS: Final = "SocketsCoresThreads"
ACROSS: Final = (SOCKETS_CORES, CORES_THREADS, SOCKETS_CORES_THREADS)


class VcpuSpread(NamedTuple):
    """How vCPUs are spread: over which parts of the topology, and with how many cores to a socket."""

    across: str
    ratio: int


def preferred_topology(preference: Json | None) -> Topology | None:
    """The topology that a preference's spec names, sockets where it names none; None for an unknown name."""
    name = (preference or {}).get("cpu", {}).get("preferredCPUTopology")
    return Topology.SOCKETS if name is None else _NAMES.get(name)


def preferred_spread(preference: Json | None) -> VcpuSpread:
    """How a preference's spec spreads vCPUs."""
    preference = preference or {}
    options = preference.get("cpu", {}).get("spreadOptions", {})
    ratio = preference.get("preferSpreadSocketToCoreRatio") or 2
    return VcpuSpread(options.get("across", SOCKETS_CORES), options.get("ratio", ratio))


def divide(guest: int, preference: Json | None) -> tuple[int, int, int]:
    """Sockets, cores and threads for a number of vCPUs. What does not divide is lost, as in KubeVirt.

    Raises:
        Crash: the ratio of a spread is zero.
    """
    if guest == 1:
        return 1, 1, 1
    topology = preferred_topology(preference)
    if topology is Topology.CORES:
        return 1, guest, 1
    if topology is Topology.THREADS:
        return 1, 1, guest
    if topology is Topology.SPREAD:
        return _divide_spread(guest, preferred_spread(preference))
    return (1, 1, 1) if topology is None else (guest, 1, 1)


def _divide_spread(guest: int, wanted: VcpuSpread) -> tuple[int, int, int]:
    if wanted.across not in ACROSS:
        return 1, 1, 1
    _reject_zero(wanted)
    if wanted.across == CORES_THREADS:
        return 1, guest // wanted.ratio, wanted.ratio
    if wanted.across == SOCKETS_CORES:
        return guest // wanted.ratio, wanted.ratio, 1
    return guest // 2 // wanted.ratio, wanted.ratio, 2


def _reject_zero(wanted: VcpuSpread) -> None:
    if not wanted.ratio:
        raise Crash("the preference spreads vCPUs with a ratio of 0, by which KubeVirt would divide")


def check_divisible(guest: int, preference: Json | None) -> Cause | None:
    """Why an instancetype's vCPUs cannot be spread as a preference wants, or None.

    Only KubeVirt's admission of VMs checks this; virt-controller does not.

    Raises:
        Crash: the ratio is zero.
    """
    if preferred_topology(preference) is not Topology.SPREAD:
        return None
    wanted = preferred_spread(preference)
    across, ratio = wanted
    threads = "not divisible by the number of threads per core"
    ratios = "Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of"
    text = ""
    if across == SOCKETS_CORES_THREADS:
        if guest % 2 or _indivisible(guest // 2, wanted):
            text = f"are {threads} 2 and {ratios} {ratio}"
    elif across == CORES_THREADS and _indivisible(guest, wanted):
        text = f"are {threads} {ratio}"
    elif across == SOCKETS_CORES and _indivisible(guest, wanted):
        text = f"are not divisible by the {ratios} {ratio} provided by the preference"
    if not text:
        return None
    return Cause("FieldValueInvalid", f"{guest} vCPUs provided by the instance type {text}", GUEST_FIELD)


def _indivisible(guest: int, wanted: VcpuSpread) -> bool:
    _reject_zero(wanted)
    return guest % wanted.ratio != 0
