from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import CONTROLLER, Json
from tests.policies.decisions import changes, patched
from tests.policies.defaults.world import (
    FAST,
    GPU,
    POOL,
    PREFERRED,
    REQUIRED,
    SECTION,
    after,
    decide,
    encoded,
    pod,
    recorded,
    section,
)
from webhook import names
from webhook.admission.reasons import common
from webhook.admission.step_budget import StepBudget, TooComplex
from webhook.errors import Unavailable
from webhook.facts import KubeVirtKey
from webhook.policies.defaults import reasons, rows
from webhook.policies.defaults.pods import default_term
from webhook.policies.defaults.views import DefaultedPod

OFF = names.policy_label("defaults")
MIGRATED = {"kubevirt.io/migrationJobUID": "m"}
ZONE_B: Json = {"key": "zone", "operator": "In", "values": ["b"]}
DISK: Json = {"key": "disk", "operator": "Exists"}


def term(*expressions: Json) -> Json:
    return {"matchExpressions": [*expressions]}


def required(*terms: Json) -> Json:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [*terms]}}}


def terms(obj: Json) -> Any:
    return obj["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def test_a_pod_of_a_new_vmi_gets_all() -> None:
    spec = after(pod(recorded()))["spec"]
    assert spec["tolerations"] == [GPU]
    assert spec["nodeSelector"] == {"zone": "a"}
    affinity = {REQUIRED: {"nodeSelectorTerms": [term(POOL)]}, PREFERRED: [FAST]}
    assert spec["affinity"] == {"nodeAffinity": affinity}


class TestOldVms:
    """What limits nodes is never added to a running VM, or taken from it."""

    @pytest.mark.parametrize("labels", [{}, MIGRATED])
    def test_a_vmi_that_is_older_than_the_default_is_not_limited(self, labels: Json) -> None:
        made = pod()
        made["metadata"]["labels"] |= labels
        decision = decide(made)
        assert changes(decision).keys() >= {rows.TOLERATIONS.path, rows.PREFERRED_AFFINITY.path}
        assert not changes(decision).keys() & {rows.NODE_SELECTOR.path, rows.REQUIRED_AFFINITY.path}
        assert {reason.code for reason in decision.reasons} >= {reasons.NOT_RECORDED}

    def test_one_that_has_it_keeps_it_at_each_migration(self) -> None:
        made = pod(recorded())
        made["metadata"]["labels"] |= MIGRATED
        assert after(made)["spec"]["nodeSelector"] == {"zone": "a"}

    def test_a_default_that_has_changed_holds_it_to_neither(self) -> None:
        other = {REQUIRED: {"nodeSelectorTerms": [term(POOL, DISK)]}}
        changed = section(nodeSelector={"zone": "b", "rack": "1"}, nodeAffinity=other)
        spec = after(pod(recorded()), changed)["spec"]
        assert not spec.get("nodeSelector")
        assert spec["affinity"] == required(term(POOL)), "what both have stays"

    def test_one_that_has_ended_is_not_kept(self) -> None:
        assert decide(pod(recorded()), section(clusterWide=True)).code == reasons.NONE

    @pytest.mark.control("annotations-with-defaults")
    @pytest.mark.parametrize("text", ["", "{", "3", "[]", '{"zone":{}}', '[{"matchExpressions":3}]', "[" * 5000])
    def test_a_record_that_nobody_wrote_here_counts_for_nothing(self, text: str) -> None:
        """Any owner may write the annotation into a template."""
        forged = {rows.NODE_SELECTOR.annotation: text, rows.REQUIRED_AFFINITY.annotation: text}
        decision = decide(pod(forged))
        assert not changes(decision).keys() & {rows.NODE_SELECTOR.path, rows.REQUIRED_AFFINITY.path}


class TestOwners:
    @pytest.mark.parametrize(
        ("own", "result"),
        [
            ([], [GPU]),
            # By key and effect: another value, operator or time is the owner's choice.
            ([GPU | {"operator": "Equal", "value": "a"}], [GPU | {"operator": "Equal", "value": "a"}]),
            ([GPU | {"effect": "NoExecute"}], [GPU | {"effect": "NoExecute"}, GPU]),
            ([{"operator": "Exists"}], [{"operator": "Exists"}, GPU]),
        ],
    )
    def test_tolerations_by_key_and_effect(self, own: list[Json], result: list[Json]) -> None:
        assert after(pod(tolerations=own))["spec"]["tolerations"] == result

    @pytest.mark.parametrize(
        ("spec", "result"),
        [
            ({}, {"zone": "a"}),
            ({"nodeSelector": {"zone": "b"}}, {"zone": "b"}),
            ({"nodeSelector": {"rack": "1"}}, {"rack": "1", "zone": "a"}),
            # An owner who says the same by an affinity has chosen, too: both could not be met.
            ({"affinity": required(term(ZONE_B))}, None),
            ({"affinity": required(term(DISK), term(ZONE_B))}, None),
        ],
    )
    def test_keys_that_the_owner_has(self, spec: Json, result: Json | None) -> None:
        assert after(pod(recorded(), **spec))["spec"].get("nodeSelector") == result

    @pytest.mark.parametrize(
        ("own", "result"),
        [
            ([term(DISK), term(ZONE_B)], [term(DISK, POOL), term(ZONE_B, POOL)]),
            ([term(POOL)], [term(POOL)]),
            # A term that matches no node goes on matching none.
            ([{}, term(DISK)], [{}, term(DISK, POOL)]),
            ([{"matchFields": [POOL]}], [{"matchFields": [POOL], "matchExpressions": [POOL]}]),
        ],
    )
    def test_every_term_is_narrowed_and_none_is_added(self, own: list[Json], result: list[Json]) -> None:
        assert terms(after(pod(recorded(), affinity=required(*own)))) == result

    def test_preferences_stand_side_by_side(self) -> None:
        own = FAST | {"weight": 100}
        result = after(pod(affinity={"nodeAffinity": {PREFERRED: [own]}, "podAffinity": {"x": 1}}))["spec"]["affinity"]
        assert result == {"nodeAffinity": {PREFERRED: [own, FAST]}, "podAffinity": {"x": 1}}

    def test_an_owner_may_decline(self) -> None:
        made = pod(recorded())
        made["metadata"]["labels"][OFF] = "off"
        assert (decide(made).code, decide(made).changes) == (reasons.OPTED_OUT, ())


EXPRESSIONS = st.sampled_from([ZONE_B, DISK, POOL])
TERMS = st.lists(st.fixed_dictionaries({"matchExpressions": st.lists(EXPRESSIONS, max_size=3)}), max_size=3)
_OPTIONAL: Any = {"key": st.just("gpu"), "effect": st.just("NoSchedule")}
OWN_TOLERATIONS = st.lists(st.fixed_dictionaries({"operator": st.just("Exists")}, optional=_OPTIONAL))


@given(
    st.none() | st.dictionaries(st.sampled_from(["zone", "rack"]), st.sampled_from("ab")),
    st.none() | TERMS,
    st.none() | OWN_TOLERATIONS,
    st.sets(st.sampled_from(["tolerations", "nodeSelector", "nodeAffinity"]), min_size=1),
)
def test_whatever_the_owner_wrote_stands_and_twice_is_once(
    selector: Json | None, own: list[Json] | None, tolerations: list[Json] | None, set_rows: set[str]
) -> None:
    settings = section(**{row: SECTION[row] for row in set_rows})
    written: Json = {"nodeSelector": selector, "tolerations": tolerations}
    written |= {"affinity": required(*own)} if own is not None else {}
    # `decide` applies it twice.
    result = after(pod(recorded(settings), **written), settings)["spec"]
    assert (selector or {}).items() <= (result.get("nodeSelector") or {}).items()
    assert (result.get("tolerations") or [])[: len(tolerations or [])] == (tolerations or [])
    if own:
        for before, now in zip(own, terms({"spec": result}), strict=True):
            assert now["matchExpressions"][: len(before["matchExpressions"])] == before["matchExpressions"]
            assert before["matchExpressions"] or not now["matchExpressions"]


@given(
    st.none() | st.dictionaries(st.sampled_from(["zone", "rack"]), st.sampled_from("ab")),
    st.none() | TERMS,
    st.booleans(),
)
def test_what_other_modes_report_is_what_enforce_would_make(
    selector: Json | None, own: list[Json] | None, migrates: bool
) -> None:
    """Only ``enforce`` records defaults in the VMI. One that migrates would stay without, as with an old VM."""

    def launched(annotations: Json) -> Json:
        written: Json = {"nodeSelector": selector}
        made = pod(annotations, **written, **({"affinity": required(*own)} if own is not None else {}))
        made["metadata"]["labels"] |= MIGRATED if migrates else {}
        return made

    enforced = patched(launched({}), decide(launched({} if migrates else recorded())))
    observed = patched(launched({}), decide(launched({}), stage="observe"))
    assert observed["spec"] == enforced["spec"]


def test_a_record_counts_in_other_modes_too() -> None:
    """As of a VMI that was created while the policy was enforced."""
    made = pod({rows.NODE_SELECTOR.annotation: '{"zone":"b"}'})
    assert rows.NODE_SELECTOR.path not in changes(decide(made, stage="observe"))


@pytest.mark.parametrize(
    ("body", "user", "facts", "code"),
    [
        (pod(), "mallory", {}, common.NOT_CREATED_BY_KUBEVIRT),
        (pod(), None, {KubeVirtKey(): None}, common.KUBEVIRT_ABSENT),
        (pod(), None, {KubeVirtKey(): Unavailable("forbidden")}, common.LOOKUP_FAILED),
        (pod(nodeName="n1"), None, {}, common.POD_BOUND),
        (pod() | {"metadata": pod()["metadata"] | {"labels": {}}}, None, {}, common.NOT_LAUNCHER),
    ],
)
def test_a_pod_of_others_is_left_alone(body: Json, user: str | None, facts: Any, code: str) -> None:
    decision = decide(body, facts=facts, user=user or CONTROLLER)
    assert (decision.code, decision.changes) == (code, ())
    assert decide(pod(), operation="UPDATE", oldObject=pod()).code == common.OTHER_OPERATION


def test_an_annotation_says_what_was_added() -> None:
    annotations = after(pod(recorded()))["metadata"]["annotations"]
    assert annotations[rows.TOLERATIONS.annotation] == encoded([GPU])
    assert annotations[rows.PREFERRED_AFFINITY.annotation] == encoded([FAST])


def test_what_a_tenant_wrote_is_paid_for_with_each_default() -> None:
    """Tolerations, and the record of the affinity, which whoever owns the VM may write."""
    tolerations = [{"key": str(number)} for number in range(100)]
    with pytest.raises(TooComplex, match="tolerations"):
        StepBudget(150).run(rows.other_tolerations, tolerations, [GPU, GPU])
    settings = section(**required(term(POOL, DISK)))
    forged = {rows.REQUIRED_AFFINITY.annotation: json.dumps([term(*[POOL] * 100)])}
    launcher = msgspec.convert(pod(forged), DefaultedPod)
    assert default_term(launcher, settings) == [term(POOL)]
    with pytest.raises(TooComplex, match="expressions of the recorded node affinity"):
        StepBudget(150).run(default_term, launcher, settings)
