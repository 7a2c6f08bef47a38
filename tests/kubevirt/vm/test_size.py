from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kubevirt.vm.size import size_field, sizing_preset


@pytest.mark.parametrize(
    ("domain", "field"),
    [
        *(({"cpu": {part: 1}}, f"cpu.{part}") for part in ("sockets", "cores", "threads")),
        ({"cpu": {"model": "host-model"}}, "cpu.model"),
        ({"resources": {"requests": {"cpu": "0"}}}, "resources.requests.cpu"),
        ({"resources": {"limits": {"memory": 0}}}, "resources.limits.memory"),
        ({"memory": {"guest": "0"}}, "memory.guest"),
        ({"memory": {"hugepages": {}}}, "memory.hugepages"),
        ({"cpu": {"sockets": 0, "model": "", "features": [{"name": "x"}]}, "memory": {"maxGuest": "1Gi"}}, None),
        ({"resources": {"requests": {"devices/kvm": "1"}, "limits": None}}, None),
        (None, None),
    ],
)
def test_sizes(domain: Any, field: str | None) -> None:
    assert size_field(domain) == field


Json = dict[str, Any]
LARGE = {"matchLabels": {"size": "large"}}


def preset(selector: Any, **domain: Any) -> Json:
    return {"metadata": {"name": "p"}, "spec": {"selector": selector, "domain": domain or {"cpu": {"cores": 4}}}}


def expression(operator: str, *values: str, key: str = "size") -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": [*values]} if values else {})}]}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        (LARGE, True),
        ({"matchLabels": {"size": "large", "other": "yes"}}, False),
        ({}, True),
        (None, False),
        (expression("In", "small", "large"), True),
        (expression("NotIn", "large"), False),
        (expression("NotIn", "large", key="other"), True),
        (expression("Exists"), True),
        (expression("DoesNotExist", key="other"), True),
        ({**LARGE, **expression("DoesNotExist")}, False),
        (expression("Gt", "1"), False),
        (expression("NotIn"), False),
        (expression("Exists", "large"), False),
        ({"matchExpressions": ["odd"]}, False),
        ({"matchExpressions": [{"key": "size", "operator": "In", "values": "large"}]}, False),
        ({"matchExpressions": [{"operator": "Exists"}]}, False),
        ({"matchExpressions": [{"operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"operator": "NotIn", "values": ["x"]}]}, False),
        ({"matchExpressions": [None]}, False),
        ({"matchExpressions": 1}, False),
        (expression("DoesNotExist", key="a b"), False),
        (expression("NotIn", "x y!"), False),
        ({"matchLabels": {**LARGE["matchLabels"], "-bad-": "large"}}, False),
    ],
)
def test_selectors(selector: Any, matches: bool) -> None:
    found = sizing_preset([preset(selector)], {"labels": {"size": "large", "-bad-": "large"}})
    assert found == (("p", "cpu.cores") if matches else None)


@pytest.mark.parametrize(
    ("selector", "matches"),
    [(expression("Exists"), True), (expression("DoesNotExist"), False), ({"matchLabels": {"size": ""}}, True)],
)
def test_go_reads_a_label_that_is_null_as_the_empty_text(selector: Any, matches: bool) -> None:
    assert (sizing_preset([preset(selector)], {"labels": {"size": None}}) is not None) is matches


def test_the_first_one_that_says_a_size_counts() -> None:
    presets = [preset({}, machine={"type": "q35"}), preset(LARGE, memory={"guest": "1Gi"}), preset({})]
    assert sizing_preset(presets, {"labels": {"size": "large"}}) == ("p", "memory.guest")
    assert sizing_preset(presets[:1], {}) is None
    # A VMI that wants no presets gets none.
    metadata = {"annotations": {"virtualmachineinstancepresets.admission.kubevirt.io/exclude": "true"}}
    assert sizing_preset([preset({})], metadata) is None


def any_json(*keys: str) -> st.SearchStrategy[Any]:
    """Maps and lists of such keys, three of them in each other."""
    parts: st.SearchStrategy[Any] = st.sampled_from([None, True, 7, "large", "In", "size"])
    for _ in range(3):
        parts = parts | st.lists(parts, max_size=2) | st.dictionaries(st.sampled_from(keys), parts, max_size=2)
    return parts


SELECTOR = ("selector", "matchLabels", "matchExpressions", "key", "operator", "values")
SELECTORS = any_json("spec", *SELECTOR, "labels", "size")


@given(any_json("cpu", "memory", "resources", "requests", "guest"), st.lists(SELECTORS, max_size=3), SELECTORS)
def test_whatever_stands_there_is_an_answer(domain: Any, presets: list[Any], metadata: Any) -> None:
    assert size_field(domain) is None or "." in str(size_field(domain))
    assert sizing_preset(presets, metadata) is None
    assert sizing_preset([preset(found) for found in presets], metadata) in (None, ("p", "cpu.cores"))
