"""The run of a test: its cluster, its settings, and the outcome of each case."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from webhook.cli.cases.check import codes_of, differences
from webhook.cli.cases.model import TestFile
from webhook.cli.kubevirt_version import parse_release
from webhook.cli.requests import Sending
from webhook.cli.review.evaluation import Evaluator
from webhook.cli.review.result import Result
from webhook.cluster.files import FilesCluster
from webhook.errors import InputError
from webhook.k8s.yaml_builder import Document
from webhook.settings.file import default_settings, load, parse
from webhook.settings.snapshot import Settings


class CaseOutcome(msgspec.Struct, frozen=True):
    """The outcome of a case.

    Attributes:
        file: the file of the test.
        line: the line of the case.
        name: its name.
        differences: where the decision is not the expected one; empty: the case has passed.
        result: what the review says; None where it could not be made.
        error: why it could not be made; empty otherwise.
    """

    file: str
    line: int
    name: str
    differences: tuple[str, ...] = ()
    result: Result | None = None
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether the decision is the expected one."""
        return not self.differences and not self.error

    @property
    def codes(self) -> frozenset[str]:
        """The reason codes that the case has covered: those of a case that passed."""
        return frozenset(codes_of(self.result)) if self.result and self.passed else frozenset()


def run(file: TestFile) -> list[CaseOutcome]:
    """The outcomes of all cases of a test.

    Raises:
        InputError: its cluster or settings cannot be used.
    """
    settings = _settings(file)
    return asyncio.run(_run(file, _cluster(file, settings), settings))


async def _run(file: TestFile, cluster: FilesCluster, settings: Settings) -> list[CaseOutcome]:
    outcomes = []
    for index, case in enumerate(file.test.cases):
        evaluator = Evaluator(cluster, settings, Sending(case.user, case.namespace, case.parameters))
        name, line = file.document.file, file.document.line_of(("cases", index))
        try:
            result = await evaluator.evaluate(file.object_of(index))
            found = tuple(differences(case.expect, result))
        except InputError as error:
            outcomes.append(CaseOutcome(name, line, case.name, error=str(error)))
        else:
            outcomes.append(CaseOutcome(name, line, case.name, found, result))
    return outcomes


def _settings(file: TestFile) -> Settings:
    given = file.test.settings
    if given is None:
        settings = default_settings()
    elif isinstance(given, str):
        settings = load(file.directory / given)
    else:
        # JSON is YAML, and the lines of a part of a file are not those of the file.
        settings = parse(msgspec.json.encode(given), f"{file.document.file} settings")
    release = parse_release(file.test.kubevirt_version)
    return msgspec.structs.replace(settings, kubevirt_version=str(release)) if release else settings


def _cluster(file: TestFile, settings: Settings) -> FilesCluster:
    given = file.test.cluster
    if isinstance(given, str):
        return FilesCluster.load(Path(file.directory, given), settings)
    document = file.document
    found = [
        Document(value, document.file, document.line_of(("cluster", index)), document.lines)
        for index, value in enumerate(given)
    ]
    return FilesCluster.of(found, settings)
