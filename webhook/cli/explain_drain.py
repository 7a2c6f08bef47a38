"""`kubevirt-webhook explain drain`: what draining nodes would do to the VMs on them, before a drain."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from webhook.admission.redaction import redact
from webhook.cli import write
from webhook.cli.drain_text import print_plan
from webhook.cli.options import CLUSTER_FROM, kubeconfig_option, output_option
from webhook.cli.snapshot import SnapshotError, from_cluster, from_files
from webhook.cli.yamltext import dump
from webhook.cluster.selection import require_single_source
from webhook.errors import InputError, quote
from webhook.forecast.drain import plan
from webhook.forecast.report import DrainPlan
from webhook.forecast.snapshot import ClusterObjects
from webhook.k8s.quantity import parse

_BLOCKED: Final = 1
_UNREADABLE: Final = 3
_NANOS: Final = 10**9


@click.command()
@click.argument("nodes", nargs=-1, metavar="NODE...")
@click.option("--rolling", is_flag=True, help="Drain one node after the other; without NODE: every node.")
@click.option(
    "--bandwidth",
    metavar="QUANTITY",
    help="Bytes per second that one migration copies where KubeVirt limits none.  [default: 256Mi]",
)
@CLUSTER_FROM
@kubeconfig_option()
@output_option("text", "json", "yaml")
def drain(**options: Any) -> None:
    """Show which VMs a drain of nodes would move, shut down, or not get rid of, and how long it takes.

    Several nodes are drained at the same time; with --rolling, one after the other, as an upgrade does. Nothing is
    changed.

    Exit status 0 if the drain can end, 1 if something blocks it, 2 on invalid input, 3 if the cluster cannot be read.
    """
    _run(_ExplainDrainOptions(**options))


@dataclass(frozen=True)
class _ExplainDrainOptions:
    """The options of the command."""

    nodes: tuple[str, ...]
    rolling: bool
    bandwidth: str | None
    cluster_from: Path | None
    kubeconfig: Path | None
    output: str


def _run(options: _ExplainDrainOptions) -> None:
    if not options.nodes and not options.rolling:
        raise InputError("no node is named", fix="name nodes, or use --rolling for all nodes, one after the other")
    bandwidth = _bytes(options.bandwidth) if options.bandwidth is not None else None
    require_single_source(options.cluster_from, options.kubeconfig)
    try:
        snapshot = _read(options)
    except SnapshotError as error:
        write.error(f"Error: {error.why}; check the kubeconfig and its permissions")
        raise SystemExit(_UNREADABLE) from None
    found = plan(snapshot, options.nodes, rolling=options.rolling, bandwidth=bandwidth)
    _print(found, options.output)
    if found.blocks:
        raise SystemExit(_BLOCKED)


def _read(options: _ExplainDrainOptions) -> ClusterObjects:
    if options.cluster_from:
        return from_files(options.cluster_from)
    return asyncio.run(from_cluster(options.kubeconfig))


def _bytes(text: str) -> int:
    try:
        amount = parse(text).nanos // _NANOS
    except InputError:
        amount = 0
    if amount < 1:
        raise InputError(f"{quote(text)} is not a number of bytes per second", "--bandwidth", "use for example 512Mi")
    return amount


def _print(found: DrainPlan, output: str) -> None:
    if output == "json":
        write.data(json.dumps(redact(msgspec.to_builtins(found)), indent=2))
    elif output == "yaml":
        write.data(dump([redact(msgspec.to_builtins(found))]))
    else:
        print_plan(found)
