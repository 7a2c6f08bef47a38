"""The reasons of the defaults policy."""

from __future__ import annotations

from functools import partial
from typing import Final

from webhook import names
from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import Meaning, about, about_two, define

# By code.
REASONS: Final[dict[str, Meaning]] = {}
# Codes of several policies that this one gives, too.
SHARED_REASONS: Final = (
    common.ANNOTATION_INVALID,
    common.ANNOTATIONS_VALID,
    common.NOT_LAUNCHER,
    common.NO_VMI_OWNER,
    common.NOT_CREATED_BY_KUBEVIRT,
    common.KUBEVIRT_ABSENT,
    common.POD_BOUND,
)

_changed: Final = partial(define, REASONS, "changed")
_skipped: Final = partial(define, REASONS, "skipped")
_OPT_OUT: Final = f"the label {names.policy_label('defaults')}=off"

INJECTED: Final = _changed(
    "default-injected",
    "A default of the namespace or of the settings is set, because the owner of the VM did not set it.",
    f"To keep the defaults from a VM, set the field yourself, or {_OPT_OUT} on the VM's template.",
)
injected: Final = about(INJECTED, "the default for %s is set: the owner sets none")
MERGED: Final = _changed(
    "default-added",
    "A default of the namespace or of the settings is added to what the owner of the VM set, all of which stays.",
    f"To keep the defaults from a VM, set {_OPT_OUT} on its template.",
)
merged: Final = about(MERGED, "the default for %s is added to what is set already")
RECORDED: Final = _changed(
    "default-recorded",
    "A default that limits nodes is recorded in an annotation of the new VMI, so that all of its launcher pods get it.",
    f"To keep the defaults from a VM, set {_OPT_OUT} on its template.",
)
recorded: Final = about(RECORDED, "the default for %s is recorded: the VMI's launcher pods get it")
NOT_RECORDED: Final = _skipped(
    "default-newer-than-vmi",
    "The default limits nodes, and was not in force when the VMI was created. Its launcher pods stay without it, so"
    " that no migration of a running VM is left without a node.",
    "Restart the VM to have it take up the default.",
)
not_recorded: Final = about(NOT_RECORDED, "skipped: the default for %s was not in force when the VMI was created")
PRESENT: Final = _skipped("default-already-set", "What the default says is there already.")
present: Final = about(PRESENT, "the default for %s is there already")
OWNER_CHOSE: Final = _skipped("owner-chose-field", "The owner of the VM set the field, and keeps it.")
owner_chose: Final = about(OWNER_CHOSE, "skipped: the owner set %s")
OPTED_OUT: Final = _skipped(
    "owner-opted-out-of-defaults", f"The owner of the VM set {_OPT_OUT}, or an annotation of that name."
)
opted_out: Final = Reason(
    OPTED_OUT, f"skipped: the owner set {names.policy_label('defaults')}=off on the VM's template"
)
NONE: Final = _skipped("no-default-applies", "Neither the settings nor the namespace have a default for the object.")
none: Final = Reason(NONE, "skipped: there are no defaults for it")
INVALID: Final = define(
    REASONS,
    "warned",
    "default-annotation-invalid",
    "An annotation of the namespace that replaces a default is invalid, so the default of the settings counts.",
    "Correct the annotation; `kubevirt-webhook doctor` lists all of them.",
)
invalid: Final = about(INVALID, "the settings' default counts, because of the namespace's %s")
UNUSABLE: Final = _skipped(
    "default-not-usable",
    "The default would keep the VM from starting, so it is not set: its PriorityClass does not exist, or no node has"
    " its CPU model.",
    "Nothing, as the owner of a VM: it starts without the default. As an admin, create what the default names, or"
    " change the default.",
)
unusable: Final = about_two(UNUSABLE, "the default for %s is not set: %s")
RECEIVED: Final = _skipped(
    "default-not-for-received-vm",
    "The VM is received from another cluster, where its guest has a CPU already. KubeVirt looks for nodes with that CPU"
    " only if the VM names no other model.",
    "Restart the VM after its migration to have it take up the default.",
)
received: Final = Reason(RECEIVED, "skipped: the VM is received from another cluster, with the CPU that it has there")
