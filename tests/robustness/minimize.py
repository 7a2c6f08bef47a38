"""The shortest history that still shows a violation: of what was recorded, all goes that the checker needs not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from .checker import RULE_OF, Violation, lines_of
from .history import Change, Fault, History, Request, Sample, SettingsWritten
from .model import Model

T = TypeVar("T")
Event: TypeAlias = Change | Fault | SettingsWritten | Sample | Request


def shortest(events: Sequence[T], shows: Callable[[Sequence[T]], bool]) -> list[T]:
    """Delta debugging: what is left of the events still shows it, and without any one more it would not.

    All of the events must show it. Large pieces are tried first, then smaller ones, then each alone for as long as any
    could go.
    """
    left, size, went = list(events), len(events), False
    while size:
        went, start = False, 0
        while start < len(left):
            without = left[:start] + left[start + size :]
            if shows(without):
                left, went = without, True
            else:
                start += size
        if size > 1 or not went:
            size //= 2
    return left


def minimize(history: History, violation: Violation) -> tuple[History, Violation]:
    """The shortest part of a history that shows a violation, and the violation in it.

    It shows the same where the same rule reports the same request or sample, and what would have been right is the same
    too: without that, a decision were wrong already because nothing is left that it could rest on. Entries of webhooks
    and kinds are no events; they stay.
    """
    wanted, model = violation, Model(history)

    def found(part: History) -> Violation | None:
        reported = RULE_OF[wanted.rule](part, model.of_part(part), Counter())
        same = (each for each in reported if each.at == wanted.at and set(each.possible) == set(wanted.possible))
        return next((each for each in same if each.rule == wanted.rule), None)

    def shows(events: Sequence[Event]) -> bool:
        return found(_of(history, events)) is not None

    # All but one of the requests, and with them most of the time that a check takes, go at once.
    requests = [each for each in history.requests if each.received == wanted.at]
    samples = [each for each in history.samples if each.at == wanted.at]
    others: list[Event] = [*history.changes, *history.faults, *history.settings]
    events = [*others, *samples, *requests]
    if not shows(events):
        events = [*others, *history.samples, *history.requests]
    part = _of(history, shortest(events, shows))
    last = found(part)
    assert last is not None, f"not shown by the whole history: {wanted}"
    return part, replace(last, history=lines_of(part))


def _of(history: History, events: Sequence[Event]) -> History:
    """A history with these events alone."""

    def those(kind: type[T]) -> list[T]:
        return [each for each in events if isinstance(each, kind)]

    return replace(
        history,
        changes=those(Change),
        faults=those(Fault),
        settings=those(SettingsWritten),
        samples=those(Sample),
        requests=those(Request),
    )
