"""Rules of releases that the recorded answers do not reach: patch releases, odd revisions, warnings."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.builders import config_of
from tests.kubevirt import plain
from tests.lookups import among
from webhook.errors import InputError
from webhook.kubevirt import defaults, webhooks
from webhook.kubevirt.go_json.structs import (
    EMPTY,
    STRING,
    List,
    OrNull,
    Struct,
    Value,
    decode,
    encode,
    is_known,
    replace_fields,
)
from webhook.kubevirt.instancetype import revisions
from webhook.kubevirt.rejection import Rejection
from webhook.kubevirt.rules import Rules

Json = dict[str, Any]
PCI = "kubevirt.io/pci-topology-version"
NEITHER: list[Any] = [b"", b"{", {"unknown": 1}, {"cpu": {"guest": "four"}}, [], b"[" * 2000]


def rules(text: str) -> Rules:
    return config_of(text).rules


def vm(domain: Json | None = None, architecture: str = "", **spec: Any) -> Json:
    inner: Json = {"domain": domain or {}} | ({"architecture": architecture} if architecture else {})
    return {"metadata": {"name": "vm", "namespace": "demo"}, "spec": {"template": {"spec": inner}} | spec}


def mutated(machine: Json, version: str, *objects: Json) -> Json:
    answer = plain.mutate_vm(machine, among(objects), lambda: "uuid", config_of(version))
    assert answer.vm
    return answer.vm


@pytest.mark.parametrize(
    ("version", "annotated"),
    [
        ("1.6.3", ()),
        ("1.6.4", ("amd64 q35", "amd64 pc", "s390x")),
        ("1.6.5", ("amd64 q35", "amd64 pc")),
        ("1.6.6", ("amd64 q35",)),
        ("1.7.1", ()),
        ("1.7.2", ("amd64 q35", "amd64 pc", "s390x")),
        ("1.7.3", ("amd64 q35", "amd64 pc")),
        ("1.8.1", ("amd64 q35", "amd64 pc", "s390x")),
        ("1.8.2", ("amd64 q35", "amd64 pc")),
        ("1.8.3", ("amd64 q35",)),
        ("1.9.0", ("amd64 q35",)),
    ],
)
def test_the_pci_topology_by_patch_release(version: str, annotated: tuple[str, ...]) -> None:
    machines = [
        ("amd64 q35", vm({"machine": {"type": "pc-q35-rhel9"}}, "amd64")),
        ("amd64 q35", vm({"machine": {"type": "virt-rhel9"}}, "arm64")),
        ("amd64 pc", vm({"machine": {"type": "pc-i440fx-2.10"}}, "amd64")),
        ("s390x", vm({"machine": {"type": "s390-ccw-virtio"}}, "s390x")),
    ]
    for name, machine in machines:
        of_vm = mutated(machine, version)["spec"]["template"].get("metadata", {})
        of_vmi = plain.create({"spec": machine["spec"]["template"]["spec"]}, config_of(version), str)["metadata"]
        for metadata in (of_vm, of_vmi):
            assert (PCI in metadata.get("annotations", {})) is (name in annotated), name


@pytest.mark.parametrize(
    ("version", "has_serial", "architecture"),
    [("1.6.0", False, "amd64"), ("1.6.1", True, "amd64"), ("1.6.3", True, "amd64"), ("1.6.4", True, "arm64")],
)
def test_a_new_vm_by_patch_release(version: str, has_serial: bool, architecture: str) -> None:
    labels = {"template.kubevirt.io/architecture": "arm64"}
    source = {"kind": "DataSource", "metadata": {"name": "ds", "namespace": "demo", "labels": labels}, "spec": {}}
    template = {"metadata": {"name": "dv"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "ds"}}}
    spec = mutated(vm(dataVolumeTemplates=[template]), version, source)["spec"]["template"]["spec"]
    assert ("serial" in spec["domain"]["firmware"], spec["architecture"]) == (has_serial, architecture)


@pytest.mark.parametrize(
    ("version", "domain", "given", "requested"),
    [
        ("1.6.0", {"memory": {"guest": "1Gi"}}, {}, "1Gi"),
        ("1.6.1", {"memory": {"guest": "1Gi"}}, {"memoryOvercommit": 200}, "512Mi"),
        ("1.6.3", {"memory": {"guest": "1000M"}}, {"memoryOvercommit": 150}, "666666666"),
        ("1.6.3", {"memory": {"guest": "9223372036854775807"}}, {"memoryOvercommit": 150}, "0"),
        ("1.6.3", {"memory": {"guest": "1Ei"}}, {"memoryOvercommit": 150}, "30744573456182586"),
        ("1.6.3", {"memory": {"guest": "100000000G"}}, {"memoryOvercommit": 150}, "-56311627158063677"),
        ("1.6.3", {"memory": {"hugepages": {"pageSize": "2Mi"}}}, {}, "2Mi"),
        ("1.6.3", {"memory": {"hugepages": {"pageSize": "two"}}}, {}, None),
        ("1.6.3", {"resources": {"limits": {"memory": "2Gi"}}}, {}, "2Gi"),
        ("1.6.3", {"resources": {"limits": {"memory": "2Gi"}, "requests": {"memory": "1Gi"}}}, {}, "1Gi"),
        ("1.6.3", {}, {}, None),
        ("1.6.2", {"memory": {"guest": "1Gi"}}, {}, None),
        ("1.6.4", {"memory": {"guest": "1Gi"}}, {}, None),
    ],
)
def test_requested_memory(version: str, domain: Json, given: Json, requested: str | None) -> None:
    types = rules(version).types
    spec = decode(types.vmi, {"spec": {"domain": domain}})["spec"]
    defaults.spec_defaults(spec, config_of(version, {"developerConfiguration": given}))
    resources = encode(types.vmi, {"spec": spec})["spec"]["domain"]["resources"]
    assert resources.get("requests", {}).get("memory") == requested


@pytest.mark.parametrize(("version", "warned"), [("1.8", False), ("1.9", True)])
def test_the_warning_of_launch_security(version: str, warned: bool) -> None:
    spec = {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, "launchSecurity": {"sev": {}}}
    answer = webhooks.admit_instancetype({"spec": spec}, rules(version))
    assert (bool(answer.warnings), answer.is_allowed) == (warned, True)


@pytest.mark.parametrize(("version", "machine"), [("1.6", "pseries-9"), ("1.7", "q35")])
def test_the_machine_type_of_ppc64le(version: str, machine: str) -> None:
    given = {"architectureConfiguration": {"ppc64le": {"machineType": "pseries-9"}}}
    assert config_of(version, given).machine_type("ppc64le") == machine
    # A legacy machine type counts for s390x too.
    assert config_of(version, {"machineType": "old"}).machine_type("s390x") == "old"


class TestSpecRevisions:
    """The oldest revisions, the bare spec of a v1alpha1 object."""

    @staticmethod
    def read(spec: Any, version: str = "1.6", data: Json | None = None) -> Json | None:
        written = spec if isinstance(spec, bytes) else json.dumps(spec).encode()
        held: Json = {"apiVersion": "instancetype.kubevirt.io/v1alpha1", "spec": base64.b64encode(written).decode()}
        whole = held | (data or {})
        return revisions.content({"metadata": {"name": "cr"}, "data": whole}, rules(version))

    @pytest.mark.parametrize(
        ("spec", "data", "version"),
        [
            *((spec, {}, "1.6") for spec in NEITHER),
            ({"cpu": {"guest": 4, "maxSockets": 8}, "memory": {"guest": "1Gi"}}, {}, "1.6"),
            # Not base64, or with a member beside it.
            *(({}, {"spec": text}, "1.6") for text in ("not base64!", "e30", 7, None)),
            ({}, {"metadata": {}}, "1.6"),
            # Later releases do not read it.
            ({}, {}, "1.7"),
        ],
    )
    def test_what_is_neither(self, spec: Any, data: Json, version: str) -> None:
        with pytest.raises(Rejection, match="Object 'Kind' is missing"):
            self.read(spec, version, data)


class TestChangedShapes:
    INNER = Struct(a=STRING, b=STRING)
    SHAPE = Struct(plain=INNER, value=Value(INNER), items=List(INNER, 2), nullable=OrNull(List(INNER)))

    @pytest.mark.parametrize("path", ["plain.b", "value.b", "items.b", "nullable.b"])
    def test_a_field_is_removed_wherever_it_is(self, path: str) -> None:
        one = {"a": "1", "b": "2"}
        given: Json = {"plain": one, "value": one, "items": [one], "nullable": [one]}
        name = path.partition(".")[0]
        taken = decode(replace_fields(self.SHAPE, {path: None}), given)
        assert [part for part in given if taken[part] != given[part]] == [name]
        assert decode(self.SHAPE, given) == given

    def test_limits_stay(self) -> None:
        with pytest.raises(InputError, match="more than 2"):
            decode(replace_fields(self.SHAPE, {"items.b": None}), {"items": [{}, {}, {}]})

    @pytest.mark.parametrize(
        ("value", "known"),
        [
            ({}, True),
            ({"plain": {"a": 1}}, True),
            ({"plain": {"c": 1}}, False),
            ({"value": {"c": 1}}, False),
            ({"items": [{"a": 1}, {"c": 1}]}, False),
            ({"nullable": [{"c": 1}]}, False),
            ({"items": "text"}, True),
            ({"other": EMPTY}, False),
        ],
    )
    def test_unknown_members(self, value: Any, known: bool) -> None:
        assert is_known(self.SHAPE, value) is known
