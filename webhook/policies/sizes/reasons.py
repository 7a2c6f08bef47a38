"""The reasons of the sizes policy."""

from __future__ import annotations

from functools import partial
from typing import Final

from webhook.admission.decision import Reason
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import Meaning, about, about_two, define

# By code.
REASONS: Final[dict[str, Meaning]] = {}
# Codes of several policies that this one gives, too.
SHARED_REASONS: Final = (
    common.BY_KUBEVIRT,
    common.BEING_DELETED,
    common.ANNOTATION_INVALID,
    common.ANNOTATIONS_VALID,
)

_denied: Final = partial(define, REASONS, "denied")
_allowed: Final = partial(define, REASONS, "allowed")
_skipped: Final = partial(define, REASONS, "skipped")

OUT_OF_LIMITS: Final = _denied(
    "size-out-of-limits",
    "The VM or VMI sets a size that the namespace does not allow: too many or too few CPUs, too much or too little"
    " memory, an amount between two steps, or too much or too little memory for its CPUs.",
    "Choose a size that the message names as allowed, or an instancetype. Your admin sets the limits by the annotation"
    " kubevirt-webhook.github.io/size-limits of the namespace, or by the setting sizes.limits.",
)
out_of_limits: Final = about_two(OUT_OF_LIMITS, "%s; allowed: %s; your admin sets these limits")
INSTANCETYPE_REQUIRED: Final = _denied(
    "instancetype-required",
    "The VM or VMI sets CPU or memory itself, and the namespace requires an instancetype.",
    "Remove the fields that the message names, and name an instancetype in spec.instancetype. Of a VMI without a VM,"
    " name it in the annotation kubevirt-webhook.github.io/instancetype.",
)
instancetype_required: Final = about_two(
    INSTANCETYPE_REQUIRED, "VMs of this namespace have their size from an instancetype; remove %s, and name %s"
)

WITHIN_LIMITS: Final = _allowed("size-within-limits", "The size that the VM or VMI sets is allowed.")
within_limits: Final = Reason(WITHIN_LIMITS, "the size is within the limits")

NO_INLINE_SIZE: Final = _skipped(
    "no-inline-size",
    "The VM or VMI sets no CPU and no memory itself: its size is from an instancetype, a webhook has written it, or it"
    " has none.",
)
no_inline_size: Final = Reason(NO_INLINE_SIZE, "skipped: it sets no size itself")
has_instancetype: Final = Reason(NO_INLINE_SIZE, "skipped: its size is from an instancetype")
written_by_a_webhook: Final = Reason(
    NO_INLINE_SIZE, "skipped: its sender wrote no size, and a webhook did, perhaps KubeVirt's own"
)
SIZE_UNCHANGED: Final = _skipped("size-unchanged", "The update changes the VM's size in no way that limits are about.")
size_unchanged: Final = Reason(SIZE_UNCHANGED, "skipped: the size does not change")
NO_SIZE_LIMITS: Final = _skipped(
    "no-size-limits",
    "The policy is on, and neither the namespace nor the settings limit sizes.",
    "Set the annotation kubevirt-webhook.github.io/size-limits or kubevirt-webhook.github.io/require-instancetype.",
)
no_size_limits: Final = Reason(NO_SIZE_LIMITS, "skipped: nothing limits sizes in this namespace")
LIMITS_INVALID: Final = define(
    REASONS,
    "warned",
    "size-limits-invalid",
    "The namespace's annotation kubevirt-webhook.github.io/size-limits cannot be read; the limits of the settings"
    " count.",
    "Correct the annotation; `kubevirt-webhook doctor` shows what is wrong with it.",
)
limits_invalid: Final = about(LIMITS_INVALID, "the limits of the settings count, because of the namespace's %s")

# Reasons that other policies give too, in this policy's words.
by_kubevirt: Final = Reason(common.BY_KUBEVIRT, "skipped: KubeVirt itself writes the size")
owned_by_a_vm: Final = Reason(common.BY_KUBEVIRT, "skipped: KubeVirt creates it for a VM")
invalid: Final = about(common.INVALID_OBJECT, "the size cannot be read: %s")
lookup_failed: Final = about(common.LOOKUP_FAILED, "the size was not evaluated: %s")
