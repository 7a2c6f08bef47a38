"""What keeps a VM from starting, beside the nodes: why its pod is not created, or waits, and what KubeVirt asks of it.

The rules are those of virt-controller (pkg/virt-controller, ``services`` and ``watch/topology``) and of the API
server's admission plugins LimitRanger, Priority and ResourceQuota. What the pod requests is a lower bound
(`webhook.placement.demand`), so an obstacle that is named is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from webhook.errors import Unavailable, quote
from webhook.facts import Facts, ListKey, ObjectKey, Unreadable
from webhook.forecast.priorities import PRIORITY_CLASSES, Priorities
from webhook.k8s.quantity import Nanos, read_resource_list
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Condition, Object
from webhook.kubevirt.config import AMD64, ClusterConfig
from webhook.kubevirt.heartbeat import SCHEDULABLE
from webhook.placement.eligibility import Eligibility, unmet_requirements
from webhook.placement.groups import GroupPlacement, required_places
from webhook.placement.machines import LauncherPod, PlacedVmiSpec, TopologyHints, Vmi, VmiStatus
from webhook.placement.nodes import CPU, MEMORY, TRUE, TSC_FREQUENCY_OF_NODE, Node, to_nanos
from webhook.placement.quota import (
    LIMIT_RANGES,
    QUOTAS,
    LimitRange,
    QuotaReview,
    ResourceQuota,
    exceeded_cpu_bounds,
    exceeded_limits,
    review_quotas,
    usage_of,
)
from webhook.placement.target_pods import needs_tsc_frequency
from webhook.policies.common import group_members
from webhook.text import pluralize

_RESOURCE_NAME: Final = "k8s.v1.cni.cncf.io/resourceName"
NETWORKS: Final = Resource(
    "k8s.cni.cncf.io", "v1", "network-attachment-definitions", "NetworkAttachmentDefinition", True, Object
)
# Of one VM, whose owner writes the list.
_MAX_NETWORKS: Final = 64
# A frequency in Hz has ten digits.
_LONGEST_NUMBER: Final = 18


class Admission(NamedTuple):
    """What the API server and virt-controller say to the pod of a VM that starts.

    Attributes:
        obstacles: why there is no pod, clauses.
        gaps: what is not known, clauses.
    """

    obstacles: tuple[str, ...]
    gaps: tuple[str, ...]


def with_frequency(vmi: Vmi, nodes: Iterable[Node], configuration: ClusterConfig) -> tuple[Vmi, tuple[str, ...]]:
    """The VMI with the TSC frequency that virt-controller chooses for it before it makes the pod, and a note of it.

    It takes the lowest of all nodes where virt-handler works, whether or not the VM can start there.
    """
    spec = vmi.spec or PlacedVmiSpec()
    if spec.architecture != AMD64 or not needs_tsc_frequency(vmi):
        return vmi, ()
    chosen, where = configuration.minimum_tsc_frequency or 0, "KubeVirt's configuration"
    if not chosen:
        chosen, name = min(_frequencies(nodes), default=(0, ""))
        where = f"node {name}, the lowest of all nodes where virt-handler works"
    if not chosen:
        return vmi, ()
    hints = VmiStatus(topology_hints=TopologyHints(chosen))
    note = f"the VM needs a fixed TSC frequency, for which KubeVirt takes {chosen} Hz of {where}"
    return msgspec.structs.replace(vmi, status=hints), (note,)


def has_lasting_frequency(nodes: Iterable[Node], configuration: ClusterConfig, lost: int) -> bool:
    """Whether virt-controller chooses the same TSC frequency (`with_frequency`) whichever so many nodes are lost."""
    offers = [hertz for hertz, _ in _frequencies(nodes)] if not configuration.minimum_tsc_frequency else []
    return not offers or offers.count(min(offers)) > lost


def _frequencies(nodes: Iterable[Node]) -> Iterator[tuple[int, str]]:
    """The TSC frequencies of the nodes where virt-handler works, each with the node's name."""
    return ((hz, node.name) for node in nodes if node.labels.get(SCHEDULABLE) == TRUE and (hz := _hertz(node)))


def _hertz(node: Node) -> int:
    """The TSC frequency that virt-handler has found; 0: none."""
    text = node.labels.get(TSC_FREQUENCY_OF_NODE) or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER else 0


async def devices_of_networks(vmi: Vmi, namespace: str, facts: Facts) -> tuple[dict[str, int], list[str]]:
    """How many devices of each resource the networks of a VM request, and what is not known of that, clauses.

    KubeVirt requests one for each network whose NetworkAttachmentDefinition names a resource (pkg/network/multus).
    """
    named = [(each.multus or {}).get("networkName") for each in (vmi.spec or PlacedVmiSpec()).networks or () if each]
    places = [name.rpartition("/") for name in named if isinstance(name, str) and name]
    keys = [ObjectKey(NETWORKS, place or namespace, name) for place, _, name in islice(places, _MAX_NETWORKS)]
    requested: dict[str, int] = {}
    gaps: dict[str, None] = {}
    for key, found in zip(keys, await facts.all(*keys), strict=True):
        place = f"NetworkAttachmentDefinition {key.namespace}/{key.name}"
        if isinstance(found, Unavailable):
            gaps[f"whether a network requests devices is not known: {place} cannot be read: {found.why}"] = None
        elif found is None:
            gaps[f"whether a network requests devices is not known: there is no {place}"] = None
        elif resource := found.meta.annotation(_RESOURCE_NAME):
            requested[resource] = requested.get(resource, 0) + 1
    if more := len(places) - len(keys):
        gaps[f"whether {pluralize(more, 'more network')} request devices was not looked up"] = None
    return requested, list(gaps)


def admission_keys(namespace: str) -> tuple[ListKey[Any], ...]:
    """What `review_admission` reads."""
    return ListKey(QUOTAS, namespace), ListKey(LIMIT_RANGES, namespace), ListKey(PRIORITY_CLASSES, "")


async def review_admission(
    vmi: Vmi,
    namespace: str,
    requests: Mapping[str, int],
    configuration: ClusterConfig,
    facts: Facts,
    *,
    exists: bool = False,
) -> Admission:
    """Whether the pod of a VM is created.

    Args:
        vmi: the VMI, as it will be created.
        namespace: its namespace.
        requests: what its pod requests at least, in kube-scheduler's unit.
        configuration: KubeVirt's.
        facts: what is known of quotas, LimitRanges and PriorityClasses.
        exists: whether the VM has a pod now, which quotas count until it is gone.
    """
    gaps: list[str] = []
    read, is_read = {}, {}
    for key, what in zip(
        admission_keys(namespace), ("ResourceQuotas", "LimitRanges", "its PriorityClass"), strict=True
    ):
        found = await facts.get(key)
        if isinstance(found, Unavailable):
            gaps.append(f"whether {what} allow its pod is not known: {found.why}")
        is_read[what] = not isinstance(found, Unavailable)
        read[what] = () if isinstance(found, Unavailable) else found or ()
    quotas, ranges = read["ResourceQuotas"], read["LimitRanges"]
    obstacles = [f"virt-controller creates no pod: {each}" for each in _forbidden_devices(vmi, configuration)]
    priority = Priorities(read["its PriorityClass"]).of_target_pod(vmi, None)
    problems = [priority.problem] if priority.problem else []
    own = vmi.domain.resources
    limits = read_resource_list((own.limits if own else None) or {})
    # Without the quotas it is not known what KubeVirt limits.
    limited = _limited_by_kubevirt(vmi, quotas, configuration) if is_read["ResourceQuotas"] else _LIMITED
    found_limits = exceeded_limits(ranges, requests, limits, limited)
    found_limits += _exceeded_cpu_bounds(vmi, ranges, requests, limits, _limits_of(quotas), limited)
    problems += found_limits
    usage = usage_of(None, requests, ranges)
    # Whatever limits the pod gets, they are no less than what it requests.
    least = {
        f"limits.{name}": max(to_nanos(name, requests.get(name, 0)), limits.get(name, 0)) for name in (CPU, MEMORY)
    }
    usage = msgspec.structs.replace(usage, amounts={**usage.amounts, **least}, priority_class=priority.class_name)
    quota = QuotaReview() if exists else review_quotas(quotas, usage)
    problems += [quota.problem] if quota.problem else []
    obstacles += [f"the API server denies its pod: {each}" for each in problems]
    named = (vmi.spec.priority_class_name if vmi.spec else None) or ""
    if named and not priority.problem:
        unknown = "there is such a PriorityClass, without which the pod is denied, and whether " if priority.gap else ""
        gaps.append(f"whether {unknown}kube-scheduler deletes other pods for its PriorityClass {quote(named)}")
    if quotas and not quota.problem:
        gaps.append(f"whether the namespace's ResourceQuotas ({_names(quotas)}) allow its pod")
    if ranges and not found_limits:
        gaps.append(f"whether the namespace's LimitRanges ({_names(ranges)}) allow its pod")
    return Admission(tuple(obstacles), tuple(gaps))


_FEW: Final = 5


def _names(objects: Iterable[Object]) -> str:
    names = sorted(each.meta.name or "" for each in objects)
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"{', '.join(names[:_FEW])}{more}"


_LIMITED: Final = frozenset((CPU, MEMORY))


def _limited_by_kubevirt(vmi: Vmi, quotas: Iterable[ResourceQuota], configuration: ClusterConfig) -> frozenset[str]:
    """The resources that KubeVirt limits by itself, or may: no default of a LimitRange counts for them.

    It does where a quota wants it, and where CPUs are dedicated. Where its configuration names labels of namespaces
    whose CPUs it limits, too, these are not looked at.
    """
    if vmi.cpu.dedicated_cpu_placement:
        return _LIMITED
    by_label = (CPU,) if configuration.limits_cpus_by_namespace else ()
    return _limits_of(quotas) | frozenset(by_label)


def _limits_of(quotas: Iterable[ResourceQuota]) -> frozenset[str]:
    """The resources that a quota wants limits of."""
    hard = [(each.status.hard if each.status else None) or {} for each in quotas]
    return frozenset(name for name in _LIMITED if any(f"limits.{name}" in each for each in hard))


def _exceeded_cpu_bounds(
    vmi: Vmi,
    ranges: Iterable[LimitRange],
    requests: Mapping[str, int],
    limits: Nanos,
    wanted: frozenset[str],
    limited: frozenset[str],
) -> list[str]:
    """What LimitRanges say to the CPUs of the guest's container, where it is known exactly what it requests."""
    threads = vmi.domain.io_threads
    if vmi.cpu.isolate_emulator_thread or (threads and threads.supplemental_pool_thread_count):
        return []
    request, limit = to_nanos(CPU, requests.get(CPU, 0)), limits.get(CPU)
    if vmi.cpu.dedicated_cpu_placement:
        limit = request or limit
    elif limit is None and CPU in wanted:
        limit = to_nanos(CPU, 1000 * vmi.cpu.vcpus) or None
    return exceeded_cpu_bounds(ranges, request, limit, may_be_limited=CPU in limited)


def _forbidden_devices(vmi: Vmi, configuration: ClusterConfig) -> Iterator[str]:
    """Devices that KubeVirt's configuration does not permit; without a list there it permits all."""
    permitted, devices = configuration.permitted_devices, vmi.domain.devices
    if permitted is None or devices is None:
        return
    for kind, listed in (("GPU", devices.gpus), ("HostDevice", devices.host_devices)):
        for name in dict.fromkeys((each.device_name or "") for each in listed or () if each and not each.claim_name):
            if name not in permitted:
                yield f"{kind} {name} is not permitted in permittedHostDevices configuration"


async def notes_of_group(
    group: GroupPlacement | None, vmi: Vmi, namespace: str, eligibility: Eligibility, facts: Facts
) -> list[str]:
    """On how many of the eligible nodes the rules of a VM's group hold, with the other VMs where they are, clauses."""
    if group is None or not group.is_required:
        return []
    try:
        members = await group_members.others(group, namespace, vmi.meta.uid or "", facts)
    except Unreadable as error:
        return [f"what its group {quote(group.group)} leaves of these nodes is not known: {error.why}"]
    nodes = {node.name: node for node in eligibility.nodes if node}
    required = required_places(group, namespace, members, nodes.get)
    if not required:
        return []
    left = sum(not unmet_requirements(required, nodes[name]) for name in eligibility.names())
    others = f"{pluralize(len(members), 'VM')} {'runs' if len(members) == 1 else 'run'}"
    return [f"its group {quote(group.group)}, of which {others}, leaves {left or 'none'} of these nodes"]


# In what an API server says of any webhook's denial.
_DENIED: Final = " denied the request"


def waiting_for(vmi: Vmi, pods: Iterable[LauncherPod], scheduler: str) -> str:
    """Why a VMI that exists does not run yet, a clause; empty: it runs, or nothing says why.

    Args:
        vmi: the VMI; KubeVirt copies into it what kube-scheduler writes into the pod.
        pods: its pods, as far as they can be read.
        scheduler: the scheduler that its pod names.
    """
    if vmi.node_name or vmi.has_ended or vmi.waits_for_source:
        return ""
    unscheduled, synchronized = _false(vmi.condition("PodScheduled")), _false(vmi.condition("Synchronized"))
    if unscheduled:
        return f"its pod is not scheduled: {unscheduled}"
    if synchronized:
        # A condition that is there virt-controller leaves as it is.
        of_first = " of its first attempt (Events of the VMI have the last)" if _DENIED in synchronized else ""
        return f"virt-controller reports{of_first}: {synchronized}"
    unbound = [each.meta.name or "" for each in pods if not each.node_name and not each.is_over]
    if unbound:
        return f"no scheduler has looked at its pod {unbound[-1]} yet; the VMI names scheduler {quote(scheduler)}"
    return ""


def condition_of(vm: Mapping[str, Any], kind: str) -> str:
    """What KubeVirt says of a VM, plain JSON, by a condition, a clause; empty: the condition does not hold."""
    conditions = (vm.get("status") or {}).get("conditions")
    # Files may hold anything.
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, dict) and each.get("type") == kind and each.get("status") == "True":
            return f"virt-controller reports: {each.get('message') or each.get('reason') or ''}"
    return ""


def _false(condition: Condition | None) -> str:
    if condition is None or condition.status != "False":
        return ""
    return condition.message or condition.reason or ""
