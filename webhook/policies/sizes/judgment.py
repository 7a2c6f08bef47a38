"""The decision on a size, of a VM or of a VMI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from webhook.admission.decision import Decision, FieldCause, Reason, allow, deny
from webhook.errors import InputError
from webhook.facts import Unreadable
from webhook.k8s.types.meta import Object
from webhook.policies.common.ownership import is_written
from webhook.policies.sizes import reasons
from webhook.policies.sizes.settings import SizeSettings
from webhook.policies.sizes.size import Size
from webhook.policies.sizes.violations import Subject, Violation, find_violations
from webhook.text import abbreviate, shorten

# Of what a denial names as allowed; a namespace's annotation may hold many ranges.
_ALLOWED: Final = 1000


def is_from_webhook(obj: Object, size: Size, path: Sequence[str]) -> bool:
    """Whether a new object's sender wrote nothing of its size, so that a webhook did: an expanded instancetype.

    The API server records what the sender writes before it calls webhooks, and whatever else a sender claims.
    """
    return not is_written(obj, [(*path, *field.split(".")) for field in size.fields])


def judge(size: Size, old: Size | None, path: Sequence[str], settings: SizeSettings) -> Decision:
    """The decision on a size at a path, which replaces the one that the VM had before; None: it had none of its own."""
    judged: list[Subject] = []
    if size.changes_cpus(old):
        judged.append("cpu")
    if size.changes_memory(old):
        judged.append("memory")
    if not judged:
        return allow(reasons.size_unchanged)
    if settings.require_instancetype:
        return _require_instancetype(size, path, settings)
    warnings = tuple(map(reasons.limits_invalid, settings.annotation_mistakes.values()))
    if not settings.limits:
        return allow(reasons.no_size_limits, warnings=warnings)
    found = find_violations(size, settings.limits, (*judged, "ratio"))
    if not found:
        return allow(reasons.within_limits, warnings=warnings)
    return _deny(found, path, settings, warnings)


def _require_instancetype(size: Size, path: Sequence[str], settings: SizeSettings) -> Decision:
    fields = [".".join((*path, field)) for field in size.fields]
    allowed = shorten(settings.allowed_instancetypes, _ALLOWED)
    named = f"an allowed instancetype ({allowed})" if allowed else "an instancetype"
    reason = reasons.instancetype_required(abbreviate(fields), named)
    cause = FieldCause("FieldValueForbidden", reason.text, ", ".join(fields))
    return deny(reason, 403, causes=(cause,))


def _deny(
    found: Sequence[Violation], path: Sequence[str], settings: SizeSettings, warnings: tuple[Reason, ...]
) -> Decision:
    base = ".".join(path)
    allowed = shorten("; or ".join(filter(None, (each.text for each in settings.limits))), _ALLOWED)
    reason = reasons.out_of_limits(", ".join(violation.what for violation in found), allowed)
    causes = [
        FieldCause(
            "FieldValueInvalid",
            reasons.out_of_limits(violation.what, allowed).text,
            ", ".join(f"{base}.{field}" for field in violation.fields),
        )
        for violation in found
    ]
    return deny(reason, 403, causes=causes, warnings=warnings)


def cannot_read(error: InputError, path: Sequence[str]) -> Decision:
    """The denial of a size that cannot be read: it must not be a way past the limits."""
    reason = reasons.invalid(f"{'.'.join(path)}.{error.what}")
    return deny(reason, 422, f"{'.'.join(path)}.{error.where}")


def cannot_evaluate(error: Unreadable, settings: SizeSettings) -> Decision:
    """The answer where it is not known whether KubeVirt sent the request."""
    reason = reasons.lookup_failed(error.why)
    if settings.failure_policy == "Fail":
        return deny(reason, 503)
    return allow(reason, warn=True)
