"""The reasons of the instancetypes policy.

Where KubeVirt itself has a sentence for a denial, that sentence stands word for word after the product and policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from webhook import names
from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import Meaning, about, about_two, define
from webhook.errors import quote
from webhook.names import INSTANCETYPES

# By code.
REASONS: Final[dict[str, Meaning]] = {}
# Codes of several policies that this one gives, too.
SHARED_REASONS: Final = (
    common.DISABLED,
    common.BEING_DELETED,
    common.OWNER_OPTED_OUT,
    common.NOTHING_TO_PRESERVE,
)

_changed: Final = partial(define, REASONS, "changed")
_denied: Final = partial(define, REASONS, "denied")
_allowed: Final = partial(define, REASONS, "allowed")
_skipped: Final = partial(define, REASONS, "skipped")


def _join(named: Iterable[tuple[str, object]]) -> tuple[str, str]:
    """``instancetype A and preference B``, and the verb that agrees with it: ``is`` or ``are``."""
    parts = [f"{field} {name}" for field, name in named]
    return " and ".join(parts), "is" if len(parts) == 1 else "are"


DEFAULTS_INJECTED: Final = _changed(
    "defaults-injected",
    "The VM gets the default instancetype, preference, or both, because its owner set neither them nor a size.",
    f"To leave a default out, set another instancetype, a size, or the label {names.policy_label(INSTANCETYPES)}=off on"
    " the VM.",
)


def defaults_injected(defaults: Iterable[tuple[str, str]]) -> Reason:
    """Defaults are written into a new VM."""
    return Reason(DEFAULTS_INJECTED, f"the VM gets the default {_join(defaults)[0]}")


DEFAULTS_PRESERVED: Final = _changed(
    "defaults-preserved",
    "An update replaced the whole VM and so removed the defaults and the annotations that kubevirt-webhook had set."
    " Both are set again.",
    "To remove a default for good, remove the field and keep the annotation.",
)


def defaults_preserved(defaults: Iterable[tuple[str, str]]) -> Reason:
    """A replaced VM lost its defaults together with their annotations."""
    named, verb = _join(defaults)
    removed = "it and its annotation" if verb == "is" else "them and their annotations"
    text = f"the default {named} {verb} preserved: a replacement of the whole VM removed {removed}"
    return Reason(DEFAULTS_PRESERVED, text)


DEFAULT_WITHDRAWN: Final = _changed(
    "default-withdrawn",
    "A default that kubevirt-webhook set is removed, because the owner now sets a size or another object, or because"
    " KubeVirt would deny the update with it.",
)


def defaults_withdrawn(defaults: Iterable[tuple[str, str]], why: Iterable[str]) -> Reason:
    """What the owner writes now does not go with the defaults."""
    named, verb = _join(defaults)
    return Reason(DEFAULT_WITHDRAWN, f"the default {named} {verb} removed: {'; '.join(dict.fromkeys(why))}")


default_replaced: Final = about(DEFAULT_WITHDRAWN, "what the owner sets in spec.%s replaces the default")
default_assumed: Final = about(DEFAULT_WITHDRAWN, "%s")


def assumed_cluster_wide(field: str, name: str, other: object, usual: object) -> str:
    """What a patched name is taken for, where no object of the default's kind has it."""
    return f"spec.{field}.name {quote(name)} is assumed to mean {other}, because {usual} does not exist"


def assumed_same_kind(field: str, name: str, usual: object) -> str:
    """What a patched name is taken for, where there is an object of the default's kind."""
    return f"spec.{field}.name {quote(name)} is assumed to mean {usual}, of the same kind as the default it replaces"


EXPANDED: Final = _changed(
    "instancetype-expanded",
    "What the instancetype and preference say is written out in the VM, as the namespace's annotation"
    f" {names.EXPAND_INSTANCETYPES_ANNOTATION} or the settings request.",
)


def expanded(made: Mapping[str, object]) -> Reason:
    """The VM's matchers are written out in it."""
    named, verb = _join(made.items())
    return Reason(EXPANDED, f"{named} {verb} written out in the VM")


ALREADY_APPLIED: Final = _skipped(
    "instancetype-already-applied",
    "The VirtualMachineInstance was filled before; or the VM has the default that was once written into it, and the"
    " annotation that says so, as an exported manifest has.",
    "To have the default of the namespace instead, remove the field and the annotation from the manifest.",
)
had_default: Final = about(ALREADY_APPLIED, "default %s not applied: the VM has the one that it was given before")
already_applied: Final = about_two(ALREADY_APPLIED, "skipped: %s %s is already applied to the VMI")
APPLIED: Final = _changed(
    "instancetype-applied", "The VirtualMachineInstance is filled with what the instancetype and preference say."
)


def applied(made: Mapping[str, object]) -> Reason:
    """The VMI is filled with an instancetype or a preference."""
    named, verb = _join(made.items())
    return Reason(APPLIED, f"{named} {verb} applied to the VMI")


VALID: Final = _allowed("instancetype-valid", "KubeVirt accepts the VM with its instancetype and preference.")
valid: Final = Reason(VALID, "the instancetype and preference fit the VM")


def names_nothing(field: str, label: str) -> str:
    """A matcher that only inference leaves, as the text of a cause."""
    return f"spec.{field} has no name: the label {label} that it was inferred from is empty; set spec.{field}.name"


def not_allowed(reference: object, namespace: str, allowed: str, other: str = "") -> str:
    """An instancetype that is not on the namespace's list, as a sentence; ``other`` is a cluster-wide one that is."""
    hint = f"; these are cluster-wide: leave out spec.instancetype.kind to use {other}" if other else ""
    return f"instancetype {reference} is not allowed in namespace {namespace}; allowed instancetypes: {allowed}{hint}"


def not_captured(name: str, namespace: str, allowed: str) -> str:
    """A revision that holds no instancetype, as a sentence."""
    return (
        f"ControllerRevision {quote(name)} in namespace {namespace} does not contain an instancetype, so it is not"
        f" allowed; allowed instancetypes: {allowed}"
    )


def way_out_of_copied(field: str, annotation: str) -> str:
    """How to leave a default that a manifest has from another namespace, and that is not allowed in this one."""
    return (
        f"spec.{field} is a default that kubevirt-webhook once wrote into the VM: remove it and the annotation"
        f" {annotation} from the manifest to get the namespace's own default"
    )


def way_out_at_create(injected_value: str) -> str:
    """How to leave a default that makes a new VM wrong."""
    copied = f"spec.instancetype and the annotation {names.INJECTED_INSTANCETYPE_ANNOTATION}"
    return (
        f"to leave out the default {injected_value}, set another spec.instancetype, or set a size and remove {copied},"
        " if the manifest has these"
    )


def way_out_at_update(defaults: Mapping[str, str]) -> str:
    """How to leave defaults that make an update wrong."""
    fields = " and ".join(f"spec.{field}" for field in ("instancetype", "preference") if field in defaults)
    return f"to leave out the default {' and '.join(defaults.values())}, set {fields} to null with kubectl patch"


inferred_conflict: Final = (
    "the VM's instancetype is inferred from a volume, so the preference cannot be checked against it"
)
architecture_conflict: Final = (
    "the preference requires an architecture, and the VM takes its own from the source of a volume"
)
DENIED: Final = _denied(
    "instancetype-denied",
    "KubeVirt would deny the VM, fail to start it, or crash on it. The message is KubeVirt's own where it has one.",
    "Correct the field that the message names: remove it from the VM, or choose another instancetype or preference.",
)
not_expanded: Final = about(DENIED, "the VM is not expanded: %s")
NOT_ALLOWED: Final = _denied(
    "instancetype-not-allowed",
    "The namespace or the settings list the instancetypes that VMs may use, and this one is not among them.",
    "Choose one from the list in the message, or ask an administrator to extend the namespace's annotation"
    f" {names.ALLOWED_INSTANCETYPES_ANNOTATION}.",
)
MISSING: Final = _denied(
    "instancetype-missing",
    "The instancetype, preference or revision that the VM names does not exist. KubeVirt accepts such a VM but cannot"
    " start it. This is a warning, or with the setting `instancetypes.missing: deny` a denial.",
    "Correct the kind and the name that the message quotes; if both are right, create the object first.",
)


def missing(field: str, text: str, may_come: bool) -> Reason:
    """What the VM names in a field does not exist.

    Args:
        field: for example ``spec.instancetype``.
        text: KubeVirt's or the API server's sentence.
        may_come: whether the object may still be created; if not, the field itself is wrong.
    """
    # What is to be done comes first: a warning is cut where a name is long.
    if not may_come:
        where = "this" if text.startswith(field) else field
        return Reason(MISSING, f"the VM cannot start until {where} is corrected: {text}")
    named = text.removesuffix(" not found")
    return Reason(
        MISSING, f"the VM cannot start until {field} is corrected, or what does not exist is created: {named}"
    )


_MEMORY_TODO: Final = (
    "set spec.instancetype, or spec.template.spec.domain.memory.guest where the namespace requires no instancetype"
)
UNSIZED: Final = _allowed(
    "size-removed",
    "The update leaves the VM neither an instancetype nor memory of its own, so that it cannot start again. A default"
    " instancetype gives way to any size that the owner sets, also to a CPU alone.",
    f"S{_MEMORY_TODO[1:]}. To change the CPU of a VM with a default instancetype, set the memory in the same update, or"
    " name another instancetype.",
)
size_removed: Final = Reason(UNSIZED, f"the VM cannot start again, since nothing gives it memory: {_MEMORY_TODO}")
MEMORY_MISSING: Final = _allowed(
    "memory-missing",
    "The new VM has no instancetype and sets no memory: KubeVirt stores it and never starts it. A VM that sets a CPU,"
    " its model included, gets no default instancetype.",
    f"S{_MEMORY_TODO[1:]}, or remove the CPU to get the namespace's default instancetype.",
)
memory_missing: Final = Reason(MEMORY_MISSING, f"the VM cannot start, since nothing gives it memory: {_MEMORY_TODO}")
NO_DEFAULTS: Final = _skipped("no-defaults", "Neither the namespace nor the settings have a default.")
no_defaults: Final = Reason(NO_DEFAULTS, "skipped: neither the namespace nor the settings have a default")
nothing_requested: Final = Reason(
    NO_DEFAULTS, "skipped: the VMI requests no instancetype or preference, and there is no default"
)
OWNER_CHOSE_INSTANCETYPE: Final = _skipped(
    "owner-chose-instancetype", "The owner of the VM set an instancetype or preference, and keeps it."
)
owner_chose: Final = about(OWNER_CHOSE_INSTANCETYPE, "default %s not applied: the VM sets spec.%s")
OWNER_REMOVED_INSTANCETYPE: Final = _skipped(
    "owner-removed-instancetype", "The owner removed a default and left its annotation: the VM stays without."
)


def owner_removed(field: str) -> Reason:
    """The owner took the matcher out of the VM, whose annotation still names the default."""
    annotation = (
        names.INJECTED_INSTANCETYPE_ANNOTATION if field == "instancetype" else names.INJECTED_PREFERENCE_ANNOTATION
    )
    text = f"default {field} not applied: the owner removed spec.{field} (annotation {annotation} is still present)"
    return Reason(OWNER_REMOVED_INSTANCETYPE, text)


owner_removed_name: Final = about(OWNER_REMOVED_INSTANCETYPE, "spec.%s is removed: the owner removed its name")
SIZED: Final = _skipped(
    "sized-by-owner", "The VM, or a VirtualMachineInstancePreset, sets a size, so no default is added."
)
sized: Final = about_two(SIZED, "default %s not applied: %s")


def vm_size(path: str) -> str:
    """A clause: the VM sets its own size, in a field below the domain of its template."""
    return f"the VM sets spec.template.spec.domain.{path}"


def vmi_size(path: str) -> str:
    """A clause: the VMI sets its own size, in a field below its domain."""
    return f"the VMI sets spec.domain.{path}"


def preset_size(name: str, path: str) -> str:
    """A clause: a VirtualMachineInstancePreset sets the VMI's size, in a field below its domain."""
    return f"VirtualMachineInstancePreset {quote(name)} sets domain.{path}"


DEFAULT_UNUSABLE: Final = _skipped(
    "default-unusable",
    "The default does not exist, is not a valid reference, or is not allowed in the namespace.",
    "The VM's owner: name an instancetype, or set a memory size, without which KubeVirt does not start the VM."
    " An administrator: correct the namespace's annotation or the settings; `kubevirt-webhook doctor` lists such"
    " defaults.",
)
no_default_applied: Final = Reason(DEFAULT_UNUSABLE, "no default could be applied to the VMI")


def default_unusable(default: str, why: str) -> Reason:
    """A default is left out of a VM or VMI.

    Args:
        default: ``instancetype`` or ``preference``, and what it names, if that is not in ``why``.
        why: a clause.
    """
    return Reason(DEFAULT_UNUSABLE, f"default {default} not applied: {why}")


def default_missing(field: str, named: str) -> Reason:
    """A default is left out of a VM, because what it names does not exist."""
    return default_unusable(field, f"{named} does not exist")


DEFAULT_CONFLICTS: Final = _skipped(
    "default-conflicts",
    "KubeVirt would deny the VM with the default, so the default is left out.",
    "Remove what conflicts from the VM if it should have the default.",
)

default_conflicts: Final = about_two(DEFAULT_CONFLICTS, "default %s not applied: %s")
default_needs_instancetype: Final = about(
    DEFAULT_CONFLICTS,
    "default %s not applied: the instancetype that the VM names does not exist, and without one KubeVirt would deny the"
    " VM with the default",
)
NOT_INFERRED: Final = _skipped(
    "not-inferred",
    "The VM infers its instancetype, preference or architecture from a volume. kubevirt-webhook cannot read volumes, so"
    " the VM is not expanded, and nothing is said of how an object that is still to be inferred fits the VM.",
)
not_expanded_inferred: Final = Reason(
    NOT_INFERRED,
    "the VM is not expanded: its instancetype or preference is inferred from a volume, which is not known yet",
)
not_validated_inferred: Final = Reason(
    NOT_INFERRED,
    "the VM's instancetype or preference is inferred from a volume, which is not known here, so its fit is not known",
)
not_expanded_architecture: Final = Reason(
    NOT_INFERRED, "the VM is not expanded: its architecture comes from the source of a volume, which is not known here"
)
NO_MATCHER: Final = _skipped("no-instancetype", "The VM has neither an instancetype nor a preference.")
no_matcher: Final = Reason(NO_MATCHER, "skipped: the VM has neither an instancetype nor a preference")
OWNED_BY_A_VM: Final = _skipped(
    "vmi-owned-by-a-vm", "A VirtualMachine owns the VMI, and KubeVirt has applied the VM's instancetype."
)
owned_by_a_vm: Final = Reason(
    OWNED_BY_A_VM, "skipped: a VirtualMachine owns the VMI, and KubeVirt has applied its instancetype"
)
UNCHANGED: Final = _skipped(
    "instancetype-unchanged", "The update changes neither the instancetype nor the preference nor the template."
)
unchanged: Final = Reason(UNCHANGED, "skipped: instancetype, preference, and template are unchanged")
spec_unchanged: Final = Reason(UNCHANGED, "skipped: the VM's spec is unchanged")
defaults_kept: Final = Reason(UNCHANGED, "the VM's default instancetype and preference are kept")
KUBEVIRT_TOO_OLD: Final = _skipped(
    "kubevirt-too-old",
    "KubeVirt in this cluster is older than 1.6, the first release whose rules for instancetypes are known to"
    " kubevirt-webhook. The policy allows everything without changes.",
    "Upgrade KubeVirt to 1.6 or newer, or switch the policy off. If the version is detected wrongly, set"
    " kubevirt.version in the settings.",
)
kubevirt_too_old: Final = about_two(KUBEVIRT_TOO_OLD, "%s: %s")

# Reasons that other policies give too, in this policy's words.
owner_declined: Final = about(
    common.OWNER_OPTED_OUT, "default %s not applied: the owner set its annotation to an empty value"
)
preset_unknown: Final = about(
    common.LOOKUP_FAILED, "whether a VirtualMachineInstancePreset sets a size is not known: %s"
)
nothing_to_preserve: Final = Reason(
    common.NOTHING_TO_PRESERVE,
    "skipped: defaults are added at CREATE only, because a changed template requires a restart of the VM",
)
not_evaluated: Final = about(common.INVALID_OBJECT, "the VM's instancetype was not evaluated: %s")
vmi_not_filled: Final = about(common.INVALID_OBJECT, "no instancetype or preference was applied to the VMI: %s")
lookup_failed: Final = about(common.LOOKUP_FAILED, "whether the VM may use its instancetype is not known: %s; retry")
