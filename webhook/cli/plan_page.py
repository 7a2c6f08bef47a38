"""Plans as pages of HTML: files without scripts that load nothing, in the look of the page for admins.

The replicas make no such plans: they read all pods of a cluster, which a replica does not, and take seconds where there
are many.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from webhook import __version__
from webhook.admission.credentials import scrub_prose
from webhook.cli import write
from webhook.cli.console import Paragraph
from webhook.cli.explain import duration
from webhook.forecast.balance_report import BY_USAGE, BalancePlan
from webhook.forecast.loss_report import LossPlan, StartPlan
from webhook.forecast.report import STARTS
from webhook.placement.nodes import MEMORY, format_amount
from webhook.text import abbreviate, pluralize

# Rows of one table or list; -o json has all.
MOST_ROWS: Final = 200
_TONES: Final = {"bold green": "good", "bold yellow": "warn", "bold red": "bad"}
# The width of a whole bar.
_WHOLE: Final = 1000


class Bars(NamedTuple):
    """Two bars one above the other, and what they show in words."""

    text: str
    now: int
    then: int


def write_balance(plan: BalancePlan, headline: Paragraph) -> None:
    """Print a plan of `explain balance`; ``headline`` says what it comes to."""
    moves = [
        {
            "turn": turn,
            "vm": f"{each.namespace}/{each.name}",
            "source": each.source,
            "to": each.to,
            "memory": format_amount(MEMORY, each.memory),
            "duration": duration(each.seconds),
            "deviation": f"{each.deviation:g}pp",
        }
        for turn, each in enumerate(plan.moves[:MOST_ROWS], 1)
    ]
    # The nodes that VMs reach rarely stand out.
    touched = {name for each in plan.moves for name in (each.source, each.to)}
    shown = sorted(plan.loads, key=lambda each: each.name not in touched)[:MOST_ROWS]
    most = max((max(each.cpu, each.memory, each.cpu_after, each.memory_after) for each in shown), default=0.0)
    whole = max(100.0, most)
    values = {
        "moves": moves,
        "more_moves": len(plan.moves) - len(moves),
        "copied": f"{format_amount(MEMORY, plan.memory)} to copy, about {duration(plan.seconds)}",
        "counted": "Used" if plan.by == BY_USAGE else "Requested",
        "loads": [
            {
                "name": each.name,
                "cpu": _bars(each.cpu, each.cpu_after, whole, _percent),
                "memory": _bars(each.memory, each.memory_after, whole, _percent),
            }
            for each in shown
        ],
        "more_loads": len(plan.loads) - len(shown),
        "staying": [
            {"reason": each.reason, "code": each.code, "vms": abbreviate(each.vms)} for each in plan.staying[:MOST_ROWS]
        ],
        "more_staying": len(plan.staying[MOST_ROWS:]),
    }
    _write("balance.html", "Balancing nodes", "kubevirt-webhook explain balance", plan, headline, values, plan.gaps)


class LossInWords(NamedTuple):
    """What a page says of a loss in the words of the command.

    Attributes:
        failing: the losses of a search that leave VMs down.
        lead: of a search, what the loss comes to that the page shows; else empty.
        groups: the VMs by what becomes of them, each with a title.
        about: says what becomes of a VM.
        more: further sentences.
        gaps: what was not evaluated.
    """

    failing: list[str]
    lead: str
    groups: list[tuple[str, list[StartPlan]]]
    about: Callable[[StartPlan], str]
    more: list[str]
    gaps: list[str]


def write_loss(plan: LossPlan, headline: Paragraph, words: LossInWords) -> None:
    """Print a plan of `explain loss`; ``headline`` says what it comes to."""
    nodes = _nodes_of(plan)
    helps = [f"{change.change} ({abbreviate(change.vms)})" for change in plan.changes[:MOST_ROWS]]
    if spare := plan.spare:
        left = f"{pluralize(spare.waits, 'VM')} would not start" if spare.waits else "all would start"
        helps.append(f"add a node like {spare.like}: {left}")
    values = {
        "lead": words.lead,
        "failing": words.failing[:MOST_ROWS],
        "more_failing": len(words.failing[MOST_ROWS:]),
        "more": words.more,
        "nodes": nodes[:MOST_ROWS],
        "more_nodes": len(nodes[MOST_ROWS:]),
        "groups": [
            {
                "title": title.rstrip(":"),
                "vms": [
                    {"vm": f"{vm.namespace}/{vm.name}", "about": "; ".join([words.about(vm), *vm.notes])}
                    for vm in vms[:MOST_ROWS]
                ],
                "more": len(vms[MOST_ROWS:]),
            }
            for title, vms in words.groups
            if vms
        ],
        "helps": helps,
        "more_helps": len(plan.changes[MOST_ROWS:]),
    }
    _write("loss.html", "Losing nodes", "kubevirt-webhook explain loss", plan, headline, values, words.gaps)


def _nodes_of(plan: LossPlan) -> list[dict[str, Any]]:
    """The nodes that are lost, and those on which VMs start again: how many VMs, and how much memory they request."""
    vms = {False: Counter[str](), True: Counter[str]()}
    memory = {False: Counter[str](), True: Counter[str]()}
    for vm in plan.vms:
        for is_after, node in ((False, vm.node), (True, vm.to if vm.outcome == STARTS else "")):
            vms[is_after][node] += 1
            memory[is_after][node] += vm.memory
    every = dict.fromkeys([*plan.nodes, *(node for node, _ in vms[True].most_common() if node)])
    whole_vms = max((max(vms[False][node], vms[True][node]) for node in every), default=0)
    whole_memory = max((max(memory[False][node], memory[True][node]) for node in every), default=0)
    return [
        {
            "name": node,
            "is_lost": node in plan.nodes,
            "vms": _bars(vms[False][node], vms[True][node], whole_vms, str),
            "memory": _bars(memory[False][node], memory[True][node], whole_memory, _amount),
        }
        for node in every
    ]


def _bars(now: float, then: float, whole: float, as_text: Callable[[Any], str]) -> Bars:
    text = as_text(now) if as_text(now) == as_text(then) else f"{as_text(now)} → {as_text(then)}"
    return Bars(text, *(round(_WHOLE * number / whole) if whole else 0 for number in (now, then)))


def _percent(number: float) -> str:
    return f"{number:.0f} %"


def _amount(memory: int) -> str:
    return format_amount(MEMORY, memory)


def _write(
    template: str,
    title: str,
    command: str,
    plan: BalancePlan | LossPlan,
    headline: Paragraph,
    values: dict[str, Any],
    gaps: Sequence[str],
) -> None:
    """Print the page, without the secrets that a text may hold."""
    # Templates are compiled only where a page is asked for.
    from webhook.server.page.renderer import PageRenderer

    values |= {
        "title": title,
        "command": command,
        "headline": headline.text,
        "tone": _TONES[headline.style],
        "notes": plan.notes[:MOST_ROWS],
        "gaps": gaps[:MOST_ROWS],
        "more_to_know": len(plan.notes[MOST_ROWS:]) + len(gaps[MOST_ROWS:]),
        "assumptions": plan.assumptions,
        "version": __version__,
        "made": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }
    page = asyncio.run(PageRenderer().render(template, _scrubbed(values)))
    write.data(page.decode())


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return scrub_prose(value)
    if isinstance(value, dict):
        return {name: _scrubbed(each) for name, each in value.items()}
    if isinstance(value, Bars):
        return value
    return [_scrubbed(each) for each in value] if isinstance(value, list | tuple) else value
