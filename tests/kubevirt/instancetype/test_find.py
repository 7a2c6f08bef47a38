from __future__ import annotations

import pytest

from webhook.k8s.types.meta import ObjectMeta
from webhook.kubevirt.instancetype.find import Live, Revision, Unresolved, counts, find_pinned, live, scheduler_of
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, INSTANCETYPES
from webhook.kubevirt.types.views import (
    ControllerRevision,
    InstancetypeSpec,
    MatcherView,
    RevisionData,
    RevisionRef,
    StatusRef,
    VmStatus,
)
from webhook.names import REVISION_OBJECT_NAME_LABEL

STATUS = VmStatus(StatusRef(RevisionRef("from-status")))


@pytest.mark.parametrize(
    ("matcher", "status", "found"),
    [
        (MatcherView(name="u1"), None, None),
        (MatcherView(name="u1", revision_name=""), None, None),
        (MatcherView(name="u1", revision_name="r"), None, Revision("demo", "r")),
        (MatcherView(name="u1", revision_name="r"), STATUS, Revision("demo", "r")),
        (MatcherView(name="u1"), STATUS, Revision("demo", "from-status", "u1")),
        (MatcherView(infer_from_volume="v"), STATUS, None),
        (MatcherView(name="u1"), VmStatus(), None),
        (MatcherView(name="u1"), VmStatus(StatusRef()), None),
        (MatcherView(name="u1"), VmStatus(StatusRef(RevisionRef())), None),
    ],
)
def test_what_pins_an_instancetype(matcher: MatcherView, status: VmStatus | None, found: Revision | None) -> None:
    assert find_pinned(matcher, "demo", status) == found


@pytest.mark.parametrize(
    ("matcher", "found"),
    [
        (MatcherView(name="u1"), Live(CLUSTER_INSTANCETYPES, "", "u1")),
        (MatcherView(name="u1", kind="VirtualMachineInstancetype"), Live(INSTANCETYPES, "demo", "u1")),
        (MatcherView(name="u1", kind="virtualmachineinstancetypeS"), Live(INSTANCETYPES, "demo", "u1")),
        (MatcherView(), Unresolved("the matcher names none")),
        (MatcherView(infer_from_volume="v"), Unresolved("it is still to be inferred from a volume")),
        (MatcherView(name="u1", kind="Flavor"), Unresolved("Flavor is not a kind of instancetype")),
    ],
)
def test_live_objects(matcher: MatcherView, found: Live | Unresolved) -> None:
    assert live(matcher, "demo") == found


def test_the_label_decides_whether_a_stored_revision_counts() -> None:
    labelled = ControllerRevision(ObjectMeta(labels={REVISION_OBJECT_NAME_LABEL: "u1"}))

    assert counts(Revision("demo", "r"), ControllerRevision())
    assert counts(Revision("demo", "r", "u1"), labelled)
    assert not counts(Revision("demo", "r", "u2"), labelled)
    assert not counts(Revision("demo", "r", "u1"), ControllerRevision())


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (RevisionData("VirtualMachineInstancetype", InstancetypeSpec("x")), "x"),
        (RevisionData("VirtualMachineClusterInstancetype", InstancetypeSpec()), ""),
        (RevisionData("VirtualMachineClusterInstancetype"), ""),
        (
            RevisionData("VirtualMachinePreference"),
            Unresolved("its revision does not hold an instancetype"),
        ),
        (RevisionData(), Unresolved("its revision does not hold an instancetype")),
        (None, Unresolved("its revision does not hold an instancetype")),
    ],
)
def test_scheduler_of_a_revision(data: RevisionData | None, found: str | Unresolved) -> None:
    assert scheduler_of(ControllerRevision(data=data)) == found
