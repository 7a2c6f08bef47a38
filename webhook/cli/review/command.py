"""The command `review`: its options, and what it prints."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from webhook.cli import given, write
from webhook.cli.kubevirt_version import kubevirt_version, parse_release
from webhook.cli.options import CLUSTER_FROM, SHOW_SECRETS, config_option, kubeconfig_option, output_option
from webhook.cli.requests import Sending
from webhook.cli.review.batch import BatchJob, Written, default_jobs, evaluate, evaluate_in_processes
from webhook.cli.review.evaluation import Evaluator
from webhook.cli.review.formats import Json, OutputFormat, Patch, Text, Yaml
from webhook.cli.review.github import Github
from webhook.cli.review.inputs import Part, batches, find
from webhook.cli.review.junit import Junit
from webhook.cli.review.progress import progress
from webhook.cli.review.sarif import Sarif
from webhook.cluster.selection import open_cluster
from webhook.errors import InputError, quote
from webhook.settings.file import default_settings, load
from webhook.settings.snapshot import Settings

_MOST_MISTAKES: Final = 100


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option(
    "-n", "--namespace", metavar="NAMESPACE", help="Namespace of manifests that name none.  [default: default]"
)
@click.option(
    "--as", "user", metavar="USER", help="User that sends the manifests.  [default: the one that would create them]"
)
@click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Parameter of VirtualMachineTemplates; may be repeated.",
)
@CLUSTER_FROM
@kubeconfig_option()
@kubevirt_version
@config_option("the built-in defaults")
@output_option("text", "json", "yaml", "patch", "junit", "sarif", "github")
@click.option("-q", "--quiet", is_flag=True, help="With -o text, leave out objects that are allowed without a warning.")
@click.option(
    "--fail-on",
    type=click.Choice(["deny", "warn"]),
    default="deny",
    show_default=True,
    help="Exit with status 1 on denials only, or on warnings and would-be denials too.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 256),
    metavar="NUMBER",
    help="Processes to use with --cluster-from.  [default: one for each CPU]",
)
@SHOW_SECRETS
def review(**options: Any) -> None:
    """Evaluate AdmissionReviews, or manifests as if they were created.

    FILE is a file, a directory, a quoted pattern such as 'apps/**/*.yaml', or - for standard input. Lists are reviewed
    as their items; pools, replica sets and VirtualMachineTemplates as the VM or VMI that they make.

    The last line, on standard error, is a summary. Exit status 0 if everything is allowed, 1 if something is denied, 2
    on invalid input, 3 if something could not be evaluated. If several apply: 2, then 1, then 3.
    """
    _run(_ReviewOptions(**options))


@dataclass(frozen=True)
class _ReviewOptions:
    """The options of the command."""

    files: tuple[str, ...]
    cluster_from: Path | None
    kubeconfig: Path | None
    kubevirt_version: str | None
    config_file: Path | None
    user: str | None
    namespace: str | None
    parameters: tuple[str, ...]
    output: str
    quiet: bool
    fail_on: str
    jobs: int | None
    show_secrets: bool

    @property
    def sending(self) -> Sending:
        """How manifests are sent.

        Raises:
            InputError: a parameter has no value.
        """
        values = {}
        for each in self.parameters:
            name, separator, value = each.partition("=")
            if not name or not separator:
                raise InputError(f"{quote(each)} is not a parameter", "--param", "use NAME=VALUE")
            values[name] = value
        return Sending(self.user, self.namespace, values)


def _run(options: _ReviewOptions) -> None:
    mistakes: list[InputError] = []
    stdin = given.standard_input() if "-" in options.files else None
    parts = list(find(options.files, stdin, mistakes))
    settings = _settings(options)
    output = _format(options)
    with progress(sum(part.size for part in parts)) as advance:
        written = _collect(_evaluate_parts(parts, options, settings, output), advance)
    written.mistakes[:0] = mistakes
    written.summary.mistakes += len(mistakes)
    if not written.mistakes and not written.summary.total:
        raise InputError("the input has no documents", ", ".join(options.files), "use AdmissionReviews or manifests")
    document = output.document(written.fragments, written.summary, written.mistakes)
    if document and (output.partial or not written.mistakes):
        write.data(document)
    _finish(written, options)


def _finish(written: Written, options: _ReviewOptions) -> None:
    """Report mistakes and counts, and end with the exit status."""
    summary = written.summary
    if written.redacted:
        where = written.redacted if summary.redacted == 1 else f"{written.redacted} and {summary.redacted - 1} more"
        what = "secrets are redacted, do not apply this output; use --show-secrets to print them"
        write.line(f"{where}: {what}", err=True)
    for mistake in written.mistakes[:_MOST_MISTAKES]:
        write.error(f"Error: {mistake}")
    if len(written.mistakes) > _MOST_MISTAKES:
        write.error(f"Error: {len(written.mistakes) - _MOST_MISTAKES} more errors are not shown")
    if summary.total:
        write.line(summary.line(), err=True)
    if status := summary.exit_status(options.fail_on):
        raise SystemExit(status)


def _settings(options: _ReviewOptions) -> Settings:
    settings = load(options.config_file) if options.config_file else default_settings()
    if release := parse_release(options.kubevirt_version):
        return msgspec.structs.replace(settings, kubevirt_version=str(release))
    return settings


def _format(options: _ReviewOptions) -> OutputFormat:
    match options.output:
        case "text":
            return Text.of_terminal(quiet=options.quiet)
        case "yaml":
            return Yaml()
        case "patch":
            return Patch()
        case "junit":
            return Junit(options.fail_on)
        case "sarif":
            return Sarif()
        case "github":
            return Github()
        case _:
            return Json()


def _evaluate_parts(
    parts: Sequence[Part], options: _ReviewOptions, settings: Settings, output: OutputFormat
) -> Iterator[Written]:
    """The results of groups of parts, in their order."""
    sending = options.sending

    def job(cluster: Any) -> BatchJob:
        evaluator = Evaluator(cluster, settings, sending, objects="object" in output.parts)
        return BatchJob(evaluator, output, options.show_secrets)

    if options.cluster_from and not options.kubeconfig:
        from webhook.cluster.files import FilesCluster

        cluster = FilesCluster.load(options.cluster_from, settings)
        yield from evaluate_in_processes(parts, job(cluster), options.jobs or default_jobs())
        return

    async def over_a_cluster() -> list[Written]:
        async with open_cluster(options.cluster_from, options.kubeconfig, settings) as cluster:
            return [await evaluate(group, job(cluster)) for group in batches(parts)]

    yield from asyncio.run(over_a_cluster())


def _collect(results: Iterable[Written], advance: Any) -> Written:
    """All results as one."""
    all_ = Written()
    for written in results:
        all_.fragments += filter(None, written.fragments)
        all_.mistakes += written.mistakes
        all_.redacted = all_.redacted or written.redacted
        all_.summary.join(written.summary)
        advance(written.size)
    return all_
