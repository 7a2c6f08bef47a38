"""A VM's cost at admission beside a real virt-api: requests are counted; times are measured by `bench.creation`."""

from __future__ import annotations

import pytest

from tests.e2e.support.audited import AuditLog
from tests.e2e.support.kube import eventually
from tests.e2e.support.workloads import VMS

from .cost import VERIFY, create, median, verb_of
from .place import Place

pytestmark = pytest.mark.kubevirt


def test_no_vm_costs_a_look_up_of_what_it_names(place: Place, audit_log: AuditLog) -> None:
    def warm() -> bool:
        return not create(place, audit_log, 1, "warm").look_ups or _removed(place)

    eventually(warm, what="the first look-ups to begin the watches")

    cost = create(place, audit_log, 30, "counted")

    assert cost.look_ups == {}
    names = [f"counted-{number}" for number in range(30)]
    assert all(place.matchers(place.get(VMS, name)) == [{"name": "u1.small"}, {"name": "fedora"}] for name in names)
    # The API server calls three entries of kubevirt-webhook for each VM.
    ours = {name: calls for name, calls in cost.calls.items() if "kubevirt-webhook" in name}
    assert [*ours.values()] == [30] * 3


def _removed(place: Place) -> bool:
    place.admin.delete(VMS, "warm-0", place.namespace)
    return False


def test_a_median_lies_where_half_of_the_calls_end() -> None:
    assert median({0.005: 0, 0.025: 10, float("inf"): 10}) == pytest.approx(0.015)
    assert median({0.005: 0, float("inf"): 10}) == 0.005


def test_a_verification_of_a_store_is_no_look_up() -> None:
    path = "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes"
    query = "fieldSelector=metadata.name%3Dkubevirt-webhook&resourceVersion=7&resourceVersionMatch="

    assert verb_of({"verb": "list", "requestURI": f"{path}?{query}Exact"}) == VERIFY
    assert verb_of({"verb": "list", "requestURI": f"{path}?{query}NotOlderThan"}) == "list"
    assert verb_of({"verb": "get", "requestURI": f"{path}/u1.small"}) == "get"
