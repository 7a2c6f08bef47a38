"""The reasons of the eviction policy. KubeVirt's own texts, for which the descheduler looks, are never used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import define
from webhook.errors import quote
from webhook.names import EVICTION
from webhook.text import pluralize

BLACKOUT: Final = define(
    "blackout",
    (EVICTION,),
    "denied",
    "The settings forbid evictions by the descheduler at this time.",
    "Retry after the blackout.",
)


def blackout(window: str) -> Reason:
    """The settings forbid evictions now.

    Args:
        window: the time window, as the settings write it.
    """
    return Reason(BLACKOUT, f"evictions of VMs are not allowed during the blackout ({window}); retry after it ends")


COOL_DOWN: Final = define(
    "cool-down",
    (EVICTION,),
    "denied",
    "The VM was migrated recently and is held on its node for a while, so that the descheduler does not move it"
    " back"
    " and forth.",
    "Retry after the time in the message.",
)


def cool_down(seconds: int, in_a_row: int, ago: int, left: int) -> Reason:
    """The VM was migrated a moment ago.

    Args:
        seconds: the length of the cool-down.
        in_a_row: migrations that followed each other closely.
        ago: seconds since the last one ended.
        left: seconds until the cool-down is over.
    """
    ended = "its last migration" if in_a_row == 1 else f"the last of {in_a_row} migrations in a row"
    text = f"the VM is held on its node for {seconds}s after {ended}, which ended {ago}s ago; retry in {left}s"
    return Reason(COOL_DOWN, text)


TOO_MANY_EVACUATIONS: Final = define(
    "too-many-evacuations",
    (EVICTION,),
    "denied",
    "As many VMs are being evacuated as the settings allow.",
    "Retry later.",
)


def too_many(count: int, cap: int, where: str) -> Reason:
    """A cap of the settings is reached.

    Args:
        count: VMs that are being evacuated now.
        cap: the limit of the settings.
        where: ``namespace NAME`` or ``the cluster``.
    """
    text = f"{pluralize(count, 'evacuation')} in progress in {where} (limit {cap}); retry later"
    return Reason(TOO_MANY_EVACUATIONS, text)


NAME_TOO_LONG: Final = define(
    "name-too-long",
    (EVICTION,),
    "denied",
    "KubeVirt labels migrations with the VM's name, and this name is not a valid label value, so KubeVirt can"
    " create"
    " no migration.",
    "Give the VM a name of at most 63 characters.",
)


def name_too_long(text: str) -> Reason:
    """KubeVirt can create no migration for a VM of such a name."""
    return Reason(NAME_TOO_LONG, text)


HELD_BACK: Final = define(
    "migration-held-back",
    (EVICTION,),
    "denied",
    "KubeVirt, since 1.8, holds the VM's migrations back while a backup of it runs or utility volumes are attached.",
    "Retry when the backup has ended and the utility volumes are detached.",
)


def held_back(terms: Iterable[str]) -> Reason:
    """KubeVirt would create a migration, and let it wait.

    Args:
        terms: how long, clauses.
    """
    text = f"KubeVirt holds migrations of this VM back {' and '.join(terms)}; retry afterwards"
    return Reason(HELD_BACK, text)


QUOTA: Final = define(
    "quota",
    (EVICTION,),
    "denied",
    "A ResourceQuota of the namespace does not allow the target pod of the VM's migration, which requests all that the"
    " VM has again.",
    "Raise the quota by what the namespace's largest VM requests, or count VMs with the Application Aware Quota"
    " operator.",
)


def quota(problem: str) -> Reason:
    """KubeVirt would create a migration, and the API server would deny its target pod.

    Args:
        problem: what the API server would say, a clause.
    """
    return Reason(QUOTA, f"the target pod of a migration of this VM would be denied: {problem}")


def quota_not_known(why: str) -> Reason:
    """The eviction is allowed by all that is known; the quotas are not.

    Args:
        why: what is not known and why, a clause.
    """
    return Reason(common.LOOKUP_FAILED, why)


WILL_STOP: Final = define(
    "vm-will-stop",
    (EVICTION,),
    "allowed",
    "The eviction stops the VM instead of migrating it, because of its eviction strategy.",
    "Set evictionStrategy LiveMigrate if the VM should be migrated.",
)


def will_stop(place: str, why: str) -> Reason:
    """The eviction is allowed, and it stops the VM."""
    return Reason(WILL_STOP, f"this eviction stops VM {place}: {why}")


def strategy_none() -> str:
    """Why an eviction stops a VM, as a clause."""
    return "its eviction strategy is None"


def strategy_if_possible() -> str:
    """Why an eviction stops a VM, as a clause."""
    return "it is not live-migratable (eviction strategy LiveMigrateIfPossible)"


OTHER_REQUESTER: Final = define(
    "other-requester",
    (EVICTION,),
    "skipped",
    "The eviction was not requested by a component in the setting eviction.requesters.",
)


def other_requester(requesters: Iterable[str]) -> Reason:
    """The eviction comes from a component that this policy does not watch over."""
    named = " or ".join(map(quote, requesters)) or "any component"
    return Reason(OTHER_REQUESTER, f"skipped: the eviction is not requested by {named}")


POD_NOT_FOUND: Final = define(
    "pod-not-found",
    (EVICTION,),
    "skipped",
    "The pod does not exist.",
)


def pod_not_found(name: str) -> Reason:
    """The pod does not exist; the API server reports that."""
    return Reason(POD_NOT_FOUND, f"skipped: pod {quote(name)} does not exist")


POD_OVER: Final = define(
    "pod-completed",
    (EVICTION,),
    "skipped",
    "The pod has completed, and no VM runs in it.",
)


def pod_completed(phase: str) -> Reason:
    """The pod has ended."""
    return Reason(POD_OVER, f"skipped: the pod is in phase {phase}, and no VM runs in it")


NOT_THE_CURRENT_POD: Final = define(
    "not-the-current-pod",
    (EVICTION,),
    "skipped",
    "The VM does not run in this pod: it is the source or target of a migration in progress.",
)


def not_the_current_pod() -> Reason:
    """The pod is a migration's target, or its source after the migration."""
    return Reason(
        NOT_THE_CURRENT_POD, "skipped: the VM does not run in this pod; a migration to or from it is in progress"
    )


EXTERNAL: Final = define(
    "external-eviction-strategy",
    (EVICTION,),
    "skipped",
    "The VM's eviction strategy is External: a component other than KubeVirt migrates it.",
)


def external_strategy(place: str) -> Reason:
    """Another component moves the VM."""
    return Reason(EXTERNAL, f"skipped: VM {place} has eviction strategy External; another component migrates it")


UNKNOWN_STRATEGY: Final = define(
    "unknown-eviction-strategy",
    (EVICTION,),
    "skipped",
    "The VM has an eviction strategy that this version of kubevirt-webhook does not support.",
)


def unknown_strategy(place: str, strategy: str) -> Reason:
    """A strategy of a KubeVirt that is newer than this program."""
    text = f"skipped: VM {place} has eviction strategy {quote(strategy)}, which kubevirt-webhook does not support"
    return Reason(UNKNOWN_STRATEGY, text)


NOT_MIGRATABLE: Final = define(
    "not-migratable",
    (EVICTION,),
    "skipped",
    "The VM is not live-migratable, and KubeVirt denies its eviction by itself.",
)


def not_migratable(place: str) -> Reason:
    """KubeVirt denies the eviction by itself."""
    return Reason(NOT_MIGRATABLE, f"skipped: VM {place} is not live-migratable; KubeVirt denies its eviction")


EVACUATING: Final = define(
    "already-evacuating",
    (EVICTION,),
    "skipped",
    "The VM is already being migrated.",
)


def already_evacuating(place: str) -> Reason:
    """KubeVirt is already moving the VM."""
    return Reason(EVACUATING, f"skipped: VM {place} is already being migrated")


# Reasons that other policies give too, in this policy's words.


def by_kubevirt() -> Reason:
    """KubeVirt evicts its own pod."""
    return Reason(common.BY_KUBEVIRT, "skipped: KubeVirt itself evicts the pod")


def being_deleted() -> Reason:
    """The pod, or its VMI, is on its way out."""
    return Reason(common.BEING_DELETED, "skipped: the pod or its VirtualMachineInstance is already being deleted")


def no_configuration() -> Reason:
    """Without a KubeVirt object no eviction strategy is known."""
    text = "skipped: the cluster has no KubeVirt object, so the VM's eviction strategy is not known"
    return Reason(common.KUBEVIRT_ABSENT, text)


def cap_not_applied(why: str) -> Reason:
    """The cluster's migrations could not be read, so that its cap was not applied."""
    text = f"maxPerCluster was not applied: the migrations of the cluster cannot be read: {why}"
    return Reason(common.LOOKUP_FAILED, text)
