"""What the eviction policy says. Each function makes one sentence, with the reason code that explains it.

KubeVirt's own texts, for which the descheduler looks, are never used.
"""

from __future__ import annotations

from collections.abc import Iterable

from webhook.admission.decision import Reason
from webhook.errors import quote
from webhook.names import Code
from webhook.text import pluralize


def other_requester(requesters: Iterable[str]) -> Reason:
    """The eviction comes from a component that this policy does not watch over."""
    named = " or ".join(map(quote, requesters)) or "any component"
    return Reason(Code.OTHER_REQUESTER, f"skipped: the eviction is not requested by {named}")


def by_kubevirt() -> Reason:
    """KubeVirt evicts its own pod."""
    return Reason(Code.BY_KUBEVIRT, "skipped: KubeVirt itself evicts the pod")


def pod_not_found(name: str) -> Reason:
    """The pod does not exist; the API server reports that."""
    return Reason(Code.POD_NOT_FOUND, f"skipped: pod {quote(name)} does not exist")


def pod_completed(phase: str) -> Reason:
    """The pod has ended."""
    return Reason(Code.POD_OVER, f"skipped: the pod is in phase {phase}, and no VM runs in it")


def being_deleted() -> Reason:
    """The pod, or its VMI, is on its way out."""
    return Reason(Code.BEING_DELETED, "skipped: the pod or its VirtualMachineInstance is already being deleted")


def not_the_current_pod() -> Reason:
    """The pod is a migration's target, or its source after the migration."""
    return Reason(
        Code.NOT_THE_CURRENT_POD, "skipped: the VM does not run in this pod; a migration to or from it is in progress"
    )


def no_configuration() -> Reason:
    """Without a KubeVirt object no eviction strategy is known."""
    text = "skipped: the cluster has no KubeVirt object, so the VM's eviction strategy is not known"
    return Reason(Code.KUBEVIRT_ABSENT, text)


def external_strategy(place: str) -> Reason:
    """Another component moves the VM."""
    return Reason(Code.EXTERNAL, f"skipped: VM {place} has eviction strategy External; another component migrates it")


def unknown_strategy(place: str, strategy: str) -> Reason:
    """A strategy of a KubeVirt that is newer than this program."""
    text = f"skipped: VM {place} has eviction strategy {quote(strategy)}, which kubevirt-webhook does not support"
    return Reason(Code.UNKNOWN_STRATEGY, text)


def will_stop(place: str, why: str) -> Reason:
    """The eviction is allowed, and it stops the VM."""
    return Reason(Code.WILL_STOP, f"this eviction stops VM {place}: {why}")


def strategy_none() -> str:
    """Why an eviction stops a VM, as a clause."""
    return "its eviction strategy is None"


def strategy_if_possible() -> str:
    """Why an eviction stops a VM, as a clause."""
    return "it is not live-migratable (eviction strategy LiveMigrateIfPossible)"


def not_migratable(place: str) -> Reason:
    """KubeVirt denies the eviction by itself."""
    return Reason(Code.NOT_MIGRATABLE, f"skipped: VM {place} is not live-migratable; KubeVirt denies its eviction")


def already_evacuating(place: str) -> Reason:
    """KubeVirt is already moving the VM."""
    return Reason(Code.EVACUATING, f"skipped: VM {place} is already being migrated")


def name_too_long(text: str) -> Reason:
    """KubeVirt can create no migration for a VM of such a name."""
    return Reason(Code.NAME_TOO_LONG, text)


def held_back(terms: Iterable[str]) -> Reason:
    """KubeVirt would create a migration, and let it wait.

    Args:
        terms: how long, clauses.
    """
    text = f"KubeVirt holds migrations of this VM back {' and '.join(terms)}; retry afterwards"
    return Reason(Code.HELD_BACK, text)


def blackout(window: str) -> Reason:
    """The settings forbid evictions now.

    Args:
        window: the time window, as the settings write it.
    """
    return Reason(
        Code.BLACKOUT, f"evictions of VMs are not allowed during the blackout ({window}); retry after it ends"
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
    return Reason(Code.COOL_DOWN, text)


def too_many(count: int, cap: int, where: str) -> Reason:
    """A cap of the settings is reached.

    Args:
        count: VMs that are being evacuated now.
        cap: the limit of the settings.
        where: ``namespace NAME`` or ``the cluster``.
    """
    text = f"{pluralize(count, 'evacuation')} in progress in {where} (limit {cap}); retry later"
    return Reason(Code.TOO_MANY_EVACUATIONS, text)


def cap_not_applied(why: str) -> Reason:
    """The cluster's migrations could not be read, so that its cap was not applied."""
    text = f"maxPerCluster was not applied: the migrations of the cluster cannot be read: {why}"
    return Reason(Code.LOOKUP_FAILED, text)
