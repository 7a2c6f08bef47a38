"""What holds of every injected default: each rule for the scheduler's name and for the spread constraints."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json, known, review, vm
from tests.policies.decisions import changes, decide_scheduling, declaring, patched
from webhook import names
from webhook.admission.decision import Decision
from webhook.policies.common.injected_defaults import InjectedDefault
from webhook.policies.scheduling.scheduler_name import SCHEDULER
from webhook.policies.scheduling.spread import SPREAD, constraints

OWN: Json = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
# The annotation's text of each default, and what an owner may write instead.
ROWS: pytest.MarkDecorator = pytest.mark.parametrize(
    ("row", "text", "own"), [(SCHEDULER, "kubevirt", "stork"), (SPREAD, "both", [OWN])]
)
Row = InjectedDefault[Any]


def put(obj: Json, path: tuple[str, ...], value: object) -> None:
    for segment in path[:-1]:
        obj = obj.setdefault(segment, {})
    obj[path[-1]] = value


def injected(row: Row, text: str, *annotations: int) -> Json:
    """A VM with the default, and with those of its annotations."""
    obj = vm()
    put(obj, row.in_vms.field, row.value(text))
    for index in annotations:
        put(obj, row.in_vms.annotations[index], text)
    return obj


def updated(old: Json, new: Json) -> Decision:
    """With the settings that write both into VMs."""
    settings: Json = {"spread": "both", "spread_virtual_machines": True}
    return decide_scheduling(review(new, operation="UPDATE", oldObject=old), known(), **settings)


def of(row: Row, decision: Decision) -> dict[tuple[str, ...], Any]:
    """The changes of one default and its annotations."""
    paths = (row.in_vms.field, *row.in_vms.annotations)
    return {path: value for path, value in changes(decision).items() if path in paths}


def whole(row: Row, text: str) -> dict[tuple[str, ...], Any]:
    return {row.in_vms.field: row.value(text), **dict.fromkeys(row.in_vms.annotations, text)}


@ROWS
class TestUpdate:
    @pytest.mark.parametrize("annotations", [(0, 1), (0,), (1,)])
    def test_an_overwrite_gets_back_what_it_removed(
        self, row: Row, text: str, own: Any, annotations: tuple[int, ...]
    ) -> None:
        """One of the two annotations is enough: clones and restores lose them."""
        new = vm()
        put(new, row.in_vms.annotations[0], "")
        for overwrite in (vm(), new):
            assert of(row, updated(injected(row, text, *annotations), overwrite)) == whole(row, text)
        # The owner chose something else in the same request.
        put(new, row.in_vms.field, own)
        assert not of(row, updated(injected(row, text, *annotations), new)).get(row.in_vms.field)

    def test_what_a_manifest_declared_is_removed_for_good(self, row: Row, text: str, own: Any) -> None:
        old = declaring(injected(row, text, 0, 1), row.in_vms.field)
        assert not of(row, updated(old, vm()))
        # Without the annotations it is the owner's, too.
        assert own
        assert not of(row, updated(injected(row, text), vm()))

    @pytest.mark.parametrize("annotation", [0, 1])
    def test_an_owner_who_keeps_an_annotation_means_it(self, row: Row, text: str, own: Any, annotation: int) -> None:
        new = vm()
        put(new, row.in_vms.annotations[annotation], text)
        assert own
        assert not of(row, updated(injected(row, text, 0, 1), new))

    def test_the_owners_value_stands_without_annotations(self, row: Row, text: str, own: Any) -> None:
        new = injected(row, text, 0, 1)
        put(new, row.in_vms.field, own)
        decision = updated(injected(row, text, 0, 1), new)
        assert of(row, decision) == dict.fromkeys(row.in_vms.annotations)
        after = patched(new, decision)
        assert not of(row, updated(new, after))

    def test_an_annotation_that_a_manifest_declares_stays(self, row: Row, text: str, own: Any) -> None:
        """The next apply would write it again, and so on with each."""
        new = injected(row, text, 0, 1)
        put(new, row.in_vms.field, own)
        first, second = row.in_vms.annotations
        assert of(row, updated(injected(row, text, 0, 1), declaring(new, first))) == {second: None}
        decision = updated(new, declaring(copy.deepcopy(new), first, second))
        assert (of(row, decision), decision.warnings) == ({}, ())

    def test_what_does_not_change_is_left_alone(self, row: Row, text: str, own: Any) -> None:
        assert own
        assert not of(row, updated(injected(row, text, 0, 1), injected(row, text, 0, 1)))
        assert not of(row, updated(vm(), vm()))


@ROWS
def test_at_create_an_owners_value_stands_and_a_copy_is_known_by_one_annotation(row: Row, text: str, own: Any) -> None:
    settings: Json = {"spread": "both", "spread_virtual_machines": True}
    for present in ((0, 1), (0,), (1,)):
        decision = decide_scheduling(review(injected(row, text, *present)), known(), **settings)
        assert row.in_vms.field not in changes(decision)
        assert row.reasons.present(text).code in codes(decision) or of(row, decision)
    mine = vm()
    put(mine, row.in_vms.field, own)
    decision = decide_scheduling(review(mine), known(), **settings)
    assert row.reasons.chosen(own) in decision.reasons
    assert not of(row, decision)


def test_an_owner_may_leave_out_a_part_of_an_injected_list() -> None:
    new = injected(SPREAD, "both", 0, 1)
    put(new, SPREAD.in_vms.field, constraints("hostname"))
    decision = updated(injected(SPREAD, "both", 0, 1), new)
    assert of(SPREAD, decision) == dict.fromkeys(SPREAD.in_vms.annotations)


def codes(decision: Decision) -> set[str]:
    return {reason.code for reason in decision.reasons}


TEXTS = st.sampled_from([None, "", "kubevirt", "both", "hostname", "nonsense"])
VALUES = st.sampled_from([None, "", "kubevirt", "stork"])
LISTS = st.sampled_from([None, [], constraints("both"), constraints("hostname"), [OWN], [OWN, *constraints("both")]])


@st.composite
def vms(draw: st.DrawFn) -> Json:
    obj = vm()
    for row, values in ((SCHEDULER, VALUES), (SPREAD, LISTS)):
        put(obj, row.in_vms.field, draw(values))
        for path in row.in_vms.annotations:
            if (text := draw(TEXTS)) is not None:
                put(obj, path, text)
    return obj


@given(vms(), vms())
def test_an_update_takes_nothing_from_the_owner_and_settles_at_once(old: Json, new: Json) -> None:
    decision = updated(old, new)
    after = patched(new, decision)
    template = after["spec"]["template"]["spec"]
    if new["spec"]["template"]["spec"]["schedulerName"] == "stork":
        assert template["schedulerName"] == "stork"
    if OWN in (new["spec"]["template"]["spec"]["topologySpreadConstraints"] or ()):
        assert OWN in template["topologySpreadConstraints"]
    # The API server calls webhooks again with the result, and the next update comes with it as the old object.
    for before in (old, after):
        again = patched(after, updated(before, after))
        assert again["spec"] == after["spec"]
        assert again["metadata"].get("annotations") == after["metadata"].get("annotations")


def test_places_follow_from_the_path() -> None:
    annotation = ("metadata", "annotations", names.INJECTED_SCHEDULER_ANNOTATION)
    assert (SCHEDULER.in_objects.field, SCHEDULER.in_objects.annotations) == (("spec", "schedulerName"), (annotation,))
    assert SCHEDULER.in_vms.annotations == (annotation, ("spec", "template", *annotation))
