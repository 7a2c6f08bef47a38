"""JUnit's XML, as Jenkins' schema ``junit-10.xsd`` has it, which GitLab and others read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal
from xml.sax.saxutils import escape, quoteattr

import msgspec

from webhook.cli.review.remedies import remedies
from webhook.cli.review.result import Result
from webhook.cli.review.summary import Summary
from webhook.errors import InputError
from webhook.text import visible_lines

Outcome = Literal["passed", "failure", "error", "skipped"]
# XML 1.0 has no way to write these.
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JUnitCase(msgspec.Struct, frozen=True):
    """A test case.

    Attributes:
        suite: what it belongs to, for example a file.
        name: its name.
        outcome: its outcome.
        message: why it did not pass, in one line.
        details: the same in several lines.
        kind: what class of failures it belongs to, for example a reason code.
        output: what it printed.
    """

    suite: str
    name: str
    outcome: Outcome = "passed"
    message: str = ""
    details: str = ""
    kind: str = ""
    output: str = ""

    def xml(self) -> str:
        """The element of the case."""
        inner = []
        if self.outcome != "passed":
            kind = f" type={_attribute(self.kind)}" if self.kind else ""
            text = _text(self.details)
            inner.append(f"    <{self.outcome}{kind} message={_attribute(self.message)}>{text}</{self.outcome}>")
        if self.output:
            inner.append(f"    <system-out>{_text(self.output)}</system-out>")
        head = f"  <testcase classname={_attribute(self.suite)} name={_attribute(self.name)}"
        return "\n".join([f"{head}>", *inner, "  </testcase>"]) if inner else f"{head}/>"


def document(suite: str, cases: Iterable[str], counts: dict[str, int]) -> str:
    """The whole file.

    Args:
        suite: the name of the only suite.
        cases: their elements.
        counts: ``tests``, ``failures``, ``errors`` and ``skipped``.
    """
    attributes = "".join(f' {name}="{number}"' for name, number in counts.items())
    # Not in the element around it, which the schema does not let count them.
    total = attributes.replace(f' skipped="{counts["skipped"]}"', "")
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={_attribute(suite)}{total}>",
        f"<testsuite name={_attribute(suite)}{attributes}>",
        *cases,
        "</testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


class Junit:
    """A test case for each object, which fails where the object is denied.

    Args:
        fail_on: ``deny`` or ``warn``, the least that fails.
    """

    parts: frozenset[str] = frozenset()
    partial = True

    def __init__(self, fail_on: str = "deny") -> None:
        self._fail_on: Final = fail_on

    def fragment(self, result: Result) -> str:
        """The element of the object's case."""
        outcome: Outcome = "passed"
        if result.severity == "denied" or (result.severity == "warned" and self._fail_on == "warn"):
            outcome = "failure"
        elif result.severity == "unevaluated":
            outcome = "error"
        elif result.decision == "skipped":
            outcome = "skipped"
        reasons = [f"{reason['text']} [{reason['code']}]" for reason in result.reasons]
        # A denial holds the text of the reason for it.
        others = [text for text in reasons if text not in result.summary]
        details = "\n".join([f"{result.source}: {result.summary}", *remedies(result), *others])
        made = f" of {result.origin}" if result.origin else ""
        return JUnitCase(
            result.file,
            f"{result.operation} {result.title}{made} (line {result.line})",
            outcome,
            result.warnings[0] if result.severity == "warned" and result.warnings else result.summary,
            details,
            result.code,
            "\n".join(f"warning: {warning}" for warning in result.warnings),
        ).xml()

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """One suite."""
        bad = [_mistake(each) for each in mistakes]
        failed = summary.severities["denied"] + (summary.severities["warned"] if self._fail_on == "warn" else 0)
        counts = {
            "tests": len(fragments) + len(bad),
            "failures": failed,
            "errors": summary.severities["unevaluated"] + len(bad),
            "skipped": sum(" <skipped" in each for each in fragments),
        }
        return document("kubevirt-webhook review", [*fragments, *bad], counts)


def _mistake(error: InputError) -> str:
    return JUnitCase(
        error.where.partition(":")[0] or "input", "input", "error", str(error), str(error), "bad-input"
    ).xml()


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", visible_lines(text))


def _text(text: str) -> str:
    return escape(_clean(text))


def _attribute(text: str) -> str:
    return quoteattr(_clean(text))
