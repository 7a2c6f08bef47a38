"""`kubevirt-webhook explain loss`: which VMs would not start again if nodes died."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from msgspec.structs import replace

from webhook.cli.console import Paragraph, print_report
from webhook.cli.explain import SECONDS, UNREADABLE, WITH_VMS, reading, select_nodes
from webhook.cli.options import Source, WholeNumber, config_option, output_option, source_option
from webhook.cli.plan_page import LossInWords, write_loss
from webhook.errors import InputError
from webhook.forecast import loss as losses
from webhook.forecast import loss_search, report
from webhook.forecast.loss_report import Examined, FailingLoss, LossPlan, StartPlan
from webhook.forecast.snapshot import ClusterObjects
from webhook.k8s.types.selectors import parse_selector
from webhook.placement.nodes import MEMORY, format_amount
from webhook.text import abbreviate, pluralize

_ANY: Final = "Search all losses of N nodes, 1 or 2, and of fewer."
_ZONE: Final = "Search the losses of a whole zone (topology.kubernetes.io/zone)."
_SELECTED: Final = "Lose the nodes with this label; may be repeated, for nodes with all of them."
# In text output; -o json has all.
_MOST_VMS: Final = 50
_MOST_FAILING: Final = 5
_MOST_CHANGES: Final = 5
_GROUPS: Final = (
    (report.WAITS, "Do not start again:", "bold red"),
    (report.DOWN, "Stay down, because nothing starts them again:", "bold yellow"),
    (report.STARTS, "Start again:", "bold green"),
)


@click.command("loss")
@click.argument("nodes", nargs=-1, metavar="NODE...")
@click.option("--any", "any_of", metavar="N", type=WholeNumber(1, 2), help=_ANY)
@click.option("--zone", "by_zone", is_flag=True, help=_ZONE)
@click.option("--node-selector", "selector", multiple=True, metavar="KEY=VALUE", help=_SELECTED)
@source_option()
@config_option("those in the cluster")
@output_option("text", "json", "yaml", "html")
def loss(
    *,
    nodes: tuple[str, ...],
    any_of: int | None,
    by_zone: bool,
    selector: tuple[str, ...],
    config_file: Path | None,
    source: Source,
    output: str,
) -> None:
    """Show which VMs would not start again if nodes died, and what would help, the cheapest first.

    Several nodes die at the same time. With --any and --zone, the command searches, and shows the smallest loss that
    leaves VMs down, with --zone the one that leaves most of them. Nothing is changed.

    Exit status 0 if every VM that KubeVirt would start again finds a node, 1 if one does not, 2 on invalid input, 3 if
    the cluster cannot be read, or if a search has found none and not looked at all losses.
    """
    ways = [bool(nodes), any_of is not None, by_zone, bool(selector)]
    if sum(ways) != 1:
        what = "nothing says which nodes are lost" if not any(ways) else "several options say which nodes are lost"
        raise InputError(what, fix="name nodes, or use one of --node-selector, --any and --zone")
    required = parse_selector(selector, "--node-selector")
    with reading(source, config_file, lists=WITH_VMS) as read:
        objects = asyncio.run(_with_next_vmis(read, source))
        if any_of is not None:
            found = loss_search.search(objects, any_of)
        elif by_zone:
            found = loss_search.search_zones(objects)
        else:
            found = losses.plan(objects, select_nodes(objects, required) if required else nodes)
        if output == "html":
            write_loss(found, next(_lines(found)), _in_words(found))
        else:
            print_report(found, output, _lines)
    if found.waits:
        raise SystemExit(1)
    if found.examined and found.examined.left_out:
        raise SystemExit(UNREADABLE)


def _in_words(plan: LossPlan) -> LossInWords:
    """What the page says as the text does."""
    return LossInWords(
        failing=[*map(_failing, plan.failing)],
        lead=next(_loss_lines(plan)).text if plan.examined and plan.nodes else "",
        groups=[(title, [vm for vm in plan.vms if vm.outcome == outcome]) for outcome, title, _ in _GROUPS],
        about=_about,
        more=[*([_smallest(plan)] if plan.smallest else []), *([_other_pods(plan)] if plan.other_pods else [])],
        gaps=_gaps(plan),
    )


async def _with_next_vmis(objects: ClusterObjects, source: Source) -> ClusterObjects:
    """The same, with the VMIs that KubeVirt makes next of VMs that have changes; most clusters have none."""
    changed = [vm for vm in objects.vms if vm.requires_restart]
    if not changed:
        return objects
    from webhook.forecast.next_vmis import next_vmis

    async with source.open() as cluster:
        deadline = asyncio.get_running_loop().time() + SECONDS
        found, gaps = await next_vmis(changed, cluster, objects.kubevirt, deadline)
    return replace(objects, next_vmis=found, gaps=(*objects.gaps, *gaps))


def _lines(plan: LossPlan) -> Iterator[Paragraph]:
    if plan.examined:
        yield from _search_lines(plan, plan.examined)
    if plan.nodes:
        yield from _loss_lines(plan)
    for gap in _gaps(plan):
        yield Paragraph(f"Not evaluated: {gap}.", "yellow")
    yield from (Paragraph(), Paragraph("The plan assumes:"))
    yield from (Paragraph(assumption, "dim", "  - ") for assumption in plan.assumptions)


def _search_lines(plan: LossPlan, examined: Examined) -> Iterator[Paragraph]:
    what = "zone" if plan.by_zone else "node" if plan.any_of == 1 else "two nodes"
    if plan.failing:
        number = pluralize(len(plan.failing), "loss", "losses")
        more = "" if len(plan.failing) < loss_search.MOST_FAILING else " or more"
        yield Paragraph(f"{number}{more} would leave VMs down that KubeVirt starts again by itself", "bold red")
    elif examined.left_out:
        yield Paragraph(f"No loss of {_any(what)} that was looked at leaves a VM down", "bold yellow")
    else:
        yield Paragraph(f"Any {what} can be lost: every VM starts again that KubeVirt starts by itself", "bold green")
    yield Paragraph(_examined(examined, by_zone=plan.by_zone))
    if examined.stays_down:
        stays = "stays down with its node" if examined.stays_down == 1 else "stay down with their nodes"
        what = f"{pluralize(examined.stays_down, 'VM')} that nothing starts again {stays}"
        yield Paragraph(f"{what}; kubevirt-webhook explain loss NODE lists them.", "yellow")
    if plan.failing:
        yield Paragraph()
    for each in plan.failing[:_MOST_FAILING]:
        yield Paragraph(_failing(each), "", "  ", 4)
    if (more_losses := len(plan.failing) - _MOST_FAILING) > 0:
        yield Paragraph(f"and {pluralize(more_losses, 'more loss', 'more losses')}; -o json shows them", "", "  ")
    if plan.failing:
        yield Paragraph()


def _any(what: str) -> str:
    return what if what == "two nodes" else f"a {what}"


def _examined(examined: Examined, *, by_zone: bool) -> str:
    parts = [f"{pluralize(examined.losses, 'loss', 'losses')} looked at"]
    if examined.left_out:
        parts = [f"{examined.losses - examined.left_out} of {pluralize(examined.losses, 'loss', 'losses')} looked at"]
    if examined.by_room:
        parts.append(f"{examined.by_room} certain in any order, because there is room to spare")
    if examined.simulated:
        parts.append(f"{examined.simulated} simulated")
    if examined.implied:
        parts.append(f"{examined.implied} with a node whose loss leaves VMs down already")
    if examined.left_out:
        # Zones are looked at in the order of their names.
        which = "" if by_zone else ", which matter least"
        parts.append(f"{examined.left_out} not looked at{which}, because they would take too long")
    return f"{'; '.join(parts)}."


def _failing(failing: FailingLoss) -> str:
    what = (
        f"zone {failing.zone} ({pluralize(len(failing.nodes), 'node')})" if failing.zone else ", ".join(failing.nodes)
    )
    more = f" and {failing.waits - len(failing.vms)} more" if failing.waits > len(failing.vms) else ""
    return f"{what}: {pluralize(failing.waits, 'VM')} down ({', '.join(failing.vms)}{more})"


def _loss_lines(plan: LossPlan) -> Iterator[Paragraph]:
    is_one = len(plan.nodes) == 1
    lost = f"{abbreviate(plan.nodes)} {'is' if is_one else 'are'} lost"
    every = plan.starts + plan.waits
    if plan.waits:
        verb = "does" if plan.waits == 1 else "do"
        what = f"{plan.waits} of {pluralize(every, 'VM')} {verb} not start again"
    else:
        what = f"all {pluralize(every, 'VM')} start again" if every != 1 else "1 VM starts again"
        what = "no VM has to start again" if not every else what
    more = f", {plan.stays_down} not started by anything" if plan.stays_down else ""
    more += f", {pluralize(plan.preempted, 'pod')} preempted" if plan.preempted else ""
    color = "red" if plan.waits else "yellow" if plan.stays_down or plan.preempted else "green"
    yield Paragraph(f"If {lost}, {what}{more}", f"bold {color}")
    if plan.smallest:
        yield Paragraph(_smallest(plan), "yellow")
    for outcome, title, style in _GROUPS:
        yield from _group([vm for vm in plan.vms if vm.outcome == outcome], title, style)
    if plan.other_pods:
        yield from (Paragraph(), Paragraph(_other_pods(plan)))
    if plan.changes or plan.spare:
        yield from (Paragraph(), Paragraph("What would help, the cheapest first:", "bold"))
    for change in plan.changes[:_MOST_CHANGES]:
        yield Paragraph(f"{change.change} ({abbreviate(change.vms)})", "", "  - ")
    if spare := plan.spare:
        left = f"{pluralize(spare.waits, 'VM')} would not start" if spare.waits else "all would start"
        yield Paragraph(f"add a node like {spare.like}: {left}", "", "  - ")
    if plan.notes or plan.gaps:
        yield Paragraph()
    yield from (Paragraph(note, "yellow") for note in plan.notes)


def _smallest(plan: LossPlan) -> str:
    lone = f"{abbreviate(plan.smallest)} alone {'is' if len(plan.smallest) == 1 else 'are'} enough"
    return f"The loss of {lone} to leave VMs down."


def _other_pods(plan: LossPlan) -> str:
    waiting = abbreviate(f"{each.namespace}/{each.name}" for each in plan.waiting_pods)
    said = "it finds a node" if plan.other_pods == 1 else "all find a node"
    if waiting:
        said = f"{len(plan.waiting_pods)} of them without a node: {waiting}"
    verb = "starts" if plan.other_pods == 1 else "start"
    return f"{pluralize(plan.other_pods, 'pod')} of other controllers {verb} anew, too; {said}."


def _gaps(plan: LossPlan) -> list[str]:
    return [*dict.fromkeys((*plan.gaps, *(gap for vm in plan.vms for gap in vm.gaps)))]


def _about(vm: StartPlan) -> str:
    """What becomes of a VM."""
    if vm.outcome != report.STARTS:
        return f"{vm.node}: {vm.reason} [{vm.code}]"
    nodes = f"{vm.with_room} of {pluralize(vm.eligible, 'eligible node')} with room"
    doubt = f"; {vm.reason} [{vm.code}]" if vm.reason else ""
    return f"{vm.node} -> {vm.to}  {format_amount(MEMORY, vm.memory)}, {nodes}{doubt}"


def _group(vms: Sequence[StartPlan], title: str, style: str) -> Iterator[Paragraph]:
    if not vms:
        return
    yield from (Paragraph(), Paragraph(title, style))
    width = max(len(f"{vm.namespace}/{vm.name}") for vm in vms[:_MOST_VMS])
    for vm in vms[:_MOST_VMS]:
        yield Paragraph(f"{f'{vm.namespace}/{vm.name}':{width}}  {_about(vm)}", "", "  ", width + 4)
        yield from (Paragraph(note, "dim", " " * (width + 4)) for note in vm.notes)
    if len(vms) > _MOST_VMS:
        yield Paragraph(f"  and {pluralize(len(vms) - _MOST_VMS, 'more VM')}; -o json shows all")
