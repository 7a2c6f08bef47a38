from __future__ import annotations

import msgspec
import pytest

from webhook.k8s.resources import NAMESPACES
from webhook.k8s.types.core import PendingPod, SchedulingPod
from webhook.kubevirt.resources import INSTANCETYPES, VMIS
from webhook.kubevirt.types.views import VirtualMachine, VirtualMachineInstance


@pytest.mark.parametrize("body", [b"{}", b'{"metadata": null, "spec": null}', b'{"spec": {"schedulerName": null}}'])
def test_everything_may_be_absent_or_null(body: bytes) -> None:
    for view in (SchedulingPod, VirtualMachine, VirtualMachineInstance, PendingPod):
        decoded = msgspec.json.decode(body, type=view)
        assert decoded.meta.label("a") is None
        assert decoded.meta.annotation("a") is None
        assert decoded.meta.controller_owner() is None


def test_scheduler_of_a_vm_without_template() -> None:
    assert (VirtualMachine().scheduler_name, VirtualMachineInstance().scheduler_name) == ("", "")


@pytest.mark.parametrize(
    ("conditions", "looked_at"),
    [(b"null", False), (b"[]", False), (b'[{"type": "Ready"}]', False), (b'[{"type": "PodScheduled"}]', True)],
)
def test_pod_that_a_scheduler_has_looked_at(conditions: bytes, looked_at: bool) -> None:
    pod = msgspec.json.decode(b'{"status": {"conditions": ' + conditions + b"}}", type=PendingPod)
    assert pod.has_scheduled_condition is looked_at
    assert PendingPod().has_scheduled_condition is False


def test_paths() -> None:
    assert NAMESPACES.path(name="demo") == "/api/v1/namespaces/demo"
    assert VMIS.path("demo", "a") == "/apis/kubevirt.io/v1/namespaces/demo/virtualmachineinstances/a"
    assert INSTANCETYPES.path() == "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineinstancetypes"
    assert (INSTANCETYPES.api_version, NAMESPACES.api_version) == ("instancetype.kubevirt.io/v1beta1", "v1")
