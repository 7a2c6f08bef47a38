"""Drains and the descheduler beside a real KubeVirt: which evictions reach virt-api, and which VMs it marks."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.e2e.support.foreign_webhook import DESCHEDULER
from tests.e2e.support.kube import KubeError, eventually
from tests.e2e.support.messages import parse
from tests.e2e.support.objects import is_unschedulable
from tests.e2e.support.webhook_server import TIMEOUT_SECONDS, WebhookServer
from tests.e2e.support.workloads import VMIS, VMS
from webhook.cli.explain import from_cluster
from webhook.forecast.drain import plan

from .control_plane import ZONES
from .place import HOSTNAME, IN_A, Place, attachments, cordoned, evict_all, hotplugged, vm_run_once

pytestmark = pytest.mark.kubevirt


def test_a_drain_goes_on_while_we_are_a_black_hole(place: Place, server: WebhookServer) -> None:
    place.vm(template=IN_A)
    first = place.running()["status"]["nodeName"]
    server.freeze()
    try:
        began = time.monotonic()
        rejection = place.evict(place.launcher())
        lasted = time.monotonic() - began

        assert "Eviction triggered evacuation" in rejection.message
        assert lasted < TIMEOUT_SECONDS, "we were asked, and waited for"
        eventually(lambda: place.get(VMIS)["status"]["nodeName"] != first, what="the VM to leave its node")
    finally:
        server.thaw()


def test_the_descheduler_is_told_of_a_vm_that_kubevirt_can_never_migrate(place: Place) -> None:
    name = "w" * 64
    place.vm(name)
    place.running(name)

    denial = place.evict(place.launcher(name), DESCHEDULER)
    with pytest.raises(KubeError, match=r"metadata\.labels: Invalid value"):
        place.migrate(name)

    assert parse(denial.message).code == "name-too-long"
    assert "64 characters" in denial.message
    assert "evacuationNodeName" not in place.get(VMIS, name)["status"]


DRAINED, *OTHERS = sorted(ZONES)


def test_the_pod_that_attaches_hotplugged_volumes_decides(apart: Place) -> None:
    """It is no blocker, its eviction is denied, and a node that cannot have it cannot have the VM."""
    place = apart
    eventually(place.real.is_empty, what="the VMs of other tests to end")
    near = {**hotplugged(place, "near", "zone", "a"), "nodeSelector": {"zone": "a"}}
    with cordoned(place, OTHERS):
        for name, spec in (("near", near), ("here", hotplugged(place, "here", HOSTNAME, DRAINED))):
            place.make(vm_run_once(name, {"spec": spec}))
            place.running(name)
        eventually(lambda: len(attachments(place, DRAINED)) == 2, what="the volumes to be attached")
    (step,) = plan(asyncio.run(from_cluster(place.kubeconfig())), [DRAINED]).steps

    assert {vm.name: (vm.code, vm.to) for vm in step.vms} == {
        "near": ("migrates", "node-2"),
        "here": ("no-attachment", ""),
    }
    assert (step.other_pods, step.blocked_pods) == (0, ())
    with cordoned(place, [DRAINED]):
        for pod in attachments(place, DRAINED):
            assert "cannot evict hotplug pod" in place.evict(pod).message
        evict_all(place, [DRAINED])
        eventually(lambda: place.get(VMIS, "near")["status"]["nodeName"] == "node-2", what="the one to move")
        assert len(attachments(place, "node-2")) == 1
        eventually(
            lambda: any(map(is_unschedulable, attachments(place, ""))), what="no node to attach the other volume"
        )
        assert place.get(VMIS, "here")["status"]["nodeName"] == DRAINED
    for name in ("near", "here"):
        place.admin.delete(VMS, name, place.namespace)
        place.admin.delete("v1/persistentvolumes", f"{place.namespace}-{name}")
