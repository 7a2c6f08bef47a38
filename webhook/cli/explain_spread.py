"""`kubevirt-webhook explain spread`: which topology spread constraints a VM's launcher pods get, and why."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.text import Text

from webhook import names
from webhook.admission.credentials import scrub_prose
from webhook.admission.redaction import redact
from webhook.cli import write
from webhook.cli.machine import parse_machine
from webhook.cli.show import console, safe
from webhook.cli.yamltext import dump
from webhook.cluster.selection import once
from webhook.errors import InputError
from webhook.facts import Facts
from webhook.policies.common.required_facts import Unreadable
from webhook.review.replay import replay
from webhook.review.spread_explanation import SpreadAnswer, explain
from webhook.settings.file import default_settings, load
from webhook.settings.snapshot import Settings

_SECONDS: Final = 30.0


@click.command()
@click.argument("vm", metavar="[NAMESPACE/]VM")
@click.option("-n", "--namespace", metavar="NAME", help="Where the VM is.  [default: default]")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The settings; default: the built-in ones.",
)
@click.option("--cluster-from", type=click.Path(path_type=Path), metavar="DIR", help="Take facts from YAML files.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="Take facts from a cluster.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True)
def spread(
    vm: str,
    namespace: str | None,
    config_file: Path | None,
    cluster_from: Path | None,
    kubeconfig: Path | None,
    output: str,
) -> None:
    """Tell which topology spread constraints the next launcher pods of a VM get, and why not others.

    Pods that run already keep what they have: what is told holds from the VM's next start or migration.

    Exit status 0 if the pods get constraints, 1 if not, 2 if that can't be told: bad input, no such VM.
    """
    where, name = parse_machine(vm, namespace)
    settings = load(config_file) if config_file else default_settings()
    answer = asyncio.run(_answer(where, name, settings, cluster_from, kubeconfig))
    if output == "json":
        write.data(json.dumps(redact(msgspec.to_builtins(answer)), indent=2))
    elif output == "yaml":
        write.data(dump([redact(msgspec.to_builtins(answer))]))
    else:
        _print(answer)
    if not answer.is_spread:
        raise SystemExit(1)


async def _answer(
    namespace: str, name: str, settings: Settings, cluster_from: Path | None, kubeconfig: Path | None
) -> SpreadAnswer:
    deadline = asyncio.get_running_loop().time() + _SECONDS
    async with once(cluster_from, kubeconfig) as cluster:
        try:
            return await replay(
                lambda facts: explain(namespace, name, settings, facts),
                cluster,
                Facts(peek=cluster.peek),
                deadline,
                "explain spread",
            )
        except Unreadable as error:
            fix = "repair the file" if cluster_from else "check the kubeconfig and its rights"
            raise InputError(error.why, fix=fix) from None


def _print(answer: SpreadAnswer) -> None:
    out = console()
    shown = scrub_prose(safe(f"{_summary(answer)}: {answer.reason} ({answer.code})"))
    out.print(Text(shown, style="bold green" if answer.is_spread else "bold yellow"))
    for constraint in answer.injected or answer.present:
        fields = ", ".join(f"{key}: {constraint.get(key)}" for key in ("topologyKey", "whenUnsatisfiable", "maxSkew"))
        out.print(Text(scrub_prose(safe(f"  {fields}"))))


def _summary(answer: SpreadAnswer) -> str:
    pods = f"the next launcher pods of {answer.namespace}/{answer.name}"
    if answer.present:
        return f"{pods} keep the constraints that the VM has"
    if not answer.injected:
        return f"{pods} get no constraints"
    if answer.mode == names.ENFORCE:
        return f"{pods} get constraints"
    return f"{pods} would get constraints, but the namespace says {answer.mode}"
