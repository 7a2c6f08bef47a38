"""`kubevirt-webhook explain spread`: the topology spread constraints of a VM's launcher pods."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

import click
import msgspec

from webhook import names
from webhook.admission.redaction import redact
from webhook.cli import write
from webhook.cli.machine import parse_machine
from webhook.cli.options import CLUSTER_FROM, VM_NAMESPACE, config_option, kubeconfig_option, output_option
from webhook.cli.paragraphs import Paragraph, print_paragraphs
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
@VM_NAMESPACE
@CLUSTER_FROM
@kubeconfig_option()
@config_option("the built-in defaults")
@output_option("text", "json", "yaml")
def spread(
    vm: str,
    namespace: str | None,
    config_file: Path | None,
    cluster_from: Path | None,
    kubeconfig: Path | None,
    output: str,
) -> None:
    """Show the topology spread constraints that the next launcher pods of a VM get, and why.

    Running pods do not change; the result applies from the VM's next start or migration.

    Exit status 0 if the pods get constraints, 1 if not, 2 if this is unknown: invalid input, or the VM does not exist.
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
            fix = "correct the file" if cluster_from else "check the kubeconfig and its permissions"
            raise InputError(error.why, fix=fix) from None


def _print(answer: SpreadAnswer) -> None:
    style = "bold green" if answer.is_spread else "bold yellow"
    paragraphs = [Paragraph(f"{_summary(answer)}: {answer.reason} ({answer.code})", style)]
    for constraint in answer.injected or answer.present:
        fields = (f"{key}: {constraint.get(key)}" for key in ("topologyKey", "whenUnsatisfiable", "maxSkew"))
        paragraphs.append(Paragraph(", ".join(fields), "", "  "))
    print_paragraphs(paragraphs)


def _summary(answer: SpreadAnswer) -> str:
    pods = f"the next launcher pods of {answer.namespace}/{answer.name}"
    if answer.present:
        return f"{pods} keep the constraints that the VM has"
    if not answer.injected:
        return f"{pods} get no constraints"
    if answer.mode == names.ENFORCE:
        return f"{pods} get constraints"
    return f"{pods} would get constraints, but the mode of the namespace is {answer.mode}"
