from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kubevirt.samples import instancetype, preference, vm
from tests.lookups import among
from tests.vectors.cases import read
from tests.vectors.stages import uuids
from webhook.errors import InputError
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.rejection import Crash, Rejection
from webhook.kubevirt.rules import share_vm
from webhook.kubevirt.webhooks import VmAdmission, find_denial, mutate_vm, remember_specs, validate_vm

FILE = Path(__file__).parents[2] / "data" / "instancetypes.jsonl.gz"
ARM = {"template.kubevirt.io/architecture": "arm64"}


def mutated(given: Json, *objects: Json, old: Json | None = None, **configuration: Any) -> VmAdmission:
    return mutate_vm(given, among(objects), uuids(), ClusterConfig.of(configuration), old)


def template(answer: VmAdmission) -> Json:
    assert answer.vm is not None
    result: Json = answer.vm["spec"]["template"]
    return result


def test_a_new_vm() -> None:
    result = template(mutated(vm()))

    assert result["metadata"]["annotations"] == {"kubevirt.io/pci-topology-version": "v3"}
    assert result["spec"]["architecture"] == "amd64"
    assert result["spec"]["domain"]["machine"] == {"type": "q35"}
    assert result["spec"]["domain"]["firmware"] == {
        "uuid": "00000000-0000-4000-8000-000000000001",
        "serial": "00000000-0000-4000-8000-000000000002",
    }


def test_an_identity_of_the_users_stays() -> None:
    firmware = {"uuid": "mine", "serial": "too"}

    assert template(mutated(vm({"domain": {"firmware": firmware}})))["spec"]["domain"]["firmware"] == firmware


def test_an_update_gets_no_new_identity() -> None:
    result = template(mutated(vm(), old=vm()))

    assert "firmware" not in result["spec"]["domain"]
    assert result["metadata"] == {}
    assert result["spec"]["architecture"] == "amd64"


def test_a_vm_on_its_way_out_is_left_alone() -> None:
    given = vm(instancetype={})
    given["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    answer = mutated(given)

    assert answer.is_allowed
    assert "architecture" not in template(answer)["spec"]


def test_preferences_at_admission() -> None:
    preferred = preference(
        preferredArchitecture="arm64",
        machine={"preferredMachineType": "m"},
        volumes={"preferredStorageClassName": "fast"},
        devices={"preferredDiskBus": "virtio"},
    )
    answer = mutated(vm(preference={"name": "linux"}, dataVolumeTemplates=[{"spec": {"storage": {}}}]), preferred)

    assert answer.vm is not None
    assert template(answer)["spec"]["architecture"] == "arm64"
    assert template(answer)["spec"]["domain"]["machine"] == {"type": "m"}
    assert answer.vm["spec"]["dataVolumeTemplates"][0]["spec"]["storage"]["storageClassName"] == "fast"
    # KubeVirt only logs a missing object.
    assert mutated(vm(preference={"name": "missing"})).is_allowed


def source(name: str, labels: Json | None = None, further: str = "") -> Json:
    spec = {"source": {"dataSource": {"name": further, "namespace": "demo"}}} if further else {}
    return {"kind": "DataSource", "metadata": {"name": name, "namespace": "demo", "labels": labels}, "spec": spec}


@pytest.mark.parametrize(
    ("references", "architecture"),
    [
        ([{"kind": "datasource", "name": "arm"}], "arm64"),
        ([{"kind": "DataSource", "name": "arm", "namespace": ""}], "arm64"),
        ([{"kind": "DataSource", "name": "alias"}], "arm64"),
        ([{"kind": "DataSource", "name": "dangling"}], "amd64"),
        ([{"kind": "DataSource", "name": "missing"}, {"kind": "DataSource", "name": "arm"}], "arm64"),
        ([{"kind": "DataSource", "name": "odd"}, {"kind": "DataSource", "name": "bare"}], "amd64"),
        ([{"kind": "Other", "name": "arm"}], "amd64"),
    ],
)
def test_architecture_of_a_data_source(references: list[Json], architecture: str) -> None:
    objects = [
        source("arm", ARM),
        source("alias", further="arm"),
        source("dangling", ARM, further="missing"),
        source("odd", {"template.kubevirt.io/architecture": "vax"}),
        source("bare"),
    ]
    given = vm(dataVolumeTemplates=[{"spec": {"sourceRef": reference}} for reference in references])

    assert template(mutated(given, *objects))["spec"]["architecture"] == architecture


def test_refused_matchers() -> None:
    both = mutated(vm(instancetype={}, preference={}))
    stale = mutated(
        vm(preference={"name": "b", "revisionName": "r"}), old=vm(preference={"name": "a", "revisionName": "r"})
    )
    failed = mutated(vm(instancetype={"inferFromVolume": "v"}))

    assert (both.code, [cause.field for cause in both.causes]) == (422, ["spec.instancetype"])
    assert (stale.code, [cause.field for cause in stale.causes]) == (422, ["spec.preference.revisionName"])
    assert (failed.code, failed.message) == (400, "unable to find volume v to infer defaults")
    assert not failed.causes


def validated(given: Json, *objects: Json, **configuration: Any) -> VmAdmission:
    return validate_vm(given, among(objects), ClusterConfig.of(configuration))


BOTH = {"instancetype": {"name": "u1"}, "preference": {"name": "linux"}}


def test_a_valid_vm_is_looked_at_expanded() -> None:
    answer = validated(vm(**BOTH), instancetype(), preference(requirements={"cpu": {"guest": 2}}))

    assert answer.is_allowed
    assert template(answer)["spec"]["domain"]["cpu"] == {"sockets": 2, "cores": 1, "threads": 1}


def test_what_is_missing_is_admitted() -> None:
    assert validated(vm(**BOTH)).is_allowed
    assert validated(vm(instancetype={"name": "u1", "kind": "Foo"}), instancetype()).is_allowed


@pytest.mark.parametrize(
    ("given", "objects", "configuration", "code", "fields"),
    [
        (
            vm(**BOTH),
            [instancetype(cpu={"guest": 3}), preference(cpu={"preferredCPUTopology": "spread"})],
            {},
            422,
            ["instancetype.spec.cpu.guest"],
        ),
        (
            vm({"domain": {"cpu": {"cores": 1}}}, **BOTH),
            [instancetype()],
            {},
            422,
            ["spec.template.spec.domain.cpu.cores"],
        ),
        (
            vm(**BOTH),
            [preference(requirements={"memory": {"guest": "1Gi"}})],
            {},
            422,
            ["spec.template.spec.domain.memory"],
        ),
        (vm(), [], {"network": {"defaultNetworkInterface": "slirp"}}, 400, []),
    ],
)
def test_refused_vms(given: Json, objects: list[Json], configuration: Json, code: int, fields: list[str]) -> None:
    answer = validated(given, *objects, **configuration)

    assert (answer.code, [cause.field for cause in answer.causes]) == (code, fields)
    assert answer.message
    assert answer.vm is None


def test_ten_causes_are_shown() -> None:
    annotations = {f"key-{number}": "mine" for number in range(12)}
    given = vm(instancetype={"name": "u1"})
    given["spec"]["template"]["metadata"] = {"annotations": annotations}
    answer = validated(given, instancetype(annotations=dict.fromkeys(annotations, "other")))

    assert len(answer.causes) == 10
    assert answer.message.endswith(", and 2 more validation errors")


def test_crashes_are_refused() -> None:
    features = preference(cpu={"preferredCPUFeatures": [{"name": "vmx"}]})

    with pytest.raises(Crash, match=r"set spec.template.spec.domain.cpu"):
        validated(vm(preference={"name": "linux"}), features)


def test_an_objection_is_what_the_two_webhooks_say_one_after_the_other() -> None:
    seen = {None: 0, Rejection: 0, Crash: 0}
    for case in (case for case in read(FILE) if "vm" in case.given):
        vm, get, configuration = copy.deepcopy(case.given["vm"]), case.get, case.configuration
        find = remember_specs(get, configuration.rules)
        try:
            changed = mutate_vm(vm, get, str, configuration)
            message = (changed if changed.vm is None else validate_vm(changed.vm, get, configuration)).message
        except Crash as crash:
            message = crash.what
        except InputError as error:
            with pytest.raises(InputError, match=f"^{re.escape(str(error))}$"):
                find_denial(share_vm(vm, configuration.rules), get, configuration, find)
            continue

        before = copy.deepcopy(vm)
        rejection = find_denial(share_vm(vm, configuration.rules), get, configuration, find)

        assert vm == before
        assert (rejection.what if rejection else "") == message
        seen[type(rejection) if rejection else None] += 1
    assert min(seen.values()) > 5, seen
