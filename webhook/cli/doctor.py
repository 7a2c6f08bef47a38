"""`kubevirt-webhook doctor`: checks an installation and suggests fixes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from webhook.admission.credentials import sanitize
from webhook.cli import write
from webhook.cli.console import console
from webhook.cli.data import directory
from webhook.cli.inputs import connected, say_skipped
from webhook.cli.options import Source, config_option, output_option, source_option, url_option
from webhook.cluster.files import FilesCluster
from webhook.cluster.reader import FileReader, Reader
from webhook.cluster.selection import require_single_source
from webhook.doctor.checks import examine
from webhook.doctor.report import Report
from webhook.install.registration import check_url
from webhook.settings_file import default_settings, load
from webhook.text import pluralize

_FAILURES: Final = 1
_WARNINGS: Final = 3
_COUNTABLE: Final = ("failure", "warning")
_STYLES: Final = {"failure": "bold red", "warning": "yellow", "unknown": "dim", "ok": "green"}


@click.command()
@source_option()
@config_option("those in the cluster")
@url_option("Check the server at URL instead of the settings' Service.")
@output_option("text", "json")
@click.option("--strict", is_flag=True, help="Exit with status 3 if there are only warnings or unknowns.")
def doctor(source: Source, config_file: Path | None, url: str, output: str, strict: bool) -> None:
    """Check an installation from outside and suggest fixes. This changes nothing.

    A finding is "unknown" where you lack a permission, which it names, and with --cluster-from where only a running
    cluster shows it, or where the files lack the objects. Exit status 1 if there is a failure, 2 if
    nothing could be checked, 3 with --strict if there are warnings or unknowns.
    """
    require_single_source(*source)
    if url:
        check_url(url)
    settings = load(config_file) if config_file else None

    async def run() -> Report:
        if source.cluster_from:
            files = FilesCluster.load(source.cluster_from, settings or default_settings())
            say_skipped(files.skipped)
            return await examine(FileReader(files), settings, directory("manifests"), url=url.rstrip("/"))
        async with connected(source.kubeconfig) as transport:
            return await examine(Reader(transport), settings, directory("manifests"), url=url.rstrip("/"))

    report = asyncio.run(run())
    if output == "json":
        write.data(json.dumps(report.as_json(), indent=2))
    else:
        out = console()
        width = max(len(check) for check, _ in report.groups)
        for check, findings in report.groups:
            for index, finding in enumerate(findings):
                style = (f"{finding.verdict:8}", _STYLES[finding.verdict])
                head = (f"{'' if index else check:{width}}  ", "bold")
                out.print(Text.assemble(style, head, sanitize(f"{finding.subject}: {finding.found}")))
                # Neighbors with the same advice share one line.
                last = index + 1 == len(findings) or findings[index + 1].todo != finding.todo
                if finding.todo and last:
                    out.print(Text(sanitize(f"{'':{width + 10}}→ {finding.todo}")))
                # The worst come first, so that this is after the last one that is not in order.
                if index + 1 == sum(each.verdict in _COUNTABLE for each in findings):
                    out.print(Text(f"{'':{width + 10}}see {finding.see}"))
        shown = [(number, verdict) for verdict, number in report.counts.items() if number]
        counts = [pluralize(number, verdict, "" if verdict in _COUNTABLE else verdict) for number, verdict in shown]
        out.print(f"\n{', '.join(counts)}")
    if report.verdict == "failure":
        sys.exit(_FAILURES)
    if strict and report.verdict != "ok":
        sys.exit(_WARNINGS)
