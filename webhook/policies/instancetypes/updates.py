"""Defaults at UPDATE: the owner's choice counts, a default is withdrawn, and what an overwrite removed is put back.

Nothing new is ever added. An injected default is kept as long as the VM works with it, and is removed in the very
request that makes it wrong: where the owner names another one, sets a size, or writes what KubeVirt denies beside it.
So the VM becomes what a new VM of that manifest would be, and no manifest has to mention what this server once wrote.

But a pool and `kubectl replace` write the whole spec again, without the injected defaults: then both are put back, for
any sender, unless the owner's new spec makes them wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from webhook import names
from webhook.admission.decision import Change, Decision, allow
from webhook.admission.reasons import common
from webhook.errors import InputError
from webhook.facts import Unreadable
from webhook.k8s.types.meta import Unstructured
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype import find
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, MATCHERS, Matcher
from webhook.kubevirt.rules import Rules, share_vm
from webhook.kubevirt.vm.size import has_memory, size_field
from webhook.policies.common.ownership import Manifests, writers
from webhook.policies.instancetypes import namespace_defaults, reasons
from webhook.policies.instancetypes.namespace_defaults import Default, Findings

_FIELDS: Final = tuple(matcher.field for matcher in MATCHERS)
_GUEST_MEMORY: Final = ("spec", "template", "spec", "domain", "memory", "guest")
# By these a matcher says what it is for.
_CHOICES: Final = frozenset({"name", "inferFromVolume"})
# What of a VM decides whether a default fits.
_DECISIVE: Final = ("template", "dataVolumeTemplates", *_FIELDS)


class _Slot(msgspec.Struct, frozen=True):
    """One of a VM's matchers in an update.

    Attributes:
        value: the matcher as it is to be: where the owner wrote into a default, the owner's part alone; None: none.
        changes: what that takes.
        kept: the default that stands there.
        lost: the default that the update has removed with its annotation.
    """

    matcher: Matcher
    value: Any = None
    changes: tuple[Change, ...] = ()
    kept: Default | None = None
    lost: Default | None = None


class _Update(msgspec.Struct, frozen=True):
    """An update of a VM, with the manifests of the VM as it is to be, and what becomes of each matcher."""

    vm: Unstructured
    old: Unstructured
    manifests: Manifests
    rules: Rules
    findings: Findings
    slots: list[_Slot]

    @property
    def spec(self) -> Json:
        """The VM's as it is to be, but for what gives way or is put back."""
        others = {field: value for field, value in (self.vm.spec or {}).items() if field not in _FIELDS}
        return others | {slot.matcher.field: slot.value for slot in self.slots if slot.value is not None}

    @property
    def kept_defaults(self) -> list[Default]:
        return [slot.kept for slot in self.slots if slot.kept]

    def shared_without(self, defaults: Sequence[Default]) -> Json:
        """The VM as it is to be, as `share_vm` returns it, without some defaults."""
        left_out = [default.matcher.field for default in defaults]
        return self.share(self.vm, {field: value for field, value in self.spec.items() if field not in left_out})

    def share(self, vm: Unstructured, spec: Json) -> Json:
        """The VM as it is to be, or as it is stored, with its spec or a part of it, as `share_vm` returns it."""
        # The stored status: the API server puts it back only after mutating webhooks.
        plain = namespace_defaults.plain_object(vm, self.findings.lookups.namespace, self.old.status or {})
        return share_vm({**plain, "spec": _without_our_scheduler(vm, spec)}, self.rules)


async def evaluate_update(vm: Unstructured, old: Unstructured | None, findings: Findings) -> Decision:
    """What becomes of defaults in an update. ``old`` is the stored VM; None where the request lacks it.

    Raises:
        Unreadable, InputError: the VM cannot be evaluated.
    """
    if old is None:
        return allow(reasons.spec_unchanged)
    lookups, manifests, stored_manifests = findings.lookups, Manifests(vm), Manifests(old)
    was = {matcher: namespace_defaults.default_of(matcher, old, stored_manifests) for matcher in MATCHERS}
    # An apply may declare what stands there, and change nothing else.
    if old.spec == vm.spec and was == {each: namespace_defaults.default_of(each, vm, manifests) for each in MATCHERS}:
        return allow(reasons.spec_unchanged)
    # Without KubeVirt's configuration nothing of an update is decided.
    update = _Update(vm, old, manifests, (await lookups.configuration()).rules, findings, [])
    for matcher in MATCHERS:
        update.slots.append(await _slot(matcher, update, was[matcher]))
    outgrown = _outgrown_defaults(update)
    carried, put_back = _preserved_defaults(update), []
    try:
        fit, unfit = await _fit(update, outgrown, carried)
        if fit.crash:
            return namespace_defaults.deny_crash(fit.crash)
        outgrown |= unfit
        put_back = [default for default in carried if default in fit.chosen]
        findings.note_unfit(carried, fit)
    except Unreadable as error:
        # What the owner wrote into the default is certain all the same.
        if not (outgrown or any(slot.changes for slot in update.slots)):
            raise
        findings.warnings.append(common.lookup_failed("the VM's other defaults were not evaluated", error.why))
    # First comes what is done.
    if outgrown:
        gone = [(kept.matcher.field, kept.injected_value) for kept in update.kept_defaults if kept.matcher in outgrown]
        findings.note(reasons.defaults_withdrawn(gone, outgrown.values()), warn=True)
        findings.reasons.insert(0, findings.reasons.pop())
    injected_values = {default.matcher.field: default.injected_value for default in put_back}
    if put_back:
        findings.reasons.insert(0, reasons.defaults_preserved(injected_values.items()))
    if await _has_lost_its_memory(update, outgrown, put_back):
        findings.note(reasons.size_removed)
        findings.warn_first(reasons.size_removed)
    if not findings.reasons:
        findings.note(reasons.defaults_kept if update.kept_defaults else reasons.nothing_to_preserve)
    return findings.decision(changes=_changes(update, outgrown, put_back), notes=injected_values)


def _changes(update: _Update, outgrown: Mapping[Matcher, str], put_back: Sequence[Default]) -> list[Change]:
    changes = [change for slot in update.slots for change in slot.changes]
    for kept in update.kept_defaults:
        if kept.matcher in outgrown:
            changes.append(Change(("spec", kept.matcher.field), kept.value, None, reasons.DEFAULT_WITHDRAWN))
            changes += _remove_annotation(kept.matcher, update)
    return changes + [change for default in put_back for change in default.changes(reasons.DEFAULTS_PRESERVED)]


async def _fit(
    update: _Update, outgrown: Mapping[Matcher, str], carried: Sequence[Default]
) -> tuple[namespace_defaults.Fit, dict[Matcher, str]]:
    """Which defaults fit the VM as it is to be, and why those that stand in it do not any more.

    Raises:
        Unreadable, InputError: the VM cannot be evaluated.
    """
    # What an update doesn't touch stays, whatever has become of the objects that it names.
    before, now = update.old.spec or {}, update.spec
    standing = update.kept_defaults if any(now.get(field) != before.get(field) for field in _DECISIVE) else []
    evaluated = [default for default in standing if default.matcher not in outgrown]
    tried = sorted([*evaluated, *carried], key=lambda default: MATCHERS.index(default.matcher))
    fit = await namespace_defaults.fit_defaults(update.shared_without(standing), tried, update.findings.lookups)
    unfit = {default.matcher: fit.why_not for default in evaluated if default not in fit.chosen}
    if unfit:
        stored = update.share(update.old, before)
        if await namespace_defaults.find_rejection(stored, update.kept_defaults, update.findings.lookups) is not None:
            # It didn't fit before either, so that is not the owner's doing.
            unfit = {}
    return fit, unfit


async def _slot(matcher: Matcher, update: _Update, was: str | None) -> _Slot:
    """What an update does to one matcher, whose default the stored VM had; None: it had none."""
    vm, old, findings = update.vm, update.old, update.findings
    field, annotation = matcher.field, namespace_defaults.INJECTED_ANNOTATIONS[matcher.field]
    injected_value, current = vm.meta.annotation(annotation), (vm.spec or {}).get(field)
    default: Json = (old.spec or {}).get(field) or {}
    if current is None:
        if injected_value and not _was_expanded(old):
            findings.note(reasons.owner_removed(field))
        if injected_value:
            return _Slot(matcher)
        return _Slot(matcher, lost=Default(matcher, default, was) if was else _expanded_default(matcher, old))
    own = None
    if was and was == injected_value and isinstance(current, dict):
        # Without the annotation the matcher was written again, and nothing of the default is left in it.
        own = await _owners_part(matcher, default, current, update)
    if own:
        return _Slot(matcher, own.value, tuple(_separate(matcher, update, own)))
    standing = namespace_defaults.default_of(matcher, vm, update.manifests)
    if standing is None:
        findings.note(reasons.owner_chose(field))
    return _Slot(matcher, current, kept=Default(matcher, current, standing) if standing else None)


class _OwnPart(NamedTuple):
    """The owner's part of a matcher; what it was taken for, as a sentence, empty where there is no doubt."""

    value: Json | None
    assumed: str = ""


async def _owners_part(matcher: Matcher, default: Json, current: Json, update: _Update) -> _OwnPart | None:
    """What the owner wrote of a matcher that also holds the injected default; None where the owner chose nothing in it.

    The default is the matcher's value before the update. The value is None if nothing is left of the owner's.
    """
    present = {name: value for name, value in current.items() if value is not None}
    changed = {name for name, value in present.items() if value != default.get(name)}
    path, declare = ("spec", matcher.field), update.manifests.declare
    declared = {name for name, value in present.items() if declare((*path, name), value)}
    if not (changed | declared) & _CHOICES:
        return None if _CHOICES & present.keys() else _OwnPart(None)
    own = {name: value for name, value in present.items() if name in changed | declared}
    certain = declared & _CHOICES or own.keys() & {"inferFromVolume", "kind"} or default.get("kind") is None
    # A name of another type is the API server's to deny.
    if certain or not isinstance(name := own.get("name"), str):
        return _OwnPart(own)
    # A patch of the name alone: no manifest shows whether the injected kind is to be kept.
    usual = find.SpecReference(matcher.kind_of(default["kind"]), name)
    if usual.is_cluster_wide:
        return _OwnPart(own)
    if await update.findings.lookups.read_one(usual.kind, name) is None:
        other = find.SpecReference(matcher.cluster, name)
        return _OwnPart(own, reasons.assumed_cluster_wide(matcher.field, name, other, usual))
    return _OwnPart({"kind": default["kind"], **own}, reasons.assumed_same_kind(matcher.field, name, usual))


def _was_expanded(old: Unstructured) -> bool:
    """Whether a stored VM's template has what its default instancetype said, written out by this server or by KubeVirt.

    An owner who wrote a size instead is among the writers of that field; virt-controller writes what it expands, and
    what this server writes has no writer.
    """
    has_matcher = (old.spec or {}).get(INSTANCETYPE_MATCHER.field) is not None
    if has_matcher or not old.meta.annotation(names.INJECTED_INSTANCETYPE_ANNOTATION):
        return False
    return has_memory(_domain(old)) and writers(old, _GUEST_MEMORY) <= {"virt-controller"}


def _expanded_default(matcher: Matcher, old: Unstructured) -> Default | None:
    """The default of a stored VM that was written out in it; None where it had none."""
    annotation = namespace_defaults.INJECTED_ANNOTATIONS[matcher.field]
    injected_value = old.meta.annotation(annotation)
    if not injected_value or (old.spec or {}).get(matcher.field) is not None or not _was_expanded(old):
        return None
    try:
        return Default(matcher, find.parse(matcher, injected_value, annotation).matcher(), injected_value)
    except InputError:
        return None


def _separate(matcher: Matcher, update: _Update, own: _OwnPart) -> Iterator[Change]:
    """The changes that leave the owner's part of a matcher alone, and remove the default's annotation with the rest."""
    current = (update.vm.spec or {})[matcher.field]
    if own.value is None:
        update.findings.note(reasons.owner_removed_name(matcher.field))
        yield Change(("spec", matcher.field), current, None, reasons.OWNER_REMOVED_INSTANCETYPE)
        return
    if own.assumed:
        update.findings.note(reasons.default_assumed(own.assumed), warn=True)
    else:
        update.findings.note(reasons.default_replaced(matcher.field))
    if own.value != current:
        yield Change(("spec", matcher.field), current, own.value, reasons.DEFAULT_WITHDRAWN)
    yield from _remove_annotation(matcher, update)


def _remove_annotation(matcher: Matcher, update: _Update) -> Iterator[Change]:
    """The change that removes a default's annotation; none where a manifest declares it, and would bring it back."""
    path = ("metadata", "annotations", namespace_defaults.INJECTED_ANNOTATIONS[matcher.field])
    injected_value = update.vm.meta.annotation(path[-1])
    if injected_value and not update.manifests.declare(path, injected_value):
        yield Change(path, injected_value, None, reasons.DEFAULT_WITHDRAWN)


def _outgrown_defaults(update: _Update) -> dict[Matcher, str]:
    """The defaults that stand beside a size which the owner says now, and why a new VM would not get them."""
    field, before = _size(update.vm), _size(update.old)
    if field is None or before is not None:
        return {}
    matchers, settings = [kept.matcher for kept in update.kept_defaults], update.findings.settings
    return {
        each: reasons.vm_size(field) for each in matchers if not namespace_defaults.goes_beside_a_size(each, settings)
    }


def _preserved_defaults(update: _Update) -> list[Default]:
    """The defaults that were lost and are to be put back if they fit."""
    if namespace_defaults.has_opted_out(update.vm):
        return []
    # A size that stood there before is no news: a preference beside it was given by a wider scope.
    was_sized = _size(update.old) is not None and not _was_expanded(update.old)
    beside = update.findings.settings.default_preference_scope == "all" or was_sized
    field = _size(update.vm)
    carried = []
    for slot in update.slots:
        if slot.lost and field and (slot.matcher is INSTANCETYPE_MATCHER or not beside):
            update.findings.note(reasons.sized(slot.matcher.field, reasons.vm_size(field)))
        elif slot.lost:
            carried.append(slot.lost)
    return carried


async def _has_lost_its_memory(update: _Update, outgrown: Mapping[Matcher, str], put_back: Sequence[Default]) -> bool:
    """Whether the VM had an instancetype or said its memory, and nothing gives it any now."""
    if any(default.matcher is INSTANCETYPE_MATCHER for default in put_back):
        return False
    if not namespace_defaults.names_memory(update.old.spec):
        return False
    left = {field: value for field, value in update.spec.items() if field not in {each.field for each in outgrown}}
    return await namespace_defaults.lacks_memory(left, update.findings.lookups)


def _without_our_scheduler(vm: Unstructured, spec: Json) -> Json:
    """A spec without the injected scheduler, which is withdrawn by itself where an instancetype sets one."""
    template = spec.get("template")
    inner = template.get("spec") if isinstance(template, dict) else None
    injected_value = vm.meta.annotation(names.INJECTED_SCHEDULER_ANNOTATION)
    if not injected_value or not isinstance(inner, dict) or inner.get("schedulerName") != injected_value:
        return spec
    others = {field: value for field, value in inner.items() if field != "schedulerName"}
    return {**spec, "template": {**spec["template"], "spec": others}}


def _size(vm: Unstructured) -> str | None:
    """The field by which a VM says its size; None if it says none."""
    return size_field(_domain(vm))


def _domain(vm: Unstructured) -> Any:
    value: Any = vm.spec
    for name in ("template", "spec", "domain"):
        value = value.get(name) if isinstance(value, dict) else None
    return value
