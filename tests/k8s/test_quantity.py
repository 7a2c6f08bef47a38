"""Quantities as Kubernetes reads and writes them, and durations as Go does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.errors import InputError
from webhook.k8s import quantity
from webhook.k8s.quantity import Format, Quantity, canonical, int64, overcommit, parse

# Each with what Kubernetes writes.
CANONICAL = """
1.5Gi 1536Mi  1024Mi 1Gi  8Gi 8Gi  0 0  0Gi 0  -0 0  00 0  512 512  0.5Ki 512  1000 1k  1500m 1500m  1.5 1500m
0.5 500m  2e9 2e9  2e10 20e9  2E9 2E9  1e0 1e0  10e-1 1  1.1Ki 1126400m  0.5n 1n  -0.5n -1n  0.001Ki 1024m
0.0001Ki 102400u  1000000 1M  1e21 1e21  8Ei 9223372036854775807  -1.5Gi -1536Mi
"""
ODD = """
0.9765625Ki 1k  # less than 1024 is written as a decimal
1000E 1  -20000E -20  # there is no suffix for 21 zeros, so Kubernetes writes the quantity without one
Ki 0  +. 0  # without a number it is one only where apimachinery takes its fast path
+4Gi +4Gi  03Gi 03Gi  1.500 1.500  +5 +5  # a quantity that looks canonical is kept
0.500 500m  08Gi 8Gi
"""
WRITTEN = re.sub("#.*", "", CANONICAL + ODD).split()


@pytest.mark.parametrize(("text", "written"), [*zip(WRITTEN[::2], WRITTEN[1::2], strict=True)])
def test_canonical_form(text: str, written: str) -> None:
    assert canonical(text) == written


@pytest.mark.parametrize("number", [(5, "5"), (1.5, "1500m"), (1073741824, "1073741824"), (-1, "-1"), (1e21, "1e+21")])
def test_numbers_become_strings(number: tuple[float, str]) -> None:
    assert canonical(number[0]) == number[1]


@pytest.mark.parametrize(
    "value",
    [
        *("", "x", "Pi", "e-10", "+.Pi", "1Xi", "1 Gi", "1e", "1KiB", "--1", "1e99999", "9" * 101),
        *(None, True, [], {}, float("nan"), 10**400),
    ],
)
def test_no_quantity(value: object) -> None:
    with pytest.raises(InputError, match="not a valid quantity"):
        canonical(value)


def test_comparison_is_by_value_and_numbers_wrap_around_like_gos() -> None:
    assert parse("1Gi") == parse("1024Mi")
    assert hash(parse("1Gi")) == hash(parse("1024Mi"))
    assert parse("1G") < parse("1Gi")
    assert parse("1Gi") != "1Gi"
    assert repr(parse("2e9")) == "Quantity(2e9, DecimalExponent)"
    assert not parse("0")
    assert (int64(2**63), int64(-1)) == (-(2**63), -1)
    assert str(Quantity.of(-(2**63), Format.BINARY_SI)) == "-9223372036854775808"


# Each as apimachinery's own Quantity.Value() has answered.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1500m", 2), ("-1500m", -2), ("1Ki", 1024)),
        # Too large for an int64: capped, wrapped around or given up, as it was held.
        *(("8Ei", 2**63 - 1), ("-8Ei", -(2**63) + 1), ("100E", 0), ("-77003007T", 0), ("+80e19", 0)),
        *(("99999999999G", 7766279630452241920), ("5054038297720779000E", 4167954237812113408)),
        # Too long for the fast path: a negative one is rounded up, or wraps around before it is divided.
        *(("-0045039000e-10", 1), ("-1049060201010030059091483", 5014762694), ("-128Ti", -7277816996)),
    ],
)
def test_value(text: str, value: int) -> None:
    assert parse(text).value == value


@pytest.mark.parametrize(
    ("guest", "percent", "request_"),
    [
        *(("1536Mi", 15, "1369020928"), ("2e9", 33, "1339999872"), ("4Gi", 100, "0"), ("7Gi", 42, "4257219Ki")),
        *(("2G", 50, "1G"), ("1Ki", 50, "512"), ("8E", 10**6, "-9223372036854775808")),
    ],
)
def test_overcommitment_in_float32(guest: str, percent: int, request_: str) -> None:
    assert str(overcommit(parse(guest), percent)) == request_


# No more than 999E: Kubernetes itself loses larger amounts.
texts = st.from_regex(r"[+-]?[0-9]{1,12}(\.[0-9]{1,6})?([KMGTP]i|[numkMG]|[eE][+-]?[0-9])?", fullmatch=True)


@given(texts)
def test_writing_keeps_the_value(text: str) -> None:
    once = canonical(text)
    assert parse(once) == parse(text)
    assert parse(canonical(once)) == parse(text)


@given(st.integers(-(2**33), 2**60), st.sampled_from(Format))
def test_canonical_rules(number: int, format_: Format) -> None:
    text = str(Quantity.of(number, format_))
    match = re.fullmatch(r"(-?[0-9]+)(?:e([0-9]+)|[KMGTPE]i|[kMGTPE])?", text)
    assert match is not None
    digits = match[1]
    assert (int(match[2] or 0) % 3, parse(text).value) == (0, number)
    if number and format_ is Format.BINARY_SI and abs(number) >= 1024:
        assert int(digits) % 1024
    elif number:
        assert not digits.endswith("000")


@given(st.text(max_size=20))
def test_any_text_is_a_quantity_or_a_sentence(text: str) -> None:
    try:
        canonical(text)
    except InputError as error:
        assert "quantity" in str(error)


@pytest.mark.control("absurd-sizes")
@given(st.integers(1, 10**100).map(lambda number: number if number % 10 else number + 1), st.integers(0, 1100))
def test_zeros_at_the_end_are_taken_off_at_once(number: int, zeros: int) -> None:
    assert quantity._without_zeros(number * 10**zeros) == (number, zeros)
    assert quantity._without_zeros(-number * 10**zeros) == (-number, zeros)
