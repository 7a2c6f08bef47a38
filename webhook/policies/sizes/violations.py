"""What is wrong with a size by the limits of a namespace."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from webhook.k8s.quantity import Format, Quantity
from webhook.policies.sizes.settings import SizeLimits, amount
from webhook.policies.sizes.size import Amount, Size
from webhook.text import pluralize

# What a limit is about.
Subject: TypeAlias = Literal["cpu", "memory", "ratio"]
_NANO: Final = 10**9


class Violation(NamedTuple):
    """A limit that a size does not keep.

    Attributes:
        fields: what sets it, as paths below ``spec.domain``.
        what: a clause.
    """

    subject: Subject
    fields: tuple[str, ...]
    what: str


def find_violations(size: Size, limits: Sequence[SizeLimits], judged: Collection[Subject]) -> list[Violation]:
    """What is wrong with a size that has to be in one of some ranges; empty: nothing that is judged.

    The number of CPUs chooses the range. CPUs that are not judged, and are in no range, are no reason to deny a change
    of memory that some range holds.
    """
    found = [list(_violations(size, each)) for each in limits]
    if not found:
        return []
    chosen = [each for each in found if not any(violation.subject == "cpu" for violation in each)]
    left = [[violation for violation in each if violation.subject in judged] for each in chosen or found]
    return min(left, key=len)


def _violations(size: Size, limits: SizeLimits) -> Iterator[Violation]:
    yield from _cpu(size, limits)
    if memory := size.memory:
        yield from _memory(size, memory, limits)
        yield from _ratio(size, memory, limits)


def _cpu(size: Size, limits: SizeLimits) -> Iterator[Violation]:
    most, least, step = limits.cpu.max, limits.cpu.min, limits.cpu.step
    fields, vcpus = tuple(size.vcpus_field.split(", ")), pluralize(size.vcpus, "vCPU")
    if most and size.vcpus > most:
        yield Violation("cpu", fields, f"{vcpus} are more than {most}")
    elif size.vcpus < least:
        yield Violation("cpu", fields, f"{vcpus} {'is' if size.vcpus == 1 else 'are'} fewer than {least}")
    elif size.vcpus % step:
        yield Violation("cpu", fields, f"{vcpus} {'is' if size.vcpus == 1 else 'are'} not a multiple of {step}")
    for each in size.cpu_amounts:
        if most and each.field != size.vcpus_field and each.value.nanos > most * _NANO:
            yield Violation("cpu", (each.field,), f"{each.text} CPUs are more than {most}")


def _memory(size: Size, memory: Amount, limits: SizeLimits) -> Iterator[Violation]:
    most, least, step = (amount(text) for text in (limits.memory.max, limits.memory.min, limits.memory.step))
    if most and memory.value.nanos > most * _NANO:
        yield Violation("memory", (memory.field,), f"{memory.text} of memory is more than {limits.memory.max}")
    elif memory.value.nanos < least * _NANO:
        yield Violation("memory", (memory.field,), f"{memory.text} of memory is less than {limits.memory.min}")
    elif step and memory.value.nanos % (step * _NANO):
        what = f"{memory.text} of memory is not a multiple of {limits.memory.step}"
        yield Violation("memory", (memory.field,), what)
    for each in size.memory_amounts:
        if most and each.field != memory.field and each.value.nanos > most * _NANO:
            yield Violation("memory", (each.field,), f"{each.text} of memory is more than {limits.memory.max}")


def _ratio(size: Size, memory: Amount, limits: SizeLimits) -> Iterator[Violation]:
    ratio = limits.memory_per_cpu
    most, least = amount(ratio.max) * _NANO * size.vcpus, amount(ratio.min) * _NANO * size.vcpus
    fields = (memory.field, *size.vcpus_field.split(", "))
    has = f"{memory.text} of memory for {pluralize(size.vcpus, 'vCPU')} is"
    if most and memory.value.nanos > most:
        total = Quantity.of(most // _NANO, Format.BINARY_SI)
        yield Violation("ratio", fields, f"{has} more than {ratio.max} for each ({total})")
    elif memory.value.nanos < least:
        total = Quantity.of(least // _NANO, Format.BINARY_SI)
        yield Violation("ratio", fields, f"{has} less than {ratio.min} for each ({total})")
