"""SARIF, held to the members that version 2.1.0 requires, and to those that code scanning reads."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.review.samples import HOSTILE, every, result
from webhook.admission.reasons import MEANINGS
from webhook.cli.review.result import Result
from webhook.cli.review.sarif import Sarif, place_of
from webhook.cli.review.summary import Summary
from webhook.errors import InputError


def written(*results: Result, mistakes: tuple[InputError, ...] = ()) -> Any:
    output = Sarif()
    fragments = [fragment for each in results if (fragment := output.fragment(each))]
    log = json.loads(output.document(fragments, Summary(), mistakes))
    check(log)
    return log["runs"][0]


def check(log: Any) -> None:
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"]
        rules = driver["rules"]
        assert len({rule["id"] for rule in rules}) == len(rules)
        assert all(rule["shortDescription"]["text"] for rule in rules)
        for invocation in run["invocations"]:
            assert isinstance(invocation["executionSuccessful"], bool)
            assert all(each["message"]["text"] for each in invocation.get("toolExecutionNotifications", ()))
        for each in run["results"]:
            check_result(each, rules)


def check_result(value: Any, rules: Any) -> None:
    assert value["message"]["text"]
    assert value["level"] in ("none", "note", "warning", "error")
    assert "ruleIndex" not in value or rules[value["ruleIndex"]]["id"] == value["ruleId"]
    assert all(isinstance(each, str) for each in value["partialFingerprints"].values())
    for location in value["locations"]:
        place = location["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert " " not in place["artifactLocation"]["uri"]


def test_what_needs_attention_is_a_result() -> None:
    run = written(*every())

    assert [(each["ruleId"], each["level"]) for each in run["results"]] == [
        ("instancetype-denied", "warning"),
        ("scheduler-injected", "warning"),
        ("instancetype-denied", "error"),
        ("namespace-unreadable", "error"),
    ]
    assert run["invocations"] == [{"executionSuccessful": True}]


def test_every_reason_code_is_a_rule() -> None:
    assert {rule["id"] for rule in written()["tool"]["driver"]["rules"]} == set(MEANINGS)


def test_a_moved_object_keeps_its_fingerprint() -> None:
    one, other, third = (
        written(each)["results"][0]["partialFingerprints"]
        for each in (result("denied"), result("denied", line=99, text="other words"), result("denied", name="b"))
    )

    assert one == other
    assert one != third


def test_places() -> None:
    assert place_of(InputError("x", "a b.yaml:3")) == ("a b.yaml", 3)
    assert place_of(InputError("x", "a.yaml:12: spec.template")) == ("a.yaml", 12)
    assert place_of(InputError("x", "a.yaml")) == ("a.yaml", 1)
    assert place_of(InputError("x")) == ("", 1)


def test_bad_input_is_a_notification() -> None:
    run = written(mistakes=(InputError("is broken", "a b.yaml:3"), InputError("is wrong")))
    first, second = run["invocations"][0]["toolExecutionNotifications"]

    assert run["invocations"][0]["executionSuccessful"] is False
    place = first["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("a%20b.yaml", 3)
    assert "locations" not in second


def test_hostile_text_and_absolute_files() -> None:
    (value,) = written(result("denied", HOSTILE, HOSTILE, message=HOSTILE, name=HOSTILE, file="/tmp/ä x.yaml"))[
        "results"
    ]

    assert "\x1b" not in value["message"]["text"]
    assert value["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///tmp/%C3%A4%20x.yaml"
