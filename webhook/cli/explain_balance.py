"""`kubevirt-webhook explain balance`: migrations after which no node stands out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click
from msgspec.structs import replace

from webhook.cli import write
from webhook.cli.balancing import StoppedError, run
from webhook.cli.console import Paragraph, print_report
from webhook.cli.explain import LISTS, UNREADABLE, Lists, as_bytes, duration, from_cluster, reading, unreadable_fix
from webhook.cli.inputs import connected
from webhook.cli.options import Source, WholeNumber, config_option, output_option, source_option
from webhook.cli.plan_page import write_balance
from webhook.cli.prometheus import PROMETHEUS, pod_metrics
from webhook.cluster.selection import NoAnswerError
from webhook.errors import InputError, quote
from webhook.facts import Unreadable
from webhook.forecast.balance import Course, Wanted, plan
from webhook.forecast.balance_report import BY_REQUESTS, BY_USAGE, BalancePlan
from webhook.forecast.node_loads import measured
from webhook.forecast.snapshot import ClusterObjects
from webhook.forecast.usage import NODE_METRICS, POD_METRICS, Usage
from webhook.placement.nodes import MEMORY, format_amount
from webhook.text import abbreviate, parse_duration, pluralize

_TARGET: Final = "How far above the mean a node may be, of CPU and memory, in percentage points.  [default: 10pp]"
_NODES: Final = "Compare these nodes alone, separated by commas.  [default: all that take VMs]"
_MOST: Final = "At most so many migrations.  [default: 20]"
_BANDWIDTH: Final = "Bytes per second that one migration copies where KubeVirt limits none.  [default: 256Mi]"
_BY: Final = "By what nodes are compared; usage is that of metrics.k8s.io.  [default: requests]"
_PROMETHEUS: Final = "By usage of the last hour, from the Prometheus with this URL."
_COOL_DOWN: Final = "A VM whose migration ended less than so long ago stays.  [default: 10m]"
_RUN: Final = "Make the migrations, one after the other, and plan again after a surprise; stop at the first that fails."
_is_points: Final = re.compile(r"(\d{1,2}(?:\.\d{1,2})?)(?:pp|%)?").fullmatch
_WITH_METRICS: Final[Lists] = {
    **LISTS,
    "node_metrics": (NODE_METRICS, "what nodes use is not known"),
    "pod_metrics": (POD_METRICS, "what VMs use is not known"),
}
# In text output; -o json has all.
_MOST_NODES: Final = 10


@click.command()
@click.option("--target", metavar="POINTS", default="10pp", show_default=False, help=_TARGET)
@click.option("--by", type=click.Choice([BY_REQUESTS, BY_USAGE]), help=_BY)
@click.option("--prometheus", metavar="URL", help=_PROMETHEUS)
@click.option("--nodes", metavar="NAMES", help=_NODES)
@click.option("--max-moves", "most", metavar="N", type=WholeNumber(1, 1000), default=20, help=_MOST)
@click.option("--cool-down", metavar="DURATION", default="10m", show_default=False, help=_COOL_DOWN)
@click.option("--bandwidth", metavar="QUANTITY", help=_BANDWIDTH)
@click.option("--run", "runs", is_flag=True, help=_RUN)
@source_option()
@config_option("those in the cluster")
@output_option("text", "json", "yaml", "html")
def balance(
    *,
    target: str,
    by: str | None,
    prometheus: str | None,
    nodes: str | None,
    most: int,
    cool_down: str,
    bandwidth: str | None,
    runs: bool,
    config_file: Path | None,
    source: Source,
    output: str,
) -> None:
    """Show a short list of migrations after which no node stands out, each of which fits when its turn comes.

    Nodes are compared by what pods request, or use. Without --run nothing is changed: -o yaml prints the migrations as
    objects, in order, for `kubectl create -f`. Create each when the one before it has ended.

    Exit status 0 if the target is reached, 1 if not, or if a migration of --run fails, 2 on invalid input, 3 if the
    cluster cannot be read.
    """
    points = _is_points(target)
    if points is None:
        raise InputError(f"{quote(target)} is not a number of percentage points", "--target", "use for example 10pp")
    rate = as_bytes(bandwidth) if bandwidth is not None else None
    names = tuple(filter(None, (nodes or "").split(",")))
    if nodes is not None and not names:
        raise InputError("no node is named", "--nodes", "use NAME,NAME, or leave it out for all nodes")
    seconds = parse_duration(cool_down)
    if seconds is None or seconds < 0:
        raise InputError(f"{quote(cool_down)} is not a duration", "--cool-down", "use for example 10m")
    if prometheus is not None and by == BY_REQUESTS:
        raise InputError("the options exclude each other", "--prometheus, --by requests", "remove one of them")
    if runs and source.cluster_from:
        raise InputError("migrations are made in a running cluster", "--run, --cluster-from", "remove one of them")
    if runs and output in ("yaml", "html"):
        raise InputError("the options exclude each other", f"--run, -o {output}", "remove one of them")
    wanted = Wanted(float(points[1]), names, most, rate, seconds)
    measure = _measure(by == BY_USAGE, prometheus)
    if runs:
        _run_all(wanted, measure, source, config_file, output)
        return
    with reading(source, config_file, lists=measure.lists) as objects:
        found = plan(objects, replace(wanted, usage=measure.of(objects)))
        if output == "yaml":
            write.data(write.dump([each.migration for each in found.moves]) if found.moves else "")
        elif output == "html":
            write_balance(found, next(_lines(found)))
        else:
            print_report(found, output, _lines)
    if not found.is_reached:
        raise SystemExit(1)


class _Measure(NamedTuple):
    """How usage is found out: the lists to read, and what is made of them; None: nodes are compared by requests."""

    lists: Lists
    of: Callable[[ClusterObjects], Usage | None]


def _measure(by_usage: bool, prometheus: str | None) -> _Measure:
    if prometheus is not None:
        # Asked before the cluster is read, so that a wrong URL is said at once.
        metrics = pod_metrics(prometheus)
        return _Measure(LISTS, lambda objects: measured(replace(objects, pod_metrics=metrics), PROMETHEUS))
    return _Measure(_WITH_METRICS, measured) if by_usage else _Measure(LISTS, lambda _: None)


def _run_all(wanted: Wanted, measure: _Measure, source: Source, config_file: Path | None, output: str) -> None:
    """Make the migrations, and print the plan of the end; exit status 1 where one fails, or they are not enough."""

    async def made() -> BalancePlan:
        async with connected(source.kubeconfig) as api:
            # Metrics lag behind migrations by minutes: what was used at the beginning counts until the end.
            at_first: list[Usage | None] = []

            async def now(course: Course, left: int) -> BalancePlan:
                objects = await from_cluster(source.kubeconfig, None, config_file, LISTS if at_first else measure.lists)
                if not at_first:
                    at_first.append(measure.of(objects))
                return plan(objects, replace(wanted, most=left, usage=at_first[0]), course)

            return await run(api, now, wanted.most, partial(write.line, err=True))

    try:
        found = asyncio.run(made())
    except Unreadable as error:
        write.error(f"Error: {error.why}; {unreadable_fix(error.why)}")
        raise SystemExit(UNREADABLE) from None
    except NoAnswerError as error:
        write.error(f"Error: {error}")
        raise SystemExit(UNREADABLE) from None
    except StoppedError as error:
        write.error(f"Error: {error}")
        raise SystemExit(1) from None
    print_report(found, output, _lines)
    if not found.is_reached:
        raise SystemExit(1)


def _lines(plan: BalancePlan) -> Iterator[Paragraph]:
    now = f"the node that stands out most is {_points(plan.deviation)} above the mean"
    if not plan.moves:
        style = "bold green" if plan.is_reached else "bold red"
        yield Paragraph(f"No migration {'is needed' if plan.is_reached else 'helps'}: {now}", style)
    else:
        then = f"{_points(plan.deviation_after)} after {pluralize(len(plan.moves), 'migration')}"
        style = "bold green" if plan.is_reached else "bold yellow"
        yield Paragraph(f"{now[0].upper()}{now[1:]}, and {then} (target {_points(plan.target)})", style)
        yield from _move_lines(plan)
    yield from _load_lines(plan)
    if plan.staying:
        yield from (Paragraph(), Paragraph("What stays on nodes that stand out still:", "bold"))
    for each in plan.staying:
        yield Paragraph(f"{each.reason} ({abbreviate(each.vms)}) [{each.code}]", "", "  - ")
    yield from (Paragraph(note, "yellow") for note in plan.notes)
    for gap in plan.gaps:
        yield Paragraph(f"Not evaluated: {gap}.", "yellow")
    yield from (Paragraph(), Paragraph("The plan assumes:"))
    yield from (Paragraph(assumption, "dim", "  - ") for assumption in plan.assumptions)


def _move_lines(plan: BalancePlan) -> Iterator[Paragraph]:
    yield Paragraph()
    names = [f"{each.namespace}/{each.name}" for each in plan.moves]
    width = max(map(len, names))
    for number, (name, each) in enumerate(zip(names, plan.moves, strict=True), 1):
        copied = f"{format_amount(MEMORY, each.memory)}, about {duration(each.seconds)}"
        where = f"{each.source} -> {each.to}  {copied}; then {_points(each.deviation)}"
        yield Paragraph(f"{number:>3}  {name:{width}}  {where}", "", "", width + 7)
    copied = f"{format_amount(MEMORY, plan.memory)} to copy, about {duration(plan.seconds)}"
    yield from (Paragraph(), Paragraph(f"{copied}, one after the other."))


def _load_lines(plan: BalancePlan) -> Iterator[Paragraph]:
    what = "Requested of nodes" if plan.by == BY_REQUESTS else "Used of nodes"
    yield from (Paragraph(), Paragraph(f"{what}, CPU and memory, now and then:", "bold"))
    width = max((len(each.name) for each in plan.loads[:_MOST_NODES]), default=0)
    for each in plan.loads[:_MOST_NODES]:
        now, then = f"{each.cpu:.0f}% {each.memory:.0f}%", f"{each.cpu_after:.0f}% {each.memory_after:.0f}%"
        yield Paragraph(f"{each.name:{width}}  {now}{f' -> {then}' if then != now else ''}", "", "  ")
    if (more := len(plan.loads) - _MOST_NODES) > 0:
        yield Paragraph(f"and {pluralize(more, 'more node')}; -o json shows all", "", "  ")


def _points(number: float) -> str:
    return f"{number:g}pp"
