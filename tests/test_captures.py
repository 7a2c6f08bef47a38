"""The webhook's answers to reviews that a real API server sent, file by file (tests/data/captures.yaml)."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml

from tests import builders
from tests.builders import known
from tests.review.memory import KeptInMemory, MemoryCluster
from webhook.errors import Unavailable
from webhook.facts import Key, ObjectKey, VmiKey
from webhook.forecast.requests import endpoints
from webhook.kubevirt.resources import INSTANCETYPES
from webhook.kubevirt.types.views import Instancetype
from webhook.review.reviewer import Observer, Reviewer

DATA = Path(__file__).parent / "data"
EXPECTED: dict[str, Any] = yaml.safe_load((DATA / "captures.yaml").read_text())
STATES = [
    (name, state) for name, case in EXPECTED.items() for state in ("known", "absent", "unreadable") if state in case
]


def load(name: str) -> tuple[bytes, dict[str, Any]]:
    body = (DATA / "captures" / name).read_bytes()
    return body, json.loads(body)["request"]


def world(case: dict[str, Any], state: str) -> MemoryCluster:
    facts: dict[Key[Any], object] = known()
    depends = case.get("depends", {})
    other: object = None if state == "absent" else Unavailable("no answer in time")
    if found := depends.get("vmi"):
        vmi = builders.vmi(found.get("schedulerName"), found["uid"], found["name"])
        facts[VmiKey("demo", found["name"], found["uid"])] = vmi if state == "known" else other
    if found := depends.get("instancetype"):
        facts[ObjectKey(INSTANCETYPES, "demo", found["name"])] = Instancetype() if state == "known" else other
    return MemoryCluster(facts, peeked=set())


def test_every_capture_has_an_expectation() -> None:
    assert {path.name for path in (DATA / "captures").glob("*.json")} == set(EXPECTED)


@pytest.mark.parametrize(("name", "state"), STATES)
def test_capture(name: str, state: str) -> None:
    body, request = load(name)
    expected = EXPECTED[name][state]
    cluster = world(EXPECTED[name], state)

    async def evaluate() -> Any:
        (endpoint,) = await endpoints(request, cluster, builders.settings(), 0.0)
        reviewer = Reviewer(cluster, builders.settings, KeptInMemory(), Observer())
        return await reviewer.evaluate(endpoint, body, 1e9), json.loads(await reviewer.review(endpoint, body, 1e9))

    verdict, answer = asyncio.run(evaluate())

    assert (verdict.label, verdict.decision.code) == (expected["decision"], expected["reason"])
    response = answer["response"]
    assert (response["uid"], response["allowed"]) == (request["uid"], True)
    assert bool(response.get("warnings")) == expected.get("warned", False)
    operations = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    assert operations == expected.get("operations", [])
    if operations:
        jsonpatch.apply_patch(request["object"], operations)


@pytest.mark.parametrize("name", [name for name, case in EXPECTED.items() if not case.get("asked", True)])
def test_nobody_asks_us(name: str) -> None:
    _, request = load(name)
    assert asyncio.run(endpoints(request, world({}, "known"), builders.settings(), 0.0)) == []
