"""Reviews that end in a bug or in a fact that cannot be read, or that take too many steps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import known, launcher_pod, review, vm, vmi
from tests.review.memory import (
    MIGRATION_PATH,
    PODS,
    VM_RULES_PATH,
    KeptInMemory,
    MemoryCluster,
    evaluate,
    facts_under,
    raise_bug,
    review_of,
    with_policy,
)
from webhook import names
from webhook.admission.decision import Decision, Reason, skip
from webhook.admission.reasons import common
from webhook.admission.step_budget import MAX_STEPS, spend
from webhook.errors import Unavailable
from webhook.facts import Facts, NamespaceKey, NotRead
from webhook.review.endpoints import BY_PATH, Endpoint
from webhook.review.replay import MAX_ROUNDS


def _validating(policy: Any) -> Endpoint:
    return msgspec.structs.replace(PODS, handler=policy, verb="validate")


def _curious(view: object, request: object, facts: Facts, section: object) -> Decision:
    for number in range(MAX_ROUNDS * 2):
        facts.get(NamespaceKey(f"n{number}"))
    return skip(Reason("done", "done"))


@pytest.mark.parametrize("policy", [raise_bug, _curious])
def test_a_bug_admits_where_the_endpoint_says_so(policy: Any) -> None:
    kept = KeptInMemory()
    facts: Any = {NamespaceKey(f"n{number}"): None for number in range(100)}
    cluster = MemoryCluster(known(vmi()) | facts, peeked=set())

    verdict, response = evaluate(review(launcher_pod()), endpoint=with_policy(policy), cluster=cluster, kept=kept)

    assert (verdict.decision.code, response["allowed"]) == (common.BUG, True)
    assert "patch" not in response
    assert len(kept.errors) == 2
    assert not isinstance(kept.errors[0], NotRead)


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
@pytest.mark.parametrize("path", [MIGRATION_PATH, VM_RULES_PATH])
def test_a_bug_refuses_where_the_failure_policy_says_so(path: str, policy: Any) -> None:
    endpoint = msgspec.structs.replace(BY_PATH[f"{path}enforce"], handler=raise_bug)
    asked = review_of(endpoint, {"kind": endpoint.kind, "metadata": {"name": "web01"}})

    _, response = evaluate(asked, facts_under(endpoint.policy, "enforce"), endpoint, failure_policy=policy)

    assert response["allowed"] is (policy == "Ignore")
    assert response.get("status", {}).get("code") == (503 if policy == "Fail" else None)
    assert bool(response.get("warnings")) is (policy == "Ignore")


def test_a_namespace_that_can_not_be_read_refuses_where_the_failure_policy_says_so() -> None:
    endpoint, unreadable = BY_PATH[f"{VM_RULES_PATH}enforce"], Unavailable("no answer")
    facts: Any = known() | {NamespaceKey("demo"): unreadable, NamespaceKey("demo", fresh=True): unreadable}

    answers = [evaluate(review(vm()), facts, endpoint, failure_policy=p)[1] for p in ("Ignore", "Fail")]

    assert [answer["allowed"] for answer in answers] == [True, False]
    assert "no answer" in answers[0]["warnings"][0]


def test_observing_never_refuses_and_a_bug_is_silent() -> None:
    endpoint = msgspec.structs.replace(BY_PATH[f"{MIGRATION_PATH}observe"], handler=raise_bug)
    verdict, response = evaluate(
        review_of(endpoint, {"kind": endpoint.kind}), facts_under(names.MIGRATION, "audit"), endpoint
    )

    assert (verdict.mode, verdict.label, response["allowed"]) == ("audit", "error", True)
    assert "warnings" not in response


def _endless(*_: object) -> Decision:
    try:
        spend(MAX_STEPS + 1, "terms")
    except Exception:
        return skip(Reason(common.ELIGIBLE, "a policy forgives what it does not know"))
    raise AssertionError


def test_what_is_too_complex_is_allowed_with_a_warning() -> None:
    verdict, response = evaluate(review(launcher_pod()), endpoint=with_policy(_endless))

    assert (verdict.label, verdict.decision.code, verdict.mode) == ("error", common.TOO_COMPLEX, "enforce")
    assert response["allowed"] is True
    assert "terms" in response["warnings"][0]
    assert "patch" not in response


def test_what_is_too_complex_is_refused_where_errors_are() -> None:
    verdict, response = evaluate(review(launcher_pod()), endpoint=_validating(_endless))

    assert (verdict.label, verdict.decision.code) == ("error", common.TOO_COMPLEX)
    # The status is not 503, since a retry would not help.
    assert (response["allowed"], response["status"]["code"]) == (False, 422)


@pytest.mark.parametrize("mode", ["warn", "audit"])
def test_what_is_too_complex_is_refused_in_enforce_only(mode: str) -> None:
    _, response = evaluate(review(launcher_pod()), known(vmi(), mode=mode), _validating(_endless))

    assert response["allowed"] is True
