"""Namespaces are reviewed by their own labels and annotations, from the bytes of a review to the answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests import builders
from tests.annotations import MISTAKES, VALID
from tests.builders import Json, installed, review
from tests.review.memory import KeptInMemory, evaluate
from webhook import names
from webhook.admission.reasons import common
from webhook.facts import Key, KubeVirtKey, NamespaceKey
from webhook.k8s.types.scheduling import REQUIRED
from webhook.policies.defaults.settings import ANNOTATIONS as DEFAULTS
from webhook.policies.groups.settings import GROUPS_ANNOTATION
from webhook.policies.registry import BY_NAME, BY_PATH, ENDPOINTS
from webhook.policy import Endpoint
from webhook.review.reviewer import Evaluation
from webhook.text import visible

TOLERATIONS, SELECTOR = DEFAULTS["tolerations"], DEFAULTS["node_selector"]
OTHER = {"example.com/team": "a"}
EVERY = [(policy, row.annotation) for policy, row in MISTAKES.items()] + [
    ("defaults", each) for each in DEFAULTS.values()
]


def endpoint(policy: str, stage: str = "enforce") -> Endpoint:
    return BY_PATH[f"/validate/{policy}/namespaces/{stage}"]


def namespace(policy: str, annotations: Any = None, mode: str | None = "enforce", name: str = "shop") -> Json:
    labels = {names.policy_label(policy): mode} if mode else {}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels, "annotations": annotations or {}},
    }


def asked(new: Json, old: Json | None = None) -> Json:
    changes: Json = {"operation": "UPDATE", "oldObject": old} if old else {}
    return review(new, "alice", namespace=new["metadata"]["name"], name=new["metadata"]["name"], **changes)


def decide(
    policy: str, new: Json, old: Json | None = None, stage: str = "enforce", **more: Any
) -> tuple[Evaluation, Json]:
    # Nothing is known of any namespace: at CREATE there is none yet.
    facts: dict[Key[Any], object] = {KubeVirtKey(): installed()}
    return evaluate(asked(new, old), facts, endpoint(policy, stage), **more)


@pytest.mark.control("invalid-annotations")
@pytest.mark.parametrize("policy", MISTAKES)
def test_a_mistake_is_denied_where_it_is_written(policy: str) -> None:
    annotation, valid, wrong, said = MISTAKES[policy]
    for old in (None, namespace(policy), namespace(policy, {annotation: valid})):
        verdict, response = decide(policy, namespace(policy, {annotation: wrong}), old)
        assert (verdict.label, response["allowed"]) == ("denied", False)
        (cause,) = response["status"]["details"]["causes"]
        assert cause["field"] == f"metadata.annotations[{annotation}]"
        assert f"annotation {annotation}" in cause["message"]
        assert said in cause["message"]
        verdict, response = decide(policy, namespace(policy, {annotation: valid}), old)
        assert (verdict.decision.code, response["allowed"]) == (common.ANNOTATIONS_VALID, True)


@pytest.mark.parametrize("policy", MISTAKES)
def test_what_is_said_is_what_the_policy_warns_of(policy: str) -> None:
    annotation, _, wrong, _ = MISTAKES[policy]
    verdict, _ = decide(policy, namespace(policy, {annotation: wrong}))
    section = builders.settings().policy(policy).with_annotations({annotation: wrong})
    assert verdict.decision.reasons[0].text == section.annotation_mistakes[annotation]


@pytest.mark.control("invalid-annotations")
@pytest.mark.parametrize("policy", MISTAKES)
def test_an_older_mistake_keeps_nobody_from_other_changes(policy: str) -> None:
    annotation, valid, wrong, _ = MISTAKES[policy]
    old = namespace(policy, {annotation: wrong})
    for new in (
        namespace(policy, {annotation: wrong, **OTHER}),
        namespace(policy, {annotation: valid}),
        namespace(policy),
    ):
        verdict, response = decide(policy, new, old)
        assert (verdict.label, response["allowed"]) == ("allowed", True)


def test_of_several_annotations_those_count_that_the_request_changes() -> None:
    wrong, right = "[1]", '{"zone": "a"}'
    old = namespace("defaults", {TOLERATIONS: wrong})
    assert decide("defaults", namespace("defaults", {TOLERATIONS: wrong, SELECTOR: right}), old)[1]["allowed"]
    verdict, _ = decide("defaults", namespace("defaults", {TOLERATIONS: wrong, SELECTOR: "x"}), old)
    assert SELECTOR in verdict.decision.reasons[0].text


@pytest.mark.parametrize("policy", MISTAKES)
def test_to_switch_the_policy_on_beside_a_mistake_is_one(policy: str) -> None:
    annotation, _, wrong, _ = MISTAKES[policy]
    for before in (None, "off", "audit"):
        verdict, _ = decide(
            policy, namespace(policy, {annotation: wrong}), namespace(policy, {annotation: wrong}, before)
        )
        assert verdict.label == "denied"


@pytest.mark.parametrize("policy", MISTAKES)
def test_in_the_other_modes_nothing_is_denied(policy: str) -> None:
    annotation, _, wrong, _ = MISTAKES[policy]
    for mode in ("warn", "audit"):
        verdict, response = decide(policy, namespace(policy, {annotation: wrong}, mode), stage="observe")
        assert (verdict.mode, verdict.label, response["allowed"]) == (mode, "would-deny", True)
        assert bool(response.get("warnings")) == (mode == "warn")
    for off in (None, "off", "on"):
        verdict, response = decide(policy, namespace(policy, {annotation: wrong}, off))
        assert (verdict.mode, response["allowed"]) == ("off", True)


@pytest.mark.parametrize("policy", MISTAKES)
def test_where_kubevirt_runs_nothing_is_denied(policy: str) -> None:
    annotation, _, wrong, _ = MISTAKES[policy]
    verdict, response = decide(policy, namespace(policy, {annotation: wrong}, name="kubevirt"))
    assert (verdict.decision.code, response["allowed"]) == (common.EXCLUDED_NAMESPACE, True)


@pytest.mark.parametrize("policy", MISTAKES)
def test_what_cannot_be_evaluated_is_allowed(policy: str) -> None:
    """To write a namespace must not depend on this server."""
    strange = namespace(policy)
    strange["metadata"]["annotations"] = {"a": 1}
    stored = msgspec.convert(namespace(policy), endpoint(policy).codec.view)
    facts: dict[Key[Any], object] = {KubeVirtKey(): installed()}
    facts |= {NamespaceKey("shop"): stored, NamespaceKey("shop", uncached=True): stored}
    for failure_policy in ("Ignore", "Fail"):
        _, response = evaluate(asked(strange), facts, endpoint(policy), failure_policy=failure_policy)
        assert response["allowed"]
        assert response["warnings"]
        # What is not given cannot be read: the cluster raises.
        kept = KeptInMemory()
        wrong = asked(namespace(policy, {MISTAKES[policy].annotation: "["}))
        verdict, response = evaluate(wrong, {}, endpoint(policy), failure_policy=failure_policy, kept=kept)
        assert kept.errors
        assert (verdict.label, response["allowed"]) == ("error", True)


@pytest.mark.parametrize("policy", BY_NAME)
def test_each_annotation_has_values_that_its_policy_reads(policy: str) -> None:
    for key, listed in BY_NAME[policy].annotations.items():
        assert key in VALID, f"add {key} to tests/annotations.py, for the tests of namespaces and the fuzzer"
        assert set(listed) <= set(VALID[key]), f"add all values of {key} to tests/annotations.py"
        for value in VALID[key]:
            assert builders.settings().policy(policy).with_annotations({key: value}).annotation_mistakes == {}


WORDS = (
    "db",
    "apart",
    "nodes",
    "labels",
    "required",
    "cpu",
    "max",
    "key",
    "operator",
    "values",
    REQUIRED,
    "\0\u202e",
    "a\nb",
)
ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 2**70)
    | st.floats(allow_nan=False)
    | st.sampled_from(WORDS)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(EVERY), ANY_JSON.map(json.dumps) | ANY_JSON.map(repr) | st.text(max_size=40))
@example(("groups", GROUPS_ANNOTATION), "null")
@example(("defaults", SELECTOR), '{"%s": 1}' % ("k" * 16_000))
@example(("defaults", SELECTOR), '{"\u202e\\n": "a"}')
@example(("defaults", DEFAULTS["cpu_model"]), "a\nb\ud800")
def test_whatever_an_annotation_is_its_mistake_is_one_short_line(place: tuple[str, str], text: str) -> None:
    policy, annotation = place
    section = builders.settings().policy(policy).with_annotations({annotation: text})
    for key, mistake in section.annotation_mistakes.items():
        assert key == annotation
        assert visible(mistake) == mistake
        assert len(mistake) < 3000


def test_a_policy_that_has_mistakes_of_annotations_validates_namespaces() -> None:
    named = {each.policy for each in ENDPOINTS if each.resource == "namespaces"}
    assert named == MISTAKES.keys(), "add an annotation of each policy to MISTAKES in tests/annotations.py"
    assert all(not each.denies and each.on_error == "allow" for each in ENDPOINTS if each.resource == "namespaces")
