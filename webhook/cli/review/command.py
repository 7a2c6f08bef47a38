"""The command `review`: its options, and what it prints."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from webhook.cli import defaults, namespaces, write
from webhook.cli.inputs import (
    Part,
    batches,
    connected,
    counted_objects,
    find,
    kubevirt_version,
    parse_release,
    read,
    say_skipped,
    standard_input,
)
from webhook.cli.options import (
    CONTEXT,
    SHOW_SECRETS,
    VALIDATION,
    InputPath,
    Source,
    WholeNumber,
    config_option,
    output_option,
    source_option,
)
from webhook.cli.review.evaluation import Evaluator
from webhook.cli.review.formats import Github, Json, Junit, OutputFormat, Patch, Sarif, Text, Yaml
from webhook.cli.review.result import NOT_EVALUATED, Result, Summary
from webhook.cli.schemas import fetch_definitions, find_schemas, release_in
from webhook.cluster.files import FilesCluster
from webhook.cluster.reader import FileReader
from webhook.cluster.selection import gaps_of
from webhook.cluster.source import Cluster
from webhook.cluster.together import AppliedTogether
from webhook.errors import InputError, quote
from webhook.forecast.requests import Sending
from webhook.forecast.validation import DryRun, Schemas
from webhook.k8s.documents import Document, mistakes_of
from webhook.kubevirt.definitions import DEFINITIONS
from webhook.settings.model import Settings
from webhook.settings_file import default_settings

_MOST_MISTAKES: Final = 100
# Reviews in flight over a cluster: most wait for the same few objects.
_IN_FLIGHT: Final = 16
# What help says of options.
_PARAM: Final = "Parameter of VirtualMachineTemplates; may be repeated."
_FAIL_ON: Final = "Exit with status 1 on denials only, or on warnings and would-be denials too."
_JOBS: Final = "Processes to use with --cluster-from.  [default: one for each CPU]"
_DRY_RUN: Final = "Ask the cluster, too, what it says of objects of KubeVirt, as your user. Nothing is stored."
# Less is done before it could be read.
_LEAST_BYTES: Final = 1024 * 1024


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=InputPath(allow_dash=True))
@click.option("-n", "--namespace", metavar="NAMESPACE", help=f"Namespace of manifests that name none.  {CONTEXT}")
@click.option(
    "--user", metavar="USER", help="User that sends the manifests.  [default: the one that would create them]"
)
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help=_PARAM)
@source_option()
@kubevirt_version
@config_option("those in the cluster")
@output_option("text", "json", "yaml", "patch", "junit", "sarif", "github")
@click.option("-q", "--quiet", is_flag=True, help="With -o text, leave out objects that are allowed without a warning.")
@click.option("--fail-on", type=click.Choice(["deny", "warn"]), default="deny", show_default=True, help=_FAIL_ON)
@click.option("-j", "--jobs", type=WholeNumber(1, 256), metavar="NUMBER", help=_JOBS)
@VALIDATION
@click.option("--server-dry-run", is_flag=True, help=_DRY_RUN)
@SHOW_SECRETS
def review(**options: Any) -> None:
    """Evaluate AdmissionReviews, or manifests as if they were created.

    FILE is a file, a directory, a quoted pattern such as 'apps/**/*.yaml', or - for standard input. Lists are reviewed
    as their items; pools, replica sets and VirtualMachineTemplates as the VM or VMI that they make.

    Objects of KubeVirt are first checked as the API server checks them: version, kind, names, fields and values.
    Without --crds and without CustomResourceDefinitions in the cluster, those of KubeVirt's release count. With
    --server-dry-run, an object that exists is reviewed as an update.

    Namespaces, instancetypes, preferences and the like count for the other objects of the same FILEs, in any order, as
    if all of them were applied.

    The last line, on standard error, is a summary. Exit status 0 if everything is allowed, 1 if something is denied, 2
    on invalid input, 3 if something could not be evaluated. If several apply: 2, then 1, then 3.
    """
    _run(_ReviewOptions(**options))


@dataclass(frozen=True)
class _ReviewOptions:
    """The options of the command."""

    files: tuple[str, ...]
    source: Source
    kubevirt_version: str | None
    config_file: Path | None
    user: str | None
    namespace: str | None
    parameters: tuple[str, ...]
    output: str
    quiet: bool
    fail_on: str
    jobs: int | None
    crds: Path | None
    no_validate: bool
    server_dry_run: bool
    show_secrets: bool


def _run(options: _ReviewOptions) -> None:
    if options.server_dry_run and options.source.cluster_from:
        fix = "use --kubeconfig FILE instead of --cluster-from"
        raise InputError("files answer no dry run", "--server-dry-run", fix)
    written = Written()
    summary, mistakes = written.summary, written.mistakes
    parts = list(find(options.files, standard_input() if "-" in options.files else None, mistakes))
    parse_release(options.kubevirt_version)
    output = _FORMATS[options.output](options)
    namespace = options.namespace or namespaces.namespace_of(options.source)
    with progress(sum(part.size for part in parts)) as advance:

        def take(group: Written) -> None:
            written.join(group)
            advance(group.size)

        used = _evaluate_parts(parts, options, namespace, output, take, mistakes)
    summary.mistakes = len(mistakes)
    if not mistakes and not summary.total:
        raise InputError("the input has no documents", ", ".join(options.files), "use AdmissionReviews or manifests")
    document = output.document(written.fragments, summary, mistakes)
    if document and (output.partial or not mistakes):
        write.data(document)
    for line in summary.checks():
        write.line(line, err=True)
    if summary.total:
        for gap in used.gaps:
            write.line(f"not evaluated: {gap}", err=True)
        decided = "the cluster has decided by its own; what is shown beside that, by " if options.server_dry_run else ""
        defaults.say_what_applies(f"{decided}{used.origin}", namespace, of=defaults.OF_UNNAMED)
    _finish(written, options.fail_on)
    if not used.is_decided:
        raise SystemExit(NOT_EVALUATED)


def _finish(written: Written, fail_on: str) -> None:
    """Report mistakes and counts, and end with the exit status, unless that is 0."""
    summary = written.summary
    if written.redacted:
        where = written.redacted if summary.redacted == 1 else f"{written.redacted} and {summary.redacted - 1} more"
        what = "secrets are redacted, so the object or patch is left out; use --show-secrets to print them"
        write.line(f"{where}: {what}", err=True)
    for mistake in written.mistakes[:_MOST_MISTAKES]:
        write.error(f"Error: {mistake}")
    if len(written.mistakes) > _MOST_MISTAKES:
        write.error(f"Error: {len(written.mistakes) - _MOST_MISTAKES} more errors are not shown")
    if summary.total:
        write.line(summary.line(), err=True)
    if status := summary.exit_status(fail_on):
        raise SystemExit(status)


_FORMATS: Final[dict[str, Callable[[_ReviewOptions], OutputFormat]]] = {
    "text": lambda options: Text.of_terminal(quiet=options.quiet),
    "junit": lambda options: Junit(options.fail_on),
    "json": lambda _: Json(),
    "yaml": lambda _: Yaml(),
    "patch": lambda _: Patch(),
    "sarif": lambda _: Sarif(),
    "github": lambda _: Github(),
}


class _Used(NamedTuple):
    """What a review was made by.

    Attributes:
        origin: where the settings come from, a clause.
        gaps: what is not evaluated because its user may not read it, clauses.
        is_decided: whether the decisions are those of the cluster's settings.
    """

    origin: str
    gaps: tuple[str, ...] = ()
    is_decided: bool = True


def _evaluate_parts(
    parts: Sequence[Part],
    options: _ReviewOptions,
    namespace: str,
    output: OutputFormat,
    take: Callable[[Written], None],
    mistakes: list[InputError],
) -> _Used:
    """Pass on the results of groups of parts in their order, each as soon as it is there.

    ``namespace`` is that of manifests that have none.
    """
    for each in options.parameters:
        if not each.partition("=")[0] or "=" not in each:
            raise InputError(f"{quote(each)} is not a parameter", "--param", "use NAME=VALUE")
    parameters = dict(each.split("=", 1) for each in options.parameters)
    sending = Sending(options.user, options.namespace, parameters, namespace)
    release = parse_release(options.kubevirt_version)

    def job(
        cluster: Cluster,
        settings: Settings,
        definitions: Sequence[dict[str, Any]],
        origin: str,
        dry_run: DryRun | None = None,
    ) -> BatchJob:
        def schemas() -> Schemas | None:
            release = release_in(cluster, settings)
            return None if options.no_validate else find_schemas(release, options.crds, definitions, origin)

        counted = counted_objects(parts, schemas(), namespace, mistakes)
        if counted:
            cluster = AppliedTogether(FilesCluster.of(counted, settings), cluster)
        evaluator = Evaluator(cluster, settings, sending, schemas(), dry_run=dry_run, objects="object" in output.parts)
        return BatchJob(evaluator, output, options.show_secrets)

    cluster_from, kubeconfig = options.source
    if cluster_from and not kubeconfig:
        cluster = FilesCluster.load(cluster_from, default_settings())
        say_skipped(cluster.skipped)
        applied = asyncio.run(defaults.settings_from(options.config_file, FileReader(cluster)))
        settings = applied.settings.with_kubevirt_version(str(release)) if release else applied.settings
        cluster.use(settings)
        origin = f"the CustomResourceDefinitions in {cluster_from}"
        over_files = job(cluster, settings, cluster.objects(DEFINITIONS.kind), origin)
        for group in evaluate_in_processes(parts, over_files, options.jobs or default_jobs()):
            take(group)
        return _Used(applied.origin)

    async def over_a_cluster() -> _Used:
        opened = defaults.open_with_settings(options.source, options.config_file, str(release or ""))
        async with opened as (cluster, applied), connected(kubeconfig) as transport:
            is_read = not options.no_validate and not options.crds
            definitions = await fetch_definitions(transport) if is_read else ()
            dry_run = DryRun(transport) if options.server_dry_run else None
            origin = "the cluster's CustomResourceDefinitions"
            over_it = job(cluster, applied.settings, definitions, origin, dry_run)
            for group in batches(parts):
                take(await evaluate(group, over_it))
            # In a dry run the cluster itself has decided.
            is_decided = dry_run is not None or not applied.gap
            unknown = () if is_decided else (f"the installed settings, and what policies do by them: {applied.gap}",)
            return _Used(applied.origin, (*unknown, *gaps_of(cluster)), is_decided)

    return asyncio.run(over_a_cluster())


class BatchJob(msgspec.Struct, frozen=True):
    """What is done with every object."""

    evaluator: Evaluator
    format: OutputFormat
    show_secrets: bool


class Written(msgspec.Struct):
    """The results of some parts: what the output says about each object, and the bytes of the parts.

    The place of an object whose secrets are not shown is ``redacted``.
    """

    fragments: list[str] = msgspec.field(default_factory=list)
    summary: Summary = msgspec.field(default_factory=Summary)
    mistakes: list[InputError] = msgspec.field(default_factory=list)
    redacted: str = ""
    size: int = 0

    def join(self, other: Written) -> None:
        """Add the results of later parts."""
        self.fragments += filter(None, other.fragments)
        self.mistakes += other.mistakes
        self.redacted = self.redacted or other.redacted
        self.summary.join(other.summary)


def default_jobs() -> int:
    """How many processes can run at a time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def evaluate(parts: Sequence[Part], job: BatchJob) -> Written:
    """The results of some parts, one after the other."""
    written, limit = Written(), asyncio.Semaphore(_IN_FLIGHT)
    summary, waits = written.summary, job.evaluator.waits

    async def one(document: Document) -> Result | InputError:
        async with limit:
            try:
                return await job.evaluator.evaluate(document)
            except InputError as error:
                return error

    for part in parts:
        content = read(part)
        written.size += part.size
        # A file in several pieces is counted once, with its first one.
        summary.files += part.line == 0
        summary.foreign += content.foreign
        written.mistakes += content.mistakes
        answers = map(one, content.documents)
        for result in await asyncio.gather(*answers) if waits else [await answer for answer in answers]:
            if isinstance(result, InputError):
                written.mistakes += mistakes_of(result)
                continue
            summary.add(result)
            is_redacted = not job.show_secrets and result.redact(job.format.parts)
            if is_redacted and not job.format.partial:
                # A placeholder must not reach a cluster, whatever the output is piped into.
                what = "the output would hold placeholders instead of secrets, and must not be applied"
                fix = "use --show-secrets to print the secrets, or another output to read the decisions"
                written.mistakes.append(InputError(what, result.source, fix))
                continue
            if is_redacted:
                summary.redacted += 1
                written.redacted = written.redacted or result.source
            written.fragments.append(job.format.fragment(result))
    return written


def evaluate_in_processes(parts: Sequence[Part], job: BatchJob, jobs: int) -> Iterator[Written]:
    """The results of groups of parts, in the order of the input, as they are ready, by so many processes at a time.

    The cluster of the job must not wait for anything. An `InputError` says that a process was killed.
    """
    groups = list(batches(parts))
    if jobs < 2 or len(groups) < 2 or sys.platform != "linux":
        for group in groups:
            yield asyncio.run(evaluate(group, job))
        return
    # A forked process has the cluster's objects already, without their being sent to it.
    context = multiprocessing.get_context("fork")
    executor = ProcessPoolExecutor(min(jobs, len(groups)), context, initializer=_begin_process, initargs=(job,))
    try:
        yield from executor.map(_work_on, groups)
    except BrokenProcessPool:
        fix = "give it more memory, or use --jobs 1"
        raise InputError("a process of the review was killed", "--jobs", fix) from None
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


_job: BatchJob | None = None


def _begin_process(job: BatchJob) -> None:
    """Prepare a process; Ctrl-C is for the one that started it."""
    global _job  # noqa: PLW0603 - what a forked process works on
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What was there before the fork stays, and a review makes trees without cycles: there is little to collect.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    _job = job


def _work_on(group: list[Part]) -> Written:
    assert _job
    written = asyncio.run(evaluate(group, _job))
    # Several mistakes in one error cannot be sent between processes; single ones can.
    written.mistakes = [InputError(each.what, each.where, each.fix) for each in written.mistakes]
    return written


@contextmanager
def progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar that goes away at the end; nothing for a short review, or where the output is not a terminal.

    ``total`` is in bytes, and so is what the function that this yields is called with: what is done.
    """
    if total < _LEAST_BYTES or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    from webhook.cli.console import VisibleConsole

    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=VisibleConsole(stderr=True, highlight=False), transient=True) as bar:
        task = bar.add_task("review", total=total)
        yield lambda done: bar.advance(task, done)
