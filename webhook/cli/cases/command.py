"""The command `test`: its options, and what it prints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from webhook.admission.reasons import MEANINGS
from webhook.cli import write
from webhook.cli.cases.model import KIND, TestFile, is_test
from webhook.cli.cases.model import read as read_test
from webhook.cli.cases.recording import record
from webhook.cli.cases.running import CaseOutcome, run
from webhook.cli.options import CLUSTER_FROM, config_option, output_option
from webhook.cli.review import junit
from webhook.cli.review.inputs import find, read
from webhook.errors import InputError
from webhook.k8s.inputs import read_file
from webhook.k8s.yaml_documents import MAX_BYTES, mistakes_of
from webhook.text import pluralize


@click.command("test")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option(
    "--record",
    "recorded",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Review the objects of PATH and write a test into FILE that expects these decisions.",
)
@CLUSTER_FROM
@config_option("the built-in defaults")
@output_option("text", "json", "junit")
@click.option("-v", "--verbose", is_flag=True, help="With -o text, show cases that pass, too.")
@click.option("--coverage", is_flag=True, help="With -o text, list the reason codes that no case has covered.")
def test(**options: Any) -> None:
    """Run the tests in PATH: files of kind ReviewTest, or directories that hold some.

    A test says which objects are reviewed over which cluster, and what the decisions must be. With --record, PATH are
    objects instead; --cluster-from is then required. --cluster-from and --config are for --record alone.

    Exit status 0 if all cases pass, 1 if one does not, 2 on invalid input.
    """
    _run(_TestOptions(**options))


@dataclass(frozen=True)
class _TestOptions:
    """The options of the command."""

    paths: tuple[str, ...]
    output: str
    verbose: bool
    coverage: bool
    recorded: Path | None
    cluster_from: Path | None
    config_file: Path | None


def _run(options: _TestOptions) -> None:
    if options.recorded:
        if not options.cluster_from:
            raise InputError("the cluster is missing", "--record", "add --cluster-from DIR")
        number = record(options.recorded, options.paths, options.cluster_from, options.config_file)
        write.line(f"{options.recorded}: {pluralize(number, 'case')}", err=True)
        return
    if options.cluster_from or options.config_file:
        fix = "write cluster and settings into the tests"
        raise InputError("the option is for --record alone", "--cluster-from, --config", fix)
    mistakes: list[InputError] = []
    outcomes: list[CaseOutcome] = []
    for file in _tests(options.paths, mistakes):
        try:
            outcomes += run(file)
        except InputError as error:
            mistakes += [InputError(each.what, each.where or file.where(), each.fix) for each in mistakes_of(error)]
    if not outcomes and not mistakes:
        fix = "write a test; docs/testing.md shows one"
        raise InputError("no test was found", ", ".join(options.paths), fix)
    _print(outcomes, options)
    for mistake in mistakes:
        write.error(f"Error: {mistake}")
    write.line(_summary(outcomes), err=True)
    if mistakes or any(outcome.error for outcome in outcomes):
        raise SystemExit(2)
    if not all(outcome.passed for outcome in outcomes):
        raise SystemExit(1)


def _tests(paths: tuple[str, ...], mistakes: list[InputError]) -> list[TestFile]:
    """The tests among the files; other documents are objects of the tests, and not looked at."""
    found = []
    for part in find(paths, None, mistakes):
        content = read(part)
        tests = [document for document in content.documents if is_test(document)]
        # A broken file that may be a test must not pass for one that has nothing to say.
        if content.mistakes and (part.named or KIND.encode() in read_file(part.file, MAX_BYTES)):
            mistakes += content.mistakes
        for document in tests:
            try:
                found.append(read_test(document))
            except InputError as error:
                mistakes.append(error)
    return found


def _print(outcomes: Sequence[CaseOutcome], options: _TestOptions) -> None:
    if options.output == "json":
        write.data(json.dumps([_as_json(outcome) for outcome in outcomes], indent=2))
    elif options.output == "junit":
        write.data(_junit(outcomes))
    else:
        for outcome in outcomes:
            _print_outcome(outcome, verbose=options.verbose)
        if options.coverage:
            for code in sorted(set(MEANINGS) - _covered_codes(outcomes)):
                write.line(f"not covered: {code}")


def _print_outcome(outcome: CaseOutcome, *, verbose: bool) -> None:
    place = f"{outcome.file}:{outcome.line}"
    if outcome.passed:
        if verbose:
            write.line(f"passed  {outcome.name}  ({place})")
        return
    write.line(f"{'error' if outcome.error else 'FAILED'}  {outcome.name}  ({place})", color="red")
    for line in _details(outcome):
        write.line(f"  {line}")


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
        "outcome": "error" if outcome.error else "passed" if outcome.passed else "failed",
        "differences": list(outcome.differences),
        "error": outcome.error or None,
        "decision": outcome.result.decision if outcome.result else None,
        "reasons": sorted(outcome.codes),
    }


def _junit(outcomes: Sequence[CaseOutcome]) -> str:
    cases = []
    for outcome in outcomes:
        kind: junit.Outcome = "error" if outcome.error else "passed" if outcome.passed else "failure"
        details = [] if outcome.passed else _details(outcome)
        message = details[0] if details else ""
        cases.append(junit.JUnitCase(outcome.file, outcome.name, kind, message, "\n".join(details)).xml())
    counts = _counts(outcomes)
    numbers = {"tests": len(cases), "failures": counts["failed"], "errors": counts["error"], "skipped": 0}
    return junit.document("kubevirt-webhook test", cases, numbers)


def _counts(outcomes: Sequence[CaseOutcome]) -> Counter[str]:
    return Counter("error" if each.error else "passed" if each.passed else "failed" for each in outcomes)


def _covered_codes(outcomes: Sequence[CaseOutcome]) -> set[str]:
    return {code for outcome in outcomes for code in outcome.codes}


def _summary(outcomes: Sequence[CaseOutcome]) -> str:
    counts = _counts(outcomes)
    failed = f"{counts['passed']} passed, {counts['failed']} failed"
    errors = f", {pluralize(counts['error'], 'error')}" if counts["error"] else ""
    return f"{failed}{errors}; {len(_covered_codes(outcomes))} of {len(MEANINGS)} reason codes covered"
