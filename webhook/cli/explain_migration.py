"""`kubevirt-webhook explain migration`: the nodes to which a VM can migrate, and the reasons against the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from webhook.admission.redaction import redact
from webhook.cli import write
from webhook.cli.machine import parse_machine
from webhook.cli.options import CLUSTER_FROM, VM_NAMESPACE, kubeconfig_option, output_option
from webhook.cli.paragraphs import Paragraph, print_paragraphs
from webhook.cli.yamltext import dump
from webhook.cluster.selection import once
from webhook.errors import InputError
from webhook.facts import Facts
from webhook.k8s.types.selectors import parse_selector
from webhook.policies.common.required_facts import Unreadable
from webhook.policies.migration.answer import MigrationExplanation, Nodes, ReasonReport
from webhook.policies.migration.explanation import explain as explained
from webhook.policies.migration.explanation import few
from webhook.review.replay import replay
from webhook.text import pluralize

_SECONDS: Final = 30.0
# In text output; a cluster whose nodes all have different taints has thousands.
_MOST_REASONS: Final = 20


@click.command()
@click.argument("vm", metavar="[NAMESPACE/]VM")
@VM_NAMESPACE
@click.option(
    "--to",
    "selector",
    multiple=True,
    metavar="KEY=VALUE",
    help="Label in the migration's addedNodeSelector; may be repeated.",
)
@click.option("--node", metavar="NAME", help="Explain the result for one node.")
@CLUSTER_FROM
@kubeconfig_option()
@output_option("text", "json", "yaml")
def migration(**options: Any) -> None:
    """Show the nodes to which a running VM can migrate, and the reasons against the others.

    Exit status 0 if the migration can succeed (with --node: on that node), 1 if not, 2 if this is unknown: invalid
    input, the VM does not exist, or the VM does not run.
    """
    _run(_ExplainMigrationOptions(**options))


@dataclass(frozen=True)
class _ExplainMigrationOptions:
    """The options of the command."""

    vm: str
    namespace: str | None
    selector: tuple[str, ...]
    node: str | None
    cluster_from: Path | None
    kubeconfig: Path | None
    output: str


def _run(options: _ExplainMigrationOptions) -> None:
    answer = asyncio.run(_answer(options))
    if options.output == "json":
        write.data(json.dumps(redact(msgspec.to_builtins(answer)), indent=2))
    elif options.output == "yaml":
        write.data(dump([redact(msgspec.to_builtins(answer))]))
    else:
        _print(answer)
    if not answer.favourable:
        raise SystemExit(1)


async def _answer(options: _ExplainMigrationOptions) -> MigrationExplanation:
    namespace, name = parse_machine(options.vm, options.namespace)
    added = parse_selector(options.selector, "--to")
    deadline = asyncio.get_running_loop().time() + _SECONDS
    async with once(options.cluster_from, options.kubeconfig) as cluster:
        try:
            return await replay(
                lambda facts: explained(namespace, name, added, facts, node=options.node or ""),
                cluster,
                Facts(peek=cluster.peek),
                deadline,
                "explain migration",
            )
        except Unreadable as error:
            fix = "correct the file" if options.cluster_from else "check the kubeconfig and its permissions"
            raise InputError(error.why, fix=fix) from None


def _print(answer: MigrationExplanation) -> None:
    headline, *rest = _node_lines(answer) if answer.node else _all(answer)
    style = "bold green" if answer.favourable else "bold red"
    print_paragraphs([headline._replace(style=style), *rest])


def _all(answer: MigrationExplanation) -> Iterator[Paragraph]:
    """The answer, its headline first."""
    yield Paragraph(answer.summary)
    yield from _request_lines(answer)
    for contradiction in answer.contradictions:
        if contradiction.text not in answer.summary:
            yield Paragraph(f"Contradiction: {contradiction.text}.")
    if answer.reasons:
        is_overlapping = sum(reason.nodes.count for reason in answer.reasons) > answer.total - answer.eligible.count
        yield Paragraph()
        yield Paragraph(f"Not eligible{' (some for several reasons)' if is_overlapping else ''}:", "bold")
        width = len(str(max(reason.nodes.count for reason in answer.reasons)))
        for reason in answer.reasons[:_MOST_REASONS]:
            yield from _reason(reason, width)
        rest = len(answer.reasons) - _MOST_REASONS
        if rest > 0:
            yield Paragraph(f"and {pluralize(rest, 'more reason')}; -o json shows all.", "", "  ")
    yield Paragraph()
    yield Paragraph(f"KubeVirt by itself {answer.kubevirt.text}.")
    if answer.openings:
        best = answer.openings[0]
        yield Paragraph(f"What would help most: {best.change} ({_more(best.nodes)}).")
    yield from _remarks(answer)


def _node_lines(answer: MigrationExplanation) -> Iterator[Paragraph]:
    node = answer.node
    assert node
    yield Paragraph(f"{node.name} is {'eligible' if node.eligible else 'not eligible'}")
    yield from _request_lines(answer)
    for reason in node.reasons:
        yield Paragraph(reason.text, "", "  - ")
    yield Paragraph(f"All nodes: {answer.summary}.")
    if node.eligible:
        yield from _remarks(answer)


def _request_lines(answer: MigrationExplanation) -> Iterator[Paragraph]:
    added = ", ".join(f"{key}={value}" for key, value in answer.added_node_selector.items())
    on = f"runs on {answer.running_on}" if answer.running_on else "is not on a node yet"
    yield Paragraph(f"{answer.namespace}/{answer.name} {on}; the migration adds {added or 'nothing'}.")
    for obstacle in answer.obstacles:
        yield Paragraph(f"But {obstacle}.", "yellow")


def _remarks(answer: MigrationExplanation) -> Iterator[Paragraph]:
    for note in answer.notes:
        yield Paragraph(f"Note: {note}.")
    for gap in answer.gaps:
        yield Paragraph(f"Not evaluated: {gap}.", "yellow")


def _reason(reason: ReasonReport, width: int) -> Iterator[Paragraph]:
    yield Paragraph(reason.text, "", f"  {reason.nodes.count:>{width}}  ")
    yield Paragraph(few(reason.nodes.names), "", " " * (width + 6))


def _more(nodes: Nodes) -> str:
    return f"{pluralize(nodes.count, 'more node')}: {few(nodes.names)}"
