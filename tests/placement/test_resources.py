from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.placement.samples import untimed
from webhook.k8s.quantity import nanos, parse
from webhook.placement.nodes import (
    format_offer,
    format_request,
    is_counted_resource,
    is_extended_resource,
    parse_allocatable,
    to_scheduler_units,
)

SUFFIXES = {"": Fraction(1), "m": Fraction(1, 1000), "k": Fraction(1000), "Ki": Fraction(1024), "Gi": Fraction(2**30)}


@pytest.mark.parametrize(
    ("resource", "value", "amount"),
    [
        ("cpu", "1500m", 1500),
        ("cpu", 2, 2000),
        ("cpu", "100u", 1),
        ("memory", "2299Mi", 2299 * 2**20),
        ("memory", "100m", 1),
        ("memory", 1.5, 2),
        ("hugepages-2Mi", "1Gi", 2**30),
        ("example.com/foo", "1k", 1000),
        ("example.com/foo", "0", 0),
        ("ephemeral-storage", "50M", 50_000_000),
    ],
)
def test_amounts_are_counted_as_the_scheduler_counts_them(resource: str, value: Any, amount: int) -> None:
    known = nanos(value)
    assert known is not None
    assert to_scheduler_units(resource, known) == amount
    assert parse_allocatable({resource: value}) == {resource: amount}


@untimed
@given(
    number=st.decimals(min_value=0, max_value=10**6, places=3),
    suffix=st.sampled_from(sorted(SUFFIXES)),
    resource=st.sampled_from(["cpu", "memory", "hugepages-1Gi", "example.com/foo"]),
)
def test_fractions_of_a_unit_are_rounded_up(number: Any, suffix: str, resource: str) -> None:
    exact = Fraction(number) * SUFFIXES[suffix] * (1000 if resource == "cpu" else 1)

    assert parse_allocatable({resource: f"{number}{suffix}"}) == {resource: ceil(exact)}


@untimed
@given(
    asked=st.integers(0, 2**62),
    short=st.integers(1, 2**32),
    resource=st.sampled_from(["cpu", "memory", "hugepages-1Gi", "example.com/foo"]),
)
def test_less_than_is_requested_shows_as_less(asked: int, short: int, resource: str) -> None:
    has = max(0, asked - short)
    shown_asked, shown_has = parse(format_request(resource, asked)), parse(format_offer(resource, has))

    assert to_scheduler_units(resource, shown_has.nanos) <= has
    assert to_scheduler_units(resource, shown_asked.nanos) >= asked
    assert shown_has < shown_asked or not asked


def test_amounts_are_written_as_kubernetes_writes_them() -> None:
    assert format_request("cpu", 1500) == "1500m"
    assert format_offer("cpu", 16000) == "16"
    assert format_request("memory", 2299 * 2**20) == format_offer("memory", 2299 * 2**20) == "2299Mi"
    assert format_request("memory", 2299 * 2**20 + 1) == "2300Mi"
    assert format_offer("ephemeral-storage", 2299 * 2**20 + 1) == "2299Mi"
    assert format_request("memory", 1000) == "1k"
    assert format_request("hugepages-2Mi", 2**30) == "1Gi"
    assert format_request("example.com/foo", 4) == "4"


@pytest.mark.parametrize(
    ("resource", "known"),
    [
        ("cpu", True),
        ("memory", True),
        ("ephemeral-storage", True),
        ("hugepages-2Mi", True),
        ("attachable-volumes-csi", True),
        ("example.com/foo", True),
        ("kubernetes.io/foo", True),
        ("foo", False),
        ("requests.example.com/foo", False),
    ],
)
def test_what_the_scheduler_compares(resource: str, known: bool) -> None:
    assert is_counted_resource(resource) is known
    assert (resource in parse_allocatable({resource: "1"})) is known


def test_what_a_device_plugin_provides() -> None:
    assert is_extended_resource("example.com/foo")
    assert not any(map(is_extended_resource, ("cpu", "hugepages-2Mi", "kubernetes.io/foo")))


def test_what_is_not_a_quantity_is_never_a_reason_against_a_node() -> None:
    assert nanos("much") is None
    assert parse_allocatable({"example.com/foo": "much", "memory": None}) == {"example.com/foo": 2**63 - 1}
