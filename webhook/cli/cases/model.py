"""The file of a test: objects, the cluster that they are reviewed over, and what the decisions must be."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from operator import contains
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from webhook.cli.inputs import read_object
from webhook.cli.review.result import WEIGHT, Result
from webhook.cli.write import dump
from webhook.errors import InputError, quote
from webhook.k8s.documents import Document, format_path
from webhook.names import DOMAIN

API_VERSION: Final = f"{DOMAIN}/v1"
KIND: Final = "ReviewTest"
# Of a path, as msgspec writes it.
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")
_FIX: Final = "kubevirt-webhook test --record FILE OBJECTS writes a valid test"
_SEGMENT: Final = re.compile(r'\.?([^.\[\]]+)|\[(?:"([^"]*)"|([^\]]*))\]')
_NOTHING: Final = object()


class Expectation(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What a decision must be. What is not said may be anything.

    Attributes:
        decision: the decision, as ``-o json`` has it.
        reasons: the reason codes of all evaluations, in their order.
        patched: values in the patched object by path, null where nothing may be; empty: nothing may be changed.
        warnings: parts of the warnings, one for each, in their order.
        message: a part of the denial.
    """

    decision: str | None = None
    reasons: list[str] | None = None
    patched: dict[str, Any] | None = None
    warnings: list[str] | None = None
    message: str | None = None


class Case(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One object, and what its review must say.

    Attributes:
        object: the object or AdmissionReview, or the file that holds it, relative to the file of the test.
        user: the sender of a manifest.
        namespace: the namespace of a manifest that has none.
        parameters: of a VirtualMachineTemplate.
        expect: what the decision must be.
    """

    name: str
    object: str | dict[str, Any]
    expect: Expectation
    user: str | None = None
    namespace: str | None = None
    parameters: dict[str, str] = {}


class ReviewTest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A file of cases.

    Attributes:
        cluster: the file or directory of the cluster's objects, or the objects.
        settings: the settings, or their file.
        kubevirt_version: as the option ``--kubevirt-version``.
        metadata: what Kubernetes' tools expect; its name is shown.
    """

    api_version: Literal["kubevirt-webhook.github.io/v1"]
    kind: Literal["ReviewTest"]
    cluster: str | list[dict[str, Any]]
    cases: list[Case]
    settings: str | dict[str, Any] | None = None
    kubevirt_version: str | None = None
    metadata: dict[str, Any] = {}


class TestFile(msgspec.Struct, frozen=True):
    """A test, and the document that it was read from, for places in messages."""

    __test__ = False

    test: ReviewTest
    document: Document

    @property
    def directory(self) -> Path:
        """What the files of the test are relative to."""
        return Path(self.document.file).parent

    def part(self, value: Any, *path: str | int) -> Document:
        """A value in the file as a document of its own, which knows its place."""
        return Document(value, self.document.file, self.document.line_of(path), self.document.lines)

    def object_of(self, index: int) -> Document:
        """The object of a case; an `InputError` where its file cannot be read, or does not hold exactly one."""
        value = self.test.cases[index].object
        place = ("cases", index, "object")
        if isinstance(value, str):
            try:
                return read_object(self.directory / value)
            except InputError as error:
                raise InputError(f"{error.where}: {error.what}", self.document.where(place), error.fix) from None
        return self.part(value, *place)


def read(document: Document) -> TestFile:
    """The test in a document; an `InputError` where it is not valid."""
    try:
        test = msgspec.convert(document.value, ReviewTest)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        path = [name or int(index) for name, index in _STEP.findall(place)]
        # The error stands at the mapping; the field that it names has a line of its own.
        if unknown := re.fullmatch("Object contains unknown field `(.*)`", what):
            path.append(unknown[1])
        where = f"{document.where(path)}: {format_path(path)}" if path else document.where()
        raise InputError(what[0].lower() + what[1:].replace("`", '"'), where, _FIX) from None
    for at, mistake in _mistakes(test):
        raise InputError(mistake, f"{document.where(at)}: {format_path(at)}", _FIX)
    return TestFile(test, document)


def _mistakes(test: ReviewTest) -> Iterator[tuple[tuple[str | int, ...], str]]:
    seen = set()
    for index, case in enumerate(test.cases):
        if case.name in seen:
            yield ("cases", index, "name"), f"{quote(case.name)} is a duplicate"
        seen.add(case.name)
        decision = case.expect.decision
        if decision is not None and decision not in WEIGHT:
            decisions = ", ".join(WEIGHT)
            yield ("cases", index, "expect", "decision"), f"{quote(decision)} is not a decision; use {decisions}"
        if case.expect == Expectation():
            yield ("cases", index, "expect"), "expects nothing, so the case cannot fail"


def differences(expected: Expectation, result: Result) -> list[str]:
    """Where the decision is another one than expected, in lines for people; an `InputError` for an invalid path."""
    lines: list[str] = []
    if expected.decision is not None and expected.decision != result.decision:
        lines.append(f"decision: expected {expected.decision}, got {result.decision}")
    codes = codes_of(result)
    if expected.reasons is not None and expected.reasons != codes:
        lines += ["reasons:", *_diff(expected.reasons, codes)]
    if expected.patched is not None:
        lines += _patch_differences(expected.patched, result)
    if expected.warnings is not None and (
        len(expected.warnings) != len(result.warnings) or not all(map(contains, result.warnings, expected.warnings))
    ):
        lines += ["warnings:", *_diff(expected.warnings, result.warnings)]
    if expected.message is not None and expected.message not in (result.message or ""):
        lines += ["message:", *_diff([expected.message], [result.message] if result.message else [])]
    return lines


def codes_of(result: Result) -> list[str]:
    """The reason codes of all evaluations, in their order."""
    return [reason["code"] for evaluation in result.judgements for reason in evaluation["reasons"]]


def parse_path(path: str) -> list[str]:
    """The segments of ``metadata.annotations[example.com/a]`` or ``spec.volumes[0].name``; or an `InputError`."""
    segments, position = [], 0
    while position < len(path):
        match = _SEGMENT.match(path, position)
        if match is None:
            raise InputError(f"{json.dumps(path)} is not a valid path", fix="use for example spec.volumes[0].name")
        segments.append(next(group for group in match.groups() if group is not None))
        position = match.end()
    return segments


def _patch_differences(expected: dict[str, Any], result: Result) -> Iterator[str]:
    if not expected and result.patch:
        yield "patched: expected no changes, got"
        yield from (f"  + {operation['op']} {operation['path']}" for operation in result.patch)
    for path, value in expected.items():
        got = _at(result.object, parse_path(path))
        if got == value or (value is None and got is _NOTHING):
            continue
        if isinstance(value, dict | list) or isinstance(got, dict | list):
            yield f"{path}:"
            yield from _diff(_lines(value), _lines(got))
        else:
            yield f"{path}: expected {_shown(value)}, got {_shown(got)}"


def _shown(value: Any) -> str:
    return "nothing" if value is None or value is _NOTHING else json.dumps(value, ensure_ascii=False)


def _lines(value: Any) -> list[str]:
    return [] if value is None or value is _NOTHING else dump([value]).splitlines()


def _at(value: Any, segments: Sequence[str]) -> Any:
    for segment in segments:
        if isinstance(value, dict) and segment in value:
            value = value[segment]
        elif isinstance(value, list) and segment.isdecimal() and int(segment) < len(value):
            value = value[int(segment)]
        else:
            return _NOTHING
    return value


def _diff(expected: Sequence[str], got: Sequence[str]) -> Iterator[str]:
    """Lines with ``-`` are missing, those with ``+`` are there instead."""
    yield from (f"  {line}" for line in difflib.ndiff(list(expected), list(got)) if not line.startswith("?"))
