"""What goes on with a VM already: a migration in flight, and an evacuation that KubeVirt has not finished."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, TypeVar

from webhook.k8s.types.meta import unix_time
from webhook.k8s.types.scheduling import Taint
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.migrationpolicy import MigrationRules
from webhook.kubevirt.releases.capabilities import CANCELS_EVACUATIONS
from webhook.kubevirt.releases.release import Release
from webhook.placement.machines import JOB_UID, LauncherPod, Migration, Vmi
from webhook.placement.nodes import CORDON, NO_SCHEDULE, Node

# How virt-api's denial of a second migration of a VM begins.
IN_FLIGHT: Final = "in-flight migration detected"
# virt-api removes the mark of an evacuation for whom names the node that is marked.
CANCEL_EVACUATION: Final = (
    """echo '{{"evacuationNodeName":"{node}"}}' | kubectl replace -f - --raw"""
    " /apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{name}/evacuate/cancel"
)
# kube-apiserver takes the first segment of a path for the subresource, virt-api (authorizer.go) asks for the whole.
CANCEL_NEEDS: Final = (
    "it takes update on virtualmachineinstances/evacuate, which no role of KubeVirt has, and on"
    " virtualmachineinstances/evacuate/cancel"
)


class EvictionEffect(Enum):
    """What comes of an eviction of the pod that a VM runs in, by its strategy (virt-api, pod-eviction-admitter.go)."""

    MIGRATES = "KubeVirt migrates the VM"
    NOT_MIGRATABLE = "virt-api denies it: the strategy is LiveMigrate, and the VM cannot be migrated"
    STOPS_UNMIGRATABLE = "the VM shuts down: the strategy is LiveMigrateIfPossible, and the VM cannot be migrated"
    STOPS = "the VM shuts down: the strategy is None"
    HANDED_OVER = "another controller moves or ends the VM: the strategy is External"
    UNKNOWN = "not known: the strategy is that of a newer KubeVirt"


def own_strategy(vmi: Vmi) -> str:
    """``spec.evictionStrategy`` of a VMI; empty: KubeVirt's counts.

    virt-api writes KubeVirt's into each VMI that is created without one (setDefaultEvictionStrategy), since 1.1.
    """
    return (vmi.spec.eviction_strategy if vmi.spec else None) or ""


def eviction_effect(vmi: Vmi, default: str) -> EvictionEffect:
    """What comes of an eviction of the pod that a VM runs in.

    Args:
        vmi: the VM.
        default: KubeVirt's evictionStrategy, for a VMI that has none.
    """
    match own_strategy(vmi) or default:
        case "LiveMigrate":
            return EvictionEffect.MIGRATES if vmi.migratable else EvictionEffect.NOT_MIGRATABLE
        case "LiveMigrateIfPossible":
            return EvictionEffect.MIGRATES if vmi.migratable else EvictionEffect.STOPS_UNMIGRATABLE
        case "None":
            return EvictionEffect.STOPS
        case "External":
            return EvictionEffect.HANDED_OVER
    return EvictionEffect.UNKNOWN


def in_flight(vmi: Vmi, migrations: Iterable[Migration]) -> Migration | None:
    """The migration for which virt-api denies any other of a VM (``ensureNoMigrationConflict``); None: there is none.

    Args:
        vmi: the VM.
        migrations: those of its namespace, or all of the cluster.
    """
    key = (vmi.meta.namespace, vmi.meta.name)
    own = (each for each in migrations if (each.meta.namespace, each.vmi_name) == key and each.is_unfinished)
    return next(own, None)


def aborted_at(vmi: Vmi, migration: Migration) -> float | None:
    """When KubeVirt itself ends a migration of a VM by its size, in Unix seconds; None: not, or that is not known.

    Only once the guest is being copied: until then the VMI does not say when that began, nor by which options.
    """
    state = vmi.status.migration_state if vmi.status else None
    if state is None or state.completed or not migration.meta.uid or state.migration_uid != migration.meta.uid:
        return None
    began, options = unix_time(state.start_timestamp), state.migration_configuration
    if began is None or options is None:
        return None
    disrupts = options.allow_workload_disruption
    rules = MigrationRules(
        bandwidth=0,
        timeout_seconds_per_gib=options.completion_timeout_per_gib or 0,
        allows_post_copy=bool(options.allow_post_copy),
        allows_disruption=bool(options.allow_post_copy if disrupts is None else disrupts),
        detects_stalls=(options.experimental or {}).get("stallDetector") is not None,
    )
    seconds = rules.longest(vmi.copied_bytes)
    return None if seconds is None or seconds < 0 else began + seconds


def conflict(migration: Migration) -> str:
    """How virt-api denies a second migration of the VM, in its words, as a clause."""
    uid = migration.meta.uid or ""
    return f"{IN_FLIGHT}. Active migration job ({uid}) is currently already in progress for VMI {migration.vmi_name}"


P = TypeVar("P", bound=LauncherPod)


def target_pod_of(migration: Migration, pods: Iterable[P]) -> P | None:
    """The target pod of a migration in flight, on its node; None: there is none, or it has no node yet.

    Args:
        migration: the migration.
        pods: the launcher pods of the VM.
    """
    uid = migration.meta.uid
    own = (pod for pod in pods if uid and pod.meta.label(JOB_UID) == uid and pod.node_name and not pod.is_over)
    return next(own, None)


def evacuated_node(vmi: Vmi) -> str:
    """The node that KubeVirt is to move a VM away from, because it was evicted there; empty: KubeVirt is not.

    virt-controller creates migrations for it until it runs elsewhere (pkg/virt-controller/watch/drain/evacuation), and
    virt-handler of the node that it has moved to removes the mark.
    """
    marked = (vmi.status.evacuation_node_name if vmi.status else None) or ""
    return marked if marked == vmi.node_name else ""


def stale_evacuation(vmi: Vmi) -> str:
    """Another node than the VM's own that it is marked for; empty: there is no such mark.

    virt-api denies its evictions (``Evacuation in progress``), and virt-controller takes it for moved already
    (``hasMigratedOnEviction``), so that nothing moves it.
    """
    marked = (vmi.status.evacuation_node_name if vmi.status else None) or ""
    return "" if marked == vmi.node_name else marked


def can_cancel_evacuations(release: Release) -> bool:
    """Whether virt-api takes the mark of an evacuation back."""
    return release.has(CANCELS_EVACUATIONS)


def cancel_evacuation(vmi: Vmi, release: Release) -> str:
    """How to have KubeVirt no longer evacuate a VM, an imperative.

    virt-api removes the mark for whom names the marked node, which `virtctl evacuate-cancel` of KubeVirt 1.7 to 1.9.0
    does not do (kubevirt 17008): virt-api answers it with an error. A migration that was created for the mark goes on.
    The roles of KubeVirt 1.7 to 1.9, admin and edit among them, lack what the API server itself asks for.
    """
    meta = vmi.meta
    if can_cancel_evacuations(release):
        marked = (vmi.status.evacuation_node_name if vmi.status else None) or ""
        command = CANCEL_EVACUATION.format(namespace=meta.namespace, name=meta.name, node=marked)
        run = f"have a cluster admin run `{command}` ({CANCEL_NEEDS})"
        return f"to end that, {run}, and delete its unfinished migration"
    return "restart the VM to end that, or make a node eligible for it"


def evacuating_taint(node: Node, configuration: ClusterConfig) -> Taint | None:
    """The taint by which KubeVirt evacuates all VMs of a node, as it did before evictions; None: it has none."""
    if node.unschedulable and configuration.drain_taint == CORDON.key:
        return CORDON
    taints = (each for each in node.taints if each.effect == NO_SCHEDULE)
    return next((each for each in taints if each.key == configuration.drain_taint), None)


def is_moved_by_evacuation(vmi: Vmi, configuration: ClusterConfig) -> bool:
    """Whether KubeVirt creates migrations of a VM that it is to evacuate (``filterRunningNonMigratingVMIs``)."""
    ends = vmi.has_ended or vmi.meta.deletion_timestamp is not None
    return not ends and eviction_effect(vmi, configuration.eviction_strategy) is EvictionEffect.MIGRATES


def end_of_taint(taint: Taint) -> str:
    """How to have KubeVirt no longer evacuate a node with `evacuating_taint`, an imperative."""
    return "uncordon it" if taint == CORDON else f"remove the taint {taint}"


def describe_evacuation(vmi: Vmi, configuration: ClusterConfig, node: Node | None) -> str:
    """That KubeVirt still evacuates a VM, whether that can end by itself, and how to end it; empty: it does not.

    Args:
        vmi: the VM, which runs.
        configuration: KubeVirt's.
        node: the node that it runs on; None: that is gone.
    """
    cancel = cancel_evacuation(vmi, configuration.release)
    if stale := stale_evacuation(vmi):
        return (
            f"It is marked for the evacuation of {stale}, where it does not run: virt-api denies its evictions, and"
            f" KubeVirt migrates it for none; {cancel}"
        )
    marked = evacuated_node(vmi)
    taint = evacuating_taint(node, configuration) if node else None
    if not marked and not taint:
        return ""
    effect = eviction_effect(vmi, configuration.eviction_strategy)
    ends = end_of_taint(taint) if taint else ""
    if not marked:
        if not is_moved_by_evacuation(vmi, configuration):
            return ""
        return (
            f"KubeVirt evacuates all VMs of {vmi.node_name} for its taint {taint} (nodeDrainTaintKey), without any"
            f" eviction: it creates migrations of this one until one succeeds; to end that, {ends}"
        )
    if effect is EvictionEffect.HANDED_OVER:
        return f"It is marked for the evacuation of {marked}: another controller has to move or end it; {cancel}"
    if effect is not EvictionEffect.MIGRATES:
        unable = effect in (EvictionEffect.NOT_MIGRATABLE, EvictionEffect.STOPS_UNMIGRATABLE)
        strategy = own_strategy(vmi) or configuration.eviction_strategy
        why = "it is not live-migratable" if unable else f"its evictionStrategy is {strategy}"
        return f"It is marked for the evacuation of {marked}, which waits, because {why}; {cancel}"
    text = (
        f"KubeVirt still evacuates it from {marked}: it creates migrations until one succeeds, after an uncordon, too"
    )
    if taint:
        return f"{text}; KubeVirt evacuates all VMs of {marked} for its taint {taint}: {ends} first, then {cancel}"
    return f"{text}; {cancel}"


# Of KubeVirt's workload updater, ``spec.workloadUpdateStrategy.workloadUpdateMethods``.
LIVE_MIGRATE: Final = "LiveMigrate"
EVICT: Final = "Evict"
# Tests of KubeVirt write it: the workload updater then leaves the VM alone.
_ABORTED: Final = "kubevirt.io/testWorkloadUpdateMigrationAbortion"


def waits_for_update(vmi: Vmi) -> tuple[str, ...]:
    """The conditions for which KubeVirt's workload updater replaces the launcher pod, be it outdated or not.

    They are those of `Vmi.hotplug_conditions` of a VM that runs (pkg/virt-controller/watch/workload-updater,
    ``doesRequireMigration``); empty: none.
    """
    runs = (vmi.status.phase if vmi.status else None) == "Running" and vmi.meta.deletion_timestamp is None
    return vmi.hotplug_conditions if runs and vmi.meta.annotation(_ABORTED) is None else ()


def describe_hotplug(vmi: Vmi, configuration: ClusterConfig) -> str:
    """That a change of a VM waits for a migration, and whether KubeVirt creates it, a clause; empty: none waits.

    Args:
        vmi: the VM.
        configuration: KubeVirt's.
    """
    if not vmi.hotplug_conditions:
        return ""
    methods = configuration.workload_update_methods
    what = f"a change of the VM ({', '.join(vmi.hotplug_conditions)}) takes effect only in a migration"
    if not waits_for_update(vmi):
        aborted = vmi.meta.annotation(_ABORTED) is not None
        why = f"the VM has the annotation {_ABORTED}" if aborted else "the VM does not run, or is being deleted"
        return f"{what}, which KubeVirt does not create, because {why}"
    if methods is None:
        return f"{what}, which KubeVirt creates only if its workloadUpdateMethods has LiveMigrate; that was not read"
    is_able = vmi.migratable or vmi.migrates_volumes
    if LIVE_MIGRATE in methods and is_able:
        return f"{what}, which KubeVirt creates by itself: its workloadUpdateMethods has LiveMigrate"
    unable = "" if is_able else ", and the VM cannot be live-migrated"
    if EVICT in methods:
        has = "has Evict" if LIVE_MIGRATE in methods else "has Evict and not LiveMigrate"
        return f"{what}; KubeVirt evicts the VM for it: its workloadUpdateMethods {has}{unable}"
    if LIVE_MIGRATE in methods:
        return f"{what}, which KubeVirt does not create: the VM cannot be live-migrated"
    return (
        f"{what}, which KubeVirt does not create: its workloadUpdateMethods does not have LiveMigrate{unable}; the"
        " change waits until someone else migrates or restarts the VM"
    )
