"""The sizes policy beside a real KubeVirt: what an owner may not write, and that KubeVirt's own writing never fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.support.kube import Json, KubeObject, denial, denied, eventually
from tests.e2e.support.objects import has_condition, obj
from tests.e2e.support.webhook_server import DOMAIN, WebhookServer
from tests.e2e.support.workloads import VMIS, VMS

from .conftest import NewPlace
from .control_plane import POOL, REPLICA_SETS, RunningKubeVirt
from .owners import restore, take_snapshot
from .place import Place, make_place

pytestmark = pytest.mark.kubevirt

LIMITS = {"cpu": {"max": 2}, "memory": {"max": "2Gi", "step": "256Mi"}}
LIMITED = {f"{DOMAIN}/size-limits": json.dumps(LIMITS)}
REQUIRED = {f"{DOMAIN}/require-instancetype": "true"}


def sized(sockets: int, memory: str) -> Json:
    return {"domain": {"devices": {}, "cpu": {"sockets": sockets}, "memory": {"guest": memory}}}


SMALL, LARGE = sized(1, "1Gi"), sized(4, "4Gi")


def limit(place: Place, annotations: dict[str, str]) -> None:
    """Of a namespace that has VMs already; returns once the webhook knows it."""
    place.admin.patch("v1/namespaces", place.namespace, {"metadata": {"annotations": annotations}})
    eventually(lambda: denial(lambda: place.make(vm_of("probe", LARGE), dryRun="All")), what="the limits to count")


def vm_of(name: str, template: Json, run: str = "Always") -> Json:
    return obj("VirtualMachine", name, spec={"runStrategy": run, "template": {"spec": template}})


def grow(place: Place, sockets: int, memory: str, name: str = "web") -> KubeObject:
    domain = {"cpu": {"sockets": sockets}, "memory": {"guest": memory}}
    return place.patch(VMS, name, {"spec": {"template": {"spec": {"domain": domain}}}})


def test_inline_sizes_have_limits_and_those_of_instancetypes_have_none(new_place: NewPlace) -> None:
    place = new_place(LIMITED)
    assert "[size-out-of-limits]" in denied(lambda: place.make(vm_of("large", LARGE))).message
    place.make(vm_of("small", SMALL))
    # 4 vCPUs and 16Gi.
    place.vm("named", instancetype={"name": "u1.xlarge"})

    assert place.running("small")["spec"]["domain"]["cpu"]["sockets"] == 1
    assert place.running("named")["spec"]["domain"]["memory"]["guest"] == "16Gi"


def test_where_an_instancetype_is_required_a_default_is_one(new_place: NewPlace) -> None:
    place = new_place(REQUIRED | {f"{DOMAIN}/default-instancetype": "u1.small"})
    assert "[instancetype-required]" in denied(lambda: place.make(vm_of("small", SMALL))).message
    place.vm("defaulted")
    place.vm("named", instancetype={"name": "u1.medium"})
    for name in ("defaulted", "named"):
        place.running(name)


def test_a_warning_denies_nothing(real: RunningKubeVirt, server: WebhookServer) -> None:
    place = make_place(real, server.labels("warn", [f"{DOMAIN}/sizes"]), LIMITED)
    made = place.make(vm_of("web", LARGE))
    (warning,) = made.warnings
    assert "size-out-of-limits" in warning
    place.running()


def test_an_older_vm_is_started_stopped_moved_and_changed_as_before(new_place: NewPlace) -> None:
    place = new_place({})
    place.make(vm_of("web", LARGE))
    first = place.running()["metadata"]["uid"]
    limit(place, LIMITED)

    # By KubeVirt: its status, the firmware's UUID, a migration, the next start.
    assert place.ended(place.migrate()) == "Succeeded"
    assert place.real.call(place.namespace, "web", "restart") == ""
    is_new = lambda vmi: vmi["metadata"]["uid"] != first and vmi["status"].get("phase") == "Running"
    place.admin.wait(VMIS, "web", place.namespace, until=is_new, what="the VM to start again")
    assert place.real.call(place.namespace, "web", "stop") == ""
    eventually(lambda: not place.admin.list(VMIS, place.namespace), what="the VM to stop")
    assert place.real.call(place.namespace, "web", "start") == ""
    place.running()
    eventually(lambda: place.get(VMS)["status"].get("ready"), what="its status to be written")

    # By its owner: all but a size that is as wrong.
    place.patch(VMS, "web", {"metadata": {"labels": {"a": "b"}}})
    place.patch(VMS, "web", {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 9}}}})
    assert "[size-out-of-limits]" in denied(lambda: grow(place, 3, "4Gi")).message
    grow(place, 2, "2Gi")
    place.admin.delete(VMS, "web", place.namespace)
    eventually(lambda: not place.admin.list(VMS, place.namespace), what="KubeVirt to take its finalizer away")


def test_what_is_plugged_in_is_limited_too(new_place: NewPlace) -> None:
    place = new_place(LIMITED)
    place.make(vm_of("web", SMALL))
    place.running()
    assert "[size-out-of-limits]" in denied(lambda: grow(place, 3, "1Gi")).message
    assert "[size-out-of-limits]" in denied(lambda: grow(place, 1, "1100Mi")).message

    grow(place, 2, "2Gi")

    def plugged() -> bool:
        domain = place.get(VMIS)["spec"]["domain"]
        return (domain["cpu"]["sockets"], domain["memory"]["guest"]) == (2, "2Gi")

    eventually(plugged, what="virt-controller to plug CPU and memory in")
    assert not has_condition(place.get(VMS), "RestartRequired")


@pytest.fixture
def expanding(real: RunningKubeVirt) -> Iterator[None]:
    """KubeVirt writes out what instancetypes say."""
    real.configure(instancetype={"referencePolicy": "expand"})
    yield
    real.configure(instancetype=None)


@pytest.mark.usefixtures("expanding")
@pytest.mark.parametrize("annotations", [LIMITED, REQUIRED], ids=["limited", "required"])
def test_what_kubevirt_expands_is_nobodys_inline_size(new_place: NewPlace, annotations: dict[str, str]) -> None:
    place = new_place(annotations)
    place.vm("named", instancetype={"name": "u1.xlarge"})
    assert place.running("named")["spec"]["domain"]["memory"]["guest"] == "16Gi"

    def expanded() -> bool:
        vm = place.get(VMS, "named")
        return "instancetype" not in vm["spec"] and bool(vm["spec"]["template"]["spec"]["domain"].get("memory"))

    eventually(expanded, what="virt-controller to expand the VM")
    place.patch(VMS, "named", {"metadata": {"labels": {"a": "b"}}})
    eventually(lambda: place.get(VMS, "named")["status"].get("ready"), what="its status to be written")


def test_vmis_without_a_vm_and_those_of_a_replica_set_are_limited(new_place: NewPlace) -> None:
    place = new_place(LIMITED)
    alone = obj("VirtualMachineInstance", "alone", spec=LARGE)
    assert "[size-out-of-limits]" in denied(lambda: place.make(alone)).message
    place.make(obj("VirtualMachineInstance", "small", spec=SMALL))
    place.running("small")
    template = {"metadata": {"labels": {"app": "web"}}, "spec": LARGE}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    place.make(obj("VirtualMachineInstanceReplicaSet", "web", spec=spec))

    def failure() -> str | None:
        conditions = place.get(REPLICA_SETS).get("status", {}).get("conditions", [])
        return next((each["message"] for each in conditions if each["type"] == "ReplicaFailure"), None)

    assert "size-out-of-limits" in eventually(failure, what="the ReplicaSet to say why it has no VMI")


def events(place: Place) -> list[str]:
    return [each.get("message", "") for each in place.admin.list("v1/events", place.namespace)]


def test_a_pools_template_is_limited_and_its_events_say_so(new_place: NewPlace) -> None:
    place = new_place(LIMITED)
    machine = {"metadata": {"labels": {"app": "web"}}, "spec": vm_of("", LARGE)["spec"]}
    spec: Any = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "virtualMachineTemplate": machine}
    place.make(obj(POOL, "web", place.real.pools.rpartition("/")[0], spec=spec))
    eventually(lambda: any("size-out-of-limits" in each for each in events(place)), what="the pool's events to say why")
    assert not place.admin.list(VMS, place.namespace)

    change: Any = {"spec": {"virtualMachineTemplate": {"spec": {"template": {"spec": SMALL}}}}}
    place.patch(place.real.pools, "web", change)
    place.running("web-0")


def test_a_snapshot_of_an_older_size_is_restored_and_a_clone_of_it_is_not(new_place: NewPlace) -> None:
    place = new_place({})
    place.make(vm_of("web", LARGE, run="Halted"))
    take_snapshot(place)
    grow(place, 1, "1Gi")
    limit(place, LIMITED)

    restore(place)

    assert place.get(VMS)["spec"]["template"]["spec"]["domain"]["memory"]["guest"] == "4Gi"
    vm = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine"}
    place.make(
        obj("VirtualMachineClone", "copy", spec={"source": {**vm, "name": "web"}, "target": {**vm, "name": "copy"}})
    )
    eventually(
        lambda: any("size-out-of-limits" in each for each in events(place)), what="the clone's events to say why"
    )
    assert [each["metadata"]["name"] for each in place.admin.list(VMS, place.namespace)] == ["web"]
