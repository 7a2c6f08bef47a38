"""What goes on with a VM already: a migration in flight, and an evacuation that KubeVirt has not finished."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.kubevirt.releases.capabilities import CANCELS_EVACUATIONS
from webhook.kubevirt.releases.release import Release
from webhook.placement.machines import JOB_UID, LauncherPod, Migration, Vmi


def in_flight(vmi: Vmi, migrations: Iterable[Migration]) -> Migration | None:
    """The migration for which virt-api denies any other of a VM (``ensureNoMigrationConflict``); None: there is none.

    Args:
        vmi: the VM.
        migrations: those of its namespace, or all of the cluster.
    """
    place = (vmi.meta.namespace, vmi.meta.name)
    own = (each for each in migrations if (each.meta.namespace, each.vmi_name) == place and each.is_unfinished)
    return next(own, None)


def conflict(migration: Migration) -> str:
    """How virt-api denies a second migration of the VM, in its words, as a clause."""
    uid = migration.meta.uid or ""
    return (
        f"in-flight migration detected. Active migration job ({uid}) is currently already in progress for VMI"
        f" {migration.vmi_name}"
    )


def target_pod_of(migration: Migration, pods: Iterable[LauncherPod]) -> LauncherPod | None:
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
    """Whether ``virtctl evacuate-cancel`` exists."""
    return release.has(CANCELS_EVACUATIONS)


def cancel_evacuation(vmi: Vmi, release: Release) -> str:
    """How to have KubeVirt no longer evacuate a VM, an imperative."""
    if can_cancel_evacuations(release):
        return f"run `virtctl evacuate-cancel vm {vmi.meta.name} -n {vmi.meta.namespace}` to end that"
    return "restart the VM to end that, or make a node eligible for it"
