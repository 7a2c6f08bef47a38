"""JUnit's XML, held to the structure of Jenkins' schema junit-10.xsd."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import click
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.review.samples import HOSTILE, every, result
from tests.golden_files import Golden
from webhook.cli.review.formats import Github, Json, Junit, Patch, Sarif, Text, Yaml, command, place_of, remedies
from webhook.cli.review.result import Result, Summary
from webhook.errors import InputError
from webhook.policies.meanings import MEANINGS
from webhook.text import visible

# Of each element: the attributes that it may have, those that it must have, and its children.
COUNTS, STREAMS = {"name", "tests", "failures", "errors"}, {"system-out", "system-err"}
SUITE = COUNTS | {"group", "time", "skipped", "timestamp", "hostname", "id", "file"}
SCHEMA: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (COUNTS | {"time"}, set(), {"testsuite"}),
    "testsuite": (SUITE, COUNTS, {"testsuite", "properties", "testcase"} | STREAMS),
    "testcase": ({"name", "time", "classname", "group"}, {"name"}, {"skipped", "error", "failure"} | STREAMS),
    **dict.fromkeys(("failure", "error", "skipped"), ({"type", "message"}, set(), set())),
    "system-out": (set(), set(), set()),
}
# As the runner reads a line: the command, its properties up to the first "::", the message.
COMMAND = re.compile(r"::(error|warning) file=([^,:]*),line=([0-9]+),title=([^,:]*)::(.*)")
CODE = "instancetype-denied"
DENIED = result("denied", CODE, "why", message=f"kubevirt-webhook (instancetypes): why [{CODE}]")
WARNED = result("would-deny", CODE, "why", warnings=[f"kubevirt-webhook (instancetypes): why [{CODE}]"])


def test_text_fits_its_terminal() -> None:
    long = result("patched", text="a reason of many words " * 10, warnings=["a warning of many words " * 10])
    lines = Text(width=80).fragment(long).splitlines()

    assert max(map(len, lines)) <= 80
    assert all(line.startswith("  ") for line in lines[1:])
    assert len(Text().fragment(long).splitlines()) == 3
    colored = Text(width=80, color=True).fragment(result("denied", warnings=["w"]))
    assert colored.startswith("\x1b[31m\x1b[1mdenied\x1b[0m")
    assert click.unstyle(colored) == Text(width=80).fragment(result("denied", warnings=["w"]))
    hostile = Text().fragment(result("denied", text=HOSTILE, message=HOSTILE, name=HOSTILE, warnings=[HOSTILE]))
    assert len(hostile.splitlines()) == 4
    assert "\x1b" not in hostile


def test_text_leaves_out_what_needs_no_attention() -> None:
    shown = [bool(Text(quiet=True).fragment(each)) for each in every()]
    assert shown == [False, True, True, True, True, False, False]
    assert "does not call kubevirt-webhook" in Text().document([], Summary(unmatched=2), ())
    assert Text().document(["a\n", "b\n"], Summary(), ()) == "a\n\nb\n"


def test_json_is_one_object_or_a_list() -> None:
    fragments = [Json().fragment(each) for each in every()]

    assert json.loads(Json().document(fragments, Summary(), ()))[3]["message"] == "denied: because"
    assert json.loads(Json().document(fragments[:1], Summary(), ()))["source"] == "apps/vm.yaml:7"
    assert json.loads(Json().document([], Summary(), ())) == []
    assert Json().document([], Summary(), [InputError("x")]) == ""
    operation = {"op": "add", "path": "/a", "value": 1}
    assert json.loads(Patch().document([Patch().fragment(result(patch=[operation]))], Summary(), ())) == [operation]


def test_what_makes_the_reviewed_object_is_shown_itself() -> None:
    made = result("patched", object={"kind": "VirtualMachine"}, manifest={"kind": "VirtualMachinePool"})
    documents = Yaml().document([Yaml().fragment(made), Yaml().fragment(result(object={"a": 1}))], Summary(), ())
    assert list(yaml.safe_load_all(documents)) == [{"kind": "VirtualMachinePool"}, {"a": 1}]
    assert Yaml().fragment(result()) == ""


def check(element: ET.Element) -> None:
    allowed, required, children = SCHEMA[element.tag]
    assert required <= set(element.attrib) <= allowed, element.tag
    assert {child.tag for child in element} <= children, element.tag
    for child in element:
        check(child)


def written(*results: Result, fail_on: str = "deny", mistakes: tuple[InputError, ...] = ()) -> ET.Element:
    output, summary = Junit(fail_on), Summary()
    for each in results:
        summary.add(each)
    text = output.document([output.fragment(each) for each in results], summary, mistakes)
    root = ET.fromstring(text)
    check(root)
    suite = root[0]
    outcomes = [child.tag for case in suite.iter("testcase") for child in case if child.tag != "system-out"]
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert suite.attrib[count] == str(outcomes.count(tag)), count
    assert suite.attrib["tests"] == str(len(list(suite.iter("testcase"))))
    return suite


@pytest.mark.parametrize(("fail_on", "failures"), [("deny", 1), ("warn", 3)])
def test_every_outcome(fail_on: str, failures: int) -> None:
    suite = written(*every(), fail_on=fail_on)
    assert suite.attrib["failures"] == str(failures)
    assert [case.attrib["classname"] for case in suite] == ["apps/vm.yaml"] * 7


def test_a_denial_says_why_and_where() -> None:
    (case,) = written(result("denied", "instancetype-denied", message="because", origin="VirtualMachinePool shop/p"))
    (failure,) = case
    assert failure.attrib == {"type": "instancetype-denied", "message": "because"}
    assert "apps/vm.yaml:7" in (failure.text or "")
    assert "VirtualMachinePool shop/p" in case.attrib["name"]


def test_warnings_are_output_and_bad_input_is_an_error() -> None:
    suite = written(result(warnings=["take care"]), mistakes=(InputError("is broken", "a.yaml:3", "mend it"),))
    assert [(child.tag, child.text) for child in suite[0]] == [("system-out", "warning: take care")]
    assert suite.attrib["errors"] == "1"
    assert suite[1][0].attrib["message"] == "a.yaml:3: is broken; mend it"


@pytest.mark.control("commands-in-pipelines")
def test_no_text_of_an_object_reaches_the_markup() -> None:
    hostile = result("denied", HOSTILE, HOSTILE, message=HOSTILE, name=HOSTILE, file=HOSTILE, warnings=[HOSTILE])
    suite = written(hostile, mistakes=(InputError(HOSTILE, HOSTILE),))
    assert len(suite) == 2
    assert "\x1b" not in ET.tostring(suite, encoding="unicode")


def sarif_of(*results: Result, mistakes: tuple[InputError, ...] = ()) -> Any:
    output = Sarif()
    fragments = [fragment for each in results if (fragment := output.fragment(each))]
    log = json.loads(output.document(fragments, Summary(), mistakes))
    check_sarif(log)
    return log["runs"][0]


def check_sarif(log: Any) -> None:
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    rules, (invocation,) = run["tool"]["driver"]["rules"], run["invocations"]
    assert run["tool"]["driver"]["name"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert all(rule["shortDescription"]["text"] for rule in rules)
    assert isinstance(invocation["executionSuccessful"], bool)
    assert all(each["message"]["text"] for each in invocation.get("toolExecutionNotifications", ()))
    for value in run["results"]:
        assert value["message"]["text"]
        assert value["level"] in ("none", "note", "warning", "error")
        assert "ruleIndex" not in value or rules[value["ruleIndex"]]["id"] == value["ruleId"]
        assert all(isinstance(each, str) for each in value["partialFingerprints"].values())
        (place,) = (location["physicalLocation"] for location in value["locations"])
        assert place["region"]["startLine"] >= 1
        assert " " not in place["artifactLocation"]["uri"]


def test_what_needs_attention_is_a_result() -> None:
    run = sarif_of(*every())

    assert [(each["ruleId"], each["level"]) for each in run["results"]] == [
        *(("instancetype-denied", "warning"), ("warning", "warning")),
        *(("instancetype-denied", "error"), ("namespace-unreadable", "error")),
    ]
    assert run["invocations"] == [{"executionSuccessful": True}]
    assert {rule["id"] for rule in sarif_of()["tool"]["driver"]["rules"]} == set(MEANINGS)


def test_a_moved_object_keeps_its_fingerprint() -> None:
    one, other, third = (
        sarif_of(each)["results"][0]["partialFingerprints"]
        for each in (result("denied"), result("denied", line=99, text="other words"), result("denied", name="b"))
    )
    assert one == other
    assert one != third


def test_bad_input_is_a_notification() -> None:
    assert place_of(InputError("x", "a.yaml:12: spec.template")) == ("a.yaml", 12)
    assert place_of(InputError("x", "a.yaml")) == ("a.yaml", 1)
    assert place_of(InputError("x")) == ("", 1)
    run = sarif_of(mistakes=(InputError("is broken", "a b.yaml:3"), InputError("is wrong")))
    first, second = run["invocations"][0]["toolExecutionNotifications"]

    assert run["invocations"][0]["executionSuccessful"] is False
    place = first["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("a%20b.yaml", 3)
    assert "locations" not in second


def test_hostile_text_and_absolute_files() -> None:
    hostile = result("denied", HOSTILE, HOSTILE, message=HOSTILE, name=HOSTILE, file="/tmp/ä x.yaml")
    (value,) = sarif_of(hostile)["results"]
    assert "\x1b" not in value["message"]["text"]
    assert value["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///tmp/%C3%A4%20x.yaml"


def test_what_needs_attention_is_annotated() -> None:
    fragments = [fragment for each in every() if (fragment := Github().fragment(each))]

    assert [each.partition(" ")[0] for each in fragments] == ["::warning", "::warning", "::error", "::error"]
    assert fragments[2] == (
        "::error file=apps/vm.yaml,line=7,title=VirtualMachine shop/web%3A denied"
        f"::denied: because [instancetype-denied]%0AWhat to do: {MEANINGS['instancetype-denied'].remedy}"
    )
    # Warnings without codes, such as the API server's own, get none of another reason, nor its remedy.
    assert fragments[1].endswith("::take care%0Atwice")
    # Each code leads to its fix once.
    warnings = ["a [no-such-code]", "b [instancetype-missing]", "c [instancetype-missing]"]
    lines = Github().fragment(result("allowed", "instancetype-missing", warnings=warnings)).split("%0A")
    assert lines[3:] == [f"What to do: {MEANINGS['instancetype-missing'].remedy}"]
    text = Github().document(["::error ::x"], Summary(), [InputError("is broken", "a.yaml:3: spec", "mend it")])
    assert text.splitlines()[1] == ("::error file=a.yaml,line=3,title=bad input::a.yaml:3: spec: is broken; mend it")


@pytest.mark.control("commands-in-pipelines")
def test_no_object_can_give_a_command() -> None:
    hostile = result("denied", HOSTILE, HOSTILE, message=HOSTILE, name=HOSTILE, file=HOSTILE, origin=HOSTILE)
    fragment = Github().fragment(hostile)
    assert fragment.count("\n") == 0
    assert COMMAND.fullmatch(fragment)


@pytest.mark.control("commands-in-pipelines")
@given(st.text(), st.text(), st.text())
def test_the_runner_reads_what_was_written(file: str, title: str, text: str) -> None:
    line = command("error", file, 3, title, text)
    read = COMMAND.fullmatch(line)
    assert read
    assert len(line.splitlines()) == 1
    if visible(text) == text:
        assert unquote(read[5]) == text


@pytest.mark.parametrize("found", [DENIED, WARNED])
def test_the_fix_is_beside_the_reason(found: Result) -> None:
    remedy = MEANINGS[CODE].remedy
    assert remedy
    text = Text().fragment(found)
    # A denial and a warning hold the sentence of the reason for them, which is not repeated.
    assert (remedy in text, text.count(": why")) == (True, 1)
    assert remedy in Github().fragment(found)
    assert remedy in (ET.fromstring(Junit("warn").fragment(found))[0].text or "")


def test_what_is_allowed_needs_no_fix() -> None:
    assert {remedies(each) for each in every() if each.severity == "fine"} == {()}
    assert remedies(result("denied", message="without a code")) == ()
    # A reason is not repeated.
    (failure,) = ET.fromstring(Junit().fragment(DENIED))
    assert (failure.text or "").count("why") == 1


def summary(*results: Result, **fields: int) -> Summary:
    made = Summary(files=1, **fields)  # type: ignore[arg-type]
    for each in results:
        made.add(each)
    return made


@pytest.mark.parametrize(
    ("results", "status", "strict"),
    [
        *(([result("patched"), result("skipped")], 0, 0), ([result(warnings=["w"])], 0, 1)),
        *(([result("would-deny")], 0, 1), ([result("denied")], 1, 1), ([result("error")], 3, 3)),
        *(([result("error"), result("denied")], 1, 1), ([result("error"), result(warnings=["w"])], 3, 1)),
    ],
)
def test_exit_status(results: list[Result], status: int, strict: int) -> None:
    made = summary(*results)
    assert made.exit_status("deny") == status
    assert made.exit_status("warn") == strict


def test_one_line_says_everything(golden: Golden) -> None:
    made = summary(*every(), foreign=1, mistakes=2)
    made.join(summary(result("patched"), result("patched")))
    assert (made.total, made.exit_status("deny")) == (9, 2), "bad input weighs most"
    golden(made.line())
    assert summary(result()).line() == "1 object in 1 file: 1 allowed"
    assert Summary(files=1, unmatched=3).line() == "0 objects in 1 file: 3 of other kinds"
