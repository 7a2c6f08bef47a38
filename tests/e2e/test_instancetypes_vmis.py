"""The instancetypes policy on VirtualMachineInstances: those that no VM stands behind are filled, and stored so."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.kubevirt.config import DEFAULTS as CONFIGURATION
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, PREFERENCE_MATCHER, SpecReference
from webhook.kubevirt.vm import standalone_vmi

from .support.everything import INSTANCETYPE_SPECS, PREFERENCE_SPECS
from .support.kube import Json, KubeObject, denial, eventually
from .support.objects import obj, owner_reference
from .support.sizes import DEFAULTS, INJECTED_ANNOTATIONS, marks_of
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN
from .support.workloads import VMIS, VMS, vm, vmi_of

ASKED = (f"{DOMAIN}/instancetype", f"{DOMAIN}/preference")
LARGE, LINUX = "VirtualMachineInstancetype/large", "VirtualMachinePreference/linux"
DISK: Json = {"name": "root", "containerDisk": {"image": "registry.example/fedora:40"}}


def vmi(name: str = "web", *, annotations: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """A VMI as its owner writes it, with one volume; keywords go into its spec."""
    made = vmi_of(vm(name))
    made["metadata"]["annotations"] = dict(annotations or {})
    made["spec"] |= {"volumes": [DISK], **spec}
    return made


def create(tenant: Tenant, obj: Mapping[str, Any], **query: str) -> KubeObject:
    return tenant.owner.create(VMIS, obj, tenant.namespace, **query)


def size_of(found: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Sockets and memory."""
    domain = found["spec"]["domain"]
    return domain.get("cpu", {}).get("sockets"), domain.get("memory", {}).get("guest")


def forged(owner: str, uid: str) -> Json:
    """A VMI of a user that claims to be a VM's."""
    made = vmi("forged")
    reference = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": owner, "uid": uid}
    made["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return made


@pytest.fixture
def vmis_of_vms(sized: Tenant) -> Iterator[None]:
    """The policy of docs/instancetypes.md, bound in one namespace."""
    page = (Path(__file__).parents[2] / "docs" / "instancetypes.md").read_text()
    block = page.partition("### VMIs with a forged owner")[2].partition("```yaml\n")[2].partition("```")[0]
    policy, binding = yaml.safe_load_all(block)
    here = {"matchLabels": {"kubernetes.io/metadata.name": sized.namespace}}
    binding["spec"]["matchResources"] = {"namespaceSelector": here}
    admin = sized.server.access.admin
    for document in (policy, binding):
        admin.apply(document)
    yield
    for document in (binding, policy):
        admin.delete(admin.resource_of(document), "vmis-of-vms")


def test_a_forged_owner_gets_around_the_defaults_until_a_policy_denies_it(
    sized: Tenant, request: pytest.FixtureRequest
) -> None:
    """What docs/faq.md says of the gap, and of what closes it."""
    nobody, web = "00000000-0000-4000-8000-000000000000", sized.create(vm())["metadata"]["uid"]
    before = sized.server.answered()
    for owner, uid in (("nobody", nobody), ("web", web)):
        assert size_of(create(sized, forged(owner, uid), dryRun="All")) == (None, None)
    assert sized.server.answered() == before

    request.getfixturevalue("vmis_of_vms")

    forge = partial(create, sized, forged("nobody", nobody), dryRun="All")
    said = eventually(lambda: denial(forge), what="the policy to be in force")
    assert "only KubeVirt creates the VMIs of VirtualMachines" in said.message
    stored = sized.owner.get(VMS, "web", sized.namespace)
    started = sized.start(stored)
    sized.owner.patch(VMIS, started["metadata"]["name"], {"metadata": {"labels": {"a": "b"}}}, sized.namespace)
    assert size_of(create(sized, vmi("bare"))) == (1, "1Gi")


def test_a_bare_vmi_gets_the_defaults(sized: Tenant) -> None:
    created = create(sized, vmi())

    assert size_of(created) == (1, "1Gi")
    assert created["spec"]["domain"]["devices"]["disks"] == [{"name": "root", "disk": {"bus": "virtio"}}]
    assert created["metadata"]["annotations"] == {
        "kubevirt.io/instancetype-name": "small",
        "kubevirt.io/preference-name": "linux",
        **dict(zip(INJECTED_ANNOTATIONS, DEFAULTS.values(), strict=True)),
    }
    assert created.warnings == ()
    assert sized.owner.get(VMIS, "web", sized.namespace) == created
    assert sized.verdicts() == ["patched instancetype-applied"]


def test_a_replica_sets_vmis_are_filled(sized: Tenant) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": vmi()["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    replica_set = sized.owner.make(obj("VirtualMachineInstanceReplicaSet", "web", spec=spec), sized.namespace)
    replica = vmi() | {"metadata": {"generateName": "web", "ownerReferences": [owner_reference(replica_set)]}}

    created = sized.controller.create(VMIS, replica, sized.namespace)

    assert size_of(created) == (1, "1Gi")
    assert marks_of(created) == list(DEFAULTS.values())


def test_a_vms_vmi_is_none_of_our_business(sized: Tenant) -> None:
    stored = sized.create(vm())
    before = sized.server.answered()

    started = sized.start(stored)

    assert size_of(started) == (None, None)
    assert marks_of(started) == [None, None]
    assert sized.server.answered() == before


# -- stored VMIs -------------------------------------------------------------------------------------------------------

DEVICES: Json = {
    "disks": [
        {"name": "root", "disk": {}},
        {"name": "cd", "cdrom": {}},
        {"name": "lun", "lun": {}},
        {"name": "plain", "bootOrder": 2},
    ],
    "interfaces": [{"name": "pod"}, {"name": "bridged", "bridge": {}}],
    "sound": {"name": "sound"},
    "panicDevices": [{}],
}
FULL_SPEC: Json = {
    "domain": {"devices": DEVICES},
    "networks": [{"name": "pod", "pod": {}}, {"name": "bridged", "multus": {"networkName": "net"}}],
    "volumes": [{**DISK, "name": name} for name in ("root", "cd", "lun", "plain", "further")],
}


def filled(asked: Json, size: Json, preferred: Json) -> Json:
    """The spec that KubeVirt would give a VMI, with quantities and empty values as KubeVirt writes them."""
    found = {
        INSTANCETYPE_MATCHER: (SpecReference(size["kind"], size["metadata"]["name"]), size),
        PREFERENCE_MATCHER: (SpecReference(preferred["kind"], preferred["metadata"]["name"]), preferred),
    }
    spec: Json = standalone_vmi.fill(asked, found, CONFIGURATION).after["spec"]
    return spec


def test_every_field_passes_the_schema_and_is_stored_as_kubevirt_makes_it(sized: Tenant) -> None:
    kinds = [("VirtualMachineInstancetype", INSTANCETYPE_SPECS), ("VirtualMachinePreference", PREFERENCE_SPECS)]
    for kind, specs in kinds:
        for number, spec in enumerate(specs):
            sized.owner.make(obj(kind, f"full-{number}", spec=spec), sized.namespace)
    shapes = itertools.product((FULL_SPEC, vmi()["spec"]), *(range(len(specs)) for _, specs in kinds))
    for number, (spec, size, preferred) in enumerate(shapes):
        chosen = (f"VirtualMachineInstancetype/full-{size}", f"VirtualMachinePreference/full-{preferred}")
        asked = {**vmi(f"case-{number}", annotations=dict(zip(ASKED, chosen, strict=True))), "spec": spec}

        created = create(sized, copy.deepcopy(asked))

        objects = (
            obj(kind, f"full-{which}", spec=specs[which])
            for (kind, specs), which in zip(kinds, (size, preferred), strict=True)
        )
        assert created.warnings == ()
        stored = standalone_vmi.fill(dict(created), {}, CONFIGURATION).before["spec"]
        assert stored == filled(copy.deepcopy(asked), *objects)
    # Parts that are copied as a whole, down to fields that KubeVirt's rules do not mention.
    spec = sized.owner.get(VMIS, "case-0", sized.namespace)["spec"]
    domain, devices = spec["domain"], spec["domain"]["devices"]
    given, preferred = INSTANCETYPE_SPECS[0], PREFERENCE_SPECS[0]
    assert [spec["nodeSelector"], spec["schedulerName"]] == [given["nodeSelector"], given["schedulerName"]]
    assert [devices["gpus"], devices["hostDevices"]] == [given["gpus"], given["hostDevices"]]
    assert [domain["launchSecurity"], domain["ioThreads"]] == [given["launchSecurity"], given["ioThreads"]]
    assert domain["clock"] == {
        **preferred["clock"]["preferredClockOffset"],
        "timer": preferred["clock"]["preferredTimer"],
    }
    assert domain["features"]["hyperv"] == preferred["features"]["preferredHyperv"]
    assert devices["disks"][0] == {
        "name": "root",
        "disk": {"bus": "virtio"},
        "cache": "none",
        "io": "native",
        "blockSize": preferred["devices"]["preferredDiskBlockSize"],
        "dedicatedIOThread": True,
    }
