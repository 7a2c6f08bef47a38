"""A VM's cost at admission beside a real virt-api: requests are counted; times are measured by `bench.creation`."""

from __future__ import annotations

import pytest

from tests.e2e.support.audited import AuditLog
from tests.e2e.support.kube import eventually
from tests.e2e.support.workloads import VMS

from .cost import create
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
