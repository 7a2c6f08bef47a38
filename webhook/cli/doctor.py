"""`kubevirt-webhook doctor`: is an installation well, and if not, what is to be done?"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from webhook.admission.redaction import redact
from webhook.cli import write

if TYPE_CHECKING:
    from webhook.doctor.report import Report

_FAILURES: Final = 1
_WARNINGS: Final = 3
_COUNTABLE: Final = ("failure", "warning")
_STYLES: Final = {"failure": "bold red", "warning": "yellow", "unknown": "dim", "ok": "green"}


@click.command()
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="The cluster; default: as kubectl.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The settings; default: those there.",
)
@click.option("--url", default="", help="The server is at https://HOST:PORT, not behind the settings' Service.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--strict", is_flag=True, help="Exit status 3 where something is only a warning or unknown.")
def doctor(kubeconfig: Path | None, config_file: Path | None, url: str, output: str, strict: bool) -> None:
    """Check an installation from outside, and say what to do. Nothing is changed.

    What you may not read is unknown, with the right that is missing. Exit status 1: something has failed; 2: nothing
    could be checked; 0: else.
    """
    report = asyncio.run(_examine(kubeconfig, config_file, url))
    if output == "json":
        write.data(json.dumps(redact(report.as_json()), indent=2))
    else:
        _print(report)
    if report.verdict == "failure":
        sys.exit(_FAILURES)
    if strict and report.verdict != "ok":
        sys.exit(_WARNINGS)


async def _examine(kubeconfig: Path | None, config_file: Path | None, url: str) -> Report:
    from webhook.cli.data import directory
    from webhook.doctor.report import examine
    from webhook.install.registration import check_url
    from webhook.k8s.client.transport import connect
    from webhook.settings.file import load

    if url:
        check_url(url)
    settings = load(config_file) if config_file else None
    transport = await connect(str(kubeconfig) if kubeconfig else None)
    try:
        return await examine(transport, settings, directory("manifests"), url=url.rstrip("/"))
    finally:
        await transport.close()


def _print(report: Report) -> None:
    from rich.text import Text

    from webhook.admission.credentials import sanitize
    from webhook.cli.show import console

    out = console()
    width = max(len(check) for check, _ in report.groups)
    for check, findings in report.groups:
        for index, finding in enumerate(findings):
            head = check if index == 0 else ""
            line = Text.assemble(
                (f"{finding.verdict:8}", _STYLES[finding.verdict]),
                (f"{head:{width}}  ", "bold"),
                sanitize(f"{finding.subject}: {finding.found}"),
            )
            out.print(line)
            # Once for all that follow each other and ask for the same.
            last = index + 1 == len(findings) or findings[index + 1].todo != finding.todo
            if finding.todo and last:
                out.print(Text(sanitize(f"{'':{width + 10}}→ {finding.todo}")))
    counts = [
        f"{number} {verdict}{'s' if number > 1 and verdict in _COUNTABLE else ''}"
        for verdict, number in report.counts.items()
        if number
    ]
    out.print(f"\n{', '.join(counts)}")
