"""What a policy says, and what a mode makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from webhook import names
from webhook.admission.credentials import sanitize
from webhook.admission.redaction import redact, redact_at
from webhook.names import Mode
from webhook.text import shorten

# The API server may cut a longer warning (k8s.io/apiserver, pkg/warning): 256 characters each are safe.
MAX_WARNING: Final = 256
# It shows 4096 characters of warnings in all.
MAX_WARNINGS: Final = 15

# Of what a user reads of a refusal. KubeVirt itself names ten causes; our own lists end at twenty and a rest.
MAX_MESSAGE: Final = 4096
MAX_CAUSES: Final = 32

# Of a value of a change that others may read: the search for secrets in it takes time, and nobody reads more.
MAX_SHOWN_BYTES: Final = 64 * 1024


class Reason(msgspec.Struct, frozen=True):
    """Why: a code of `names.Code` for machines and a sentence for people."""

    code: Annotated[str, Meta(description="For machines: a word of a closed, growing set.", pattern="^[a-z-]+$")]
    text: Annotated[str, Meta(description="The same for people, with names.")]


class Change(msgspec.Struct, frozen=True):
    """One intended difference of the object.

    Attributes:
        path: JSON names from the object's root, unescaped, for example ``("spec", "schedulerName")``.
        old: the value now; None where there is none.
        new: the value to be; None: none, for what has an old one.
        reason: the code of the reason that led to it.
    """

    path: Annotated[tuple[str, ...], Meta(description="JSON names from the object's root, unescaped.")]
    old: Annotated[object, Meta(description="The value before; null where there was none.")]
    new: Annotated[object, Meta(description="The value after; null where it was removed.")]
    reason: Annotated[str, Meta(description="The code of the reason that led to it.")]

    def redact(self) -> Change:
        """The change as others may read it, without secrets."""
        old, new = _redact_value(self.path, self.old), _redact_value(self.path, self.new)
        return self if old is self.old and new is self.new else Change(self.path, old, new, self.reason)


_encode: Final = msgspec.json.Encoder().encode


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


class FieldCause(msgspec.Struct, frozen=True):
    """One cause of a refusal, as ``status.details.causes`` carries it.

    Attributes:
        reason: of the API's closed set, for example ``FieldValueInvalid``.
        field: the path, several joined by ``", "``.
    """

    reason: str
    message: str
    field: str


class Denial(msgspec.Struct, frozen=True):
    """A refusal.

    Attributes:
        code: HTTP's: 403, 422, 429 or 503.
        message: what the user reads.
        causes: field by field, where fields are to blame.
    """

    code: int
    message: str
    causes: tuple[FieldCause, ...] = ()

    def redact(self) -> Denial:
        """The refusal as everybody may read it."""
        causes = tuple(
            FieldCause(cause.reason, sanitize(cause.message), sanitize(cause.field)) for cause in self.causes
        )
        return Denial(self.code, sanitize(self.message), causes)

    def for_user(self) -> Denial:
        """The refusal as the user reads it: whatever it quotes, it ends."""
        short = all(len(each.message) + len(each.field) <= MAX_MESSAGE // 2 for each in self.causes)
        if short and len(self.message) <= MAX_MESSAGE and len(self.causes) <= MAX_CAUSES:
            return self
        causes = (
            FieldCause(each.reason, _cut(each.message, MAX_MESSAGE // 4), _cut(each.field, MAX_MESSAGE // 4))
            for each in self.causes[:MAX_CAUSES]
        )
        return Denial(self.code, _cut(self.message, MAX_MESSAGE), tuple(causes))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


class Decision(msgspec.Struct, frozen=True):
    """What mode ``enforce`` would do; a policy knows no other mode.

    Its texts may quote what users wrote. They are made fit to show here, once: everything that is said of a decision,
    to whomever, is said with these.

    Attributes:
        reasons: at least one, the most telling first.
        changes: in an order in which they can be applied.
        warnings: for the user who sent the request.
        notes: audit annotations of the API server's own audit log.
        details: for our own audit record alone: what the user may not be entitled to see. Plain JSON.
    """

    reasons: tuple[Reason, ...]
    changes: tuple[Change, ...] = ()
    denial: Denial | None = None
    warnings: tuple[str, ...] = ()
    notes: Mapping[str, str] = {}
    details: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        put = msgspec.structs.force_setattr
        put(self, "reasons", tuple(Reason(reason.code, sanitize(reason.text)) for reason in self.reasons))
        if self.denial:
            put(self, "denial", self.denial.redact())
        if self.warnings:
            put(self, "warnings", tuple(map(sanitize, self.warnings)))
        if self.notes:
            put(self, "notes", {key: sanitize(note) for key, note in self.notes.items()})
        if self.details:
            put(self, "details", redact(self.details))

    @property
    def code(self) -> str:
        """The code of the first reason: what metrics count."""
        return self.reasons[0].code

    def under(self, mode: Mode, policy: str) -> Outcome:
        """What this decision does to the request in a mode: only ``enforce`` patches or denies."""
        if mode == names.ENFORCE:
            if self.denial:
                return Outcome(self.denial.for_user(), (), _short(self.warnings), self.notes)
            return Outcome(None, self.changes, _short(self.warnings), self.notes)
        if mode == names.WARN:
            would = _would(self, f"{policy} is in mode warn")
            return Outcome(None, (), _short(would + self.warnings), self.notes)
        return Outcome(None, (), (), self.notes)


class Outcome(msgspec.Struct, frozen=True):
    """What the API server is told."""

    denial: Denial | None
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    notes: Mapping[str, str]


def skip(code: str, text: str, *warnings: str) -> Decision:
    """The decision to leave the request alone."""
    return Decision((Reason(code, text),), warnings=warnings)


def _would(decision: Decision, why_not: str) -> tuple[str, ...]:
    if decision.denial:
        return (f"{why_not}: enforce would refuse this request: {decision.denial.message}",)
    return tuple(f"{why_not}: enforce would {_plain(change)}" for change in decision.changes)


def _plain(change: Change) -> str:
    path = ".".join(change.path)
    if change.new is None:
        return f"remove {path}"
    new = change.redact().new
    value = new if isinstance(new, str) else msgspec.json.encode(new).decode()
    return f"set {path} to {value}"


def _short(warnings: tuple[str, ...]) -> tuple[str, ...]:
    if not warnings:
        return warnings
    if len(warnings) > MAX_WARNINGS:
        most = MAX_WARNINGS - 1
        warnings = (*warnings[:most], f"kubevirt-webhook: {len(warnings) - most} more warnings")
    return tuple(shorten(sanitize(text), MAX_WARNING) for text in warnings)
