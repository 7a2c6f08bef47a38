"""Three objects that took seconds, or megabytes, when they were first tried."""

from __future__ import annotations

import gc
import json
import sys
from base64 import b64decode
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.attacks.counting import lines
from tests.attacks.world import ended
from tests.builders import Json, read_node
from tests.policies.migration import world
from tests.policies.migration.world import target_pod
from tests.review.memory import MemoryCluster
from webhook.admission.audit import NoAudit
from webhook.admission.reasons import common
from webhook.facts import Key, NodesKey, ObjectKey
from webhook.placement.index import NodeIndex
from webhook.placement.machines import MIGRATIONS, Migration
from webhook.policies.registry import BY_PATH
from webhook.review.reviewer import Observer, Reviewer

VALIDATE = "/validate/migration/virtualmachineinstancemigrations/enforce"

# etcd stores no larger object, so a larger answer would be useless.
MAX_ANSWER = 2 * 1024 * 1024
# Lines of Python; an everyday migration takes some 1,500.
BOUND = 1_000_000


def ask(path: str, obj: Json, known: dict[Key[Any], object], user: str = world.USER) -> bytes:
    """The answer of a review that takes few enough lines.

    Raises:
        EndlessError: it takes more than `BOUND`.
    """
    endpoint, body = BY_PATH[path], msgspec.json.encode(world.asking(obj, user))
    cluster = MemoryCluster({**known, **builders.opted_in(endpoint.policy)})
    reviewer = Reviewer(cluster, builders.settings, NoAudit(), Observer())
    answers: list[bytes] = []
    lines(lambda: answers.append(ended(reviewer.review(endpoint, body, 1e9))), BOUND)
    return answers[0]


def test_what_other_tests_left_behind_is_no_cost() -> None:
    finalized: list[str] = []

    class Leftover:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            finalized.append("counted" if sys.gettrace() else "not counted")

    Leftover()
    # Enough containers for the collector of every generation to begin, were it not held back.
    lines(lambda: [[[]] for _ in range(200_000)])
    gc.collect()
    assert finalized == ["not counted"]


@pytest.mark.control("quadratic-lists")
def test_eight_thousand_times_the_same_cpu_feature() -> None:
    features = [{"name": "vmx", "policy": "forbid"}] * 8000
    found = world.vmi(domain={"cpu": {"model": "host-passthrough", "features": features}})
    assert json.loads(ask(VALIDATE, world.migration({"zone": "b"}), world.facts(found)))["response"]["allowed"] is True


@pytest.mark.control("quadratic-lists")
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_thresholds_over_a_label_that_every_node_has_with_a_value_of_its_own(operator: str) -> None:
    nodes = [world.node(f"node-{number}", "b", serial=str(number)) for number in range(2000)]
    terms = [{"matchExpressions": [{"key": "serial", "operator": operator, "values": [str(n)]}]} for n in range(800)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    found = world.vmi(affinity={"nodeAffinity": required})
    answer = ask(VALIDATE, world.migration({"zone": "b"}), world.facts(found, nodes))
    assert json.loads(answer)["response"]["allowed"] is True


@pytest.mark.control("endless-answers")
def test_a_target_pod_with_many_terms_for_a_migration_with_many_keys() -> None:
    added = {f"key-{number}": "x" for number in range(1000)}
    terms = [{"matchExpressions": [{"key": f"k{n}", "operator": "Exists"}]} for n in range(200)]
    pod = target_pod(terms)
    known = {
        **world.facts(),
        ObjectKey(MIGRATIONS, "demo", "m1"): msgspec.convert(world.migration(added), Migration),
        NodesKey(): NodeIndex(read_node(one) for one in world.NODES),
    }

    answer = ask("/mutate/migration/pods/enforce", pod, known, builders.CONTROLLER)

    response = json.loads(answer)["response"]
    assert len(answer) < MAX_ANSWER
    assert (response["allowed"], response["auditAnnotations"]["reason"]) == (True, common.TOO_COMPLEX)
    assert "nodeSelectorTerms" in response["warnings"][0]
    assert not b64decode(response.get("patch", ""))
