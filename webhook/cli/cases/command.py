"""The command `test`: its options, and what it prints."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import msgspec

from webhook.admission.redaction import redact_at
from webhook.cli import write
from webhook.cli.cases.model import API_VERSION, KIND, TestFile, codes_of, differences
from webhook.cli.cases.model import read as read_test
from webhook.cli.console import path_text
from webhook.cli.inputs import Part, find, parse_release, read
from webhook.cli.options import CLUSTER_FROM, PATH, VALIDATION, InputPath, config_option, output_option
from webhook.cli.review import formats
from webhook.cli.review.evaluation import Evaluator
from webhook.cli.review.result import Result
from webhook.cli.schemas import find_schemas, release_in
from webhook.cli.write import dump
from webhook.cluster.files import FilesCluster
from webhook.errors import InputError
from webhook.forecast.requests import Sending
from webhook.forecast.validation import Schemas
from webhook.k8s.bounded_input import read_file
from webhook.k8s.documents import Document, join_mistakes, mistakes_of
from webhook.k8s.yaml_documents import MAX_BYTES
from webhook.kubevirt.definitions import DEFINITIONS
from webhook.policies.meanings import MEANINGS
from webhook.settings.model import Settings
from webhook.settings_file import load, parse
from webhook.text import pluralize

_RECORD: Final = "Review the objects of PATH and write a test into FILE that expects these decisions."
SchemasFor: TypeAlias = Callable[[FilesCluster, Settings, Path | str], Schemas | None]


@click.command("test")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=InputPath())
@click.option("--record", "recorded", type=PATH, metavar="FILE", help=_RECORD)
@CLUSTER_FROM
@config_option("the built-in defaults")
@output_option("text", "json", "junit")
@VALIDATION
@click.option("-v", "--verbose", is_flag=True, help="With -o text, show cases that pass, too.")
@click.option("--coverage", is_flag=True, help="With -o text, list the reason codes that no case has covered.")
def test(
    *,
    paths: tuple[str, ...],
    output: str,
    verbose: bool,
    coverage: bool,
    crds: Path | None,
    no_validate: bool,
    recorded: Path | None,
    cluster_from: Path | None,
    config_file: Path | None,
) -> None:
    """Run the tests in PATH: files of kind ReviewTest, or directories that hold some.

    A test says which objects are reviewed over which cluster, and what the decisions must be. With --record, PATH are
    objects instead; --cluster-from is then required. --cluster-from and --config are for --record alone.

    Exit status 0 if all cases pass, 1 if one does not, 2 on invalid input.
    """

    def schemas(cluster: FilesCluster, settings: Settings, origin: Path | str) -> Schemas | None:
        source, release = f"the CustomResourceDefinitions in {origin}", release_in(cluster, settings)
        return None if no_validate else find_schemas(release, crds, cluster.objects(DEFINITIONS.kind), source)

    if recorded:
        if not cluster_from:
            raise InputError("the cluster is missing", "--record", "add --cluster-from DIR")
        number = record(recorded, paths, cluster_from, config_file, schemas)
        write.line(f"{recorded}: {pluralize(number, 'case')}", err=True)
        return
    if cluster_from or config_file:
        fix = "write cluster and settings into the tests"
        raise InputError("the option is for --record alone", "--cluster-from, --config", fix)
    mistakes: list[InputError] = []
    outcomes: list[CaseOutcome] = []
    for file in _tests(paths, mistakes):
        try:
            outcomes += run_cases(file, schemas)
        except InputError as error:
            where = file.document.where()
            mistakes += [InputError(each.what, each.where or where, each.fix) for each in mistakes_of(error)]
    if not outcomes and not mistakes:
        fix = "write one by kubevirt-webhook test --record FILE OBJECTS"
        raise InputError("no test was found", ", ".join(paths), fix)
    counts = Counter(outcome.word for outcome in outcomes)
    if output == "json":
        write.data(json.dumps([_as_json(outcome) for outcome in outcomes], indent=2))
    elif output == "junit":
        cases = []
        for each in outcomes:
            details = [""] if each.passed else _details(each)
            kind: formats.Outcome = "error" if each.error else "passed" if each.passed else "failure"
            cases.append(formats.junit_case(each.file, each.name, kind, details[0], "\n".join(details)))
        numbers = {"tests": len(cases), "failures": counts["failed"], "errors": counts["error"], "skipped": 0}
        write.data(formats.junit_document("kubevirt-webhook test", cases, numbers))
    else:
        _print(outcomes, verbose=verbose, coverage=coverage)
    _finish(outcomes, mistakes, counts)


def _finish(outcomes: Sequence[CaseOutcome], mistakes: Sequence[InputError], counts: Counter[str]) -> None:
    """Report mistakes and counts, and end with the exit status."""
    for mistake in mistakes:
        write.error(f"Error: {mistake}")
    for line in dict.fromkeys(outcome.checked_by for outcome in outcomes if outcome.checked_by):
        write.line(line, err=True)
    errors = f", {pluralize(counts['error'], 'error')}" if counts["error"] else ""
    covered = f"{len(_covered_codes(outcomes))} of {len(MEANINGS)} reason codes covered"
    write.line(f"{counts['passed']} passed, {counts['failed']} failed{errors}; {covered}", err=True)
    if mistakes or counts["error"]:
        raise SystemExit(2)
    if counts["failed"]:
        raise SystemExit(1)


def _tests(paths: tuple[str, ...], mistakes: list[InputError]) -> list[TestFile]:
    """The tests among the files; other documents are objects of the tests, and not looked at."""
    test_files = []
    for part in find(paths, None, mistakes):
        content = read(part)
        objects = (document for document in content.documents if isinstance(document.value, dict))
        # Whatever else is wrong with a test.
        tests = [document for document in objects if document.value.get("kind") == KIND]
        # A broken file that may be a test must not pass for one that has nothing to say.
        if content.mistakes and (part.named or KIND.encode() in read_file(part.file, MAX_BYTES)):
            mistakes += content.mistakes
        for document in tests:
            try:
                test_files.append(read_test(document))
            except InputError as error:
                mistakes.append(error)
    return test_files


def _print(outcomes: Sequence[CaseOutcome], *, verbose: bool, coverage: bool) -> None:
    for outcome in outcomes:
        place = f"{outcome.name}  ({outcome.file}:{outcome.line})"
        if not outcome.passed:
            write.line(f"{'error' if outcome.error else 'FAILED'}  {place}", color="red")
            write.line("\n".join(f"  {line}" for line in _details(outcome)))
        elif verbose:
            write.line(f"passed  {place}")
    for code in sorted(set(MEANINGS) - _covered_codes(outcomes)) if coverage else ():
        write.line(f"not covered: {code}")


def _details(outcome: CaseOutcome) -> list[str]:
    if outcome.error or outcome.result is None:
        return [outcome.error]
    result = outcome.result
    why = [result.message] if result.message else [f"{each['text']} [{each['code']}]" for each in result.reasons]
    return [*outcome.differences, *(f"because: {each}" for each in why)]


def _as_json(outcome: CaseOutcome) -> dict[str, Any]:
    return {
        "file": outcome.file,
        "line": outcome.line,
        "name": outcome.name,
        "outcome": outcome.word,
        "differences": list(outcome.differences),
        "error": outcome.error or None,
        "decision": outcome.result.decision if outcome.result else None,
        "reasons": sorted(outcome.codes),
    }


def _covered_codes(outcomes: Sequence[CaseOutcome]) -> set[str]:
    return {code for outcome in outcomes for code in outcome.codes}


class CaseOutcome(msgspec.Struct, frozen=True):
    """The outcome of a case, with its place and its name.

    Attributes:
        differences: where the decision is not the expected one; empty: the case has passed.
        result: what the review says; None where it could not be made.
        error: why it could not be made; empty otherwise.
        checked_by: which schemas the object was checked against, a sentence; empty: none.
    """

    file: str
    line: int
    name: str
    differences: tuple[str, ...] = ()
    result: Result | None = None
    error: str = ""
    checked_by: str = ""

    @property
    def passed(self) -> bool:
        """Whether the decision is the expected one."""
        return not self.differences and not self.error

    @property
    def word(self) -> str:
        """The outcome in a word: ``passed``, ``failed`` or ``error``."""
        return "error" if self.error else "passed" if self.passed else "failed"

    @property
    def codes(self) -> frozenset[str]:
        """The reason codes that the case has covered: those of a case that passed."""
        return frozenset(codes_of(self.result)) if self.result and self.passed else frozenset()


def run_cases(file: TestFile, schemas_for: SchemasFor) -> list[CaseOutcome]:
    """The outcomes of all cases of a test; an `InputError` where its cluster or settings cannot be used.

    ``schemas_for`` gives what objects of KubeVirt are checked against, from the cluster and where it was read.
    """
    written, source = file.test.settings, file.test.cluster
    if isinstance(written, dict):
        # JSON is YAML, and the lines of a part of a file are not those of the file.
        settings = parse(msgspec.json.encode(written), f"{file.document.file} settings")
    else:
        settings = load(None if written is None else file.directory / written)
    if release := parse_release(file.test.kubevirt_version):
        settings = settings.with_kubevirt_version(str(release))
    if isinstance(source, str):
        cluster = FilesCluster.load(file.directory / source, settings)
    else:
        cluster = FilesCluster.of([file.part(value, "cluster", index) for index, value in enumerate(source)], settings)
    # Not while the loop runs, where the first SIGINT would only cancel the task.
    return asyncio.run(_run_cases(file, cluster, settings, schemas_for(cluster, settings, file.document.file)))


async def _run_cases(
    file: TestFile, cluster: FilesCluster, settings: Settings, schemas: Schemas | None
) -> list[CaseOutcome]:
    outcomes = []
    for index, case in enumerate(file.test.cases):
        evaluator = Evaluator(cluster, settings, Sending(case.user, case.namespace, case.parameters), schemas)
        place = file.document.file, file.document.line_of(("cases", index)), case.name
        try:
            result = await evaluator.evaluate(file.object_of(index))
            diffs = tuple(differences(case.expect, result))
        except InputError as error:
            outcomes.append(CaseOutcome(*place, error=str(error)))
        else:
            outcomes.append(CaseOutcome(*place, diffs, result, "", result.checked))
    return outcomes


def record(
    target: Path, arguments: tuple[str, ...], cluster_from: Path, config_file: Path | None, schemas_for: SchemasFor
) -> int:
    """Write a test whose cases expect what the reviews of objects say, and return how many cases it has.

    The arguments are files, directories and patterns, as `review` takes them; ``schemas_for`` is as for `run_cases`. An
    `InputError` says that the target exists already, or that an input cannot be used.
    """
    if target.exists():
        raise InputError("exists already", str(target), "remove it, or name another file")
    settings = load(config_file)
    cluster = FilesCluster.load(cluster_from, settings)
    evaluator = Evaluator(cluster, settings, Sending(), schemas_for(cluster, settings, cluster_from))
    mistakes: list[InputError] = []
    inputs = []
    for part in find(arguments, None, mistakes):
        content = read(part)
        mistakes += content.mistakes
        inputs.append((part, content.documents))
    if mistakes:
        raise join_mistakes(mistakes)
    cases = asyncio.run(_recorded_cases(inputs, evaluator, target))
    test: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "cluster": _relative(cluster_from, target)}
    if config_file:
        test["settings"] = _relative(config_file, target)
    target.write_text(dump([{**test, "cases": cases}]), encoding="utf-8")
    return len(cases)


async def _recorded_cases(
    inputs: list[tuple[Part, list[Document]]], evaluator: Evaluator, target: Path
) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = []
    names: set[str] = set()
    for part, documents in inputs:
        file, is_alone = _relative(Path(part.file), target), len(documents) == 1 and part.text is None
        for document in documents:
            result = await evaluator.evaluate(document)
            if result.matched:
                name = result.title if result.title not in names else f"{result.title} ({file}:{result.line})"
                names.add(name)
                value: Any = file if is_alone else document.value
                cases.append({"name": name, "object": value, "expect": _expectation(result)})
    if not cases:
        raise InputError("there is nothing to record", str(target), "give objects that kubevirt-webhook evaluates")
    return cases


def _expectation(result: Result) -> dict[str, Any]:
    expect: dict[str, Any] = {"decision": result.decision, "reasons": codes_of(result)}
    changes = {
        path_text(change["path"]): change["new"]
        for evaluation in result.judgements
        for change in (evaluation["changes"] if result.patch else ())
        if redact_at(change["path"], change["new"], bounded=False) is change["new"]
    }
    # Where all changes hold secrets, nothing is expected of them; an empty mapping would say that there are none.
    if changes or (result.decision == "allowed" and not result.patch):
        expect["patched"] = changes
    if result.warnings:
        expect["warnings"] = list(result.warnings)
    if result.message:
        expect["message"] = result.message
    return expect


def _relative(path: Path, target: Path) -> str:
    return Path(os.path.relpath(path, target.parent)).as_posix()
