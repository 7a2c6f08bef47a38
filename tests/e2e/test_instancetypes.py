"""The instancetypes policy on VMs and VMIs: defaults, denials, overwrites, expansion, and what is watched for it."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from webhook.kubevirt.config import DEFAULTS as CONFIGURATION
from webhook.kubevirt.instancetype.find import INSTANCETYPE_MATCHER, PREFERENCE_MATCHER, SpecReference
from webhook.kubevirt.vm import standalone_vmi

from .conftest import NewSized, NewTenant
from .support.kube import Json, KubeObject, denial, denied, eventually
from .support.objects import obj
from .support.pages import documents_under
from .support.sizes import (
    DEFAULTS,
    INJECTED_ANNOTATIONS,
    LARGE,
    LINUX,
    MUTATE,
    SIZED_TEMPLATE,
    SMALL,
    is_ours,
    marks_of,
    matchers_of,
    offer,
)
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN, INSTANCETYPES, SCHEDULING
from .support.workloads import VMIS, VMS, scheduler_of, vm, vmi_of


def test_a_vm_whose_owner_says_nothing_gets_both_defaults(sized: Tenant) -> None:
    created = sized.create(vm())

    assert is_ours(created)
    assert created.warnings == ()
    assert sized.owner.get(VMS, "web", sized.namespace) == created
    assert [line["endpoint"] for line in sized.audit()] == [
        "/mutate/instancetypes/virtualmachines/enforce",
        "/validate/instancetypes/virtualmachines/enforce",
    ]
    assert sized.verdicts() == ["patched defaults-injected", "allowed instancetype-valid"]
    changes = {tuple(change["path"]): change["new"] for change in sized.audit()[0]["changes"]}
    assert changes == {
        ("spec", "instancetype"): SMALL,
        ("spec", "preference"): LINUX,
        ("metadata", "annotations", INJECTED_ANNOTATIONS[0]): DEFAULTS[f"{DOMAIN}/default-instancetype"],
        ("metadata", "annotations", INJECTED_ANNOTATIONS[1]): DEFAULTS[f"{DOMAIN}/default-preference"],
    }

    # A pool's overwrite keeps them.
    desired = vm(runStrategy="Halted")
    overwritten = sized.overwrite(created, desired)
    assert is_ours(overwritten)
    assert overwritten["spec"]["runStrategy"] == "Halted"
    assert overwritten["metadata"]["annotations"]["pool.example/revision"] == "2"
    again = sized.overwrite(overwritten, desired)
    assert again["metadata"]["resourceVersion"] == overwritten["metadata"]["resourceVersion"]
    assert sized.verdicts(path=MUTATE) == ["patched defaults-injected", *["patched defaults-preserved"] * 2]

    # The VMI of a VM does not reach the webhook.
    before = sized.server.answered()
    started = sized.start(again)
    assert size_of(started) == (None, None)
    assert marks_of(started) == [None, None]
    assert sized.server.answered() == before


def test_neither_status_nor_metadata_nor_a_deletion_are_our_business(declaring: Tenant) -> None:
    kept = vm()
    kept["metadata"]["finalizers"] = ["example.com/finalizer"]
    declaring.create(kept)
    before = declaring.server.answered()

    declaring.owner.patch(VMS, "web", {"metadata": {"labels": {"a": "b"}}}, declaring.namespace)
    stored = declaring.owner.get(VMS, "web", declaring.namespace)
    # A webhook for the status subresource would see the whole object, and would put back what this copy lacks.
    stale = {**vm(), "metadata": {**stored["metadata"], "annotations": {}}, "status": {"ready": True}}
    declaring.controller.replace(VMS, stale, subresource="status")
    assert declaring.server.answered() == before

    declaring.owner.patch(VMS, "web", {"spec": {"runStrategy": "Halted"}}, declaring.namespace)
    # The policy of instancetypes hears of a change of the spec twice, that of schedulers once.
    assert declaring.server.answered() == before + 3
    stored = found(declaring)
    assert is_ours(stored)
    assert (scheduler_of(stored), stored["status"]["ready"]) == ("kubevirt", True)

    deleting = declaring.owner.delete(VMS, "web", declaring.namespace)
    # Matchers to missing objects beside sizes: they no longer matter while the VM is being deleted.
    odd = declaring.overwrite(deleting, vm(template=SIZED_TEMPLATE, instancetype=SMALL))
    del odd["metadata"]["finalizers"]
    declaring.controller.replace(VMS, odd)

    eventually(lambda: not declaring.owner.list(VMS, declaring.namespace), what="the VM to be gone")
    assert declaring.server.answered() == before + 3


ASKED = (f"{DOMAIN}/instancetype", f"{DOMAIN}/preference")
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
    domain = found["spec"]["domain"]
    return domain.get("cpu", {}).get("sockets"), domain.get("memory", {}).get("guest")


def forged(owner: str, uid: str) -> Json:
    """A VMI of a user that claims to be a VM's."""
    made = vmi("forged")
    reference = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": owner, "uid": uid}
    made["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return made


@contextmanager
def policy_of_the_page(tenant: Tenant, heading: str) -> Iterator[None]:
    """The policy that docs/instancetypes.md has under a heading, bound in one namespace."""
    policy, binding = documents_under("instancetypes.md", heading)
    here = {"matchLabels": {"kubernetes.io/metadata.name": tenant.namespace}}
    binding["spec"]["matchResources"] = {"namespaceSelector": here}
    admin = tenant.server.access.admin
    for document in (policy, binding):
        admin.apply(document)
    yield
    for document in (binding, policy):
        admin.delete(admin.resource_of(document), document["metadata"]["name"])


@pytest.fixture
def vmis_of_vms(sized: Tenant) -> Iterator[None]:
    with policy_of_the_page(sized, "VMIs with a forged owner"):
        yield


INLINE: Mapping[str, Json] = {
    "cores": {"cpu": {"cores": 2}},
    "sockets": {"cpu": {"sockets": 2}},
    "guest": {"memory": {"guest": "64Gi"}},
    "requests": {"resources": {"requests": {"memory": "64Gi"}}},
    "limits": {"resources": {"limits": {"cpu": "8"}}},
}


def sized_inline(name: str, domain: Json) -> Json:
    made = vm(name, runStrategy="Halted")
    made["spec"]["template"]["spec"]["domain"] |= domain
    return made


def test_inline_sizes_get_around_the_allow_list_until_a_policy_denies_them(new_sized: NewSized) -> None:
    tenant = new_sized({**DEFAULTS, f"{DOMAIN}/allowed-instancetypes": "VirtualMachineInstancetype/small"})
    for name, domain in INLINE.items():
        tenant.create(sized_inline(name, domain))

    with policy_of_the_page(tenant, "Sizes beside the list"):
        late = partial(tenant.create, sized_inline("late", INLINE["guest"]), dryRun="All")
        said = eventually(lambda: denial(late), what="the policy to be in force")
        assert "VMs take their CPU and memory from an instancetype" in said.message
        for name, domain in INLINE.items():
            assert denial(partial(tenant.create, sized_inline("late", domain), dryRun="All")), name
            # What is there keeps working, and does not grow.
            tenant.owner.patch(VMS, name, {"spec": {"runStrategy": "Always"}}, tenant.namespace)
            grown = {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 64}}}}}}
            assert denial(partial(tenant.owner.patch, VMS, name, grown, tenant.namespace)), name
        # By the default, and by a name.
        assert is_ours(tenant.create(vm("plain")))
        tenant.create(vm("named", instancetype={"name": "small", "kind": "VirtualMachineInstancetype"}))


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


# -- stored VMIs -------------------------------------------------------------------------------------------------------

_SPECS: dict[str, list[Json]] = yaml.safe_load(Path(__file__).with_name("everything.yaml").read_text())
# They set everything there is to set.
INSTANCETYPE_SPECS, PREFERENCE_SPECS = _SPECS["instancetypes"], _SPECS["preferences"]

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


# Client-side apply remembers the applied manifest in an annotation, and server-side apply has field owners.
both_ways = pytest.mark.parametrize("way", [(), ("--server-side",)], ids=["client-side", "server-side"])


@pytest.fixture
def declaring(new_tenant: NewTenant) -> Tenant:
    """A namespace whose VMs get a scheduler, an instancetype and a preference."""
    made = new_tenant(annotations=DEFAULTS, policies=(SCHEDULING, INSTANCETYPES))
    return offer(made, "small", "large", "linux")


def kubectl(tenant: Tenant, *arguments: str, manifest: Json, warns: str = "") -> str:
    """The output of kubectl, which reads a manifest; a difference, a conflict or an unexpected warning is a failure."""
    done = tenant.kubectl(manifest, *arguments, check=True)
    assert len(done.stderr.splitlines()) == bool(warns)
    assert warns in done.stderr
    return done.stdout


def apply(tenant: Tenant, manifest: Mapping[str, Any], manager: str) -> KubeObject:
    """Server-side apply that takes nothing over by force."""
    metadata = {**manifest["metadata"], "namespace": tenant.namespace}
    return tenant.owner.apply({**manifest, "metadata": metadata}, fieldManager=manager, force="false")


def found(tenant: Tenant) -> KubeObject:
    return tenant.owner.get(VMS, "web", tenant.namespace)


def managers_of(vm: Mapping[str, Any], field: str) -> list[str]:
    return [it["manager"] for it in vm["metadata"]["managedFields"] if f'"f:{field}"' in json.dumps(it["fieldsV1"])]


@both_ways
def test_applied_again_nothing_changes(declaring: Tenant, way: tuple[str, ...]) -> None:
    shown = kubectl(declaring, "apply", "--dry-run=server", "--output=json", *way, manifest=vm())
    assert scheduler_of(json.loads(shown)) == "kubevirt"
    assert is_ours(json.loads(shown))
    assert declaring.owner.list(VMS, declaring.namespace) == []
    kubectl(declaring, "apply", *way, manifest=vm())
    created = found(declaring)

    assert kubectl(declaring, "diff", *way, manifest=vm()) == ""
    kubectl(declaring, "apply", *way, manifest=vm())
    assert found(declaring) == created
    assert scheduler_of(created) == "kubevirt"
    assert is_ours(created)
    before = len(declaring.verdicts(path=MUTATE))
    kubectl(declaring, "apply", *way, manifest=vm(runStrategy="Halted"))

    assert found(declaring)["spec"]["runStrategy"] == "Halted"
    assert is_ours(found(declaring))
    # They were never gone.
    assert declaring.verdicts(path=MUTATE)[before:] == ["allowed instancetype-unchanged"]


@both_ways
def test_an_owner_who_starts_or_stops_to_declare_a_field_is_obeyed(declaring: Tenant, way: tuple[str, ...]) -> None:
    kubectl(declaring, "apply", *way, manifest=vm())

    for _ in range(2):
        kubectl(declaring, "apply", *way, manifest=vm(scheduler="volcano", instancetype=LARGE, preference=LINUX))
        assert scheduler_of(found(declaring)) == "volcano"
        assert matchers_of(found(declaring)) == [LARGE, LINUX]
    kubectl(declaring, "apply", *way, manifest=vm(), warns="[size-removed]")

    assert scheduler_of(found(declaring)) is None
    assert matchers_of(found(declaring)) == marks_of(found(declaring)) == [None, None]


@both_ways
def test_what_was_injected_is_the_owners_once_a_manifest_declares_it(declaring: Tenant, way: tuple[str, ...]) -> None:
    kubectl(declaring, "apply", *way, manifest=vm())
    assert is_marked(found(declaring))

    manifest = vm(scheduler="kubevirt", instancetype=SMALL, preference=LINUX)
    kubectl(declaring, "apply", *way, manifest=manifest)
    kept = found(declaring)
    assert (scheduler_of(kept), matchers_of(kept)) == ("kubevirt", [SMALL, LINUX])
    assert not is_marked(kept)
    # So the owner's pods wait for the scheduler that he chose.
    assert declaring.verdicts(path=MUTATE)[-1] == "patched default-withdrawn"
    kubectl(declaring, "apply", *way, manifest=manifest)
    again = found(declaring)
    assert (again["spec"], again["metadata"]["generation"]) == (kept["spec"], kept["metadata"]["generation"])

    kubectl(declaring, "apply", *way, manifest=vm(), warns="[size-removed]")
    assert scheduler_of(found(declaring)) is None
    assert matchers_of(found(declaring)) == [None, None]
    assert not is_marked(found(declaring))


def is_marked(vm: KubeObject) -> bool:
    """Whether annotations say that anything of a VM was injected."""
    return f"{DOMAIN}/injected-" in json.dumps([vm["metadata"].get("annotations"), vm["spec"]["template"]["metadata"]])


def test_nobody_owns_what_we_wrote(declaring: Tenant) -> None:
    """So another manager may declare it without force; managers conflict over what both of them declare alone."""
    first = apply(declaring, vm(), "first")
    same = apply(declaring, vm(scheduler="kubevirt"), "second")
    declared = apply(declaring, vm(scheduler="volcano", instancetype=LARGE), "second")
    again = apply(declaring, vm(), "first")

    for applied, scheduler, matchers, managers in (
        (first, "kubevirt", [SMALL, LINUX], []),
        (declared, "volcano", [LARGE, LINUX], ["second"]),
        (again, "volcano", [LARGE, LINUX], ["second"]),
    ):
        assert (scheduler_of(applied), matchers_of(applied)) == (scheduler, matchers)
        assert managers_of(applied, "schedulerName") == managers_of(applied, "instancetype") == managers
    assert managers_of(same, "schedulerName") == ["second"]
    for field, other in (("schedulerName", vm(scheduler="kubevirt")), ("instancetype", vm(instancetype=SMALL))):
        conflict = denied(lambda other=other: apply(declaring, other, "third"))  # type: ignore[misc]
        assert conflict.status == 409
        assert 'with "second"' in conflict.message
        assert field in conflict.message
