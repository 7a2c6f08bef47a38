"""JUnit's XML, held to the structure of Jenkins' schema junit-10.xsd."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.cli.review.samples import HOSTILE, every, result
from webhook.cli.review.junit import Junit
from webhook.cli.review.result import Result
from webhook.cli.review.summary import Summary
from webhook.errors import InputError

# Of each element: the attributes that it may have, those that it must have, and its children.
SCHEMA: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set(), {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp", "hostname", "id", "file"},
        {"name", "tests", "failures", "errors"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "testcase": (
        {"name", "time", "classname", "group"},
        {"name"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "failure": ({"type", "message"}, set(), set()),
    "error": ({"type", "message"}, set(), set()),
    "skipped": ({"type", "message"}, set(), set()),
    "system-out": (set(), set(), set()),
}


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


def test_warnings_are_output() -> None:
    (case,) = written(result(warnings=["take care"]))

    assert [(child.tag, child.text) for child in case] == [("system-out", "warning: take care")]


def test_bad_input_is_an_error() -> None:
    suite = written(result(), mistakes=(InputError("is broken", "a.yaml:3", "mend it"),))

    assert suite.attrib["errors"] == "1"
    assert suite[1][0].attrib["message"] == "a.yaml:3: is broken; mend it"


def test_no_text_of_an_object_reaches_the_markup() -> None:
    hostile = result("denied", HOSTILE, HOSTILE, message=HOSTILE, name=HOSTILE, file=HOSTILE, warnings=[HOSTILE])
    suite = written(hostile, mistakes=(InputError(HOSTILE, HOSTILE),))

    assert len(suite) == 2
    assert "\x1b" not in ET.tostring(suite, encoding="unicode")
