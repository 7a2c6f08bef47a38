"""Random VMs beside a real KubeVirt: the webhook makes of a bare VMI what KubeVirt's controller makes of the same VM.

``KUBEVIRT_VMS=400 make kubevirt`` compares more of them; the number in a failing test's name makes it again.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.e2e.support.kube import Json, KubeError, KubeObject, eventually
from tests.e2e.support.objects import obj
from tests.e2e.support.webhook_server import DOMAIN
from tests.e2e.support.workloads import VMIS, VMS

from .place import Place, annotations_left, differences

pytestmark = pytest.mark.kubevirt

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
    {"autoattachPodInterface": False},
    {"autoattachGraphicsDevice": False},
    {"autoattachMemBalloon": False},
    {"autoattachInputDevice": True},
    {"autoattachVSOCK": True},
    {"inputs": [{"name": "tablet", "type": "tablet"}]},
    {"tpm": {}},
    {"rng": {}},
    {"sound": {"name": "sound"}},
    {"watchdog": {"name": "watchdog", "i6300esb": {"action": "reset"}}},
    {"blockMultiQueue": True, "networkInterfaceMultiqueue": True},
    {"useVirtioTransitional": True},
    {"clientPassthrough": {}},
)
DOMAINS: Sequence[Json] = (
    {},
    {"features": {"acpi": {}}},
    {"features": {"hyperv": {"relaxed": {"enabled": False}, "vapic": {}}}},
    {"features": {"smm": {"enabled": False}}},
    {"features": {"kvm": {"hidden": True}}},
    {"firmware": {"bootloader": {"bios": {}}}},
    {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}},
    {"clock": {"utc": {}}},
    {"clock": {"timezone": "Europe/Berlin"}},
    {"clock": {"utc": {"offsetSeconds": 5}, "timer": {"hpet": {"present": False}}}},
    {"clock": {"timer": {"rtc": {"tickPolicy": "catchup"}}}},
    {"machine": {"type": "q35"}},
    {"ioThreadsPolicy": "auto"},
    {"cpu": {"model": "host-passthrough"}},
    {"cpu": {"cores": 2}},
    {"memory": {"guest": "3Gi"}},
    {"resources": {"requests": {"memory": "1Gi"}}},
)
SPECS: Sequence[Json] = (
    {},
    {"terminationGracePeriodSeconds": 0},
    {"terminationGracePeriodSeconds": 180},
    {"subdomain": "guests", "hostname": "one"},
    {"architecture": "amd64"},
    {"evictionStrategy": "None"},
    {"nodeSelector": {"zone": "a"}},
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
