"""Drains and the descheduler beside a real KubeVirt: which evictions reach virt-api, and which VMs it marks."""

from __future__ import annotations

import time

import pytest

from tests.e2e.support.kube import KubeError, eventually
from tests.e2e.support.messages import parse
from tests.e2e.support.webhook_server import TIMEOUT_SECONDS, WebhookServer
from tests.e2e.support.workloads import VMIS

from .place import IN_A, Place

pytestmark = pytest.mark.kubevirt

DESCHEDULER = {"requested-by": "sigs.k8s.io/descheduler"}


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


def test_the_descheduler_is_told_when_a_vm_has_nowhere_to_go(place: Place) -> None:
    place.vm(template={**IN_A, "nodeSelector": {"kubernetes.io/hostname": "node-1"}})
    place.running()

    vetoed = place.evict(place.launcher(), DESCHEDULER)
    assert vetoed.status == 429
    assert parse(vetoed.message).code == "no-eligible-node"
    assert "evacuationNodeName" not in place.get(VMIS)["status"]

    drained = place.evict(place.launcher())
    assert "Eviction triggered evacuation" in drained.message


def test_the_descheduler_is_told_of_a_vm_that_kubevirt_can_never_migrate(place: Place) -> None:
    name = "w" * 64
    place.vm(name)
    place.running(name)

    vetoed = place.evict(place.launcher(name), DESCHEDULER)
    with pytest.raises(KubeError, match=r"metadata\.labels: Invalid value"):
        place.migrate(name)

    assert parse(vetoed.message).code == "name-too-long"
    assert "64 characters" in vetoed.message
    assert "evacuationNodeName" not in place.get(VMIS, name)["status"]
