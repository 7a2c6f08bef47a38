from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kubevirt.vm.size import size_field


@pytest.mark.parametrize(
    ("domain", "field"),
    [
        ({"cpu": {"sockets": 1}}, "cpu.sockets"),
        ({"cpu": {"cores": 1}}, "cpu.cores"),
        ({"cpu": {"threads": 1}}, "cpu.threads"),
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


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda part: st.one_of(
        st.lists(part, max_size=2),
        st.dictionaries(st.sampled_from(["cpu", "memory", "resources", "requests", "guest"]), part, max_size=3),
    ),
)


@given(ANYTHING)
def test_any_json_has_a_size_or_none(domain: Any) -> None:
    assert size_field(domain) is None or "." in str(size_field(domain))
