"""Updates of owners who apply manifests: the merged fields, and the fields that the owners have set."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json
from tests.owners import CLUSTER_WIDE, OF_THE_NAMESPACE, OPTIONS, WAYS, WrittenField, manifest_of, marks_of
from tests.policies.instancetypes.api_server import ApiServer, Refused
from tests.policies.instancetypes.updating import OWN, OWN_MARK, declared
from tests.policies.instancetypes.world import (
    IT_MARK,
    SMALL,
    SMALL_MARK,
    changes,
    decide,
    facts,
    instancetype,
    revision,
    vm,
)
from webhook.admission.reasons import common, instancetypes

CHOICES: Any = st.fixed_dictionaries({part: st.sampled_from(options) for part, options in OPTIONS.items()})


def written(server: ApiServer, way: str, after: Json, before: Json | None = None) -> Json | None:
    try:
        return server.write(way, after, before)
    except Refused:
        return None


@given(
    first=CHOICES,
    second=CHOICES,
    way=st.sampled_from(WAYS),
    defaults=st.sampled_from([CLUSTER_WIDE, OF_THE_NAMESPACE]),
    scope=st.sampled_from(["unsized", "all"]),
)
def test_the_second_manifest_makes_the_vm_that_it_would_make_anew(
    first: Json, second: Json, way: str, defaults: tuple[str, str], scope: str
) -> None:
    server = ApiServer(default_instancetype=defaults[0], default_preference=defaults[1], default_preference_scope=scope)
    before, after = manifest_of(first), manifest_of(second)
    there = written(server, way, before)
    if there is None:
        return

    stored = written(server, way, after, before)
    created = written(server, way, manifest_of(second, "new"))

    assert list(WrittenField(way, after, there, stored, created).surprises()) == []
    if stored is not None:
        again = written(server, way, after, after)
        assert again is not None
        assert (again["spec"], marks_of(again)) == (stored["spec"], marks_of(stored))


class TestMerging:
    """The policy distinguishes what an applier or a patch merged into an injected default from that default."""

    OLD = vm(annotations={IT_MARK[2]: OWN_MARK}, instancetype=OWN)
    OBJECTS = (instancetype("own", kind="VirtualMachineInstancetype"), instancetype("big"))

    def merged(self, **matcher: Any) -> Json:
        return vm(annotations={IT_MARK[2]: OWN_MARK}, instancetype={**OWN, **matcher})

    def test_a_declared_name_comes_without_our_kind(self) -> None:
        new = declared(self.merged(name="big"), "instancetype", "name")

        decision = decide(new, facts(self.OBJECTS), self.OLD)

        assert (decision.code, decision.warnings) == (instancetypes.DEFAULT_WITHDRAWN, ())
        assert changes(decision) == {("spec", "instancetype"): {"name": "big"}, IT_MARK: None}

    def test_the_very_name_of_the_default_too(self) -> None:
        new = declared(self.merged(), "instancetype", "name")
        new["spec"]["runStrategy"] = "Halted"

        assert changes(decide(new, facts(), self.OLD))["spec", "instancetype"] == {"name": "own"}

    def test_what_is_declared_in_full_only_loses_the_mark(self) -> None:
        new = declared(self.merged(), "instancetype", "name", "kind")
        new["spec"]["runStrategy"] = "Halted"

        assert {path: new for path, new in changes(decide(new, facts(), self.OLD)).items() if path != IT_MARK} == {
            ("spec", "instancetype"): OWN
        }

    @pytest.mark.parametrize(
        ("objects", "expected"),
        [
            ([instancetype("big")], {"name": "big"}),
            ([instancetype("big", kind="VirtualMachineInstancetype")], {**OWN, "name": "big"}),
            (
                [instancetype("big"), instancetype("big", kind="VirtualMachineInstancetype")],
                {**OWN, "name": "big"},
            ),
            ([], {"name": "big"}),
        ],
    )
    def test_of_a_patched_name_the_objects_that_there_are_decide(self, objects: list[Json], expected: Json) -> None:
        kinds = {"VirtualMachineInstancetype", "VirtualMachineClusterInstancetype"}
        missing = [(kind, "big") for kind in kinds - {found["kind"] for found in objects}]

        decision = decide(self.merged(name="big"), facts(objects, missing), self.OLD)

        assert changes(decision)["spec", "instancetype"] == expected
        assert len(decision.warnings) == 1

    def test_a_cluster_wide_kind_of_ours_goes_without_a_question(self) -> None:
        explicit = {"kind": "VirtualMachineClusterInstancetype", **SMALL}
        old = vm(annotations={IT_MARK[2]: SMALL_MARK}, instancetype=explicit)
        new = vm(annotations={IT_MARK[2]: SMALL_MARK}, instancetype={**explicit, "name": "big"})

        decision = decide(new, facts([instancetype("big")]), old)

        assert changes(decision)["spec", "instancetype"] == {"name": "big"}
        assert not decision.warnings

    @pytest.mark.parametrize("name", [5, None, {"a": 1}])
    def test_a_name_that_is_none_is_left_to_the_api_server(self, name: Any) -> None:
        new = self.merged(name=name)

        assert decide(new, facts(), self.OLD).code in (common.INVALID_OBJECT, instancetypes.OWNER_REMOVED_INSTANCETYPE)

    @pytest.mark.parametrize("given", ["own", [], 5, True])
    def test_a_matcher_of_another_type_is_left_to_the_api_server(self, given: Any) -> None:
        new = vm(annotations={IT_MARK[2]: OWN_MARK}, instancetype=given)

        assert decide(new, facts(), self.OLD).code == common.INVALID_OBJECT

    def test_without_its_mark_a_matcher_was_written_anew(self) -> None:
        new = vm(instancetype={**OWN, "name": "big"})

        assert not decide(new, facts(self.OBJECTS), self.OLD).changes

    def test_a_revision_of_ours_goes_with_the_name_and_one_that_is_added_stays(self) -> None:
        pinned = copy.deepcopy(self.OLD)
        pinned["spec"]["instancetype"]["revisionName"] = "r1"
        objects = [*self.OBJECTS, revision("r1", instancetype("own"))]

        named = decide(
            declared(self.merged(name="big", revisionName="r1"), "instancetype", "name"), facts(objects), pinned
        )
        restored = decide(self.merged(revisionName="r1"), facts(objects), self.OLD)

        assert changes(named)["spec", "instancetype"] == {"name": "big"}
        assert (restored.code, restored.changes) == (instancetypes.UNCHANGED, ())

    def test_what_is_left_of_ours_without_a_name_is_nothing(self) -> None:
        new = vm(annotations={IT_MARK[2]: OWN_MARK}, instancetype={"kind": "VirtualMachineInstancetype"})

        decision = decide(new, facts(), self.OLD)

        assert changes(decision) == {("spec", "instancetype"): None}
        assert decision.reasons[0].code == instancetypes.OWNER_REMOVED_INSTANCETYPE

    def test_a_mark_that_a_manifest_declares_stays(self) -> None:
        new = declared(self.merged(name="big"), "instancetype", "name")
        new["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"] = {"f:annotations": {f"f:{IT_MARK[2]}": {}}}

        assert IT_MARK not in changes(decide(new, facts(self.OBJECTS), self.OLD))
