"""Quantities such as ``4Gi`` or ``1500m``: read, compared and written as Kubernetes does (apimachinery, api/resource).

Every value is held exactly, in billionths, the finest step that Kubernetes knows.
"""

from __future__ import annotations

import re
import struct
from enum import Enum
from functools import lru_cache, total_ordering
from typing import Any, Final, TypeAlias

from webhook.errors import InputError


class Format(Enum):
    """How a quantity was written, which decides how it is written again."""

    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"


_NANO: Final = 10**9
_MAX: Final = 2**63 - 1
# Kubernetes has no limit, but no object needs a number of this size, and computing with it takes time.
_MAX_LENGTH: Final = 100
_MAX_EXPONENT: Final = 1000

_TEXT: Final = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT: Final = re.compile("[eE]([-+]?[0-9]+)")
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIX: Final = {exponent: suffix for suffix, exponent in _BINARY.items()} | {0: ""}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
# Powers of ten by which Go multiplies an int64 at once, and lets it wrap around.
_WRAPPING: Final = (1, 2, 3, 6, 9)
# Together they take off all the zeros that `_MAX_LENGTH` and `_MAX_EXPONENT` allow, and more.
_POWERS: Final = tuple((2**step, 10**2**step) for step in range(10, -1, -1))


@total_ordering
class Quantity:
    """A number with the format that it was written in.

    Args:
        nanos: the value in billionths.
        format_: the notation of the value: decimal suffixes, binary suffixes or an exponent.
        text: the text as written, where Kubernetes would write the value so; empty: it is formatted again.
        scale: Kubernetes holds an int64 of this power of ten; None: a decimal of any size.
    """

    __slots__ = ("_scale", "_text", "format", "nanos")

    def __init__(self, nanos: int, format_: Format, text: str = "", scale: int | None = None) -> None:
        self.nanos: Final = nanos
        self.format: Final = format_
        self._text = text
        self._scale = scale

    @classmethod
    def of(cls, value: int, format_: Format) -> Quantity:
        """A whole number, an int64, in a format."""
        return cls(value * _NANO, format_, scale=0)

    @property
    def value(self) -> int:
        """The value as int64, fractions rounded up.

        Of what does not fit, Kubernetes makes something or other; so does this (apimachinery, api/resource, amount.go
        and scale_int.go).
        """
        if self._scale is not None:
            size = -(-abs(self.nanos) // _NANO)
            whole = size if self.nanos >= 0 else -size
            return int64(whole) if self._scale in _WRAPPING or int64(whole) == whole else 0
        # A decimal: rounded up, and taken for one of 64 bits before it is divided unless it is a large one.
        if self.nanos >= _MAX:
            return int64(-(-self.nanos // _NANO))
        held = int64(self.nanos)
        whole = abs(held) // _NANO
        return (whole if held >= 0 else -whole) + (held % _NANO > 0)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __repr__(self) -> str:
        return f"Quantity({self}, {self.format.value})"

    def __str__(self) -> str:
        if self._text:
            return self._text
        if not self.nanos:
            return "0"
        whole, rest = divmod(self.nanos, _NANO)
        # Kubernetes avoids rounding, and hopes to avoid confusion, by writing small and broken ones as decimals.
        if self.format is Format.BINARY_SI and not rest and not -1024 < whole < 1024:
            exponent = 0
            # Go can't turn the sign of the least int64, and so finds nothing to divide.
            while whole != -_MAX - 1 and whole % 1024 == 0 and exponent < max(_BINARY_SUFFIX):
                whole //= 1024
                exponent += 10
            return f"{whole}{_BINARY_SUFFIX[exponent]}"
        mantissa, zeros = _without_zeros(self.nanos)
        exponent = zeros - 9
        shift = exponent % 3
        mantissa, exponent = mantissa * 10**shift, exponent - shift
        if self.format is not Format.DECIMAL_EXPONENT:
            # Beyond the last suffix, Kubernetes writes none at all.
            return f"{mantissa}{_DECIMAL_SUFFIX.get(exponent, '')}"
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)


def _without_zeros(number: int) -> tuple[int, int]:
    """A number, not 0, without the zeros at its end, and how many there were: an exponent may have made a thousand."""
    zeros = 0
    for count, power in _POWERS:
        shorter, rest = divmod(number, power)
        if not rest:
            number, zeros = shorter, zeros + count
    return number, zeros


def int64(value: int) -> int:
    """A number as Go's int64 holds it: what does not fit wraps around."""
    return (value + 2**63) % 2**64 - 2**63


class Computed(str):
    """The text of a quantity that KubeVirt has computed and not sent yet, in a format that is lost when it is read.

    1025Mi less 58 percent is 451412000 in BinarySI and is sent so; the reader takes that for DecimalSI: 451412k.
    """

    __slots__ = ()


# The same few amounts everywhere; what is too long to be one raises, and so isn't kept.
@lru_cache(maxsize=1024)
def parse(text: str) -> Quantity:
    """The quantity that a text stands for; an `InputError` where it is none, or absurdly long.

    Kubernetes keeps a text that it takes for canonical at a glance, so that ``+4Gi`` and ``03Gi`` stay; so does this.
    """
    match = _TEXT.fullmatch(text) if 0 < len(text) <= _MAX_LENGTH else None
    if match is None:
        raise InputError("is not a valid quantity; use for example 4Gi, 1500m or 2e9")
    sign, number, fraction, suffix = match[1], match[2] or "0", match[3] or "", match[4]
    base, exponent, format_ = _suffix(suffix)
    digits = int(number + fraction)
    # Apimachinery holds few digits, nothing finer than nano, as an int64 of a power of ten, and keeps the text of what
    # looks canonical at a glance.
    scale: int | None
    if base == 2:
        nanos, rest = divmod(digits * 2**exponent * _NANO, 10 ** len(fraction))
        scale, kept = 0, digits % 8 != 0
        is_held = not fraction and 14 - len(number) - exponent * 3 // 10 >= 0
    else:
        scale = exponent - len(fraction)
        nanos, rest = (digits * 10 ** (scale + 9), 0) if scale >= -9 else divmod(digits, 10 ** -(scale + 9))
        is_held = len(number + fraction) <= 18 and scale >= -9
        kept = scale % 3 == 0 and not (number + fraction).endswith("000") and number[0] != "0"
    # If you want some resources, you should get some: what is too fine is rounded up.
    nanos += rest > 0
    if not is_held:
        scale, kept = None, False
        if not any(character.isdigit() for character in text[: match.start(4)]):
            raise InputError("is not a valid quantity: it must start with a digit")
        if format_ is Format.BINARY_SI and nanos > _MAX * _NANO:
            nanos, scale = _MAX * _NANO, 0
        elif format_ is Format.BINARY_SI and 0 < nanos < _NANO:
            format_ = Format.DECIMAL_SI
    return Quantity(-nanos if sign == "-" else nanos, format_, text if kept else "", scale)


def _suffix(suffix: str) -> tuple[int, int, Format]:
    if suffix in _BINARY:
        return 2, _BINARY[suffix], Format.BINARY_SI
    if suffix in _DECIMAL:
        return 10, _DECIMAL[suffix], Format.DECIMAL_SI
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise InputError(f"is not a valid quantity: unknown suffix {suffix}")
    exponent = int(match[1])
    if abs(exponent) > _MAX_EXPONENT:
        raise InputError("is not a valid quantity: the exponent is too large")
    return 10, exponent, Format.DECIMAL_EXPONENT


def canonical(value: Any) -> str:
    """A quantity in JSON, a string or a number, as Kubernetes writes it; an `InputError` where it is none."""
    if not isinstance(value, str) and (type(value) not in (int, float) or not abs(value) < 10**_MAX_LENGTH):
        raise InputError("is not a valid quantity; use for example 4Gi, 1500m or 2e9")
    return _canonical(text(value))


def text(value: str | float) -> str:
    """The text that stands for a quantity in JSON, a string or a number."""
    return value.strip() if isinstance(value, str) else repr(value)


# An object passes several stages, and reads its quantities in each.
@lru_cache(maxsize=8192)
def _canonical(text: str) -> str:
    return str(parse(text))


def _float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def overcommit(guest: Quantity, percent: int) -> Quantity:
    """The memory to request for a guest whose memory is overcommitted by a percentage, in the guest's format.

    KubeVirt computes it in float32 and rounds each step (pkg/instancetype/apply/memory.go); the result here is equal to
    the byte. The percentage is the share that is not requested, 0 to 100.
    """
    share = _float32(1 - _float32(_float32(percent) / 100))
    request = int(_float32(_float32(guest.value) * share))
    # What doesn't fit becomes the least int64 there, on amd64.
    return Quantity.of(request if int64(request) == request else -_MAX - 1, guest.format)


# What a resource list holds in an object, by the resource's name (core/v1 ResourceList).
ResourceList: TypeAlias = dict[str, str | int | float | None]
# Billionths by the resource's name: amounts are added first and rounded then.
Nanos: TypeAlias = dict[str, int]


def nanos(value: str | float) -> int | None:
    """A quantity in JSON in billionths; None: it is not a quantity."""
    try:
        return parse(text(value)).nanos
    except InputError:
        return None


def read_resource_list(listed: ResourceList) -> Nanos:
    """A resource list in billionths, without what is not a quantity."""
    if not listed:
        return {}
    amounts = {name: nanos(value) for name, value in listed.items() if value is not None}
    return {name: value for name, value in amounts.items() if value is not None}
