"""VMs with the VMIs that KubeVirt made of them."""

from __future__ import annotations

from typing import Any

from tests.kubevirt import plain
from tests.kubevirt.samples import instancetype, preference, revision, vm
from tests.lookups import among
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.vm import controller

CAPTURED = [
    revision("it-1", instancetype(), "u1"),
    revision("pref-1", preference(devices={"preferredDiskBus": "virtio"}), "linux"),
]
VOLUMES = [{"name": "root", "containerDisk": {"image": "fedora:40"}}]


def running(template: Json | None = None, **spec: Any) -> Json:
    """A VM that was started with an instancetype and a preference."""
    named = {"instancetype": {"name": "u1"}, "preference": {"name": "linux"}} | spec
    made = vm({"volumes": VOLUMES} | (template or {}), **named)
    made["metadata"]["generation"] = 3
    made["status"] = {
        "created": True,
        "instancetypeRef": {"name": "u1", "controllerRevisionRef": {"name": "it-1"}},
        "preferenceRef": {"name": "linux", "controllerRevisionRef": {"name": "pref-1"}},
    }
    return made


def started(given: Json, configuration: ClusterConfig = DEFAULTS) -> Json:
    """The VMI that KubeVirt has made of a VM."""
    built = controller.Round(given, among(CAPTURED), configuration).build()
    return plain.create(built.to_json(), configuration, str)
