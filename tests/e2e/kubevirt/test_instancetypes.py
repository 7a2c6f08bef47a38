"""Defaults, bare VMIs and denials beside a real KubeVirt, what KubeVirt makes of them afterwards, and what a VM costs.

Of random VMs, too: the webhook makes of a bare VMI what KubeVirt's controller makes of the same VM.
``KUBEVIRT_VMS=400 make kubevirt`` compares more of them; the number in a failing test's name makes it again.
"""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.e2e.support.audited import AuditLog
from tests.e2e.support.kube import Json, KubeError, KubeObject, denied, eventually
from tests.e2e.support.objects import CRDS, obj
from tests.e2e.support.webhook_server import DOMAIN
from tests.e2e.support.workloads import VMIS, VMS, preference
from webhook.kubevirt.definitions import NAMES, Definition, fields_of
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.vm import fidelity

from .conftest import NewPlace
from .control_plane import RunningKubeVirt
from .creation import create
from .owners import change_pool, pool, restore, take_snapshot
from .place import DEFAULTS, Place, annotations_left, differences

pytestmark = pytest.mark.kubevirt

EXPANDED = DEFAULTS | {f"{DOMAIN}/expand-instancetypes": "true"}
SMALL = {"name": "u1.small"}
FEDORA = {"name": "fedora"}


def test_a_vm_that_says_nothing_runs_with_its_defaults_on_its_scheduler(place: Place) -> None:
    place.vm()

    vmi = place.running()
    vm = place.get(VMS)

    eventually(lambda: place.get(VMS)["status"].get("ready"), what="the VM to be ready")
    assert place.matchers(vm) == [SMALL, FEDORA]
    assert vm["status"]["instancetypeRef"]["controllerRevisionRef"]["name"].startswith("web-u1.small-")
    assert vmi["spec"]["domain"]["memory"]["guest"] == "2Gi"
    assert place.launcher()["spec"]["schedulerName"] == "kubevirt"
    assert differences(place, "web") == []


def test_without_us_it_would_never_start(apart: Place) -> None:
    apart.vm()

    def failure() -> str | None:
        conditions = apart.get(VMS).get("status", {}).get("conditions", [])
        return next((one["message"] for one in conditions if one["type"] == "Failure"), None)

    assert "no memory requested" in eventually(failure, what="virt-controller to give up")


def test_a_replica_sets_vmis_are_filled(place: Place) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"domain": {"devices": {}}}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    place.make(obj("VirtualMachineInstanceReplicaSet", "web", spec=spec))

    def both() -> list[KubeObject]:
        found = [vmi for vmi in place.admin.list(VMIS, place.namespace) if vmi["status"].get("phase") == "Running"]
        return found if len(found) == 2 else []

    vmis = eventually(both, what="both replicas to run")
    guests = [vmi["spec"]["domain"]["memory"]["guest"] for vmi in vmis]
    assert guests == ["2Gi", "2Gi"]


def test_a_pools_vms_keep_their_defaults_when_the_pool_changes_though_they_were_withdrawn(place: Place) -> None:
    pool(place)
    withdrawn = dict.fromkeys(DEFAULTS)
    place.admin.patch("v1/namespaces", place.namespace, {"metadata": {"annotations": withdrawn}})

    vm = change_pool(place)

    assert place.matchers(vm) == [SMALL, FEDORA]
    assert vm["spec"]["template"]["spec"]["schedulerName"] == "kubevirt"


@pytest.fixture
def expanding(place: Place) -> Iterator[Place]:
    """A cluster whose KubeVirt writes out what instancetypes say."""
    place.real.configure(instancetype={"referencePolicy": "expand"})
    yield place
    place.real.configure(instancetype=None)


def test_a_pools_vms_keep_their_size_though_kubevirt_expands_them(expanding: Place) -> None:
    pool(expanding)

    def expanded() -> bool:
        vm = expanding.get(VMS, "web-0")
        memory = vm["spec"]["template"]["spec"]["domain"].get("memory", {})
        return expanding.matchers(vm) == [None, None] and memory.get("guest") == "2Gi"

    eventually(expanded, what="virt-controller to expand the VM")
    change_pool(expanding)

    eventually(expanded, what="virt-controller to expand the VM again")


def test_the_owner_exchanges_a_default_while_the_vm_runs(place: Place) -> None:
    place.vm()
    place.running()

    place.patch(VMS, "web", {"spec": {"instancetype": {"name": "u1.medium"}}})

    def grown() -> bool:
        return bool(place.get(VMIS)["spec"]["domain"]["memory"]["guest"] == "4Gi")

    eventually(grown, what="virt-controller to plug memory in")
    with pytest.raises(fidelity.Incomparable):
        differences(place, "web")


def test_a_restored_vm_is_as_it_was(place: Place) -> None:
    place.vm(run="Halted")
    take_snapshot(place)
    owners = {"instancetype": None, "preference": None, "template": {"spec": {"domain": {"memory": {"guest": "3Gi"}}}}}
    assert place.matchers(place.patch(VMS, "web", {"spec": owners})) == [None, None]

    restore(place)

    assert place.matchers(place.get(VMS)) == [SMALL, FEDORA]


def test_expanded_a_vm_is_what_virt_api_makes_of_it(new_place: NewPlace, apart: Place) -> None:
    place = new_place(EXPANDED)
    named: Json = {"instancetype": {"name": "u1.small"}, "preference": {"name": "fedora"}}

    expanded = place.vm(run="Halted")
    apart.vm(run="Halted", **named)
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/{apart.namespace}/virtualmachines/web/expand-spec"
    theirs = json.loads(apart.real.plane.kubectl("get", "--raw", path).stdout)

    assert place.matchers(expanded) == [None, None]
    ours = [_comparable(found) for found in (expanded, theirs)]
    assert ours[0] == ours[1]


def _comparable(vm: Mapping[str, Any]) -> Json:
    spec: Json = copy.deepcopy(vm["spec"]["template"]["spec"])
    spec.pop("schedulerName", None)
    for chosen in ("uuid", "serial"):
        spec["domain"].get("firmware", {}).pop(chosen, None)
    return spec


def test_what_crashes_kubevirts_webhook_is_a_sentence(place: Place, apart: Place) -> None:
    spread = {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 0}}}
    named: Json = {
        "instancetype": {"name": "u1.small"},
        "preference": {"kind": "VirtualMachinePreference", "name": "p"},
    }
    said = []
    for where in (apart, place):
        where.make(preference("p", **spread))
        said.append(denied(partial(where.vm, **named)).message)

    assert said[0].endswith("EOF")
    assert "ratio of 0" in said[1]


def test_no_vm_costs_a_look_up_of_what_it_names(place: Place, audit_log: AuditLog) -> None:
    def warm() -> bool:
        cost = create(place, audit_log, 1, "warm")
        place.admin.delete(VMS, "warm-0", place.namespace)
        return not cost.look_ups

    eventually(warm, what="the first look-ups to begin the watches")

    cost = create(place, audit_log, 30, "counted")

    assert cost.look_ups == {}
    names = [f"counted-{number}" for number in range(30)]
    assert all(place.matchers(place.get(VMS, name)) == [{"name": "u1.small"}, {"name": "fedora"}] for name in names)
    # The API server calls three entries of kubevirt-webhook for each VM.
    ours = {name: calls for name, calls in cost.calls.items() if "kubevirt-webhook" in name}
    assert [*ours.values()] == [30] * 3


def test_the_tables_say_what_the_installed_definitions_say(real: RunningKubeVirt) -> None:
    found = [real.plane.admin.get(CRDS, name) for name in NAMES.values()]
    said = fields_of(msgspec.convert(json.loads(json.dumps(each)), Definition) for each in found)
    assert said

    installed = release_of(real.release.version, said)
    assert {kind: installed.unknown_fields(kind) for kind in NAMES} == {
        kind: real.release.unknown_fields(kind) for kind in NAMES
    }
    assert said.version
    assert said.version.line == real.release.version.line


VMS_COMPARED = int(os.environ.get("KUBEVIRT_VMS", "25"))
# Errors that KubeVirt reports only while its own caches are behind.
PASSING = ("encountered while storing", "the object has been modified")
UUID = "5d307ca9-b3ef-428c-8861-06e72d69f223"
DEVICES: Sequence[Json] = (
    {},
    {"disks": [{"name": "root", "disk": {}}, {"name": "tools", "cdrom": {}}]},
    {"disks": [{"name": "root", "disk": {"bus": "sata"}}, {"name": "tools", "disk": {}, "cache": "none"}]},
    {"interfaces": [{"name": "default", "masquerade": {}}]},
    {"interfaces": [{"name": "default", "masquerade": {}, "model": "e1000"}]},
    *({f"autoattach{what}": False} for what in ("PodInterface", "GraphicsDevice", "MemBalloon")),
    *({f"autoattach{what}": True} for what in ("InputDevice", "VSOCK")),
    *({"inputs": [{"name": "tablet", "type": "tablet"}]}, {"tpm": {}}, {"rng": {}}, {"sound": {"name": "sound"}}),
    {"watchdog": {"name": "watchdog", "i6300esb": {"action": "reset"}}},
    *({"blockMultiQueue": True, "networkInterfaceMultiqueue": True}, {"useVirtioTransitional": True}),
    {"clientPassthrough": {}},
)
DOMAINS: Sequence[Json] = (
    *({}, {"features": {"acpi": {}}}, {"features": {"hyperv": {"relaxed": {"enabled": False}, "vapic": {}}}}),
    *({"features": {"smm": {"enabled": False}}}, {"features": {"kvm": {"hidden": True}}}),
    *({"firmware": {"bootloader": {"bios": {}}}}, {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}}),
    *({"clock": {"utc": {}}}, {"clock": {"timezone": "Europe/Berlin"}}),
    {"clock": {"utc": {"offsetSeconds": 5}, "timer": {"hpet": {"present": False}}}},
    {"clock": {"timer": {"rtc": {"tickPolicy": "catchup"}}}},
    *({"machine": {"type": "q35"}}, {"ioThreadsPolicy": "auto"}, {"cpu": {"model": "host-passthrough"}}),
    *({"cpu": {"cores": 2}}, {"memory": {"guest": "3Gi"}}, {"resources": {"requests": {"memory": "1Gi"}}}),
)
SPECS: Sequence[Json] = (
    *({}, {"terminationGracePeriodSeconds": 0}, {"terminationGracePeriodSeconds": 180}),
    *({"subdomain": "guests", "hostname": "one"}, {"architecture": "amd64"}),
    *({"evictionStrategy": "None"}, {"nodeSelector": {"zone": "a"}}),
)


def template(chance: random.Random) -> Json:
    """Of a VM; it says what KubeVirt would choose at random."""
    spec = copy.deepcopy(chance.choice(SPECS))
    domain = copy.deepcopy(chance.choice(DOMAINS)) | {"devices": copy.deepcopy(chance.choice(DEVICES))}
    domain.setdefault("firmware", {}).update({"uuid": UUID, "serial": UUID})
    if "interfaces" in domain["devices"]:
        spec["networks"] = [{"name": "default", "pod": {}}]
    names = [disk["name"] for disk in domain["devices"].get("disks", ())] or ["root"]
    spec["volumes"] = [{"name": name, "containerDisk": {"image": "registry.example/disk"}} for name in names]
    return {**spec, "domain": domain}


@pytest.mark.parametrize("number", range(VMS_COMPARED))
def test_a_bare_vmi_and_a_vm(place: Place, apart: Place, number: int) -> None:
    chance = random.Random(number)
    named = {field: chance.choice(place.real.names(f"{field}s")) for field in ("instancetype", "preference")}
    if chance.random() < 0.15:
        del named[chance.choice(["instancetype", "preference"])]
    spec = template(chance)

    theirs = of_kubevirt(apart, copy.deepcopy(spec), named)
    ours = of_ours(place, copy.deepcopy(spec), named)

    assert (ours is None) == (theirs is None), f"{named}: only one was refused"
    if ours and theirs:
        assert ours["spec"] == theirs["spec"]
        assert annotations_left(ours) == annotations_left(theirs)
        assert differences(apart, "web") == []


def of_kubevirt(place: Place, spec: Json, named: dict[str, str]) -> KubeObject | None:
    """What virt-controller makes of a VM; None: KubeVirt denies it, at its creation or later."""
    try:
        place.vm(template=spec, **{field: {"name": name} for field, name in named.items()})  # type: ignore[arg-type]
    except KubeError:
        return None

    def outcome() -> list[KubeObject | None]:
        made = place.admin.list(VMIS, place.namespace)
        if made:
            return [made[0]]
        conditions = place.get(VMS).get("status", {}).get("conditions", [])
        failures = [one["message"] for one in conditions if one["type"] == "Failure"]
        return [None] if any(not any(part in said for part in PASSING) for said in failures) else []

    return eventually(outcome, what="virt-controller to make the VMI, or to say why not")[0]


def of_ours(place: Place, spec: Json, named: dict[str, str]) -> KubeObject | None:
    """The stored form of a VMI that no VM owns; None: the webhook or KubeVirt denied it."""
    asked: dict[str, Any] = {f"{DOMAIN}/{field}": named.get(field, "") for field in ("instancetype", "preference")}
    try:
        return place.make(obj("VirtualMachineInstance", "web", annotations=asked, spec=spec))
    except KubeError:
        return None
