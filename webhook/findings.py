"""What doctor's checks find: sentences with codes, and the decorator of the checks that make them.

A policy's own checks are values of the policy (`webhook.policy.Policy.checks`); the others are in `webhook.doctor`.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Literal, ParamSpec, TypeAlias, TypeVar

import msgspec

from webhook.errors import FileGap, Unavailable
from webhook.k8s.client.api import Forbidden
from webhook.names import SITE

Verdict = Literal["failure", "warning", "unknown", "ok"]
# What a check could not read.
UNREADABLE: Final = "unreadable"
# Of a check's name: a longer one would leave less room for the findings of all checks.
LONGEST_NAME: Final = 12
P = ParamSpec("P")
T = TypeVar("T")


class Finding(msgspec.Struct, frozen=True):
    """One sentence about one thing.

    Attributes:
        check: the name of the check, which its decorator `check` sets.
        code: what was found, for programs; the same in every version, while `found` may be reworded.
        subject: the object or setting, for example ``Secret kubevirt-webhook/kubevirt-webhook-ca``.
        verdict: ``unknown`` means that the check could not look at the subject.
        found: a clause about the subject.
        todo: a clause in the imperative; empty where there is nothing to do.
    """

    check: str
    code: str
    subject: str
    verdict: Verdict
    found: str
    todo: str = ""

    @property
    def see(self) -> str:
        """The address of what the documentation says about the check: each has a heading in docs/doctor.md."""
        return f"{SITE}/doctor#{self.check}"


class Measurement(Finding, frozen=True):
    """A finding with figures: plain JSON of a bounded size, which the JSON form shows."""

    figures: dict[str, Any] = {}


_Find: TypeAlias = Callable[P, Awaitable[list[Finding]]]
_Check: TypeAlias = Callable[P, Coroutine[Any, Any, list[Finding]]]


def finding(verdict: Verdict, code: str, subject: str, clause: str, todo: str = "") -> Finding:
    """A finding by its code, subject, clause, and what to do; `check` names its check."""
    return Finding("", code, subject, verdict, clause, todo)


def measured(code: str, subject: str, clause: str, figures: dict[str, Any]) -> Measurement:
    """A finding with figures for which there is nothing to do; `check` names its check."""
    return Measurement("", code, subject, "ok", clause, figures=figures)


failure: Final = functools.partial(finding, "failure")
warning: Final = functools.partial(finding, "warning")
unknown: Final = functools.partial(finding, "unknown")
ok: Final = functools.partial(finding, "ok")


def unreadable(subject: str, why: Unavailable, todo: str = "") -> Finding:
    """The finding for what a check could not read, which names a missing permission; ``todo`` replaces the advice."""
    if isinstance(why, FileGap):
        return unknown(why.code, subject, why.why, why.todo)
    retry = "run doctor again; if the result does not change, check the API server"
    grant = "grant this permission to the user that runs doctor"
    return unknown(UNREADABLE, subject, why.why, todo or (grant if isinstance(why, Forbidden) else retry))


class UnreadableError(Exception):
    """A check cannot read what it needs; its arguments are the subject of the finding, and the cause."""


def readable(subject: str, answer: T | Unavailable) -> T:
    """What a check has read; an `UnreadableError` where it could not."""
    if isinstance(answer, Unavailable):
        raise UnreadableError(subject, answer)
    return answer


def check(name: str) -> Callable[[_Find[P]], _Check[P]]:
    """Decorates a check, or a part of one: names its findings, and makes a finding of what it cannot read.

    Raises:
        ValueError: the name is too long for its column.
    """
    if len(name) > LONGEST_NAME:
        raise ValueError(f"the name of the check {name} has more than {LONGEST_NAME} characters: choose a shorter one")

    def decorate(find: _Find[P]) -> _Check[P]:
        @functools.wraps(find)
        async def run(*args: P.args, **kwargs: P.kwargs) -> list[Finding]:
            try:
                findings = await find(*args, **kwargs)
            except UnreadableError as error:
                findings = [unreadable(*error.args)]
            return [msgspec.structs.replace(each, check=name) for each in findings]

        return run

    return decorate
