"""What a cluster's CustomResourceDefinitions say of the fields that rules read and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.definitions import SHAPES, definition, definitions
from tests.kubevirt.samples import WHOLE
from webhook.errors import InputError
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.definitions import NAMES, Definition, fields_of
from webhook.kubevirt.go_json.structs import List, OrNull, Shape, Struct
from webhook.kubevirt.releases import fields
from webhook.kubevirt.releases.capabilities import SUPPORTED_VERSIONS, Version
from webhook.kubevirt.releases.fields import Definitions, unknown_fields
from webhook.kubevirt.releases.release import NEWEST, release_of
from webhook.kubevirt.rules import rules_of
from webhook.kubevirt.vm.creation import CreationDenied, from_vm, from_vmi

WHOLE_DEFINITIONS = {kind: msgspec.convert(definition(kind), Definition) for kind in NAMES}
PREFERRED_VIDEO = "devices.preferredVideoType"


def said_by(*plain: Mapping[str, Any]) -> Definitions | None:
    return fields_of(msgspec.convert(each, Definition) for each in plain)


def without(kind: str, *paths: str) -> Definitions:
    said = fields_of((WHOLE_DEFINITIONS | {kind: msgspec.convert(definition(kind, paths), Definition)}).values())
    assert said
    return said


def paths(shape: Shape, path: str = "") -> list[str]:
    """All fields that a release could be without, those below others too."""
    if isinstance(shape, OrNull):
        return paths(shape.shape, path)
    if isinstance(shape, List):
        return paths(shape.item, path)
    if not isinstance(shape, Struct):
        return []
    found = []
    for name, field in shape.fields.items():
        below = f"{path}.{name}" if path else name
        found += [*([] if field.always else [below]), *paths(field, below)]
    return found


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS, ids=str)
@pytest.mark.parametrize("kind", SHAPES)
def test_definitions_of_a_release_say_what_its_table_says(version: Version, kind: str) -> None:
    table = unknown_fields(version, kind)
    said = without(kind, *table)
    assert release_of(version, said).unknown_fields(kind) == table
    of_machines = table if kind == fields.VMI else frozenset()
    assert release_of(version, said).unknown_fields(fields.VMI) == of_machines


def test_a_field_is_known_where_the_definitions_have_it_whatever_the_release_has() -> None:
    said = without(fields.PREFERENCE, PREFERRED_VIDEO)
    assert NEWEST.unknown_fields(fields.PREFERENCE) == frozenset()
    assert release_of(NEWEST.version, said).unknown_fields(fields.PREFERENCE) == {PREFERRED_VIDEO}
    older = Version(1, 8, 4)
    assert PREFERRED_VIDEO in release_of(older).unknown_fields(fields.PREFERENCE)
    assert release_of(older, without(fields.PREFERENCE)).unknown_fields(fields.PREFERENCE) == frozenset()


@pytest.mark.control("mixed-releases")
def test_during_an_update_a_field_must_be_known_to_both() -> None:
    said, older = without(fields.VMI, "utilityVolumes"), Version(1, 8, 4)
    assert release_of(older, replace(said, is_settled=False)).unknown_fields(fields.VMI) == {
        *unknown_fields(older, fields.VMI),
        "utilityVolumes",
    }


def test_a_definition_that_lists_no_fields_leaves_them_to_the_tables() -> None:
    open_ = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for spec in (open_, {**open_, "properties": {"devices": open_}}):
        assert said_by(definition(fields.PREFERENCE, spec=spec)) is None
    assert said_by(*definitions({})) is not None
    # Other definitions say nothing.
    of_kubevirt = {"group": "instancetype.kubevirt.io", "names": {"kind": fields.PREFERENCE}, "versions": []}
    others: list[Any] = [None, *(of_kubevirt | {"group": "example.com"}, of_kubevirt | {"names": {"kind": "Other"}})]
    for spec in (*others, of_kubevirt | {"versions": None}):
        assert said_by(definition(fields.PREFERENCE) | {"spec": spec}) is None


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS, ids=str)
def test_which_release_definitions_come_from(version: Version) -> None:
    said = said_by(*definitions({kind: unknown_fields(version, kind) for kind in SHAPES}))
    assert said and said.version == version


def test_definitions_between_two_releases_are_of_the_older_one() -> None:
    """A vendor's build of 1.8 that has one field of 1.9, and lacks the others."""
    lacking = {kind: unknown_fields(Version(1, 8, 4), kind) - {PREFERRED_VIDEO} for kind in SHAPES}
    said = said_by(*definitions(lacking))
    assert said and said.version == Version(1, 8, 4)
    assert without(fields.VMI, "domain.rebootPolicy").version == Version(1, 7, 4)


SPECS = {
    fields.CLUSTER_INSTANCETYPE: {
        "cpu": {"guest": 4, "dedicatedCPUPlacement": True, "numa": {"guestMappingPassthrough": {}}},
        "memory": {"guest": "2Gi", "hugepages": {"pageSize": "2Mi"}},
        "gpus": [{"name": "a", "deviceName": "b"}],
        "launchSecurity": {"sev": {}},
        "nodeSelector": {"a": "b"},
    },
    fields.CLUSTER_PREFERENCE: {
        "cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "SocketsCores", "ratio": 2}},
        "devices": {"preferredDiskBus": "virtio", "preferredTPM": {}, "preferredVideoType": "vga"},
        "features": {"preferredSmm": {}, "preferredHyperv": {"relaxed": {}}},
        "firmware": {"preferredEfi": {"secureBoot": True}},
        "clock": {"preferredClockOffset": {"utc": {}}, "preferredTimer": {"hpet": {"present": False}}},
        "requirements": {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}},
    },
}


@pytest.mark.control("broken-definitions")
@given(st.data())
def test_whatever_the_definitions_lack_the_rules_work_and_write_none_of_it(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*SPECS, fields.VIRTUAL_MACHINE, fields.VMI]))
    path = data.draw(st.sampled_from(paths(SHAPES[kind].fields["spec"])))
    configuration = ClusterConfig.of(None, rules=rules_of(release_of(NEWEST.version, without(kind, path))))

    def get(asked: str, _namespace: str, name: str) -> dict[str, Any] | None:
        return {"kind": asked, "metadata": {"name": name}, "spec": SPECS[asked]} if asked in SPECS else None

    bare = {"kind": fields.VMI, "metadata": WHOLE["metadata"], "spec": WHOLE["spec"]["template"]["spec"]}
    try:
        made = [from_vm(WHOLE, get, lambda: "uuid", configuration), from_vmi(bare, lambda: "uuid", configuration)]
    except (InputError, CreationDenied):
        return
    if kind == fields.VMI:
        assert not [vmi for vmi in made if holds(vmi.obj["spec"], path.split("."))]


def holds(value: Any, steps: list[str]) -> bool:
    if isinstance(value, list):
        return any(holds(item, steps) for item in value)
    return not steps or (isinstance(value, dict) and steps[0] in value and holds(value[steps[0]], steps[1:]))
