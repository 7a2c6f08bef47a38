"""The cost of a function, counted and not timed: how often each line of Python is run, and compares a tenant's texts.

Each turn of a loop is a line event, of a comprehension too, and each line is counted by itself, so that a loop within a
loop shows however little it is beside the rest. What hides from line events are loops within C, of which the usual one
compares: ``x in a_list``. So texts can be made to count how often they are compared, for the line that does it.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from webhook.k8s.types.meta import Unstructured

# Events by the file and line.
Cost: TypeAlias = Counter[tuple[str, int]]


class EndlessError(BaseException):
    """A function runs so many lines that a test should not wait for its end."""


@contextmanager
def no_collection() -> Iterator[None]:
    """While something is counted: what the collector finalizes then was left by others, such as a test's generators."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def lines(function: Callable[[], object], most: int = 5_000_000) -> Cost:
    """How often a call runs each line.

    Raises:
        EndlessError: it runs more than ``most``.
    """
    # By the code itself each event would hash all that it holds; so each has a function that counts its lines.
    counted: dict[int, tuple[Any, Counter[int], Any]] = {}
    left = most

    def begin(frame: Any, event: str, argument: Any) -> Any:
        code = frame.f_code
        known = counted.get(id(code))
        if known is None:
            hits = Counter[int]()

            def count(frame: Any, event: str, argument: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise EndlessError(f"more than {most} lines")
                hits[frame.f_lineno] += 1
                return count

            known = counted[id(code)] = (code, hits, count)
        return known[2](frame, event, argument)

    before = sys.gettrace()
    with no_collection():
        sys.settrace(begin)
        try:
            function()
        finally:
            sys.settrace(before)
    cost: Cost = Counter()
    for code, hits, _ in counted.values():
        for line, times in hits.items():
            cost[code.co_filename, line] += times
    return cost


def comparisons(function: Callable[[], object]) -> Cost:
    """How often each line of a call compares `watched` texts."""
    CountedText.compared = Counter()
    function()
    return CountedText.compared


def nonlinear(none: Cost, once: Cost, twice: Cost) -> dict[tuple[str, int], tuple[int, int, int]]:
    """The lines at which the second n items cost more than the first n did; of a square they cost thrice as much."""
    # A few events more are no growth: thresholds, such as that from which a text is cut.
    few = 40

    def first(line: tuple[str, int]) -> int:
        """What the first items cost; where they lead another way, which is shorter, all that it costs."""
        return once[line] - none[line] if once[line] >= none[line] else once[line]

    return {
        line: (none[line], once[line], count)
        for line, count in twice.items()
        if count - once[line] > 1.2 * first(line) + few and not line[0].endswith(COUNTED_ELSEWHERE)
    }


# The search for credentials in texts that are shown: tests/admission/test_credentials.py counts its steps by the length
# of a text, and how many texts an answer and an audit line show is bounded.
COUNTED_ELSEWHERE: Final = ("webhook/admission/credentials.py", "/base64.py")


class CountedText(str):
    """A string that counts how often one is compared with another, and where."""

    __slots__ = ()
    compared: ClassVar[Cost] = Counter()

    def __eq__(self, other: object) -> bool:
        frame = sys._getframe(1)
        CountedText.compared[frame.f_code.co_filename, frame.f_lineno] += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def watched(value: Any) -> Any:
    """A copy of plain JSON or of a decoded view in which every string counts."""
    if isinstance(value, str):
        return CountedText(value)
    if isinstance(value, dict):
        return {watched(key): watched(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(watched(item) for item in value)
    if isinstance(value, Unstructured):
        # Its metadata passes through msgspec, which knows no other strings than Python's own.
        return msgspec.structs.replace(
            value, **{name: watched(getattr(value, name)) for name in ("spec", "status", "data")}
        )
    if isinstance(value, msgspec.Struct):
        return type(value)(**{name: watched(getattr(value, name)) for name in value.__struct_fields__})
    return value
