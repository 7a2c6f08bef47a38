"""The policy does not inject defaults that KubeVirt would deny, whatever the VM sets."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json
from tests.kubevirt import plain
from tests.lookups import among
from tests.policies.instancetypes.world import (
    applied,
    decide,
    facts,
    instancetype,
    preference,
    vm,
)

_NAMES = st.sampled_from(["u1.small", "u1.large", "odd"])
_ITS = [
    instancetype(),
    instancetype("u1.large", nodeSelector={"zone": "a"}, gpus=[{"name": "g", "deviceName": "nvidia.com/x"}]),
    instancetype(
        "odd", cpu={"guest": 3, "dedicatedCPUPlacement": True}, memory={"guest": "1Gi", "overcommitPercent": 15}
    ),
]
_PREFS = [
    preference(),
    preference("big", requirements={"cpu": {"guest": 3}, "memory": {"guest": "2Gi"}}),
    preference("spread", cpu={"preferredCPUTopology": "spread"}),
    preference("crash", cpu={"preferredCPUFeatures": [{"name": "vmx"}]}),
    preference("arm", requirements={"architecture": "arm64"}, preferredArchitecture="arm64"),
]
_DOMAINS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.fixed_dictionaries({}, optional={"dedicatedCpuPlacement": st.booleans(), "cores": st.integers(0, 2)}),
        "memory": st.fixed_dictionaries({}, optional={"guest": st.just("1Gi"), "maxGuest": st.just("8Gi")}),
        "ioThreadsPolicy": st.just("auto"),
    },
)


@given(
    domain=_DOMAINS,
    template=st.fixed_dictionaries(
        {}, optional={"nodeSelector": st.just({"zone": "b"}), "architecture": st.just("amd64")}
    ),
    own=st.sampled_from([None, {"name": "odd"}]),
    default=_NAMES,
    preferred=st.sampled_from(["fedora", "big", "spread", "crash", "arm"]),
    scope=st.sampled_from(["unsized", "all"]),
)
def test_nothing_is_injected_that_kubevirt_would_refuse(
    domain: Json, template: Json, own: Json | None, default: str, preferred: str, scope: str
) -> None:
    obj = vm(domain, template=template, **({"instancetype": own} if own else {}))
    world = facts([*_ITS, *_PREFS])

    decision = decide(
        obj, world, default_instancetype=default, default_preference=preferred, default_preference_scope=scope
    )

    assert not decision.denial
    if decision.changes:
        get = among([*_ITS, *_PREFS])
        after = plain.mutate_vm(applied(obj, decision), get, lambda: "u").vm
        assert plain.validate_vm(after, get).is_allowed
        again = decide(applied(obj, decision), world, default_instancetype=default, default_preference=preferred)
        assert not again.changes
