"""The instancetypes policy where a namespace has new VMs expanded: their matchers are written out and go."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from webhook.admission.redaction import redact_at

from .conftest import NewTenant
from .support.everything import INSTANCETYPE_SPECS, PREFERENCE_SPECS
from .support.kube import Json, denied
from .support.sizes import DEFAULTS, LARGE, LINUX, MUTATE, SMALL, marks_of, matchers_of, named, offer
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN
from .support.workloads import INSTANCETYPES as NAMESPACED_INSTANCETYPES
from .support.workloads import PREFERENCES, instancetype, preference, vm

EXPAND = {f"{DOMAIN}/expand-instancetypes": "true"}
ALLOWED = f"{DOMAIN}/allowed-instancetypes"


@pytest.fixture
def expanding(new_sized: NewTenant) -> Tenant:
    """A namespace that has defaults, and has them written out."""
    return new_sized(annotations=DEFAULTS | EXPAND)


def domain_of(vm: Json) -> Json:
    domain: Json = vm["spec"]["template"]["spec"]["domain"]
    return domain


def value_at(found: Any, path: tuple[str, ...]) -> Any:
    """The stored object; None if there is none."""
    for name in path:
        found = found.get(name) if found else None
    return found


def owned(**spec: Any) -> Json:
    """A VM with much that only its owner knows about."""
    made = vm(**spec)
    made["metadata"] |= {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    template = made["spec"]["template"]
    template["metadata"] |= {"unknown": {"kept": True}}
    template["spec"] |= {
        "tolerations": [{"key": "vm", "operator": "Exists"}],
        "volumes": [
            {"name": "root", "containerDisk": {"image": "registry.example/fedora:40"}},
            {"name": "init", "cloudInitNoCloud": {"userData": "#cloud-config"}},
        ],
        "domain": {
            "clock": {"utc": {"offsetSeconds": 0}},
            "devices": {"disks": [{"name": "root", "disk": {}, "serial": "1", "bootOrder": 1}]},
            "resources": {"requests": {"devices.example.com/x": "1000m"}},
        },
    }
    return made


def test_a_vm_says_itself_what_its_matchers_said(expanding: Tenant) -> None:
    asked = owned()
    created = expanding.create(asked)

    assert matchers_of(created) == [None, None]
    # By these both are put back where an overwrite takes the size away.
    assert marks_of(created) == list(DEFAULTS.values())
    assert domain_of(created)["cpu"] == {"sockets": 1, "cores": 1, "threads": 1}
    assert domain_of(created)["memory"] == {"guest": "1Gi"}
    assert domain_of(created)["devices"]["disks"] == [
        {"name": "root", "disk": {"bus": "virtio"}, "serial": "1", "bootOrder": 1},
        {"name": "init", "disk": {"bus": "virtio"}},
    ]
    for field in ("labels", "annotations"):
        assert created["metadata"][field].items() >= asked["metadata"][field].items()
    template, given = created["spec"]["template"], asked["spec"]["template"]
    assert template["metadata"] == given["metadata"]
    assert template["spec"]["tolerations"] == given["spec"]["tolerations"]
    assert [volume.keys() for volume in template["spec"]["volumes"]] == [v.keys() for v in given["spec"]["volumes"]]
    assert domain_of(created)["clock"] == domain_of(asked)["clock"]
    # The webhook does not even make them canonical: what it need not change is as the owner wrote it.
    assert domain_of(created)["resources"] == domain_of(asked)["resources"]
    assert created.warnings == ()
    assert expanding.verdicts() == ["patched instancetype-expanded"]


@pytest.mark.parametrize("preferred", PREFERENCE_SPECS)
@pytest.mark.parametrize("spec", INSTANCETYPE_SPECS)
def test_every_field_passes_the_schema(expanding: Tenant, spec: Json, preferred: Json) -> None:
    expanding.owner.create(NAMESPACED_INSTANCETYPES, instancetype("rich", cluster=False, **spec), expanding.namespace)
    expanding.owner.create(PREFERENCES, preference("rich", **preferred), expanding.namespace)

    asked = owned(instancetype=named("Instancetype", "rich"), preference=named("Preference", "rich"))
    created = expanding.create(asked)

    (line,) = expanding.audit(path=MUTATE)
    # Volumes get a pull policy, but what cloud-init holds is in no audit line, nor what a launch of SEV is given.
    written = {tuple(change["path"]): change["new"] for change in line["changes"]}
    volumes = written.pop(("spec", "template", "spec", "volumes"))
    assert volumes[0] == created["spec"]["template"]["spec"]["volumes"][0]
    assert "#cloud-config" not in json.dumps(line)
    assert {path: redact_at(path, value_at(created, path)) for path in written} == written
    assert '"BB"' not in json.dumps(line)
    domain = domain_of(created)
    assert domain["cpu"].get("model") == spec["cpu"].get("model")
    assert domain["devices"].get("gpus") == spec.get("gpus")
    assert domain["launchSecurity"] == spec["launchSecurity"]
    assert ("features" in domain) == ("features" in preferred)


def test_what_is_refused_is_not_written_out_instead(new_sized: NewTenant) -> None:
    allowed = {ALLOWED: "VirtualMachineInstancetype/small"}
    tenant = offer(new_sized(annotations=EXPAND), "demanding", "spread")
    limited = new_sized(annotations=EXPAND | allowed)
    for place, size, preferred, status, text in (
        (tenant, LARGE, named("Preference", "demanding"), 422, "preference requires 8 vCPU"),
        (tenant, SMALL, named("Preference", "spread"), 422, "are not divisible by"),
        (limited, LARGE, LINUX, 403, "instancetype-not-allowed"),
    ):
        refused = denied(partial(place.create, vm(instancetype=size, preference=preferred)))
        assert (refused.status, text in refused.message) == (status, True)


def test_a_storage_class_that_kubevirt_would_have_filled_in_is_not_lost(expanding: Tenant) -> None:
    expanding.owner.create(
        PREFERENCES, preference("fast", volumes={"preferredStorageClassName": "fast"}), expanding.namespace
    )
    template = {"metadata": {"name": "root"}, "spec": {"storage": {}, "source": {"blank": {}}}}

    created = expanding.create(vm(preference=named("Preference", "fast"), dataVolumeTemplates=[template]))

    assert matchers_of(created) == [None, None]
    assert created["spec"]["dataVolumeTemplates"][0]["spec"]["storage"] == {"storageClassName": "fast"}
