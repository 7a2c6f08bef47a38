from __future__ import annotations

from math import prod
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from webhook.k8s import quantity
from webhook.kubevirt.config import DEFAULTS
from webhook.kubevirt.defaults import size_defaults
from webhook.policies.sizes.size import Size, SizedDomain

COUNTS = st.sampled_from([None, 0, 1, 2, 3])
CPUS = st.sampled_from([None, "1", "1500m", "4"])
MEMORY = st.sampled_from([None, "1Gi", "1536Mi", "2G"])
PAIRS = st.fixed_dictionaries({"cpu": CPUS, "memory": MEMORY})


def present(value: Any) -> Any:
    """Without what is None."""
    if not isinstance(value, dict):
        return value
    return {key: present(part) for key, part in value.items() if part is not None}


@given(
    cpu=st.fixed_dictionaries({"sockets": COUNTS, "cores": COUNTS, "threads": COUNTS}),
    guest=MEMORY,
    page=st.sampled_from([None, "2Mi", "1Gi"]),
    requests=PAIRS,
    limits=PAIRS,
)
def test_it_is_what_kubevirts_defaults_make_of_the_domain(
    cpu: Any, guest: str | None, page: str | None, requests: Any, limits: Any
) -> None:
    memory = {"guest": guest, "hugepages": {"pageSize": page} if page else None}
    domain = present({"cpu": cpu, "memory": memory, "resources": {"requests": requests, "limits": limits}})
    size = Size.of(msgspec.convert(domain, SizedDomain))
    made = size_defaults({"domain": domain}, DEFAULTS)["domain"]
    expected = made["memory"].get("guest")
    if size is None:
        assert expected is None
        return
    assert size.vcpus == prod(made["cpu"].get(name) or 1 for name in ("sockets", "cores", "threads"))
    assert size.memory is None if expected is None else size.memory is not None
    if size.memory:
        assert size.memory.value == quantity.parse(expected)
