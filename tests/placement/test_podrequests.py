from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.placement.samples import untimed
from webhook.k8s.quantity import Nanos, read_resource_list
from webhook.k8s.types.core import Container
from webhook.placement.demand import is_sidecar, sum_requests
from webhook.placement.nodes import convert_to_view as view

GI, CPU = 2**30 * 10**9, 10**9


def container(always: bool = False, **requests: str) -> Container:
    json: dict[str, Any] = {"resources": {"requests": requests}} | ({"restartPolicy": "Always"} if always else {})
    return view(Container, json, "container")


@pytest.mark.parametrize(
    ("containers", "init", "expected"),
    [
        ([{"cpu": CPU}, {"cpu": 2 * CPU, "a/b": 1}], [], {"cpu": 3 * CPU, "a/b": 1}),
        # An init container runs alone.
        ([{"cpu": CPU}], [({"cpu": 3 * CPU}, False)], {"cpu": 3 * CPU}),
        ([{"cpu": 4 * CPU}], [({"cpu": 3 * CPU}, False)], {"cpu": 4 * CPU}),
        # A sidecar runs beside all that come after it.
        ([{"cpu": CPU}], [({"cpu": 2 * CPU}, True), ({"cpu": 3 * CPU}, False)], {"cpu": 5 * CPU}),
        ([{"cpu": CPU}], [({"cpu": 3 * CPU}, False), ({"cpu": 2 * CPU}, True)], {"cpu": 3 * CPU}),
        ([], [], {}),
    ],
)
def test_what_runs_together(containers: list[Nanos], init: list[tuple[Nanos, bool]], expected: Nanos) -> None:
    assert sum_requests(containers, init) == expected


def upstream(containers: list[Nanos], init: list[tuple[Nanos, bool]]) -> Nanos:
    """AggregateContainerRequests, line by line."""
    requests: Nanos = {}
    sidecars: Nanos = {}
    most: Nanos = {}

    def add(to: Nanos, more: Nanos) -> None:
        for name, value in more.items():
            to[name] = to.get(name, 0) + value

    def keep_greater(to: Nanos, other: Nanos) -> None:
        for name, value in other.items():
            to[name] = max(to.get(name, value), value)

    for each in containers:
        add(requests, each)
    for each, always in init:
        if always:
            add(requests, each)
            add(sidecars, each)
            needs = sidecars
        else:
            needs = {}
            add(needs, each)
            add(needs, sidecars)
        keep_greater(most, needs)
    keep_greater(requests, most)
    return requests


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "a/b"]), st.integers(0, 9), max_size=3)


@untimed
@given(containers=st.lists(amounts, max_size=4), init=st.lists(st.tuples(amounts, st.booleans()), max_size=5))
def test_sums_are_kubernetes_own(containers: list[Nanos], init: list[tuple[Nanos, bool]]) -> None:
    assert sum_requests(containers, init) == upstream(containers, init)


def test_the_pod_level_replaces_what_it_may() -> None:
    found = sum_requests([{"cpu": CPU, "a/b": 10**9}], pod_level={"cpu": "3", "hugepages-2Mi": "1Gi", "a/b": "7"})

    assert found == {"cpu": 3 * CPU, "hugepages-2Mi": GI, "a/b": 10**9}


def test_the_overhead_of_a_runtime_class_is_added() -> None:
    assert sum_requests([{"memory": GI}], overhead={"memory": "1Gi", "cpu": "1"}) == {"memory": 2 * GI, "cpu": CPU}


def test_containers() -> None:
    assert container(cpu="1").requests == {"cpu": CPU}
    assert Container().requests == {}
    assert is_sidecar(container(always=True))
    assert not is_sidecar(container())
    assert read_resource_list({"cpu": "lots", "memory": None, "a/b": 1}) == {"a/b": 10**9}


def test_thousands_of_containers_and_resources_take_steps_by_their_number() -> None:
    steps = 0

    class CountingAmounts(dict[str, int]):
        def items(self) -> Any:
            nonlocal steps
            steps += len(self)
            return super().items()

    init = [(CountingAmounts({f"example.com/r{number}": 1}), True) for number in range(3000)]

    assert len(sum_requests([], init)) == 3000
    assert steps == 3000
