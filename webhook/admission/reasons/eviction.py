"""What the codes of the eviction policy mean, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.admission.reasons.meaning import Meaning
from webhook.names import EVICTION, MIGRATION, Code

MEANINGS: Final[Mapping[str, Meaning]] = {
    Code.BLACKOUT: Meaning(
        (EVICTION,),
        "denied",
        "The settings forbid evictions by the descheduler at this time.",
        "Retry after the blackout.",
    ),
    Code.COOL_DOWN: Meaning(
        (EVICTION,),
        "denied",
        "The VM was migrated recently and is held on its node for a while, so that the descheduler does not move it"
        " back"
        " and forth.",
        "Retry after the time in the message.",
    ),
    Code.TOO_MANY_EVACUATIONS: Meaning(
        (EVICTION,), "denied", "As many VMs are being evacuated as the settings allow.", "Retry later."
    ),
    Code.NAME_TOO_LONG: Meaning(
        (EVICTION,),
        "denied",
        "KubeVirt labels migrations with the VM's name, and this name is not a valid label value, so KubeVirt can"
        " create"
        " no migration.",
        "Give the VM a name of at most 63 characters.",
    ),
    Code.HELD_BACK: Meaning(
        (EVICTION,),
        "denied",
        "KubeVirt, since 1.8, holds the VM's migrations back while a backup of it runs or utility volumes are"
        " attached.",
        "Retry when the backup has ended and the utility volumes are detached.",
    ),
    Code.WILL_STOP: Meaning(
        (EVICTION,),
        "allowed",
        "The eviction stops the VM instead of migrating it, because of its eviction strategy.",
        "Set evictionStrategy LiveMigrate if the VM should be migrated.",
    ),
    Code.OTHER_REQUESTER: Meaning(
        (EVICTION,), "skipped", "The eviction was not requested by a component in the setting eviction.requesters."
    ),
    Code.BY_KUBEVIRT: Meaning((MIGRATION, EVICTION), "skipped", "KubeVirt itself migrates the VM or evicts the pod."),
    Code.POD_NOT_FOUND: Meaning((EVICTION,), "skipped", "The pod does not exist."),
    Code.POD_OVER: Meaning((EVICTION,), "skipped", "The pod has completed, and no VM runs in it."),
    Code.NOT_THE_CURRENT_POD: Meaning(
        (EVICTION,),
        "skipped",
        "The VM does not run in this pod: it is the source or target of a migration in progress.",
    ),
    Code.EXTERNAL: Meaning(
        (EVICTION,), "skipped", "The VM's eviction strategy is External: a component other than KubeVirt migrates it."
    ),
    Code.UNKNOWN_STRATEGY: Meaning(
        (EVICTION,),
        "skipped",
        "The VM has an eviction strategy that this version of kubevirt-webhook does not support.",
    ),
    Code.NOT_MIGRATABLE: Meaning(
        (EVICTION,), "skipped", "The VM is not live-migratable, and KubeVirt denies its eviction by itself."
    ),
    Code.EVACUATING: Meaning((EVICTION,), "skipped", "The VM is already being migrated."),
}
