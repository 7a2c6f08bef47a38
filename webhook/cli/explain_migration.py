"""`kubevirt-webhook explain migration`: where a VM could migrate to and why not elsewhere, before anybody tries."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.text import Text

from webhook.admission.credentials import scrub_prose
from webhook.admission.redaction import redact
from webhook.cli import write
from webhook.cli.machine import parse_machine
from webhook.cli.show import console, safe
from webhook.cli.yamltext import dump
from webhook.cluster.selection import once
from webhook.errors import InputError
from webhook.facts import Facts
from webhook.placement import syntax
from webhook.policies.common.required_facts import Unreadable
from webhook.policies.migration.answer import MigrationExplanation, Nodes, ReasonReport
from webhook.policies.migration.explanation import explain as explained
from webhook.policies.migration.explanation import few
from webhook.review.replay import replay

_SECONDS: Final = 30.0
_WIDTH: Final = 100
# For people; where every node has a taint of its own there are thousands.
_MOST_REASONS: Final = 20


@click.command()
@click.argument("vm", metavar="[NAMESPACE/]VM")
@click.option("-n", "--namespace", metavar="NAME", help="Where the VM is.  [default: default]")
@click.option(
    "--to", "selector", multiple=True, metavar="KEY=VALUE", help="A label that the migration adds; repeatable."
)
@click.option("--node", metavar="NAME", help="Tell all about one node.")
@click.option("--cluster-from", type=click.Path(path_type=Path), metavar="DIR", help="Take facts from YAML files.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="Take facts from a cluster.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True)
def migration(
    vm: str,
    namespace: str | None,
    selector: tuple[str, ...],
    node: str | None,
    cluster_from: Path | None,
    kubeconfig: Path | None,
    output: str,
) -> None:
    """Tell to which nodes a running VM could migrate, and what keeps it from the others.

    --to asks for what a migration's addedNodeSelector would. Without --cluster-from or --kubeconfig, the cluster is
    asked that kubectl would ask.

    Exit status 0 if the migration could succeed (with --node: go there), 1 if not, 2 if that can't be told: bad input,
    no such VM, a VM that doesn't run.
    """
    where, name = parse_machine(vm, namespace)
    added = syntax.selector(selector, "--to")
    answer = asyncio.run(_answer(where, name, added, node or "", cluster_from, kubeconfig))
    if output == "json":
        write.data(json.dumps(redact(msgspec.to_builtins(answer)), indent=2))
    elif output == "yaml":
        write.data(dump([redact(msgspec.to_builtins(answer))]))
    else:
        _print(answer)
    if not answer.favourable:
        raise SystemExit(1)


async def _answer(
    namespace: str, name: str, added: dict[str, str], node: str, cluster_from: Path | None, kubeconfig: Path | None
) -> MigrationExplanation:
    deadline = asyncio.get_running_loop().time() + _SECONDS
    async with once(cluster_from, kubeconfig) as cluster:
        try:
            return await replay(
                lambda facts: explained(namespace, name, added, facts, node=node),
                cluster,
                Facts(peek=cluster.peek),
                deadline,
                "explain migration",
            )
        except Unreadable as error:
            fix = "mend the file" if cluster_from else "check the kubeconfig and its rights"
            raise InputError(error.why, fix=fix) from None


def _print(answer: MigrationExplanation) -> None:
    out = console()
    lines = _node_lines(answer) if answer.node else _all(answer)
    for index, (line, style) in enumerate(lines):
        headline = "bold green" if answer.favourable else "bold red"
        out.print(Text(scrub_prose(_safe_lines(line)), style=headline if not index else style))


def _safe_lines(text: str) -> str:
    """Some lines for a terminal: what is in them is shown, not obeyed."""
    return "\n".join(safe(line) for line in text.split("\n"))


_Line = tuple[str, str]


def _all(answer: MigrationExplanation) -> Iterator[_Line]:
    """The answer in lines of a ticket's width, each with its style."""
    yield _wrap(answer.summary), ""
    yield from _request_lines(answer)
    for contradiction in answer.contradictions:
        if contradiction.text not in answer.summary:
            yield _wrap(f"Contradiction: {contradiction.text}."), ""
    if answer.reasons:
        several = sum(reason.nodes.count for reason in answer.reasons) > answer.total - answer.eligible.count
        yield "", ""
        yield f"Not eligible{', some for several reasons' if several else ''}:", "bold"
        width = len(str(max(reason.nodes.count for reason in answer.reasons)))
        for reason in answer.reasons[:_MOST_REASONS]:
            yield _reason(reason, width), ""
        rest = len(answer.reasons) - _MOST_REASONS
        if rest > 0:
            yield _wrap(f"and {rest} more reasons, each for as many nodes or fewer; -o json has all.", "  "), ""
    yield "", ""
    yield _wrap(f"KubeVirt by itself {answer.kubevirt.text}."), ""
    if answer.openings:
        best = answer.openings[0]
        yield _wrap(f"What would help most: {best.change} ({_more(best.nodes)})."), ""
    yield from _remarks(answer)


def _node_lines(answer: MigrationExplanation) -> Iterator[_Line]:
    node = answer.node
    assert node
    yield f"{node.name} is {'eligible' if node.eligible else 'not eligible'}", ""
    yield from _request_lines(answer)
    for reason in node.reasons:
        yield _wrap(reason.text, "  - "), ""
    yield _wrap(f"Of all: {answer.summary}."), ""
    if node.eligible:
        yield from _remarks(answer)


def _request_lines(answer: MigrationExplanation) -> Iterator[_Line]:
    added = ", ".join(f"{key}={value}" for key, value in answer.added_node_selector.items())
    on = f"runs on {answer.running_on}" if answer.running_on else "is on no node yet"
    yield _wrap(f"{answer.namespace}/{answer.name} {on}; the migration adds {added or 'nothing'}."), ""
    for obstacle in answer.obstacles:
        yield _wrap(f"But {obstacle}."), "yellow"


def _remarks(answer: MigrationExplanation) -> Iterator[_Line]:
    for note in answer.notes:
        yield _wrap(f"Note: {note}."), ""
    for gap in answer.gaps:
        yield _wrap(f"Not taken into account: {gap}."), "yellow"


def _reason(reason: ReasonReport, width: int) -> str:
    head = _wrap(reason.text, f"  {reason.nodes.count:>{width}}  ")
    return f"{head}\n{_wrap(few(reason.nodes.names), ' ' * (width + 6))}"


def _more(nodes: Nodes) -> str:
    return f"{nodes.count} node{'' if nodes.count == 1 else 's'} more: {few(nodes.names)}"


def _wrap(text: str, indent: str = "") -> str:
    """No word is broken, so that labels and names can be searched and copied."""
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
