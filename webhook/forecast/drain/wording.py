"""Why a VM finds no node although some meet its requirements, in words."""

from __future__ import annotations

from typing import Final

from webhook.forecast.drain import report
from webhook.forecast.drain.movers import Mover
from webhook.forecast.drain.packing import Candidates
from webhook.forecast.drain.room import PODS, Room
from webhook.placement import resources
from webhook.text import pluralize

_FEW: Final = 3


def no_node_left(mover: Mover, alone: Candidates, left: Candidates, room: Room) -> tuple[str, str]:
    """The code and the reason, a clause.

    Args:
        mover: the VM.
        alone: the nodes for it before any other VM has moved.
        left: the nodes for it after all others have.
        room: what is free after all others have moved.
    """
    eligible = left.verdict.bits
    count = pluralize(eligible.bit_count(), "eligible node")
    roomy = eligible & left.room
    if roomy:
        rules = " and ".join(name for name, nodes in left.apart if nodes & roomy)
        where = "" if roomy == eligible else f" with room ({roomy.bit_count()} of them)"
        return report.PODS_APART, f"other pods keep it from the {count}{where}: {rules}"
    if alone.nodes:
        verb = "has" if alone.nodes.bit_count() == 1 else "have"
        nodes = pluralize(alone.nodes.bit_count(), "node")
        return report.NO_ROOM, f"{nodes} {verb} room for it now, but not beside the VMs that move there"
    short = [
        f"{resource} ({resources.format_request(resource, amount)} requested)" if resource != PODS else "pods"
        for resource, amount in mover.requests.items()
        if eligible & ~room.with_enough(resource, amount)
    ]
    if eligible.bit_count() == 1:
        name = next(iter(left.verdict.names()))
        return report.NO_ROOM, f"the only eligible node, {name}, has not enough free {_join_first(short)}"
    return report.NO_ROOM, f"none of the {count} has enough free {_join_first(short)}"


def _join_first(parts: list[str]) -> str:
    return ", ".join(parts[:_FEW]) + (f" and {len(parts) - _FEW} more" if len(parts) > _FEW else "")
