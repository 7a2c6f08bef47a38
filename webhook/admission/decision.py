"""What a policy decides, what a mode makes of it, and how a user reads it.

    kubevirt-webhook (scheduling, warn): would set spec.schedulerName to kubevirt [scheduler-injected]

A user meets several admission webhooks in one answer, so each sentence begins with the product and its policy. It ends
in a reason code, which ``kubevirt-webhook explain reason CODE`` and docs/messages.md expand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, Final, Self

import msgspec
from msgspec import Meta

from webhook import names
from webhook.admission.credentials import SHORT, sanitize, sanitize_short
from webhook.admission.redaction import is_harmless, is_plain_place, redact, redact_at
from webhook.names import Mode
from webhook.text import shorten

PRODUCT: Final = "kubevirt-webhook"
_PREFIX: Final = f"{names.DOMAIN}/"

# Once all warnings of a request have more than 4096 characters, the API server cuts each to 256 (k8s.io/apiserver,
# pkg/endpoints/filters/warning.go). So they may be longer while all of an answer have a fourth of that.
MAX_WARNING: Final = 256
LONGEST_WARNING: Final = 640
_WARNINGS_TOGETHER: Final = 1024
MAX_WARNINGS: Final = 15

# Of what a user reads of a denial. KubeVirt itself names ten causes; lists of kubevirt-webhook end at twenty and a
# rest.
MAX_MESSAGE: Final = 4096
MAX_CAUSES: Final = 32
_MAX_CAUSE: Final = MAX_MESSAGE // 2

# Of a value of a change that others may read: the search for secrets in it takes time.
MAX_SHOWN_BYTES: Final = 64 * 1024


def compose(policy: str, text: str, code: str, mode: Mode = names.ENFORCE, *, most: int) -> str:
    """A sentence as a user reads it.

    Args:
        policy: the policy of the message, for example ``scheduling``.
        text: the sentence, without a full stop.
        code: a reason code of `webhook.admission.reasons`.
        mode: the policy's mode in the namespace; ``enforce`` is not named.
        most: characters of the whole; the text is cut, never the code.
    """
    speaker = policy if mode == names.ENFORCE else f"{policy}, {mode}"
    before, after = f"{PRODUCT} ({speaker}): ", f" [{code}]"
    return f"{before}{shorten(text, most - len(before) - len(after))}{after}"


class Reason(msgspec.Struct, frozen=True):
    """Why: a code of the catalog of reasons for machines and a sentence for people."""

    code: Annotated[str, Meta(description="For machines: a word of a closed, growing set.", pattern="^[a-z-]+$")]
    text: Annotated[str, Meta(description="The same for people, with names.")]


class Change(msgspec.Struct, frozen=True):
    """One change of the object."""

    path: Annotated[tuple[str, ...], Meta(description="JSON names from the object's root, unescaped.")]
    old: Annotated[object, Meta(description="The value before; null where there was none.")]
    new: Annotated[object, Meta(description="The value after; null where it was removed.")]
    reason: Annotated[str, Meta(description="The code of the reason that led to it.")]

    def redact(self) -> Change:
        """The change as others may read it, without secrets."""
        path, old, new = self.path, self.old, self.new
        short = len(path[-1]) <= _SHORT_VALUE
        if old is not None:
            is_short = short and isinstance(old, str) and len(old) <= _SHORT_VALUE
            old = _redact_short(path, old) if is_short else _redact_value(path, old)
        if new is not None:
            is_short = short and isinstance(new, str) and len(new) <= _SHORT_VALUE
            new = _redact_short(path, new) if is_short else _redact_value(path, new)
        return self if old is self.old and new is self.new else Change(self.path, old, new, self.reason)


_encode: Final = msgspec.json.Encoder().encode

_NESTED: Final = frozenset({dict, list})
# What is written as a rule: a scheduler's name and its annotations.
_SHORT_VALUE: Final = 100
_redact_short: Final = lru_cache(maxsize=256)(redact_at)


def _redact_value(path: tuple[str, ...], value: Any) -> Any:
    """A value without secrets; of one that is too long only its length."""
    size = len(value) if isinstance(value, str) else 0
    if isinstance(value, dict | list):
        try:
            size = len(_encode(value))
        except RecursionError:
            # What is nested too deeply is cut where secrets are looked for.
            return redact_at(path, value)
    return redact_at(path, value) if size <= MAX_SHOWN_BYTES else f"<{size} bytes, too long to show>"


class RepeatedChanges(tuple[Change, ...]):  # noqa: SLOT001 - Python knows no slots for what is as long as its items
    """Changes that a policy makes alike in many objects: what follows from them alone is made once.

    The policy that makes them keeps them. None holds a value of a tenant's, so their number is limited.
    From bytes to bytes, a review of a launcher pod takes 27 µs with them and 48 µs without (2026-11-29).

    Args:
        _changes: in an order in which they can be applied.
        present: how much of each path every object has for which they are made; None: that differs.

    Attributes:
        patches: what `webhook.admission.patch.render` has made of them, by how much of each path an object has.
    """

    patches: dict[tuple[int, ...], bytes]

    def __new__(cls, changes: Iterable[Change], _present: tuple[int, ...] | None = None) -> Self:
        """The changes in a tuple."""
        return super().__new__(cls, changes)

    def __init__(self, _changes: Iterable[Change], present: tuple[int, ...] | None = None) -> None:
        self.patches = {}
        self.present: Final = present

    @cached_property
    def redacted(self) -> Sequence[Change]:
        """The changes as others may read them."""
        return tuple(map(Change.redact, self))


def redact_changes(changes: tuple[Change, ...]) -> Sequence[Change]:
    """Changes as others may read them, without secrets."""
    if isinstance(changes, RepeatedChanges):
        return changes.redacted
    nested = [change for change in changes if type(change.new) in _NESTED or type(change.old) in _NESTED]
    looked_at = {id(change) for change in nested if is_plain_place(change.path)}
    values = [(change.old, change.new) for change in nested if id(change) in looked_at]
    try:
        # One look at all values shows that none holds a secret, instead of a walk over each.
        if values and is_harmless(_encode(values).decode()):
            return tuple([change if id(change) in looked_at else change.redact() for change in changes])
    except RecursionError:
        pass  # what is nested too deeply is cut where secrets are looked for
    return tuple(map(Change.redact, changes))


class FieldCause(msgspec.Struct, frozen=True):
    """One cause of a denial, as ``status.details.causes`` carries it.

    Attributes:
        reason: one of the API's closed set (metav1.CauseType): ``FieldValueRequired`` where a value is missing,
            ``FieldValueForbidden`` where none may be set, ``FieldValueNotSupported`` where it is not on a list,
            ``FieldValueNotFound`` where it names what does not exist, and else ``FieldValueInvalid``.
        field: the path, several joined by ``", "``.
    """

    reason: str
    message: str
    field: str


class Denial(msgspec.Struct, frozen=True):
    """What denies a request.

    Attributes:
        code: HTTP's. 422: the object is wrong by itself, wherever it is created and whoever does it, as virt-api says
            it of an invalid one. 403: it is valid, and not allowed here: a limit of the namespace or the settings, a
            permission or room is missing. 429: the same request may be allowed later. 503: it cannot be evaluated now,
            and ``failurePolicy`` is Fail.
        message: what the user reads.
        causes: field by field, where fields are to blame.
        retry_after: the seconds after which a client may ask again, which the API server sends as ``Retry-After``:
            with codes 429 and 503, client-go does so by itself, up to ten times. 0: the answer does not say.
    """

    code: int
    message: str
    causes: tuple[FieldCause, ...] = ()
    retry_after: int = 0

    def redact(self) -> Denial:
        """The denial as everybody may read it."""
        causes = tuple(
            FieldCause(cause.reason, sanitize(cause.message), sanitize(cause.field)) for cause in self.causes
        )
        return Denial(self.code, sanitize(self.message), causes, self.retry_after)

    def for_user(self, policy: str, code: str) -> Denial:
        """The denial as the user reads it: it names the policy and the code, and its length is limited.

        Where a denial has causes, kubectl prints them instead of the message, so that each names the policy and the
        code too, around its own words, which are often KubeVirt's.
        """
        causes = tuple(
            FieldCause(
                cause.reason, compose(policy, cause.message, code, most=_MAX_CAUSE), shorten(cause.field, _MAX_CAUSE)
            )
            for cause in self.causes[:MAX_CAUSES]
        )
        return Denial(self.code, compose(policy, self.message, code, most=MAX_MESSAGE), causes, self.retry_after)


class Announcement(msgspec.Struct, frozen=True):
    """What an Event tells of another object than the one that is reviewed, once the decision is carried out.

    Its text goes to those who may see that object, so it names nothing that they may not see.

    Attributes:
        namespace, api_version, kind, name, uid: of the object.
        reason: a word in CamelCase.
        code: one of the policy's reasons.
        text: a sentence.
    """

    namespace: str
    api_version: str
    kind: str
    name: str
    uid: str
    reason: str
    code: str
    text: str


class Decision(msgspec.Struct, frozen=True):
    """What mode ``enforce`` would do; a policy does not depend on the mode.

    Its texts may quote what users wrote. They are made safe to show here, once, for every reader.

    Attributes:
        reasons: at least one, the most telling first.
        changes: in an order in which they can be applied.
        denial: the answer to a denied request; None: it is allowed.
        warnings: texts for the sender of the request, each with the code that explains it.
        notes: audit annotations of the API server's own audit log.
        details: only for this server's audit record: what the user may not be permitted to see. Plain JSON.
        announcements: what it means for other objects.
    """

    reasons: tuple[Reason, ...]
    changes: tuple[Change, ...] = ()
    denial: Denial | None = None
    warnings: tuple[Reason, ...] = ()
    notes: Mapping[str, str] = {}
    details: Mapping[str, Any] = {}
    announcements: tuple[Announcement, ...] = ()

    def __post_init__(self) -> None:
        put = msgspec.structs.force_setattr
        reasons = []
        for reason in self.reasons:
            text = reason.text
            clean = sanitize_short(text) if len(text) <= SHORT else sanitize(text)
            reasons.append(reason if clean == text else Reason(reason.code, clean))
        put(self, "reasons", tuple(reasons))
        if self.denial:
            put(self, "denial", self.denial.redact())
        if self.warnings:
            put(self, "warnings", tuple(Reason(warning.code, sanitize(warning.text)) for warning in self.warnings))
        if self.notes:
            notes = {}
            for key, note in self.notes.items():
                notes[key] = sanitize_short(note) if len(note) <= SHORT else sanitize(note)
            put(self, "notes", notes)
        if self.details:
            put(self, "details", redact(self.details))

    @property
    def code(self) -> str:
        """The code of the first reason: what metrics count."""
        return self.reasons[0].code

    def under(self, mode: Mode, policy: str) -> Outcome:
        """What this decision does to the request in a mode: only ``enforce`` patches or denies."""
        if mode == names.ENFORCE:
            warnings = _compose(self.warnings, policy, mode) if self.warnings else ()
            if self.denial:
                return Outcome(self.denial.for_user(policy, self.code), (), warnings, self.notes)
            return Outcome(None, self.changes, warnings, self.notes)
        if mode == names.WARN:
            return Outcome(None, (), _compose((*_describe_effects(self), *self.warnings), policy, mode), self.notes)
        return Outcome(None, (), (), self.notes)


class Outcome(msgspec.Struct, frozen=True):
    """What the API server gets as the answer."""

    denial: Denial | None
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    notes: Mapping[str, str]


def allow(reason: Reason, *, warn: bool = False, warnings: tuple[Reason, ...] = ()) -> Decision:
    """The decision to leave the request alone.

    Args:
        reason: why.
        warn: whether its text is a warning, too.
        warnings: further reasons that the user is warned of.
    """
    return Decision((reason, *warnings), warnings=(reason, *warnings) if warn else warnings)


def deny(
    reason: Reason,
    code: int,
    field: str = "",
    causes: Sequence[str | FieldCause] = (),
    *,
    retry_after: int = 0,
    warnings: tuple[Reason, ...] = (),
) -> Decision:
    """The decision to deny the request, in the words of the reason.

    Args:
        reason: why; its text is what the user reads.
        code: HTTP's, as `Denial` has it.
        field: the path of the field whose value is to blame; empty: none is, or the causes name theirs.
        causes: what is wrong with the field, or with others; empty: the reason says it.
        retry_after: as `Denial` has it.
        warnings: further reasons that the user is warned of.
    """
    found = causes or ((reason.text,) if field else ())
    denial = Denial(
        code,
        reason.text,
        tuple(FieldCause("FieldValueInvalid", each, field) if isinstance(each, str) else each for each in found),
        retry_after,
    )
    return Decision((reason, *warnings), denial=denial, warnings=warnings)


def _describe_effects(decision: Decision) -> tuple[Reason, ...]:
    """What mode ``enforce`` would do, a sentence for each thing that the user would notice."""
    if decision.denial:
        return (Reason(decision.code, f"would deny this request: {decision.denial.message}"),)
    # kubevirt-webhook's annotations only record another change: one change, one warning.
    visible = [change for change in decision.changes if not change.path[-1].startswith(_PREFIX)]
    return tuple(Reason(change.reason, f"would {_describe(change)}") for change in visible or decision.changes)


def _describe(change: Change) -> str:
    path = ".".join(change.path)
    if change.new is None:
        return f"remove {path}"
    new = change.redact().new
    value = new if isinstance(new, str) else msgspec.json.encode(new).decode()
    return f"set {path} to {value}"


def _compose(warnings: tuple[Reason, ...], policy: str, mode: Mode) -> tuple[str, ...]:
    if not warnings:
        return ()
    if len(warnings) > MAX_WARNINGS:
        most = MAX_WARNINGS - 1
        more = Reason(warnings[most].code, f"{len(warnings) - most} more warnings are not shown")
        warnings = (*warnings[:most], more)
    texts = [(sanitize(warning.text), warning.code) for warning in warnings]
    whole = tuple(compose(policy, text, code, mode, most=LONGEST_WARNING) for text, code in texts)
    if sum(map(len, whole)) <= _WARNINGS_TOGETHER:
        return whole
    return tuple(compose(policy, text, code, mode, most=MAX_WARNING) for text, code in texts)
