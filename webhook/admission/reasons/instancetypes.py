"""The reasons of the instancetypes policy.

Where KubeVirt itself has a sentence for a denial, that sentence stands word for word after the product and policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from webhook import names
from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import define
from webhook.errors import quote
from webhook.names import INSTANCETYPES

_TEMPLATE_DOMAIN = "spec.template.spec.domain"


def _join(named: Iterable[tuple[str, object]]) -> tuple[str, str]:
    """``instancetype A and preference B``, and the verb that agrees with it: ``is`` or ``are``."""
    parts = [f"{field} {name}" for field, name in named]
    return " and ".join(parts), "is" if len(parts) == 1 else "are"


DEFAULTS_INJECTED: Final = define(
    "defaults-injected",
    (INSTANCETYPES,),
    "changed",
    "The VM gets the default instancetype, preference, or both, because its owner set neither them nor a size.",
    "To leave a default out, set another instancetype, a size, or the label"
    f" {names.policy_label(INSTANCETYPES)}=off on the VM.",
)


def defaults_injected(given: Iterable[tuple[str, str]]) -> Reason:
    """Defaults are written into a new VM."""
    return Reason(DEFAULTS_INJECTED, f"the VM gets the default {_join(given)[0]}")


DEFAULTS_PRESERVED: Final = define(
    "defaults-preserved",
    (INSTANCETYPES,),
    "changed",
    "An update replaced the whole VM and so removed the defaults and the annotations that kubevirt-webhook had set."
    " Both are set again.",
    "To remove a default for good, remove the field and keep the annotation.",
)


def defaults_preserved(given: Iterable[tuple[str, str]]) -> Reason:
    """A replaced VM lost its defaults together with their annotations."""
    defaults, verb = _join(given)
    removed = "it and its annotation" if verb == "is" else "them and their annotations"
    text = f"the default {defaults} {verb} preserved: a replacement of the whole VM removed {removed}"
    return Reason(DEFAULTS_PRESERVED, text)


DEFAULT_WITHDRAWN: Final = define(
    "default-withdrawn",
    (INSTANCETYPES,),
    "changed",
    "A default that kubevirt-webhook set is removed, because the owner now sets a size or another object, or"
    " because KubeVirt would deny the update with it.",
)


def defaults_withdrawn(given: Iterable[tuple[str, str]], why: Iterable[str]) -> Reason:
    """What the owner writes now does not go with the defaults."""
    defaults, verb = _join(given)
    return Reason(DEFAULT_WITHDRAWN, f"the default {defaults} {verb} removed: {'; '.join(dict.fromkeys(why))}")


def default_replaced(field: str) -> Reason:
    """The owner wrote into a matcher that held a default."""
    return Reason(DEFAULT_WITHDRAWN, f"what the owner sets in spec.{field} replaces the default")


def default_assumed(assumed: str) -> Reason:
    """As `default_replaced`, where it was not certain what the owner means.

    Args:
        assumed: what was assumed, as a sentence.
    """
    return Reason(DEFAULT_WITHDRAWN, assumed)


def assumed_cluster_wide(field: str, name: str, other: object, usual: object) -> str:
    """What a patched name is taken for, where no object of the default's kind has it."""
    return f"spec.{field}.name {quote(name)} is assumed to mean {other}, because {usual} does not exist"


def assumed_same_kind(field: str, name: str, usual: object) -> str:
    """What a patched name is taken for, where there is an object of the default's kind."""
    return f"spec.{field}.name {quote(name)} is assumed to mean {usual}, of the same kind as the default it replaces"


EXPANDED: Final = define(
    "instancetype-expanded",
    (INSTANCETYPES,),
    "changed",
    "What the instancetype and preference say is written out in the VM, as the namespace's annotation"
    f" {names.EXPAND_INSTANCETYPES_ANNOTATION} or the settings request.",
)


def expanded(made: Mapping[str, object]) -> Reason:
    """The VM's matchers are written out in it."""
    named, verb = _join(made.items())
    return Reason(EXPANDED, f"{named} {verb} written out in the VM")


ALREADY_APPLIED: Final = define(
    "instancetype-already-applied",
    (INSTANCETYPES,),
    "skipped",
    "The VirtualMachineInstance was filled before.",
)


def already_applied(field: str, injected_value: str) -> Reason:
    """The VMI was filled before."""
    return Reason(ALREADY_APPLIED, f"skipped: {field} {injected_value} is already applied to the VMI")


APPLIED: Final = define(
    "instancetype-applied",
    (INSTANCETYPES,),
    "changed",
    "The VirtualMachineInstance is filled with what the instancetype and preference say.",
)


def applied(made: Mapping[str, object]) -> Reason:
    """The VMI is filled with an instancetype or a preference."""
    named, verb = _join(made.items())
    return Reason(APPLIED, f"{named} {verb} applied to the VMI")


VALID: Final = define(
    "instancetype-valid",
    (INSTANCETYPES,),
    "allowed",
    "KubeVirt accepts the VM with its instancetype and preference.",
)


def valid() -> Reason:
    """KubeVirt accepts the VM with what it names."""
    return Reason(VALID, "the instancetype and preference fit the VM")


def names_nothing(field: str, label: str) -> str:
    """A matcher that only inference leaves, as the text of a cause."""
    return f"spec.{field} has no name: the label {label} that it was inferred from is empty; set spec.{field}.name"


def not_allowed(wanted: object, namespace: str, allowed: str, other: str = "") -> str:
    """An instancetype that is not on the namespace's list, as a sentence; ``other`` is a cluster-wide one that is."""
    hint = f"; these are cluster-wide: leave out spec.instancetype.kind to use {other}" if other else ""
    return f"instancetype {wanted} is not allowed in namespace {namespace}; allowed instancetypes: {allowed}{hint}"


def not_captured(name: str, namespace: str, allowed: str) -> str:
    """A revision that holds no instancetype, as a sentence."""
    return (
        f"ControllerRevision {quote(name)} in namespace {namespace} does not contain an instancetype, so it is not"
        f" allowed; allowed instancetypes: {allowed}"
    )


def way_out_at_create(injected_value: str) -> str:
    """How to leave a default that makes a new VM wrong."""
    return f"to leave out the default {injected_value}, set another spec.instancetype or a size"


def way_out_at_update(given: Mapping[str, str]) -> str:
    """How to leave defaults that make an update wrong."""
    fields = " and ".join(f"spec.{field}" for field in ("instancetype", "preference") if field in given)
    return f"to leave out the default {' and '.join(given.values())}, set {fields} to null with kubectl patch"


def inferred_conflict() -> str:
    """What KubeVirt will find is not known here, as a clause."""
    return "the VM's instancetype is inferred from a volume, so the preference cannot be checked against it"


def architecture_conflict() -> str:
    """What KubeVirt will find is not known here, as a clause."""
    return "the preference requires an architecture, and the VM takes its own from the source of a volume"


DENIED: Final = define(
    "instancetype-denied",
    (INSTANCETYPES,),
    "denied",
    "KubeVirt would deny the VM, fail to start it, or crash on it. The message is KubeVirt's own where it has one.",
    "Correct the field that the message names: remove it from the VM, or choose another instancetype or preference.",
)


def not_expanded(why: str) -> Reason:
    """KubeVirt would deny the VM."""
    return Reason(DENIED, f"the VM is not expanded: {why}")


NOT_ALLOWED: Final = define(
    "instancetype-not-allowed",
    (INSTANCETYPES,),
    "denied",
    "The namespace or the settings list the instancetypes that VMs may use, and this one is not among them.",
    "Choose one from the list in the message, or ask an administrator to extend the namespace's annotation"
    f" {names.ALLOWED_INSTANCETYPES_ANNOTATION}.",
)

MISSING: Final = define(
    "instancetype-missing",
    (INSTANCETYPES,),
    "denied",
    "The instancetype, preference or revision that the VM names does not exist. KubeVirt accepts such a VM but"
    " cannot start it. This is a warning, or with the setting `instancetypes.missing: deny` a denial.",
    "Create the object first, or name another.",
)


def missing(texts: Sequence[tuple[str, bool]]) -> tuple[Reason, ...]:
    """What the VM names does not exist, in mode warn of the setting.

    Args:
        texts: KubeVirt's or the API server's sentence, and whether the object may still come.
    """
    return tuple(
        Reason(
            MISSING,
            f"{text}: KubeVirt allows the VM but cannot start it{' until the object exists' if may_come else ''}",
        )
        for text, may_come in texts
    )


UNSIZED: Final = define(
    "size-removed",
    (INSTANCETYPES,),
    "allowed",
    "The update removes the VM's size, so the VM can no longer start.",
    "Set spec.instancetype or a memory size.",
)


def size_removed() -> Reason:
    """The VM had a size and has none any more."""
    text = "the VM no longer sets a size and cannot start: set spec.instancetype or a memory size"
    return Reason(UNSIZED, text)


NO_DEFAULTS: Final = define(
    "no-defaults",
    (INSTANCETYPES,),
    "skipped",
    "Neither the namespace nor the settings have a default.",
)


def no_defaults() -> Reason:
    """There is no default for this namespace."""
    return Reason(NO_DEFAULTS, "skipped: neither the namespace nor the settings have a default")


def nothing_requested() -> Reason:
    """There is neither a default nor an annotation for this VMI."""
    text = "skipped: the VMI requests no instancetype or preference, and there is no default"
    return Reason(NO_DEFAULTS, text)


OWNER_CHOSE_INSTANCETYPE: Final = define(
    "owner-chose-instancetype",
    (INSTANCETYPES,),
    "skipped",
    "The owner of the VM set an instancetype or preference, and keeps it.",
)


def owner_chose(field: str) -> Reason:
    """The VM has a matcher that kubevirt-webhook did not write."""
    return Reason(OWNER_CHOSE_INSTANCETYPE, f"default {field} not applied: the VM sets spec.{field}")


OWNER_REMOVED_INSTANCETYPE: Final = define(
    "owner-removed-instancetype",
    (INSTANCETYPES,),
    "skipped",
    "The owner removed a default and left its annotation: the VM stays without.",
)


def owner_removed(field: str) -> Reason:
    """The owner took the matcher out of the VM, whose annotation still names the default."""
    annotation = (
        names.INJECTED_INSTANCETYPE_ANNOTATION if field == "instancetype" else names.INJECTED_PREFERENCE_ANNOTATION
    )
    text = f"default {field} not applied: the owner removed spec.{field} (annotation {annotation} is still present)"
    return Reason(OWNER_REMOVED_INSTANCETYPE, text)


def owner_removed_name(field: str) -> Reason:
    """The owner took the name out of a matcher that holds a default; nothing is left of it."""
    return Reason(OWNER_REMOVED_INSTANCETYPE, f"spec.{field} is removed: the owner removed its name")


SIZED: Final = define(
    "sized-by-owner",
    (INSTANCETYPES,),
    "skipped",
    "The VM, or a VirtualMachineInstancePreset, sets a size, so no default is added.",
)


def sized(where: str, field: str) -> Reason:
    """The VM has a size of its own.

    Args:
        where: what sets it: ``the VM sets spec.template.spec.domain.memory.guest``.
        field: the field of the default that is left out.
    """
    return Reason(SIZED, f"default {field} not applied: {where}")


def vm_size(path: str) -> str:
    """A clause: the VM sets its own size.

    Args:
        path: the field, below the domain of the VM's template.
    """
    return f"the VM sets {_TEMPLATE_DOMAIN}.{path}"


def vmi_size(path: str) -> str:
    """A clause: the VMI sets its own size.

    Args:
        path: the field, below the VMI's domain.
    """
    return f"the VMI sets spec.domain.{path}"


def preset_size(name: str, path: str) -> str:
    """A clause: a VirtualMachineInstancePreset sets the VMI's size.

    Args:
        name: the name of the preset.
        path: the field, below the preset's domain.
    """
    return f"VirtualMachineInstancePreset {quote(name)} sets domain.{path}"


DEFAULT_UNUSABLE: Final = define(
    "default-unusable",
    (INSTANCETYPES,),
    "skipped",
    "The default does not exist, is not a valid reference, or is not allowed in the namespace.",
    "Correct the namespace's annotation or the settings; `kubevirt-webhook doctor` lists such defaults.",
)


def no_default_applied() -> Reason:
    """No default could be applied; warnings say why."""
    return Reason(DEFAULT_UNUSABLE, "no default could be applied to the VMI")


def default_unusable(field: str, why: str) -> Reason:
    """The default itself is wrong."""
    return Reason(DEFAULT_UNUSABLE, f"default {field} not applied: {why}")


def default_missing(field: str, wanted: object) -> Reason:
    """The default does not exist."""
    return Reason(DEFAULT_UNUSABLE, f"default {field} not applied: {wanted} does not exist")


def vmi_default_unusable(field: str, name: str, why: str) -> Reason:
    """A default was left out of a VMI, with the reason."""
    return Reason(DEFAULT_UNUSABLE, f"default {field} {quote(name)} not applied: {why}")


DEFAULT_CONFLICTS: Final = define(
    "default-conflicts",
    (INSTANCETYPES,),
    "skipped",
    "KubeVirt would deny the VM with the default, so the default is left out.",
    "Remove what conflicts from the VM if it should have the default.",
)


def default_conflicts(field: str, injected_value: str, why: str) -> Reason:
    """KubeVirt would deny the VM with the default."""
    return Reason(DEFAULT_CONFLICTS, f"default {field} {injected_value} not applied: {why}")


NOT_INFERRED: Final = define(
    "not-inferred",
    (INSTANCETYPES,),
    "skipped",
    "The VM infers its instancetype, preference or architecture from a volume. kubevirt-webhook cannot read"
    " volumes,"
    " so the VM is not expanded.",
)


def not_expanded_inferred() -> Reason:
    """What a volume says is not known here."""
    text = "the VM is not expanded: its instancetype or preference is inferred from a volume, which is not known yet"
    return Reason(NOT_INFERRED, text)


def not_expanded_architecture() -> Reason:
    """What a volume's source says is not known here."""
    text = "the VM is not expanded: its architecture comes from the source of a volume, which is not known here"
    return Reason(NOT_INFERRED, text)


NO_MATCHER: Final = define(
    "no-instancetype",
    (INSTANCETYPES,),
    "skipped",
    "The VM has neither an instancetype nor a preference.",
)


def no_matcher() -> Reason:
    """There is nothing to validate."""
    return Reason(NO_MATCHER, "skipped: the VM has neither an instancetype nor a preference")


OWNED_BY_A_VM: Final = define(
    "vmi-owned-by-a-vm",
    (INSTANCETYPES,),
    "skipped",
    "A VirtualMachine owns the VMI, and KubeVirt has applied the VM's instancetype.",
)


def owned_by_a_vm() -> Reason:
    """KubeVirt has filled the VMI from its VM."""
    return Reason(OWNED_BY_A_VM, "skipped: a VirtualMachine owns the VMI, and KubeVirt has applied its instancetype")


UNCHANGED: Final = define(
    "instancetype-unchanged",
    (INSTANCETYPES,),
    "skipped",
    "The update changes neither the instancetype nor the preference nor the template.",
)


def unchanged() -> Reason:
    """An update that leaves alone what decides."""
    return Reason(UNCHANGED, "skipped: instancetype, preference, and template are unchanged")


def spec_unchanged() -> Reason:
    """An update of something else."""
    return Reason(UNCHANGED, "skipped: the VM's spec is unchanged")


def defaults_kept() -> Reason:
    """The defaults of the VM still fit."""
    return Reason(UNCHANGED, "the VM's default instancetype and preference are kept")


KUBEVIRT_TOO_OLD: Final = define(
    "kubevirt-too-old",
    (INSTANCETYPES,),
    "skipped",
    "KubeVirt in this cluster is older than 1.6, the first release whose rules for instancetypes are known to"
    " kubevirt-webhook. The policy allows everything without changes.",
    "Upgrade KubeVirt to 1.6 or newer, or switch the policy off. If the version is detected wrongly, set"
    " kubevirt.version in the settings.",
)


def kubevirt_too_old(consequence: str, why: str) -> Reason:
    """The rules of the KubeVirt release that runs in the cluster are not known.

    Args:
        consequence: what was therefore not done, as a clause.
        why: which release runs, and which is the first that is known.
    """
    return Reason(KUBEVIRT_TOO_OLD, f"{consequence}: {why}")


# Reasons that other policies give too, in this policy's words.


def owner_declined(field: str) -> Reason:
    """The annotation by which a VMI's owner names a matcher is empty."""
    return Reason(
        common.OWNER_OPTED_OUT, f"default {field} not applied: the owner set its annotation to an empty value"
    )


def preset_unknown(why: str) -> Reason:
    """The namespace's presets could not be read."""
    return Reason(common.LOOKUP_FAILED, f"whether a VirtualMachineInstancePreset sets a size is not known: {why}")


def nothing_to_preserve() -> Reason:
    """Nothing new is added to a VM at UPDATE."""
    text = "skipped: defaults are added at CREATE only, because a changed template requires a restart of the VM"
    return Reason(common.NOTHING_TO_PRESERVE, text)


def not_evaluated(why: str) -> Reason:
    """The VM cannot be evaluated, since it cannot be read."""
    return Reason(common.INVALID_OBJECT, f"the VM's instancetype was not evaluated: {why}")


def vmi_not_filled(why: str) -> Reason:
    """A VMI that cannot be read."""
    return Reason(common.INVALID_OBJECT, f"no instancetype or preference was applied to the VMI: {why}")


def lookup_failed(why: str) -> Reason:
    """What the VM names could not be read, and the policy fails closed."""
    return Reason(common.LOOKUP_FAILED, f"whether the VM may use its instancetype is not known: {why}; retry")
