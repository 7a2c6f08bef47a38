"""Defaults that this server writes where owners chose nothing: what is the same for each of them.

An injected default is a value, `InjectedDefault`: where it stands, what is written, what counts as its owner's choice,
and its reasons. An annotation beside it says that it was injected. What becomes of it follows from the value:

- At CREATE it is written where the owner chose nothing; a copy that lost annotations gets them back.
- At UPDATE nothing new is written, since a changed template requires a restart. What the owner writes in any way
  replaces the default; an overwrite that removed it together with its annotations gets it back; where the VM cannot
  work with it any more, it is withdrawn.

Where the namespace leaves the policy, its VMs keep what they have, and nothing is put back; `cleanup` takes it out.

A VM's template carries the annotation too, so that it reaches VMI and pod. One of the two is enough to know a default:
clones, restores and backups lose annotations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from webhook.admission.decision import Change, Decision, Reason, RepeatedChanges, allow
from webhook.facts import Facts
from webhook.k8s.json_tree import ABSENT, locate, lookup
from webhook.k8s.types.meta import Object
from webhook.kubevirt.types.views import VirtualMachine
from webhook.policies.common.ownership import Manifests
from webhook.settings.policy_section import PolicySettings

S = TypeVar("S", bound=PolicySettings)
# JSON names from an object's root.
Path: TypeAlias = tuple[str, ...]

_TEMPLATE: Final = ("spec", "template")
# In these values nobody has chosen anything.
_EMPTY: Final[tuple[object, ...]] = ("", [], {})


class Place(msgspec.Struct, frozen=True):
    """Where a default stands in objects of a kind.

    Attributes:
        field: the path of the default itself.
        annotations: the paths of the annotations that say that it was injected.
        is_copied: whether tools copy such objects, and lose annotations on the way.
    """

    field: Path
    annotations: tuple[Path, ...]
    is_copied: bool = False


class Choice(NamedTuple):
    """What is to be written where the owner chose nothing, as its annotation says it, and why."""

    text: str
    reason: Reason


class Update(msgspec.Struct, Generic[S], frozen=True):
    """An update of a VM; ``old`` is the stored one."""

    vm: VirtualMachine
    old: VirtualMachine | None
    namespace: str
    facts: Facts
    settings: S


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of a default.

    Attributes:
        present: for the annotation's text: it was injected earlier.
        chosen: for the owner's value: it is kept.
        removed: for the annotation's text: the owner removed the field, and kept an annotation.
        replaced: the owner's value replaces it, which the owner is warned of; None: the owner sees it in the field, so
            `chosen` is enough.
        restored: for the annotation's text: annotations are put back; None: they are not, because nothing that happens
            later to the pods of the VM depends on them.
        untouched: an update of a VM without it; None: nothing is said, because another default of the policy does.
    """

    present: Callable[[str], Reason]
    chosen: Callable[[Any], Reason]
    removed: Callable[[str], Reason]
    replaced: Reason | None
    restored: Callable[[str], Reason] | None
    untouched: Reason | None


def _never_ours(_value: Any, _settings: Any) -> str | None:
    return None


def _whole(present: Any, _text: str, _manifests: Manifests) -> Any:
    return present


async def _never_put_back(_update: Update[Any], _text: str) -> Reason | Decision | None:
    return None


async def _never_withdrawn(_update: Update[Any], _text: str) -> Reason | None:
    return None


class InjectedDefault(msgspec.Struct, Generic[S], frozen=True, eq=False, kw_only=True):
    """A default for one field. An empty value (`_EMPTY`) of an owner counts as none, so no default can be empty itself.

    Attributes:
        name: of the audit annotation that says what was written.
        path: the field's in VMIs and pods; in VMs it stands in the template.
        annotation: the key of the annotation that says what was injected.
        value: what stands in the field, for the annotation's text.
        merge: what stands in the field with the default beside what the owner wrote, for the two values; None: the
            owner's value stands alone.
        is_value: whether what stands in the field is exactly that, for the annotation's value of whatever type.
        is_said: whether an annotation's value, of whatever type, is one that this server writes.
        owners_part: what the owner wrote of the field's value, for the annotation's text: a list of which an owner
            wrote some items is merged.
        put_back: whether an overwrite gets back what it removed, for the annotation's text: the reason to do so, or
            the decision against it; None: there is nothing to say.
        withdraw: the reason to remove what was injected, for the annotation's text; None: it stays.
        only_ours: the annotation's text of a value that only this server ever writes, so that it needs no annotation.
        written_if_unset: what the API server writes where nobody chose anything.
        in_vms: its place there, which follows from the rest, as does that in VMIs and pods, `in_objects`.
    """

    name: str
    path: Path
    annotation: str
    reasons: Reasons
    value: Callable[[str], Any]
    is_value: Callable[[Any, object], bool]
    is_said: Callable[[object], bool]
    merge: Callable[[Any, Any], Any] | None = None
    owners_part: Callable[[Any, str, Manifests], Any] = _whole
    put_back: Callable[[Update[S], str], Awaitable[Reason | Decision | None]] = _never_put_back
    withdraw: Callable[[Update[S], str], Awaitable[Reason | None]] = _never_withdrawn
    only_ours: Callable[[Any, S], str | None] = _never_ours
    written_if_unset: object = ABSENT
    in_vms: Place = Place((), ())
    in_objects: Place = Place((), ())

    def __post_init__(self) -> None:
        annotation = ("metadata", "annotations", self.annotation)
        in_vms = Place((*_TEMPLATE, *self.path), (annotation, (*_TEMPLATE, *annotation)), is_copied=True)
        msgspec.structs.force_setattr(self, "in_vms", in_vms)
        msgspec.structs.force_setattr(self, "in_objects", Place(self.path, (annotation,)))

    async def at_create(
        self, view: Object, place: Place, settings: S, choose: Callable[[], Awaitable[Choice | Decision]]
    ) -> Decision:
        """The decision on a new object; ``choose`` is asked only where the default may be written."""
        present = _value_at(view, place.field)
        if present is ABSENT or self.merge:
            choice = await choose()
            return self.write(view, choice, place) if isinstance(choice, Choice) else choice
        text = self._injected_text(view, place, present, settings)
        return allow(self.reasons.chosen(present)) if text is None else self._keep(view, text, place)

    async def at_update(self, update: Update[S]) -> Decision | None:
        """The decision on an updated VM; None where there is nothing to say."""
        vm, place = update.vm, self.in_vms
        present = _value_at(vm, place.field)
        if present is ABSENT:
            return await self._after_removal(update)
        manifests = Manifests(vm)
        text = self._injected_text(vm, place, present, update.settings)
        if text is not None and not manifests.declare(place.field, present):
            reason = await self.withdraw(update, text)
            if reason is None:
                return self._keep(vm, text, place)
            field = Change(place.field, present, None, reason.code)
            return Decision((reason,), (field, *self._without_annotations(vm, manifests, reason)), warnings=(reason,))
        chosen = self.reasons.chosen(present)
        reason, changes = self.reasons.replaced or chosen, []
        said = [value for value in _annotations(vm, place).values() if self.is_said(value)]
        if said:
            # Who leaves out some injected items wants the others.
            own = self.owners_part(present, str(said[0]), manifests) or present
            changes = [] if own == present else [Change(place.field, present, own, reason.code)]
            changes += self._without_annotations(vm, manifests, reason)
        if not changes:
            return allow(chosen) if self.reasons.untouched else None
        return Decision((reason,), tuple(changes), warnings=(reason,) if self.reasons.replaced else ())

    async def _after_removal(self, update: Update[S]) -> Decision | None:
        """The decision on an updated VM without the field: what an overwrite removed may be put back.

        A VirtualMachinePool and `kubectl replace` write ``spec`` and annotations again. Left alone, the template would
        change, which requires a restart. An owner who removes the field and keeps an annotation means it.
        """
        old, place = update.old, self.in_vms
        present = _value_at(old, place.field) if old else ABSENT
        text = None if old is None or present is ABSENT else self._injected_text(old, place, present, update.settings)
        if old is None or text is None or Manifests(old).declare(place.field, present):
            return allow(self.reasons.untouched) if self.reasons.untouched else None
        if any(value is not ABSENT and value != "" for value in _annotations(update.vm, place).values()):
            return allow(self.reasons.removed(text))
        reason = await self.put_back(update, text)
        return self.write(update.vm, Choice(text, reason), place) if isinstance(reason, Reason) else reason

    def write(self, view: Object, choice: Choice, place: Place) -> Decision:
        """The decision to write the default, and the annotations that say so."""
        present = lookup(view, place.field) if self.merge else ABSENT
        if self.merge is None or present is ABSENT:
            return self._write(view, choice, (place.field, *place.annotations))
        value = self.merge(present, self.value(choice.text))
        if value == present:
            return allow(self.reasons.present(choice.text))
        field = Change(place.field, present, value, choice.reason.code)
        annotated = self.record(view, choice, place)
        return Decision((choice.reason,), (field, *annotated.changes), notes=annotated.notes)

    def record(self, view: Object, choice: Choice, place: Place) -> Decision:
        """The decision to write the annotations alone."""
        return self._write(view, choice, place.annotations)

    def _keep(self, view: Object, text: str, place: Place) -> Decision:
        """The decision on an object with the injected default: annotations that a copy has lost are put back."""
        restored = self.reasons.restored if place.is_copied else None
        if restored is None or all(value == text for value in _annotations(view, place).values()):
            return allow(self.reasons.present(text))
        return self.record(view, Choice(text, restored(text)), place)

    def _injected_text(self, view: Object, place: Place, present: Any, settings: S) -> str | None:
        """What an annotation says of a value that was injected as it stands there; None: it was not."""
        for text in _annotations(view, place).values():
            if self.is_said(text) and self.is_value(present, text):
                return str(text)
        return self.only_ours(present, settings) if place.is_copied else None

    def _without_annotations(self, vm: VirtualMachine, manifests: Manifests, reason: Reason) -> Iterator[Change]:
        """The changes that remove its annotations, but those that a manifest declares, and would bring back."""
        for path, value in _annotations(vm, self.in_vms).items():
            if value is not ABSENT and not manifests.declare(path, value):
                yield Change(path, value, None, reason.code)

    def _write(self, view: Object, choice: Choice, paths: tuple[Path, ...]) -> Decision:
        text, reason = choice
        old, depths = zip(*[locate(view, path) for path in paths], strict=True)
        # By comparison: a template's annotations may have values of any type, which cannot all be hashed.
        if all(value is ABSENT or value == self.written_if_unset for value in old):
            changes = _usual_changes(self, text, reason.code, paths, old, depths)
        else:
            changes = _changes(self, text, reason.code, paths, old)
        return Decision((reason,), changes, notes={self.name: text})


def _value_at(view: Object, path: Path) -> Any:
    """What somebody chose at a path; `ABSENT` where nobody did."""
    value = lookup(view, path)
    return ABSENT if value in _EMPTY else value


def _annotations(view: Object, place: Place) -> dict[Path, object]:
    """What the annotations of a place say, by their paths; `ABSENT` for none."""
    return {path: lookup(view, path) for path in place.annotations}


def _changes(
    default: InjectedDefault[Any], text: str, code: str, paths: tuple[Path, ...], old: tuple[object, ...]
) -> tuple[Change, ...]:
    """The changes that write a default and its annotations to all paths; `ABSENT` is no old value."""
    changes = []
    for path, before in zip(paths, old, strict=True):
        after = text if path[-1] == default.annotation else default.value(text)
        if before != after:
            changes.append(Change(path, None if before is ABSENT else before, after, code))
    return tuple(changes)


@lru_cache(maxsize=64)
def _usual_changes(
    default: InjectedDefault[Any],
    text: str,
    code: str,
    paths: tuple[Path, ...],
    old: tuple[object, ...],
    depths: tuple[int, ...],
) -> tuple[Change, ...]:
    """As `_changes`, cached: for objects without a tenant's value at these paths, ``depths`` of which exist."""
    changes = _changes(default, text, code, paths, old)
    written = {change.path for change in changes}
    present = tuple(depth for path, depth in zip(paths, depths, strict=True) if path in written)
    return RepeatedChanges(changes, present)
