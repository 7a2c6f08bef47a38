"""The outputs of a review: each writes a fragment for every object, and a document around all fragments."""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import click

from webhook import __version__
from webhook.admission.reasons.catalog import LOG
from webhook.cli.console import STYLES, change_line, console
from webhook.cli.review.result import Result, Summary, codes_in
from webhook.cli.write import dump
from webhook.errors import InputError
from webhook.forecast.requests import OWNER
from webhook.policies.instancetypes.reasons import MISSING
from webhook.policies.meanings import MEANINGS
from webhook.text import visible, visible_lines

# A command has no log: what it could not read is in what it was given, or needs a permission.
_NO_LOG: Final = "Add what could not be read to the cluster's objects, or get the permission to read it."
_NOTHING: Final = "the API server does not call kubevirt-webhook for any of these objects\n"
SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {"denied": "error", "unevaluated": "error", "warned": "warning"}
_RULES: Final = {code: index for index, code in enumerate(sorted(MEANINGS))}
_PLACE: Final = re.compile(r"(?P<file>.+?):(?P<line>[1-9][0-9]{0,8})(?::.*)?")
_WORDS: Final = {"invalid": "invalid", "denied": "denied", "unevaluated": "not evaluated", "warned": "warning"}
Outcome = Literal["passed", "failure", "error", "skipped"]
# XML 1.0 has no way to write these.
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class OutputFormat(ABC):
    """An output. Fragments are made in several processes, the document in the one that prints it.

    Attributes:
        parts: the parts of results that it shows, whose secrets are redacted: ``object``, ``patch`` and ``changes``.
        partial: whether it says what is wrong with the input, so that it is printed even then.
    """

    parts: ClassVar[frozenset[str]] = frozenset()
    partial: ClassVar[bool] = True

    @abstractmethod
    def fragment(self, result: Result) -> str:
        """What the output says about one object; empty if nothing."""

    @abstractmethod
    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """The whole output: the fragments of all objects, in their order, without empty ones."""


class Text(OutputFormat):
    """For people: a headline for each object, then reasons, changes and warnings.

    Args:
        width: of the terminal, in columns; None: lines are not broken.
        color: whether the terminal shows colors.
        quiet: whether objects are left out that are allowed without a warning.
    """

    parts = frozenset({"changes"})

    def __init__(self, width: int | None = None, *, color: bool = False, quiet: bool = False) -> None:
        self._width: Final = width
        self._color: Final = color
        self._quiet: Final = quiet

    @classmethod
    def of_terminal(cls, *, quiet: bool) -> Text:
        """The format for standard output as it is."""
        out = console()
        return cls(out.width if out.is_terminal else None, color=out.is_terminal and not out.no_color, quiet=quiet)

    def fragment(self, result: Result) -> str:
        """A headline, and what led to the decision."""
        if (self._quiet and result.severity == "fine") or not result.matched:
            return ""
        by = f"  by {result.user}" if result.user not in ("", OWNER) else ""
        made = f" of {result.origin}" if result.origin else ""
        head = f"  {result.operation} {result.title}{made}{by}  ({result.source})"
        lines = [self._headline(result.decision, visible(head))]
        if result.message and not result.findings:
            lines.append(self._line("  ", result.message))
        places = [f"{result.file}:{each['line']}: {each['text']}" for each in result.findings]
        lines += [self._line("  ", f"{place} [{result.code}]") for place in places]
        lines += [self._line("  ", f"warning: {warning}", fg="yellow") for warning in result.warnings_by_weight]
        answer = "\n".join([result.message or "", *result.warnings])
        said: set[str] = set()
        for evaluation in result.judgements:
            who = f"{evaluation['policy']} ({evaluation['mode']})"
            # Another denial than the one that the API server may answer with.
            who += ": denied" if evaluation["decision"] == "denied" else ""
            texts = [f"{reason['text']} [{reason['code']}]" for reason in evaluation["reasons"]]
            # A denial and a warning hold the text of the reason for them; two endpoints of a policy may give one.
            new = [f"{who}: {text}" for text in texts if text not in answer and f"{who}: {text}" not in said]
            said.update(new)
            lines += [self._line("  ", text) for text in new]
            lines += [self._line("    ", change_line(change)) for change in evaluation["changes"]]
        lines += [self._line("  ", text) for text in remedies(result)]
        return "".join(f"{line}\n" for line in lines)

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """The fragments with an empty line between them."""
        return _NOTHING if not fragments and summary.unmatched and not summary.decisions else "\n".join(fragments)

    def _headline(self, decision: str, text: str) -> str:
        line = self._wrap(decision + text, "  ")
        if not self._color:
            return line
        words = STYLES[decision].split()
        is_dim = "dim" in words
        styled = click.style(decision, None if is_dim else words[-1], bold="bold" in words or None, dim=is_dim or None)
        return styled + line[len(decision) :]

    def _line(self, indent: str, text: str, **style: Any) -> str:
        line = self._wrap(indent + visible(text), indent + "  ")
        return click.style(line, **style) if self._color and style else line

    def _wrap(self, text: str, indent: str) -> str:
        """A line, broken between words where the terminal ends."""
        width = self._width
        if width is None or len(text) <= width:
            return text
        return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


class Json(OutputFormat):
    """All that is known about each object."""

    parts = frozenset({"object", "patch", "changes"})

    def fragment(self, result: Result) -> str:
        """The result as a JSON object."""
        return json.dumps(result.as_json(), indent=2)

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """A single fragment, or a list of several."""
        if not fragments:
            return "" if mistakes else "[]\n"
        if len(fragments) == 1:
            return f"{fragments[0]}\n"
        return "[\n" + ",\n".join(textwrap.indent(each, "  ") for each in fragments) + "\n]\n"


class Patch(Json):
    """The JSON patches."""

    parts = frozenset({"patch"})
    partial = False

    def fragment(self, result: Result) -> str:
        """The operations."""
        return json.dumps(result.patch, indent=2)


class Yaml(OutputFormat):
    """The patched objects; one that makes the reviewed object is shown itself, since nothing is changed in it."""

    parts = frozenset({"object"})
    partial = False

    def fragment(self, result: Result) -> str:
        """The object."""
        shown = result.object if result.manifest is None else result.manifest
        # What is invalid is not passed on.
        return "" if shown is None or result.findings else dump([shown])

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """A stream of documents."""
        return "---\n".join(fragments)


def remedies_of(text: str, near: str = "") -> Iterator[str]:
    """A sentence for each code that a line of the text ends in, if there is something to do about it.

    ``near`` is what stands for a name that does not exist, if anything is like it.
    """
    for code in codes_in(text):
        if code in MEANINGS and (remedy := MEANINGS[code].remedy.replace(LOG, _NO_LOG)):
            yield f"What to do: {near if near and code == MISSING else remedy}"


def remedies(result: Result) -> tuple[str, ...]:
    """What to do about an object that needs attention; empty for others."""
    if result.severity == "fine":
        return ()
    return tuple(remedies_of("\n".join([result.summary, *result.warnings_by_weight]), result.near))


class Sarif(OutputFormat):
    """One result for each object that needs attention, and one rule for each reason code."""

    def fragment(self, result: Result) -> str:
        """The result; empty for an object that is allowed without a warning."""
        if result.severity == "fine":
            return ""
        texts = [result.summary, *(result.warnings_by_weight if result.severity == "warned" else ())]
        text = "; ".join(dict.fromkeys(texts))
        places = [(each["text"], each["line"], f"\n{each['path']}") for each in result.findings]
        return json.dumps([self._value(result, *place) for place in places or [(text, result.line, "")]])

    def _value(self, result: Result, text: str, line: int, part: str) -> dict[str, Any]:
        # What stays the same when lines move.
        identity = f"{result.title}\n{result.origin}\n{result.code}{part}".encode(errors="replace")
        object_ = {"fullyQualifiedName": visible(result.title), "kind": "resource"}
        return {
            "ruleId": result.code or ("warning" if result.severity == "warned" else "not-evaluated"),
            "level": _LEVELS[result.severity],
            "message": {"text": visible(f"{result.title}: {text}")},
            "locations": [_location(result.file, line) | {"logicalLocations": [object_]}],
            "partialFingerprints": {"objectAndReason/v1": hashlib.sha256(identity).hexdigest()[:32]},
            "properties": {"decision": result.decision, "operation": result.operation},
            **({"ruleIndex": _RULES[result.code]} if result.code in _RULES else {}),
        }

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """A log with one run."""
        rules: list[dict[str, Any]] = [
            {"id": code, "shortDescription": {"text": MEANINGS[code].meaning}}
            | ({"help": {"text": MEANINGS[code].remedy}} if MEANINGS[code].remedy else {})
            for code in _RULES
        ]
        driver = {"name": "kubevirt-webhook", "version": __version__, "rules": rules}
        notifications = {"toolExecutionNotifications": [_notification(each) for each in mistakes]} if mistakes else {}
        invocation: dict[str, Any] = {"executionSuccessful": not mistakes} | notifications
        run = {"tool": {"driver": driver}, "invocations": [invocation], "columnKind": "unicodeCodePoints"}
        run["results"] = [value for each in fragments for value in json.loads(each)]
        return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def place_of(error: InputError) -> tuple[str, int]:
    """File and line of a mistake; line 1 where it names none."""
    match = _PLACE.fullmatch(error.where)
    return (match["file"], int(match["line"])) if match else (error.where, 1)


def _location(file: str, line: int) -> dict[str, Any]:
    path = Path(file)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix(), safe="/")
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}}


def _notification(error: InputError) -> dict[str, Any]:
    file, line = place_of(error)
    value = {"level": "error", "message": {"text": str(error)}}
    return {**value, "locations": [_location(file, line)]} if file else value


class Github(OutputFormat):
    """An annotation for each object that needs attention."""

    def fragment(self, result: Result) -> str:
        """The annotation; empty for an object that is allowed without a warning."""
        if result.severity == "fine":
            return ""
        if result.findings:
            title = f"{result.title}: {_WORDS.get(result.decision, _WORDS[result.severity])}"
            return "\n".join(
                command("error", result.file, each["line"], title, f"{each['text']} [{result.code}]")
                for each in result.findings
            )
        lines = result.warnings_by_weight if result.severity == "warned" and result.warnings else [result.summary]
        # Denials and warnings of policies end with their codes already.
        code = f" [{result.code}]" if result.code and not codes_in("\n".join(lines)) else ""
        text = "\n".join(lines) + code
        made = f" of {result.origin}" if result.origin else ""
        title = f"{result.title}{made}: {_WORDS[result.severity]}"
        return command(
            _LEVELS[result.severity],
            result.file,
            result.line,
            title,
            "\n".join([text, *remedies_of(text, result.near)]),
        )

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """One command a line."""
        bad = [command("error", *place_of(each), "bad input", str(each)) for each in mistakes]
        return "".join(f"{each}\n" for each in (*fragments, *bad))


def command(name: str, file: str, line: int, title: str, text: str) -> str:
    """A workflow command, ``error`` or ``warning``, with all that could end it or begin another one escaped.

    The file is relative to the repository, its lines count from 1, and the text may have several lines.
    """
    message = _escape_data("\n".join(visible(each) for each in text.split("\n")))
    file, title = (_escape_data(visible(each)).replace(":", "%3A").replace(",", "%2C") for each in (file, title))
    return f"::{name} file={file},line={line},title={title}::{message}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def junit_case(
    suite: str, name: str, outcome: Outcome, message: str, details: str, kind: str = "", output: str = ""
) -> str:
    """The element of a test case in a suite, for example a file.

    The message is one line of why it did not pass, the details are more of them; its kind is a class of failures, for
    example a reason code, and its output what it printed.
    """
    inner = []
    if outcome != "passed":
        type_ = f" type={_xml_attribute(kind)}" if kind else ""
        inner.append(f"    <{outcome}{type_} message={_xml_attribute(message)}>{_xml_text(details)}</{outcome}>")
    if output:
        inner.append(f"    <system-out>{_xml_text(output)}</system-out>")
    head = f"  <testcase classname={_xml_attribute(suite)} name={_xml_attribute(name)}"
    return "\n".join([f"{head}>", *inner, "  </testcase>"]) if inner else f"{head}/>"


def junit_document(suite: str, cases: Iterable[str], counts: dict[str, int]) -> str:
    """The whole file of one suite, with its counts: ``tests``, ``failures``, ``errors`` and ``skipped``."""
    attributes = "".join(f' {name}="{number}"' for name, number in counts.items())
    # Not in the element around it, which the schema does not let count them.
    total = attributes.replace(f' skipped="{counts["skipped"]}"', "")
    outer, inner = (f"name={_xml_attribute(suite)}{counted}" for counted in (total, attributes))
    head = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {outer}>", f"<testsuite {inner}>"]
    return "\n".join([*head, *cases, "</testsuite>", "</testsuites>"]) + "\n"


class Junit(OutputFormat):
    """A test case for each object, which fails where the object is denied.

    Args:
        fail_on: ``deny`` or ``warn``, the least that fails.
    """

    def __init__(self, fail_on: str = "deny") -> None:
        self._fail_on: Final = fail_on

    def fragment(self, result: Result) -> str:
        """The element of the object's case."""
        outcome: Outcome = "skipped" if result.decision == "skipped" else "passed"
        if result.severity == "denied" or (result.severity == "warned" and self._fail_on == "warn"):
            outcome = "failure"
        elif result.severity == "unevaluated":
            outcome = "error"
        # A denial holds the text of the reason for it, and so does what is said of an invalid object.
        others = [f"{each['text']} [{each['code']}]" for each in result.reasons if each["text"] not in result.summary]
        details = "\n".join([f"{result.source}: {result.summary}", *remedies(result), *others])
        made = f" of {result.origin}" if result.origin else ""
        name = f"{result.operation} {result.title}{made} (line {result.line})"
        message = next((each for each in result.warnings if codes_in(each) == [result.code]), result.summary)
        printed = "\n".join(f"warning: {warning}" for warning in result.warnings)
        return junit_case(result.file, name, outcome, message, details, result.code, printed)

    def document(self, fragments: Sequence[str], summary: Summary, mistakes: Sequence[InputError]) -> str:
        """One suite."""
        bad = [
            junit_case(each.where.partition(":")[0] or "input", "input", "error", str(each), str(each), "bad-input")
            for each in mistakes
        ]
        counts = {
            "tests": len(fragments) + len(bad),
            "failures": summary.severities["denied"] + (summary.severities["warned"] if self._fail_on == "warn" else 0),
            "errors": summary.severities["unevaluated"] + len(bad),
            "skipped": sum(" <skipped" in each for each in fragments),
        }
        return junit_document("kubevirt-webhook review", [*fragments, *bad], counts)


def _xml_text(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", visible_lines(text)))


def _xml_attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("\ufffd", visible_lines(text)))
