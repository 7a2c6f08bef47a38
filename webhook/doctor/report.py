"""Findings, the checks that make them, and the report of all."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Literal, ParamSpec, TypeAlias, TypeVar

import msgspec

from webhook.cluster.reader import FileGap
from webhook.errors import Unavailable
from webhook.k8s.client.api import Forbidden

# The worst first.
Verdict = Literal["failure", "warning", "unknown", "ok"]
VERDICTS: Final[tuple[Verdict, ...]] = ("failure", "warning", "unknown", "ok")
# What a check could not read.
UNREADABLE: Final = "unreadable"
# The version of the JSON form; an incompatible change increments it.
SCHEMA: Final = 1
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
    """Decorates a check, or a part of one: names its findings, and makes a finding of what it cannot read."""

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


def abbreviate(things: Sequence[str], shown: int = 4) -> str:
    """The first few of a list, and how many more it has."""
    text = ", ".join(things[:shown])
    return f"{text} and {len(things) - shown} more" if len(things) > shown else text


class Report(msgspec.Struct, frozen=True):
    """All findings, in the order of the checks."""

    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of a finding."""
        return next((verdict for verdict in VERDICTS if self.counts[verdict]), "ok")

    @property
    def groups(self) -> list[tuple[str, list[Finding]]]:
        """Findings by check; failures first, in and among the checks."""
        by_check: dict[str, list[Finding]] = {}
        for finding in self.findings:
            by_check.setdefault(finding.check, []).append(finding)
        for group in by_check.values():
            group.sort(key=lambda finding: VERDICTS.index(finding.verdict))
        return sorted(by_check.items(), key=lambda group: VERDICTS.index(group[1][0].verdict))

    @property
    def counts(self) -> dict[str, int]:
        """Findings by verdict."""
        counts = Counter(finding.verdict for finding in self.findings)
        return {verdict: counts[verdict] for verdict in VERDICTS}

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        ordered = msgspec.to_builtins([finding for _, group in self.groups for finding in group])
        return {"schemaVersion": SCHEMA, "verdict": self.verdict, "counts": self.counts, "findings": ordered}
