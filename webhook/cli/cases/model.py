"""The file of a test: which objects are reviewed over which cluster, and what the decisions must be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from webhook.cli.review.inputs import read_object
from webhook.cli.review.result import WEIGHT
from webhook.errors import InputError, quote
from webhook.k8s.yaml_builder import Document, format_path
from webhook.names import DOMAIN

API_VERSION: Final = f"{DOMAIN}/v1"
KIND: Final = "ReviewTest"
# Of a path, as msgspec writes it.
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")


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
        name: the name of the case.
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
        api_version: `API_VERSION`.
        kind: `KIND`.
        cluster: the file or directory of the cluster's objects, or the objects.
        cases: the cases.
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
    """A test, and where it was read.

    Attributes:
        test: the test.
        document: the document of the file, for places in messages.
    """

    __test__ = False

    test: ReviewTest
    document: Document

    @property
    def directory(self) -> Path:
        """What the files of the test are relative to."""
        return Path(self.document.file).parent

    def where(self, *path: str | int) -> str:
        """The place of a field, for messages."""
        return self.document.where(path)

    def object_of(self, index: int) -> Document:
        """The object of a case.

        Raises:
            InputError: its file cannot be read, or does not hold exactly one.
        """
        given = self.test.cases[index].object
        place = ("cases", index, "object")
        if isinstance(given, str):
            try:
                return read_object(self.directory / given)
            except InputError as error:
                raise InputError(f"{error.where}: {error.what}", self.where(*place), error.fix) from None
        return Document(given, self.document.file, self.document.line_of(place), self.document.lines)


def is_test(document: Document) -> bool:
    """Whether a document is a test, whatever else is wrong with it."""
    return isinstance(document.value, dict) and document.value.get("kind") == KIND


def read(document: Document) -> TestFile:
    """The test in a document.

    Raises:
        InputError: it is not valid.
    """
    try:
        test = msgspec.convert(document.value, ReviewTest)
    except msgspec.ValidationError as error:
        raise _mistake(document, str(error)) from None
    for at, mistake in _mistakes(test):
        raise InputError(mistake, f"{document.where(at)}: {format_path(at)}", "see docs/testing.md")
    return TestFile(test, document)


def _mistake(document: Document, error: str) -> InputError:
    """What msgspec says about a document, at its place."""
    what, _, place = error.removesuffix("`").partition(" - at `$")
    path = [name or int(index) for name, index in _STEP.findall(place)]
    where = f"{document.where(path)}: {format_path(path)}" if path else document.where()
    return InputError(what[0].lower() + what[1:].replace("`", '"'), where, "see docs/testing.md")


def _mistakes(test: ReviewTest) -> Iterator[tuple[tuple[str | int, ...], str]]:
    seen = set()
    for index, case in enumerate(test.cases):
        if case.name in seen:
            yield ("cases", index, "name"), f"{quote(case.name)} is a duplicate"
        seen.add(case.name)
        decision = case.expect.decision
        if decision is not None and decision not in WEIGHT:
            known = ", ".join(WEIGHT)
            yield ("cases", index, "expect", "decision"), f"{quote(decision)} is not a decision; use {known}"
        if case.expect == Expectation():
            yield ("cases", index, "expect"), "expects nothing, so the case cannot fail"
