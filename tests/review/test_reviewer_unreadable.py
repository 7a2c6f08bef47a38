"""Objects that cannot be read, by depth or by bytes, at every endpoint."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.builders import launcher_pod, review, vm
from tests.review.memory import VM_RULES_PATH, KeptInMemory, evaluate, facts_under, review_of
from webhook import names
from webhook.admission.reasons import common
from webhook.review.endpoints import BY_PATH

pytestmark = pytest.mark.repeats

_DEEP = "@deep@"
_OBJECTS = {
    # Values that the API server stores in spec.template.metadata, which has no schema.
    "deeper than we read": b"[" * 300 + b"]" * 300,
    "deeper than Python walks": b'{"a":' * 1100 + b"1" + b"}" * 1100,
    "as deep as the API server takes": b"[" * 9_990 + b"]" * 9_990,
    "of more brackets than are counted": b"[" + b"[1]," * 60_000 + b'{"a":' * 1100 + b"1" + b"}" * 1100 + b"]",
    # Bodies that no API server sends, but other clients might.
    "invalid UTF-8": b'"\xff"',
    "a lone surrogate": b'"\\ud800"',
    "a control character": b'"\x01"',
    "no JSON": b"NaN",
    "a number out of range": b"1e999999",
}


@pytest.mark.parametrize(
    ("number", "path", "mode"),
    [
        (at // 2 + (mode == "audit"), path, mode)
        for at, path in enumerate(sorted(BY_PATH))
        for mode in (("enforce",) if BY_PATH[path].stage == "enforce" else ("warn", "audit"))
    ],
)
def test_an_object_that_can_not_be_read_is_denied_by_what_validates_and_warned_of_elsewhere(
    number: int, path: str, mode: str
) -> None:
    """With every object, the new and the old one in turn; every other endpoint begins with the old one."""
    endpoint, places = BY_PATH[path], ("object", "oldObject")
    for place, (what, value) in zip(itertools.cycle(places[:: 1 - 2 * (number % 2)]), _OBJECTS.items(), strict=False):
        # In the metadata, which every view reads.
        asked = review_of(endpoint, {"kind": endpoint.kind}, **{place: {"metadata": {"labels": _DEEP}}})
        body = msgspec.json.encode(asked).replace(f'"{_DEEP}"'.encode(), value)
        kept = KeptInMemory()

        verdict, response = evaluate(asked, facts_under(endpoint.policy, mode), endpoint, kept=kept, body=body)

        refused = endpoint.verb == "validate" and mode == "enforce"
        assert verdict.decision.code == common.INVALID_OBJECT, (what, place)
        assert response["allowed"] is not refused, (what, place)
        assert response.get("status", {}).get("code") == (422 if refused else None)
        assert bool(response.get("warnings")) is (mode != "audit" and not refused)
        assert "patch" not in response
        assert kept.errors == []
        assert (kept.records[0].user, kept.records[0].object.namespace) == (builders.CONTROLLER, "demo")


@pytest.mark.parametrize("levels", [300, 1100, 9_990])
def test_an_allow_list_is_not_got_around_by_depth(levels: int) -> None:
    endpoint, what = BY_PATH[f"{VM_RULES_PATH}enforce"], {"kind": "VirtualMachineInstancetype", "name": "huge"}
    asked = review(vm(instancetype=what))
    asked["request"]["object"]["spec"]["template"]["metadata"] = _DEEP
    body = msgspec.json.encode(asked).replace(f'"{_DEEP}"'.encode(), b'{"a":' * levels + b"1" + b"}" * levels)
    facts = facts_under(names.INSTANCETYPES, "enforce", {names.ALLOWED_INSTANCETYPES_ANNOTATION: "small"})
    verdict, response = evaluate(asked, facts, endpoint, body=body)
    assert (verdict.label, response["allowed"], response["status"]["code"]) == ("denied", False, 422)
    assert f"is nested {levels + 3} levels deep" in response["status"]["message"]


def test_whether_an_endless_object_was_a_dry_run_is_not_known() -> None:
    asked = review(launcher_pod() | {"metadata": _DEEP})
    many = msgspec.json.encode(asked).replace(f'"{_DEEP}"'.encode(), _OBJECTS["of more brackets than are counted"])
    few = msgspec.json.encode(asked).replace(f'"{_DEEP}"'.encode(), _OBJECTS["deeper than Python walks"])
    assert evaluate(asked, body=many)[0].request.dry_run is True
    assert evaluate(asked, body=few)[0].request.dry_run is False


def test_what_is_read_beside_an_object_may_be_deep_too() -> None:
    def walk(value: Any) -> Any:
        return walk([value])

    endpoint = msgspec.structs.replace(BY_PATH[f"{VM_RULES_PATH}enforce"], handler=lambda *_: walk(1))
    kept = KeptInMemory()

    verdict, response = evaluate(review(vm()), facts_under(names.INSTANCETYPES, "enforce"), endpoint, kept=kept)

    assert (verdict.decision.code, response["status"]["code"]) == (common.INVALID_OBJECT, 422)
    assert kept.errors == []
