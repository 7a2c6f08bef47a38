"""The reasons of the naming policy."""

from __future__ import annotations

from functools import partial
from typing import Final

from webhook.admission.decision import Reason
from webhook.admission.reasons.catalog import Meaning, about, about_two, define

# By code.
REASONS: Final[dict[str, Meaning]] = {}

UNMIGRATABLE: Final = define(
    REASONS,
    "denied",
    "name-unmigratable",
    "KubeVirt can start a VM of this name, and cannot migrate it, so that it blocks every drain of its node. The name"
    " has more than 63 characters, or more than 37 where the VM has a persistent TPM or EFI and the release of KubeVirt"
    " does not find their state then.",
    "Choose a shorter name: it cannot be changed later.",
)
too_long: Final = about(UNMIGRATABLE, "%s; choose a shorter name, which cannot be changed later")
state_not_found: Final = about_two(
    UNMIGRATABLE,
    "KubeVirt %s cannot migrate this VM: it does not find the persistent state (TPM, EFI) of a VM whose name has more"
    " than %s characters; choose a shorter name, which cannot be changed later",
)

_allowed: Final = partial(define, REASONS, "allowed")
MIGRATABLE: Final = _allowed("name-migratable", "The VM's name does not keep KubeVirt from migrating it.")
migratable: Final = Reason(MIGRATABLE, "the VM's name does not keep KubeVirt from migrating it")
