"""VMIs that no VM stands behind, created by users or ReplicaSets: filled at CREATE, the only time when it is possible.

Their owners choose by annotations; where these are absent, the namespace's defaults count. What an owner chose is
applied or the VMI is denied, since a VMI cannot be repaired later; a mere default that does not fit is left out with a
warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from webhook import names
from webhook.admission.decision import Change, Decision, Denial, FieldCause, Reason, allow, deny
from webhook.admission.patch import changes
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.errors import InputError, quote
from webhook.facts import Facts, Unreadable
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype import find
from webhook.kubevirt.instancetype.find import MATCHERS, Matcher, SpecReference
from webhook.kubevirt.rejection import CAUSES_SHOWN, Cause, Conflicts, NotFound, Rejection
from webhook.kubevirt.vm import standalone_vmi
from webhook.kubevirt.vm.size import size_field
from webhook.kubevirt.vm.standalone_vmi import Filled
from webhook.policies.instancetypes import namespace_defaults, reasons
from webhook.policies.instancetypes.lookups import Lookups, UnsupportedReleaseError
from webhook.policies.instancetypes.settings import InstancetypeSettings

_ANNOTATIONS: Final = {"instancetype": names.INSTANCETYPE_ANNOTATION, "preference": names.PREFERENCE_ANNOTATION}


class _Wish(msgspec.Struct, frozen=True):
    """A matcher that a VMI is to be filled with, by the text of the owner's annotation (explicit) or of a default."""

    matcher: Matcher
    text: str
    is_explicit: bool


class _Existing(NamedTuple):
    """What a VMI is to be filled with, and the object that exists by that name."""

    wish: _Wish
    named: SpecReference
    whole: Json


class _Denied(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, code: str, denial: Denial) -> None:
        super().__init__(denial.message)
        self.code = code
        self.denial = denial


async def fill_vmi(
    vmi: Unstructured, request: Request[Unstructured], facts: Facts, settings: InstancetypeSettings
) -> Decision:
    """Fill a new VMI with the instancetype and preference that its annotations name, or with the namespace's."""
    if not settings.virtual_machine_instances:
        return allow(common.disabled("instancetypes.virtualMachineInstances"))
    if request.operation != "CREATE":
        return allow(common.other_operation(request.operation))
    controller = vmi.meta.controller_owner()
    if controller and (controller.kind, controller.group) == ("VirtualMachine", names.KUBEVIRT_GROUP):
        return allow(reasons.owned_by_a_vm)
    if namespace_defaults.has_opted_out(vmi):
        return allow(common.opted_out(names.INSTANCETYPES))
    wishes, why_not = _wishes(vmi, settings)
    if not wishes:
        return Decision(tuple(why_not) or (reasons.nothing_requested,))
    # What is written out stays, whatever the objects say later.
    lookups = Lookups(facts.uncached(), request.namespace or "")
    try:
        return await _fill(vmi, wishes, lookups, settings)
    except _Denied as refused:
        return Decision((Reason(refused.code, refused.denial.message),), denial=refused.denial)
    except (UnsupportedReleaseError, Unreadable) as error:
        return namespace_defaults.allow_unevaluated(error, "no default was applied to the VMI")
    except InputError as error:
        reason = reasons.vmi_not_filled(str(error))
        if any(wish.is_explicit for wish in wishes):
            return deny(reason, 422)
        return allow(reason, warn=True)


def _wishes(vmi: Unstructured, settings: InstancetypeSettings) -> tuple[list[_Wish], list[Reason]]:
    """What the VMI's annotations name, else the defaults that apply to it; and why others do not."""
    wishes, why_not = [], []
    size = size_field((vmi.spec or {}).get("domain"))
    for matcher in MATCHERS:
        annotation = vmi.meta.annotation(_ANNOTATIONS[matcher.field])
        injected_value = vmi.meta.annotation(namespace_defaults.INJECTED_ANNOTATIONS[matcher.field])
        text = namespace_defaults.default(matcher, settings)
        if injected_value:
            why_not.append(reasons.already_applied(matcher.field, injected_value))
        elif annotation:
            wishes.append(_Wish(matcher, annotation, is_explicit=True))
        elif annotation is not None:
            why_not.append(reasons.owner_declined(matcher.field))
        elif text and size and not namespace_defaults.goes_beside_a_size(matcher, settings):
            why_not.append(reasons.sized(matcher.field, reasons.vmi_size(size)))
        elif text:
            wishes.append(_Wish(matcher, text, is_explicit=False))
    return wishes, why_not


async def _fill(vmi: Unstructured, wishes: list[_Wish], lookups: Lookups, settings: InstancetypeSettings) -> Decision:
    warnings: list[Reason] = []
    references: dict[Matcher, tuple[_Wish, SpecReference]] = {}
    for wish in wishes:
        if named := _resolve(wish, lookups.namespace, settings, warnings):
            references[wish.matcher] = wish, named
    # A preset's size counts like the VMI's own.
    beside_none = [
        wish.matcher
        for wish, _ in references.values()
        if not (wish.is_explicit or namespace_defaults.goes_beside_a_size(wish.matcher, settings))
    ]
    await lookups.prefetch((named for _, named in references.values()), presets=bool(beside_none))
    metadata = {"labels": vmi.meta.labels, "annotations": vmi.meta.annotations}
    sizing = await namespace_defaults.preset_size(metadata, lookups, warnings) if beside_none else None
    for matcher in beside_none if sizing else ():
        del references[matcher]
    if sizing and not references:
        return Decision((reasons.sized("instancetype or preference", sizing),), warnings=tuple(warnings))
    existing: dict[Matcher, _Existing] = {}
    for matcher, (wish, named) in references.items():
        whole = lookups.get(named.kind, lookups.namespace, named.name)
        if whole is not None:
            existing[matcher] = _Existing(wish, named, whole)
        else:
            missing = NotFound(named.kind, named.name)
            _give_up(wish, reasons.MISSING, Denial(422, f"{_place(wish)}: {missing.what}"), warnings)
    filled, fitting = await _fit(vmi, existing, lookups, warnings)
    if filled is None:
        return Decision((reasons.no_default_applied,), warnings=tuple(warnings))
    injected_values = {matcher.field: str(existing[matcher].named) for matcher in fitting}
    made = _changes(vmi, filled, injected_values)
    return Decision((reasons.applied(injected_values),), made, warnings=tuple(warnings), notes=injected_values)


def _resolve(
    wish: _Wish, namespace: str, settings: InstancetypeSettings, warnings: list[Reason]
) -> SpecReference | None:
    try:
        named = find.parse(wish.matcher, wish.text, _place(wish))
    except InputError as error:
        _give_up(wish, reasons.DENIED, Denial(422, str(error)), warnings)
        return None
    if not namespace_defaults.is_allowed(wish.matcher, named, settings):
        _give_up(
            wish, reasons.NOT_ALLOWED, Denial(403, namespace_defaults.not_allowed(named, namespace, settings)), warnings
        )
        return None
    return named


async def _fit(
    vmi: Unstructured, existing: Mapping[Matcher, _Existing], lookups: Lookups, warnings: list[Reason]
) -> tuple[Filled | None, list[Matcher]]:
    """The VMI with as much as fits, and the matchers that it was filled with.

    Both, else without a default: the instancetype alone, else the preference alone. What the owner's annotations name
    is never left out for the sake of a default.
    """
    plain = namespace_defaults.plain_object(vmi, lookups.namespace, {})
    explicit = [matcher for matcher, each in existing.items() if each.wish.is_explicit]
    alone = [[matcher] for matcher in existing if len(existing) > 1 and explicit in ([], [matcher])]
    rejections: dict[tuple[Matcher, ...], Rejection] = {}
    fitting: list[Matcher] = []
    filled: Filled | None = None
    for attempt in ([*existing], *alone) if existing else ():
        tried = {matcher: (existing[matcher].named, existing[matcher].whole) for matcher in attempt}
        configuration = await lookups.configuration()
        try:
            filled, fitting = standalone_vmi.fill(plain, tried, configuration), attempt
            break
        except Rejection as rejection:
            rejections[tuple(attempt)] = rejection
    for matcher in existing:
        if matcher not in fitting:
            # Why it cannot be applied by itself; if it was not tried so, why both cannot.
            why = rejections.get((matcher,)) or rejections[tuple(existing)]
            _give_up(existing[matcher].wish, reasons.DENIED, _denial(why), warnings)
    return filled, fitting


def _give_up(wish: _Wish, code: str, denial: Denial, warnings: list[Reason]) -> None:
    """Deny the request (`_Denied`) for what the owner named; leave a default out with a warning."""
    if wish.is_explicit:
        raise _Denied(code, denial)
    default = f"{wish.matcher.field} {quote(wish.text)}"
    warnings.append(reasons.default_unusable(default, denial.message))


def _place(wish: _Wish) -> str:
    if wish.is_explicit:
        return f"metadata.annotations[{_ANNOTATIONS[wish.matcher.field]}]"
    return namespace_defaults.DEFAULT_ANNOTATIONS[wish.matcher.field]


def _denial(rejection: Rejection) -> Denial:
    causes: tuple[Any, ...] = (rejection,) if isinstance(rejection, Cause) else ()
    if isinstance(rejection, Conflicts):
        causes = rejection.conflicts[:CAUSES_SHOWN]
    return Denial(422, rejection.what, tuple(FieldCause(cause.reason, cause.what, cause.field) for cause in causes))


def _changes(vmi: Unstructured, filled: Filled, injected_values: dict[str, str]) -> tuple[Change, ...]:
    written = changes(("spec",), vmi.spec, filled.before["spec"], filled.after["spec"], reasons.APPLIED)
    path, old = ("metadata", "annotations"), vmi.meta.annotations or {}
    annotations = filled.after["metadata"].get("annotations", {}) | {
        namespace_defaults.INJECTED_ANNOTATIONS[field]: injected_value
        for field, injected_value in injected_values.items()
    }
    recorded = [
        Change((*path, key), old.get(key), value, reasons.APPLIED)
        for key, value in annotations.items()
        if old.get(key) != value
    ]
    return *written, *recorded
