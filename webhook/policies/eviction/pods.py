"""Evictions of virt-launcher pods by the descheduler; those of other clients are skipped.

Which VMs are being evacuated their VMIs say. Migrations that KubeVirt makes of evictions carry an annotation, which any
user who may create a migration can write too. So the annotation only says which VMIs are worth a look; what counts is
the field in a VMI's own status.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from webhook import names
from webhook.admission.decision import Decision, Reason, allow, deny
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.errors import Unavailable
from webhook.facts import Facts, KubeVirtKey, ListKey, NodesKey, ObjectKey, Unreadable
from webhook.k8s.resources import NamespacedName
from webhook.k8s.types.core import Eviction
from webhook.k8s.types.meta import OwnerReference
from webhook.kubevirt.config import DEFAULTS
from webhook.kubevirt.launcher import vmi_owner
from webhook.kubevirt.releases.release import MIGRATION_QUEUE
from webhook.kubevirt.transfers import transfer_of
from webhook.placement.machines import (
    EVACUEES,
    LAUNCHER_PODS,
    MIGRATIONS,
    PLACED_VMIS,
    UNFINISHED,
    Evacuee,
    LauncherPod,
    Migration,
    Vmi,
)
from webhook.placement.migrations import (
    EvictionEffect,
    evacuated_node,
    eviction_effect,
    own_strategy,
    stale_evacuation,
)
from webhook.policies.common import evacuations, migration_targets
from webhook.policies.common.migration_targets import details, no_node
from webhook.policies.common.required_facts import is_kubevirts, read, read_configuration
from webhook.policies.eviction import reasons
from webhook.policies.eviction.settings import WEEK, Blackout, EvictionSettings

# What the descheduler writes into the Evictions that it sends.
REQUESTED_BY: Final = "requested-by"
_WHY: Final = "reason"

# 1970 began on a Thursday.
_EPOCH: Final = 3 * 24 * 60
# Migrations follow each other where no more than so many of the longest cool-downs lie between their ends: one that
# the descheduler begins right after the longest must not count as the first.
_CLOSE: Final = 2
# VMIs that are read in one review, beside twice the larger cap.
_READ_AT_LEAST: Final = 32


async def evaluate_eviction(
    eviction: Eviction, request: Request[Eviction], facts: Facts, settings: EvictionSettings
) -> Decision:
    """Deny an eviction that could only fail or comes too soon; what virt-api answers better is left to it.

    The rules about strategies and pods are those of virt-api's own admitter (pod-eviction-admitter.go). Nothing comes
    of a denial but the answer, so dry runs need no care.
    """
    if request.operation != "CREATE":
        return allow(common.other_operation(request.operation))
    requester = eviction.meta.annotation(REQUESTED_BY)
    if requester not in settings.requesters:
        return allow(reasons.other_requester(settings.requesters))
    name, namespace = request.name or "", request.namespace or ""
    vmi_name = ""
    try:
        if await is_kubevirts(request.user_info, names.CONTROLLER_ACCOUNT, facts, settings.kubevirt_namespace):
            return allow(reasons.by_kubevirt)
        pod = await read(facts, ObjectKey(LAUNCHER_PODS, namespace, name), f"the pod {name}")
        if pod is None:
            decision = allow(reasons.pod_not_found(name))
        elif isinstance(owner := _owner(pod, facts.now, settings), Decision):
            decision = owner
        else:
            vmi_name = owner.name or ""
            decision = await _evaluate_owner(owner, pod, namespace, facts, settings)
    except Unreadable as error:
        decision = allow(common.lookup_failed("the eviction was not evaluated", error.why), warn=True)
    about = {"vmi": vmi_name, "requester": requester, "why": eviction.meta.annotation(_WHY) or ""}
    return replace(decision, details={**about, **decision.details})


def _owner(pod: LauncherPod, now: float, settings: EvictionSettings) -> OwnerReference | Decision:
    """The VMI whose pod it is, or what becomes of the eviction of a pod that has none."""
    if pod.phase in ("Succeeded", "Failed"):
        return allow(common.pod_completed(pod.phase))
    owner = vmi_owner(pod)
    if isinstance(owner, Reason):
        busy = _transfer(pod, now, settings)
        return _deny(busy) if busy else allow(owner)
    return owner


async def _evaluate_owner(
    owner: OwnerReference, pod: LauncherPod, namespace: str, facts: Facts, settings: EvictionSettings
) -> Decision:
    """The answer to the eviction of a VMI's pod."""
    vmi = await _present_vm(owner, pod, namespace, facts)
    if isinstance(vmi, Decision):
        return vmi
    return await _by_strategy(vmi, namespace, facts) or await _evaluate(vmi, namespace, facts, settings)


async def _present_vm(owner: OwnerReference, pod: LauncherPod, namespace: str, facts: Facts) -> Vmi | Decision:
    """The VMI that runs in a pod, or what becomes of an eviction that could move none."""
    vmi_name = owner.name or ""
    vmi = await read(
        facts, ObjectKey(PLACED_VMIS, namespace, vmi_name), f"VirtualMachineInstance {namespace}/{vmi_name}"
    )
    if vmi is None:
        return allow(common.vmi_not_found(namespace, vmi_name))
    if vmi.meta.uid != owner.uid:
        return allow(common.vmi_replaced(namespace, vmi_name))
    if pod.meta.deletion_timestamp or vmi.meta.deletion_timestamp:
        return allow(reasons.being_deleted)
    node = vmi.status.node_name if vmi.status else None
    return vmi if node and node == pod.node_name else allow(common.not_the_current_pod)


def _transfer(pod: LauncherPod, now: float, settings: EvictionSettings) -> Reason | None:
    """Why a pod without a VM stays where it is: it copies a disk, and not for longer than the settings protect that.

    The limit bounds what a user gains by the labels of such pods, which anyone can write into a pod.
    """
    seconds, started = settings.protect_transfers_seconds, pod.started_at
    if not seconds or started is None or pod.meta.deletion_timestamp:
        return None
    transfer, ago = transfer_of(pod), max(0, math.floor(now - started))
    return reasons.transfer(transfer.what, seconds, ago) if transfer and ago < seconds else None


async def _by_strategy(vmi: Vmi, namespace: str, facts: Facts) -> Decision | None:
    """The answer where the eviction leads to no migration by KubeVirt, or to one that is under way."""
    strategy = own_strategy(vmi)
    if not strategy:
        configuration = await read_configuration(facts)
        if configuration is None:
            return allow(reasons.no_configuration)
        strategy = configuration.eviction_strategy
    place = f"{namespace}/{vmi.meta.name}"
    match eviction_effect(vmi, strategy):
        case EvictionEffect.HANDED_OVER:
            return allow(reasons.external_strategy(place))
        case EvictionEffect.STOPS:
            return allow(reasons.will_stop(place, reasons.strategy_none), warn=True)
        case EvictionEffect.STOPS_UNMIGRATABLE:
            return allow(reasons.will_stop(place, reasons.strategy_if_possible), warn=True)
        case EvictionEffect.NOT_MIGRATABLE:
            return allow(reasons.not_migratable(place))
        case EvictionEffect.UNKNOWN:
            return allow(reasons.unknown_strategy(place, strategy))
    if stale := stale_evacuation(vmi):
        return allow(reasons.stale_evacuation(place, stale))
    if marked := evacuated_node(vmi):
        return allow(reasons.already_marked(place, marked))
    return None


async def _evaluate(vmi: Vmi, namespace: str, facts: Facts, settings: EvictionSettings) -> Decision:
    """The answer where KubeVirt would migrate the VM."""
    name = vmi.meta.name or ""
    if problem := migration_targets.name_problem(name):
        return _deny(reasons.name_too_long(problem))
    key = ListKey(MIGRATIONS, namespace, f"{names.VMI_NAME_LABEL}={name}")
    await facts.prefetch(key, NodesKey(), KubeVirtKey())
    migrations = await read(facts, key, "the VM's migrations") or ()
    own = [each for each in migrations if each.meta.namespace == namespace and each.vmi_name == name]
    if any(migration.is_unfinished for migration in own):
        return allow(reasons.already_evacuating(f"{namespace}/{name}"))
    if forbidden := blackout(settings.blackouts, facts.now):
        return _deny(forbidden)
    # What a drain or a shutdown moves in a moment is not paced; drains are not, either. The nodes are looked at again
    # after each fact that is waited for: an emptying that begins meanwhile counts.
    if not await _is_leaving(vmi, facts) and (too_soon := cool_down(own, facts.now, settings)):
        return _deny(too_soon)
    configuration = await read_configuration(facts) or DEFAULTS
    if problem := migration_targets.state_problem(vmi, configuration.release):
        return _deny(reasons.name_too_long(problem))
    if terms := migration_targets.holding_back(vmi, configuration):
        return _deny(reasons.held_back(" and ".join(terms)))
    doubt = None
    if not await _is_leaving(vmi, facts):
        capped, doubt = await _reached_cap(namespace, facts, settings)
        if capped and not await _is_leaving(vmi, facts):
            return _deny(capped)
    return _add_doubt(await _evaluate_placement(vmi, namespace, facts), doubt)


async def _is_leaving(vmi: Vmi, facts: Facts) -> bool:
    """Whether the node of a VM is being emptied now.

    Raises:
        Unreadable: the nodes cannot be read. Then nothing is held back that may have to leave.
    """
    nodes = await read(facts, NodesKey(), "the nodes")
    node = nodes.get(vmi.node_name) if nodes and vmi.node_name else None
    return node is not None and node.is_being_emptied


async def _evaluate_placement(vmi: Vmi, namespace: str, facts: Facts) -> Decision:
    """The answer by the nodes that could take the VM, and by the quotas that could deny its target pod."""
    evacuation = await evacuations.look_for(vmi, namespace, facts)
    if evacuation.cpu_problem:
        return _deny(common.host_cpu_unknown(evacuation.cpu_problem))
    eligibility, quota = evacuation.eligibility, evacuation.quota
    assert eligibility
    if not eligibility.count:
        return replace(_deny(no_node(eligibility)), details=details(eligibility))
    if quota.problem:
        return _deny(reasons.quota(quota.problem))
    count = eligibility.count
    allowed = Decision((common.eligible(count, eligibility.total),), notes={"eligible-nodes": str(count)})
    return _add_doubt(allowed, reasons.quota_not_known(quota.gaps[0]) if quota.gaps else None)


async def _reached_cap(namespace: str, facts: Facts, settings: EvictionSettings) -> tuple[Reason | None, Reason | None]:
    """Which cap is reached, None where none is, and why the cluster's could not be looked at.

    No VMI is read where no more evacuations are claimed than the caps allow.
    """
    if not settings.max_per_namespace and not settings.max_per_cluster:
        return None, None
    settings = await _visible_caps(settings, facts)
    caps = [cap for cap in (settings.max_per_namespace, settings.max_per_cluster) if cap]
    unfinished: tuple[Migration, ...] | Unavailable | None = None
    doubt = None
    if settings.max_per_cluster:
        unfinished = await facts.get(ListKey(UNFINISHED, ""))
        if isinstance(unfinished, Unavailable):
            # Any tenant's migrations may be too large for a list. What can still be evaluated is.
            doubt = reasons.cap_not_applied(unfinished.why)
            settings = settings.model_copy(update={"max_per_cluster": 0})
    if not settings.max_per_cluster and settings.max_per_namespace:
        unfinished = await read(facts, ListKey(UNFINISHED, namespace), "the namespace's migrations")
    claimed = () if isinstance(unfinished, Unavailable) else claimed_evacuations(unfinished or ())
    if len(claimed) < min(caps):
        return None, doubt
    return too_many(await count_evacuations(claimed, max(caps), facts), namespace, settings), doubt


async def _visible_caps(settings: EvictionSettings, facts: Facts) -> EvictionSettings:
    """The caps as far as migrations show how many VMs are being evacuated.

    Without a queue of migrations, up to 1.8, KubeVirt creates no more of them than run at the same time. A VM that it
    is to evacuate beyond that has none yet, so a larger cap would never be reached.
    """
    configuration = await read_configuration(facts) or DEFAULTS
    if configuration.is_gate_open(MIGRATION_QUEUE):
        return settings
    visible = max(1, configuration.parallel_migrations)
    namespace, cluster = min(settings.max_per_namespace, visible), min(settings.max_per_cluster, visible)
    return settings.model_copy(update={"max_per_namespace": namespace, "max_per_cluster": cluster})


def _add_doubt(decision: Decision, doubt: Reason | None) -> Decision:
    """The decision with what it could not take into account."""
    if doubt is None:
        return decision
    return replace(decision, reasons=(*decision.reasons, doubt), warnings=(*decision.warnings, doubt))


def _deny(reason: Reason) -> Decision:
    """A denial after which clients may retry. KubeVirt's own texts, for which the descheduler looks, are not used."""
    return deny(reason, 429)


def blackout(blackouts: Iterable[Blackout], now: float) -> Reason | None:
    """The blackout of the settings that holds now, in Unix time in seconds; None where there is none."""
    minute = (int(now // 60) + _EPOCH) % WEEK
    for entry in blackouts:
        if any(begin <= minute < end for begin, end in entry.spans):
            return reasons.blackout(entry.text)
    return None


def cool_down(migrations: Iterable[Migration], now: float, settings: EvictionSettings) -> Reason | None:
    """Why a VM stays where it is for a while after its migrations, which come in any order.

    The time doubles with each migration that ended soon before the next, failed ones too. KubeVirt keeps five finished
    migrations of a VM, which bounds it at sixteen times. ``now`` is Unix time in seconds.
    """
    ends = sorted((at for migration in migrations if (at := migration.ended_at) is not None), reverse=True)
    if not ends or not settings.cool_down_seconds:
        return None
    in_a_row = 1
    for later, earlier in pairwise(ends):
        if later - earlier > _CLOSE * settings.max_cool_down_seconds:
            break
        in_a_row += 1
    seconds = min(settings.cool_down_seconds * 2 ** (in_a_row - 1), settings.max_cool_down_seconds)
    left = math.ceil(ends[0] + seconds - now)
    if left <= 0:
        return None
    ago = max(0, math.floor(now - ends[0]))
    return reasons.cool_down(seconds, in_a_row, ago, left)


def too_many(evacuated: Mapping[str, int], namespace: str, settings: EvictionSettings) -> Reason | None:
    """Which cap of the settings, where 0 is none, the VMs that are being evacuated, by namespace, reach."""
    # What one namespace has beyond its own cap must not fill that of all.
    most = settings.max_per_namespace or sys.maxsize
    for count, cap, where in (
        (evacuated.get(namespace, 0), settings.max_per_namespace, f"namespace {namespace}"),
        (sum(min(each, most) for each in evacuated.values()), settings.max_per_cluster, "the cluster"),
    ):
        if cap and count >= cap:
            return reasons.too_many(count, cap, where)
    return None


def claimed_evacuations(unfinished: Iterable[Migration]) -> tuple[NamespacedName, ...]:
    """The VMs of the unfinished migrations that say that they evacuate, the most believable first.

    First come those that only KubeVirt's controller can have made, of versions that write priorities. Then namespaces
    take turns, so that many forged migrations in one of them leave those of the others their place.
    """
    by_namespace: dict[tuple[bool, str], dict[str, None]] = {}
    for migration in unfinished:
        if migration.evacuates:
            group = (not migration.is_prioritized, migration.meta.namespace or "")
            by_namespace.setdefault(group, {})[migration.vmi_name] = None
    turns = sorted(
        (doubtful, turn, namespace, name)
        for (doubtful, namespace), names in by_namespace.items()
        for turn, name in enumerate(names)
    )
    return tuple(dict.fromkeys((namespace, name) for _, _, namespace, name in turns))


async def count_evacuations(places: Sequence[NamespacedName], cap: int, facts: Facts) -> Mapping[str, int]:
    """How many of these VMs are being evacuated, by namespace.

    A VMI that is gone or cannot be read is not counted: its owner may have made it unreadable. No more VMIs are read
    than it takes to find the larger cap, ``cap``, reached among as many forged ones.
    """
    most = _READ_AT_LEAST + 2 * cap
    keys: list[ObjectKey[Evacuee]] = [ObjectKey(EVACUEES, namespace, name) for namespace, name in places[:most]]
    evacuated: Counter[str] = Counter()
    for key, vmi in zip(keys, await facts.all(*keys), strict=True):
        if isinstance(vmi, Evacuee) and vmi.is_evacuated:
            evacuated[key.namespace] += 1
    return evacuated
