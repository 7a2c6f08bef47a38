"""Target pods: the AND that nothing can drop."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import CONTROLLER, Json
from tests.policies.decisions import patched
from tests.policies.migration.world import AMD, INTEL, decide, facts, migration, target_pod, terms
from webhook.admission.decision import Decision
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import ObjectKey
from webhook.k8s.types.selectors import Expression, Term
from webhook.placement.machines import MIGRATIONS, PLACED_VMIS, Migration
from webhook.policies.migration import reasons

PLACE = "mutate/migration/pods"
CAPTURE = Path(__file__).parents[2] / "data" / "captures" / "pod-create-migration-target.json"
B = {"key": "zone", "operator": "In", "values": ["b"]}
FEATURE = "cpu-feature.node.kubevirt.io/x"


def evaluate(
    obj: Json, added: dict[str, str] | None, user: str = CONTROLLER, world: Any = None, **settings: Any
) -> Decision:
    known: Any = facts() if world is None else world
    known = {ObjectKey(MIGRATIONS, "demo", "m1"): msgspec.convert(migration(added), Migration)} | known
    decision = decide(obj, known, PLACE, user, **settings)
    assert not decision.denial, "a target pod is never refused"
    if decision.changes:
        assert not decide(patched(obj, decision), known, PLACE, user, **settings).changes, "a reinvocation adds nothing"
    return decision


def keys(obj: Json, decision: Decision) -> list[str]:
    return [expression["key"] for expression in terms(obj, decision)[0]["matchExpressions"]]


def test_a_pod_without_affinity_gets_a_term_and_every_term_is_narrowed() -> None:
    decision = evaluate(target_pod(), {"zone": "b"})
    assert decision.code == reasons.CONSTRAINED
    assert terms(target_pod(), decision) == [{"matchExpressions": [B]}]
    assert decision.notes == {"added-node-selector": "zone=b"}
    one, two = {"key": "disk", "operator": "Exists"}, {"key": "metadata.name", "operator": "In", "values": ["n"]}
    obj = target_pod([{"matchExpressions": [one]}, {"matchFields": [two]}])
    assert terms(obj, evaluate(obj, {"zone": "b"})) == [
        {"matchExpressions": [one, B]},
        {"matchFields": [two], "matchExpressions": [B]},
    ]
    # A key that KubeVirt has dropped holds.
    obj = target_pod(selector={"zone": "a"})
    assert terms(obj, evaluate(obj, {"zone": "b"})) == [{"matchExpressions": [B]}]
    ignored = evaluate(obj, {"zone": "b"}, collision="ignore")
    assert not ignored.changes
    assert ignored.reasons[0] == reasons.already_constrained("")
    # Keys that agree hold with collisions ignored too.
    assert evaluate(target_pod(selector={"zone": "b"}), {"zone": "b"}, collision="ignore").changes


@pytest.mark.parametrize("given_", [None, [], [{}], [{"matchExpressions": []}], [{"matchExpressions": None}]])
def test_what_matches_nothing_goes_on_matching_nothing(given_: Any) -> None:
    assert evaluate(target_pod(given_), {"zone": "b"}).reasons == (reasons.already_constrained("zone=b"),)


@pytest.mark.control("cpu-vendor-widened")
def test_the_vendor_guard_is_restored() -> None:
    obj = target_pod(selector={AMD: "true"})
    assert keys(obj, evaluate(obj, {AMD: "true"})) == [AMD, INTEL]


def test_cpu_keys_do_not_stick_to_later_migrations() -> None:
    obj = target_pod(selector={FEATURE: "true", "zone": "b"})
    assert patched(obj, evaluate(obj, {FEATURE: "true", "zone": "b"}))["spec"]["nodeSelector"] == {"zone": "b"}
    assert keys(obj, evaluate(obj, {FEATURE: "true", "zone": "b"})) == [FEATURE, "zone"]


def test_pods_that_are_none_of_ours() -> None:
    source, foreign = target_pod(), target_pod()
    del source["metadata"]["annotations"]
    del foreign["metadata"]["labels"]["kubevirt.io"]
    assert evaluate(source, {"zone": "b"}).code == reasons.NOT_A_TARGET
    assert evaluate(foreign, {"zone": "b"}).code == common.NOT_LAUNCHER
    assert evaluate(target_pod(), {"zone": "b"}, user="mallory").code == common.NOT_CREATED_BY_KUBEVIRT
    assert evaluate(target_pod(), None).code == reasons.NO_ADDED_SELECTOR
    assert evaluate(target_pod(uid="another"), {"zone": "b"}).code == reasons.MIGRATION_NOT_FOUND


@pytest.mark.parametrize(
    ("answer", "code"), [(None, reasons.MIGRATION_NOT_FOUND), (Unavailable("x"), common.LOOKUP_FAILED)]
)
def test_migrations_that_can_not_be_read(answer: object, code: str) -> None:
    decision = evaluate(target_pod(), {"zone": "b"}, world=facts() | {ObjectKey(MIGRATIONS, "demo", "m1"): answer})
    assert (decision.code, decision.changes) == (code, ())
    assert bool(decision.warnings) == (code == common.LOOKUP_FAILED)


def test_what_is_added_holds_though_the_guards_are_not_known() -> None:
    unread = facts() | {ObjectKey(PLACED_VMIS, "demo", "web01"): Unavailable("no answer")}
    obj = target_pod(selector={AMD: "true"})
    decision = evaluate(obj, {AMD: "true", "zone": "b"}, world=unread)
    assert keys(obj, decision) == [AMD, "zone"]
    assert [reason.code for reason in decision.reasons] == [reasons.CONSTRAINED, common.LOOKUP_FAILED]
    assert [warning.code for warning in decision.warnings] == [common.LOOKUP_FAILED]
    assert "VirtualMachineInstance demo/web01" in decision.warnings[0].text
    assert decision.warnings[0].text.endswith("no answer")


def test_a_pod_that_kubevirt_really_made() -> None:
    review = json.loads(CAPTURE.read_bytes())["request"]
    obj = review["object"]
    policy = migration({"zone": "b"})
    policy["metadata"]["uid"] = obj["metadata"]["labels"]["kubevirt.io/migrationJobUID"]
    world = facts() | {ObjectKey(MIGRATIONS, "demo", "m1"): msgspec.convert(policy, Migration)}

    decision = evaluate(obj, None, world=world)

    (term,) = terms(obj, decision)
    assert term["matchExpressions"] == [
        {"key": "node-labeller.kubevirt.io/obsolete-host-model", "operator": "DoesNotExist"},
        B,
    ]
    before, after = copy.deepcopy(obj), patched(obj, decision)
    before["spec"]["affinity"]["nodeAffinity"] = after["spec"]["affinity"]["nodeAffinity"]
    assert before == after


LABELS = st.dictionaries(st.sampled_from(["zone", "disk", "gpu"]), st.sampled_from(["a", "b"]), max_size=3)
OPERATORS: list[tuple[str, Json]] = [
    *((operator, {"values": [value]}) for operator in ("In", "NotIn") for value in "ab"),
    *((operator, {}) for operator in ("Exists", "DoesNotExist")),
]
EXPRESSIONS = st.sampled_from(
    [{"key": key, "operator": operator} | values for key in ("zone", "disk", "gpu") for operator, values in OPERATORS]
)
TERMS = st.lists(st.builds(lambda some: {"matchExpressions": some}, st.lists(EXPRESSIONS, max_size=2)), max_size=3)


def matches(some: Any, labels: dict[str, str]) -> bool:
    """Kubernetes' own rule, by the port that the vectors verify."""
    read = (
        [Expression(each["key"], each["operator"], tuple(each.get("values", ()))) for each in term["matchExpressions"]]
        for term in some
    )
    return any(Term.of(tuple(expressions), (), "").matches(labels, "n") for expressions in read)


@given(given_=TERMS, added=LABELS, labels=LABELS)
def test_the_result_is_the_and_of_both(given_: Any, added: dict[str, str], labels: dict[str, str]) -> None:
    obj = target_pod(given_)
    if not added:
        return
    decision = evaluate(obj, added)
    expected = matches(given_, labels) and all(labels.get(key) == value for key, value in added.items())
    assert matches(terms(obj, decision) if decision.changes else given_, labels) == expected


@pytest.mark.parametrize(
    "odd",
    [
        {"key": "zone", "operator": "In", "values": ["b", "c"]},
        {"key": "zone", "operator": "In", "values": ["b"], "more": 1},
        {"key": "zone", "operator": "NotIn", "values": ["b"]},
        {"key": "zone", "operator": "In", "values": "b"},
        {"key": 1, "operator": "In", "values": ["b"]},
        None,
        "zone=b",
    ],
)
def test_only_an_equal_expression_is_there_already(odd: Any) -> None:
    obj = target_pod([{"matchExpressions": [odd]}])
    assert terms(obj, evaluate(obj, {"zone": "b"})) == [{"matchExpressions": [odd, B]}]


def test_what_is_malformed_is_left_to_the_api_server() -> None:
    assert not evaluate(target_pod(), {"zone": "not a label!"}).changes
    assert not evaluate(target_pod([{"matchExpressions": "zone=b"}]), {"zone": "b"}).changes
