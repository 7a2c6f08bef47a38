"""The plan of a drain as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from webhook.cli.paragraphs import Paragraph, print_paragraphs
from webhook.forecast import report
from webhook.forecast.report import PENDING_SECONDS, DrainPlan, Limits, Step, VmPlan
from webhook.placement.nodes import MEMORY, format_request
from webhook.text import pluralize

# In text output; a rolling upgrade of a large cluster has thousands.
_MOST_VMS: Final = 50
_MOST_CHANGES: Final = 3


def print_plan(plan: DrainPlan) -> None:
    """Print a plan: what blocks comes first after the headline."""
    print_paragraphs(_lines(plan))


def duration(seconds: int) -> str:
    """Seconds for people: ``45s``, ``3m``, ``1h 20m``."""
    if seconds < 60:
        return f"{seconds}s"
    minutes = -(-seconds // 60)
    hours, minutes = divmod(minutes, 60)
    return " ".join(part for part in (f"{hours}h" if hours else "", f"{minutes}m" if minutes else "") if part)


def _lines(plan: DrainPlan) -> Iterator[Paragraph]:
    yield Paragraph(_headline(plan), "bold red" if plan.blocks else "bold yellow" if plan.shuts_down else "bold green")
    if plan.rolling:
        yield from _rolling(plan)
    else:
        yield from _step(plan.steps[0])
    yield Paragraph()
    yield from _pace(plan)
    if plan.changes:
        yield Paragraph()
        yield Paragraph("What one change would free most:", "bold")
        for change in plan.changes[:_MOST_CHANGES]:
            yield Paragraph(f"{change.change} ({_few(change.vms)})", "", "  - ")
    gaps = dict.fromkeys((*plan.gaps, *(gap for step in plan.steps for vm in step.vms for gap in vm.gaps)))
    for gap in gaps:
        yield Paragraph(f"Not evaluated: {gap}.", "yellow")
    yield Paragraph()
    yield Paragraph("The plan assumes:")
    for assumption in plan.assumptions:
        yield Paragraph(assumption, "dim", "  - ")


def _headline(plan: DrainPlan) -> str:
    nodes = [node for step in plan.steps for node in step.nodes]
    what = f"a drain of {_few(nodes)}" if not plan.rolling else f"drains of {pluralize(len(nodes), 'node')} in turn"
    verdict = "cannot end" if plan.blocks else "can end"
    counts = [
        pluralize(plan.moves, "migration"),
        f"{plan.shuts_down} shut down",
        f"{plan.blocks} blocked",
    ]
    return f"{what[:1].upper()}{what[1:]} {verdict}: {', '.join(counts)}"


def _step(step: Step) -> Iterator[Paragraph]:
    for outcome, title, style in (
        (report.BLOCKS, "Block the drain:", "bold red"),
        (report.SHUTS_DOWN, "Shut down:", "bold yellow"),
        (report.MOVES, "Move:", "bold green"),
    ):
        vms = [vm for vm in step.vms if vm.outcome == outcome]
        pods = step.blocked_pods if outcome == report.BLOCKS else ()
        if not vms and not pods:
            continue
        yield Paragraph()
        yield Paragraph(title, style)
        for pod in pods:
            yield Paragraph(f"pod {pod.namespace}/{pod.name}: {pod.reason}", "", "  ")
        yield from _vms(vms)
    if step.other_pods:
        yield Paragraph()
        yield Paragraph(f"{pluralize(step.other_pods, 'pod')} without a VM evicted, too.")


def _vms(vms: Sequence[VmPlan]) -> Iterator[Paragraph]:
    width = max((len(f"{vm.namespace}/{vm.name}") for vm in vms[:_MOST_VMS]), default=0)
    for vm in vms[:_MOST_VMS]:
        yield Paragraph(f"{f'{vm.namespace}/{vm.name}':{width}}  {_where(vm)}", "", "  ", width + 4)
        for note in vm.notes:
            yield Paragraph(note, "dim", " " * (width + 4))
    if len(vms) > _MOST_VMS:
        yield Paragraph(f"  and {pluralize(len(vms) - _MOST_VMS, 'more VM')}; -o json shows all")


def _where(vm: VmPlan) -> str:
    reason = f" [{vm.code}]"
    if vm.outcome != report.MOVES:
        return f"{vm.node}: {vm.reason}{reason}"
    memory = format_request(MEMORY, vm.memory)
    room = f"{vm.with_room} of {pluralize(vm.eligible, 'eligible node')} with room"
    packed = f"; {vm.reason}{reason}" if vm.reason else ""
    return f"{vm.node} -> {vm.to}  {memory}, {room}{packed}"


def _rolling(plan: DrainPlan) -> Iterator[Paragraph]:
    yield Paragraph()
    width = max((len(step.nodes[0]) for step in plan.steps), default=0)
    for step in plan.steps:
        moves = sum(vm.outcome == report.MOVES for vm in step.vms)
        rest = [vm for vm in step.vms if vm.outcome != report.MOVES]
        if not step.vms and not step.blocked_pods:
            continue
        time = _time(step.seconds, step.at_most_seconds) if moves else ""
        counts = f"{pluralize(moves, 'migration')}{', ' if time else ''}{time}"
        yield Paragraph(f"{step.nodes[0]:{width}}  {counts}", "bold red" if _blocks(step) else "")
        for pod in step.blocked_pods:
            yield Paragraph(f"blocks  pod {pod.namespace}/{pod.name}: {pod.reason}", "", "  ", 10)
        for vm in rest[:_MOST_VMS]:
            head = "blocks" if vm.outcome == report.BLOCKS else "shuts down"
            yield Paragraph(f"{head}  {vm.namespace}/{vm.name}: {vm.reason} [{vm.code}]", "", "  ", len(head) + 4)
    idle = sum(not step.vms and not step.blocked_pods for step in plan.steps)
    if idle:
        yield Paragraph(f"{pluralize(idle, 'node')} without VMs not shown", "dim")


def _blocks(step: Step) -> bool:
    return bool(step.blocked_pods) or any(vm.outcome == report.BLOCKS for vm in step.vms)


def _pace(plan: DrainPlan) -> Iterator[Paragraph]:
    limits = plan.limits
    slots = f"{limits.per_cluster} migrations concurrently, {limits.per_node} from each node"
    if not plan.moves:
        yield Paragraph(f"KubeVirt runs {slots}; here there are none.")
        return
    times = _time(plan.seconds, plan.at_most_seconds)
    yield Paragraph(f"{pluralize(plan.moves, 'migration')}, {times}: KubeVirt runs {slots}{_speed(limits)}.")
    pending = sum(vm.code in report.PENDING for step in plan.steps for vm in step.vms)
    if pending:
        who = "VM without a node takes" if pending == 1 else "VMs without a node take"
        text = (
            f"{pending} {who} a turn, too: KubeVirt waits {duration(PENDING_SECONDS)} for a target pod to be scheduled."
        )
        yield Paragraph(text, "yellow")
    if limits.unfinished:
        yield Paragraph(f"{pluralize(limits.unfinished, 'migration')} unfinished now take their turns first.", "yellow")


def _speed(limits: Limits) -> str:
    amount = format_request(MEMORY, limits.bandwidth)
    source = "assumed, see --bandwidth" if limits.bandwidth_is_assumed else "KubeVirt's limit or --bandwidth"
    timeout = limits.timeout_seconds_per_gib
    given = f"is given {timeout}s for each GiB" if timeout else "may take any time (completionTimeoutPerGiB is 0)"
    return f"; each takes {limits.start_seconds}s to start, copies {amount} a second ({source}), and {given}"


def _time(seconds: int, at_most: int | None) -> str:
    return f"about {duration(seconds)}" + (f", at most {duration(at_most)}" if at_most is not None else "")


def _few(names: Sequence[str], most: int = 5) -> str:
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
