"""The reasons of the eviction policy. KubeVirt's own texts, for which the descheduler looks, are never used."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import Meaning, about, about_two, define
from webhook.errors import quote
from webhook.text import pluralize

# By code.
REASONS: Final[dict[str, Meaning]] = {}
# Codes of several policies that this one gives, too.
SHARED_REASONS: Final = (
    common.BEING_DELETED,
    common.POD_OVER,
    common.NOT_THE_CURRENT_POD,
    common.ELIGIBLE,
    common.NO_ELIGIBLE_NODE,
    common.HOST_CPU_UNKNOWN,
    common.BY_KUBEVIRT,
    common.NOT_LAUNCHER,
    common.NO_VMI_OWNER,
    common.KUBEVIRT_ABSENT,
    common.VMI_NOT_FOUND,
    common.VMI_REPLACED,
)

_denied: Final = partial(define, REASONS, "denied")
_allowed: Final = partial(define, REASONS, "allowed")
_skipped: Final = partial(define, REASONS, "skipped")

BLACKOUT: Final = _denied(
    "blackout", "The settings forbid evictions by the descheduler at this time.", "Retry after the blackout."
)
blackout: Final = about(BLACKOUT, "evictions of VMs are not allowed during the blackout (%s); retry after it ends")
COOL_DOWN: Final = _denied(
    "cool-down",
    "The VM was migrated recently and is held on its node for a while, so that the descheduler does not move it back"
    " and forth.",
    "Retry after the time in the message.",
)


def cool_down(seconds: int, in_a_row: int, ago: int, left: int) -> Reason:
    """The VM was migrated a moment ago. Times are in seconds; ``in_a_row`` counts migrations that followed closely."""
    ended = "its last migration" if in_a_row == 1 else f"the last of {in_a_row} migrations in a row"
    text = f"the VM is held on its node for {seconds}s after {ended}, which ended {ago}s ago; retry in {left}s"
    return Reason(COOL_DOWN, text)


TOO_MANY_EVACUATIONS: Final = _denied(
    "too-many-evacuations", "As many VMs are being evacuated as the settings allow.", "Retry later."
)


def too_many(count: int, cap: int, where: str) -> Reason:
    """So many VMs are being evacuated as a cap of the settings allows in ``namespace NAME`` or in ``the cluster``."""
    text = f"{pluralize(count, 'evacuation')} in progress in {where} (limit {cap}); retry later"
    return Reason(TOO_MANY_EVACUATIONS, text)


NAME_TOO_LONG: Final = _denied(
    "name-too-long",
    "KubeVirt cannot migrate a VM with so long a name: it labels migrations with the name, and a label value has at"
    " most 63 characters; and releases before 1.6.5, 1.7.3 and 1.8.2 do not find the persistent state (TPM, EFI) of a"
    " VM whose name has more than 37.",
    "Give the VM a name of at most 63 characters, of at most 37 in these releases, or update KubeVirt.",
)
name_too_long: Final = about(NAME_TOO_LONG, "%s")
HELD_BACK: Final = _denied(
    "migration-held-back",
    "KubeVirt, since 1.8, holds the VM's migrations back while a backup of it runs or utility volumes are attached.",
    "Retry when the backup has ended and the utility volumes are detached.",
)
held_back: Final = about(HELD_BACK, "KubeVirt holds migrations of this VM back %s; retry afterwards")
TRANSFER: Final = _denied(
    "transfer-in-progress",
    "The pod imports, clones, uploads, converts or exports a disk, which its eviction would cut off; the setting"
    " eviction.protectTransfersSeconds keeps such pods on their node for a while.",
    "Retry when the pod has ended; a drain is not denied.",
)


def transfer(what: str, seconds: int, ago: int) -> Reason:
    """The pod is a transfer that started so many seconds ago and is protected for ``seconds`` from its start."""
    text = f"the pod is a {what} that started {ago}s ago and is held on its node for {seconds}s"
    return Reason(TRANSFER, f"{text}; retry when it has ended, or in {seconds - ago}s")


QUOTA: Final = _denied(
    "quota",
    "A ResourceQuota of the namespace does not allow the target pod of the VM's migration, which requests all that the"
    " VM has again.",
    "Raise the quota by what the namespace's largest VM requests, or count VMs with the Application Aware Quota"
    " operator.",
)
quota: Final = about(QUOTA, "the target pod of a migration of this VM would be denied: %s")
quota_not_known: Final = about(common.LOOKUP_FAILED, "%s")
WILL_STOP: Final = _allowed(
    "vm-will-stop",
    "The eviction stops the VM instead of migrating it, because of its eviction strategy.",
    "Set evictionStrategy LiveMigrate if the VM should be migrated. That takes effect when the VM is restarted.",
)
will_stop: Final = about_two(WILL_STOP, "this eviction stops VM %s: %s")
strategy_none: Final = "its eviction strategy is None"
strategy_if_possible: Final = "it is not live-migratable (eviction strategy LiveMigrateIfPossible)"
OTHER_REQUESTER: Final = _skipped(
    "other-requester", "The eviction was not requested by a component in the setting eviction.requesters."
)


def other_requester(requesters: Iterable[str]) -> Reason:
    """The eviction comes from a component that this policy does not watch over."""
    named = " or ".join(map(quote, requesters)) or "any component"
    return Reason(OTHER_REQUESTER, f"skipped: the eviction is not requested by {named}")


POD_NOT_FOUND: Final = _skipped("pod-not-found", "The pod does not exist.")
pod_not_found: Final = about(POD_NOT_FOUND, "skipped: pod %q does not exist")
EXTERNAL: Final = _skipped(
    "external-eviction-strategy", "The VM's eviction strategy is External: a component other than KubeVirt migrates it."
)
external_strategy: Final = about(
    EXTERNAL, "skipped: VM %s has eviction strategy External; another component migrates it"
)
UNKNOWN_STRATEGY: Final = _skipped(
    "unknown-eviction-strategy",
    "The VM has an eviction strategy that this version of kubevirt-webhook does not support.",
)
unknown_strategy: Final = about_two(
    UNKNOWN_STRATEGY, "skipped: VM %s has eviction strategy %q, which kubevirt-webhook does not support"
)
NOT_MIGRATABLE: Final = _skipped(
    "not-migratable", "The VM is not live-migratable, and KubeVirt denies its eviction by itself."
)
not_migratable: Final = about(NOT_MIGRATABLE, "skipped: VM %s is not live-migratable; KubeVirt denies its eviction")
_TAKE_BACK: Final = (
    "`kubevirt-webhook explain vm NAMESPACE/VM` has the command that takes the mark back (docs/drain.md, Take an"
    " evacuation back)."
)
EVACUATING: Final = _skipped(
    "already-evacuating",
    "The VM is being migrated already, or is marked for evacuation (status.evacuationNodeName): KubeVirt creates"
    " migrations of it until one succeeds.",
    f"Nothing, if a migration can succeed. Otherwise {_TAKE_BACK}",
)
already_evacuating: Final = about(EVACUATING, "skipped: VM %s is already being migrated")
already_marked: Final = about_two(EVACUATING, "skipped: VM %s is already marked for evacuation from node %s")
STALE: Final = _skipped(
    "stale-evacuation",
    "The VM is marked for the evacuation of a node where it does not run (status.evacuationNodeName): virt-api denies"
    " its evictions, and KubeVirt creates no migration for them.",
    _TAKE_BACK,
)
stale_evacuation: Final = about_two(
    STALE, "skipped: VM %s is marked for the evacuation of node %s, where it does not run; KubeVirt does not migrate it"
)

# Reasons that other policies give too, in this policy's words.
by_kubevirt: Final = Reason(common.BY_KUBEVIRT, "skipped: KubeVirt itself evicts the pod")
being_deleted: Final = Reason(
    common.BEING_DELETED, "skipped: the pod or its VirtualMachineInstance is already being deleted"
)
no_configuration: Final = Reason(
    common.KUBEVIRT_ABSENT, "skipped: the cluster has no KubeVirt object, so the VM's eviction strategy is not known"
)
cap_not_applied: Final = about(
    common.LOOKUP_FAILED, "maxPerCluster was not applied: the migrations of the cluster cannot be read: %s"
)
