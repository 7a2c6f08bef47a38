"""The plan of `explain balance` beside a real KubeVirt: run, it ends where it said, and breaks no rule on the way."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
import pytest

from tests.e2e.support.descheduler import BACKGROUND, policy_of
from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.program import command
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMIS
from webhook.cli.explain import from_cluster
from webhook.forecast import balance
from webhook.forecast.balance_report import BalancePlan

from .descheduling import Descheduler
from .place import Place
from .uneven import History, Loads, broken, fleet, populate, positions, settled

pytestmark = [pytest.mark.kubevirt, pytest.mark.timeout(600)]

TARGET = 10


def _seeds(variable: str) -> range:
    """``BALANCED_FLEETS=100`` takes so many fleets, and ``BALANCED_FLEETS=60:80`` those."""
    first, _, last = os.environ.get(variable, "1").rpartition(":")
    return range(int(first or 0), int(last))


def explain(place: Place, *options: str) -> tuple[BalancePlan, str]:
    """The plan, and what is said beside it."""
    done = command(place.real.plane, "explain", "balance", f"--target={TARGET}", "-o", "json", *options, check=False)
    assert done.stdout, done.stderr
    return msgspec.convert(json.loads(done.stdout), BalancePlan), done.stderr


def made(place: Place) -> list[Json]:
    """The migrations that have been made, in order."""
    found = place.admin.list(MIGRATIONS, place.namespace)
    return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))


def uids(place: Place) -> dict[str, str]:
    return {vmi["metadata"]["name"]: vmi["metadata"]["uid"] for vmi in place.admin.list(VMIS, place.namespace)}


@pytest.mark.parametrize("seed", _seeds("BALANCED_FLEETS"))
def test_a_plan_that_is_run_ends_where_it_said(
    fleet_place: Place, seed: int, record_property: Callable[[str, object], None]
) -> None:
    place, drawn = fleet_place, fleet(seed)
    before = populate(place, drawn)
    loads, running = Loads(place), uids(place)
    planned, _ = explain(place)
    assert planned.deviation == pytest.approx(loads.deviation(before), abs=0.01)
    with History(place) as history:
        left, said = explain(place, "--run")
        after = settled(place)

    assert after == before | {each.name: each.to for each in planned.moves}, said
    assert not {each.name for each in planned.moves} & drawn.fixed
    assert loads.deviation(after) == pytest.approx(planned.deviation_after, abs=1)
    assert left.deviation == pytest.approx(planned.deviation_after, abs=1)
    assert left.is_reached == planned.is_reached
    # Each migration once, all of them successful, and no VM has been restarted.
    assert sorted(each["spec"]["vmiName"] for each in made(place)) == sorted(each.name for each in planned.moves)
    assert {each["status"]["phase"] for each in made(place)} <= {"Succeeded"}
    assert uids(place) == running
    # What was broken before may be so still.
    already = broken(drawn, history.states[0])
    for state in history.states:
        assert not broken(drawn, state) - already, (state, planned.moves)
        assert not [*loads.overcommitted(state)], state
    values = {"VMs": len(before), "moves": len(planned.moves), "before": planned.deviation}
    for name, value in {**values, "after": planned.deviation_after, "reached": planned.is_reached}.items():
        record_property(name, value)


# The last ones may find nothing to do.
ROUNDS = 12
# A VM that cannot move now keeps its mark; the descheduler goes on with others.
SETTLING_SECONDS = 30.0


def _is_settled(place: Place) -> bool:
    """Whether every migration has ended, and every VM that is to move has."""
    if any(each.get("status", {}).get("phase") not in ("Succeeded", "Failed") for each in made(place)):
        return False
    vmis = place.admin.list(VMIS, place.namespace)
    is_at_rest = all(len(nodes) == 1 for nodes in positions(place.admin.list(PODS, place.namespace)).values())
    return is_at_rest and not any(vmi["status"].get("evacuationNodeName") for vmi in vmis)


def _deschedule(place: Place, descheduler: Descheduler) -> int:
    """Has it look at the nodes until it moves nothing twice; how often VMs did not move that it had asked for."""
    idle = stuck = 0
    for number in range(1, ROUNDS + 1):
        before = len(made(place))
        descheduler.look()
        try:
            eventually(partial(_is_settled, place), what=f"the migrations of round {number}", timeout=SETTLING_SECONDS)
        except AssertionError:
            stuck += 1
        idle = 0 if len(made(place)) > before else idle + 1
        if idle == 2:
            break
    return stuck


def _course(place: Place, loads: Loads, before: Mapping[str, str]) -> list[float]:
    """How far the node that stood out most was above the mean, at first and after each migration."""
    on = dict(before)
    ended = [each["status"] | each["spec"] for each in made(place) if each["status"]["phase"] == "Succeeded"]
    found = [loads.deviation(on)]
    for each in sorted(ended, key=lambda each: each["migrationState"]["endTimestamp"]):
        on[each["vmiName"]] = each["migrationState"]["targetNode"]
        found.append(loads.deviation(on))
    return found


@pytest.mark.parametrize("seed", _seeds("DESCHEDULED_FLEETS"))
def test_the_descheduler_needs_more_migrations_for_the_same(
    fleet_place: Place, descheduler: Path, seed: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Its best moment counts, and not the migrations after that: what they would need that balance nodes as far."""
    place, drawn = fleet_place, fleet(seed, evictable=True)
    before = populate(place, drawn)
    loads, running = Loads(place), uids(place)
    objects = asyncio.run(from_cluster(place.kubeconfig()))
    planned = balance.plan(objects, balance.Wanted(TARGET))
    policy = policy_of(place.namespace, TARGET)
    with History(place) as history:
        stuck = _deschedule(place, Descheduler(place.real, policy, tmp_path, descheduler, [BACKGROUND]))
    course = _course(place, loads, before)
    best = min(course)
    same = balance.plan(objects, balance.Wanted(math.ceil(best * 100) / 100))
    already = broken(drawn, history.states[0])
    values = {
        "plan": len(planned.moves),
        "plan after": planned.deviation_after,
        "before": round(course[0], 2),
        "descheduler": len(course) - 1,
        "descheduler best": course.index(best),
        "deviation best": round(best, 2),
        "deviation last": round(course[-1], 2),
        "same": len(same.moves),
        "same is reached": same.is_reached,
        "stuck": stuck,
        "broken rules": len(set().union(*(broken(drawn, state) for state in history.states)) - already),
        "course": " ".join(f"{each:.2f}" for each in course),
    }
    for name, value in values.items():
        record_property(name, value)
    assert uids(place) == running
    assert len(same.moves) <= course.index(best), values
