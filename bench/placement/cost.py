"""What a constraint costs the scheduler of a large cluster: 5,000 nodes, 20,000 launcher pods on them, and some more.

Nodes are nothing but objects, and the pods that are there already were bound as they were created. So what is measured
is the scheduler's own work, by its own metrics, for as many equal pods in each case.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.placement import launcher, profiles
from bench.placement.bindings import Bindings
from bench.placement.client import SchedulingClient, SchedulingRequest
from bench.placement.cluster import PlacementCluster, pods_path
from bench.placement.constraint import Constraint, constrain
from bench.placement.nodes import MIDDLE_NODE, NodeImageList, NodeLoad, make_nodes
from bench.placement.plane import BenchPlane

_NAMESPACES: Final = 20
_MEASURED: Final = "measured"
_DEVICES: Final = 1000
_BOUND_WITHIN_SECONDS: Final = 600.0
# The scheduler's cache has to have heard of twenty thousand pods before the first attempt counts.
_WARM_UP_PODS: Final = 20
_ALGORITHM: Final = "scheduler_scheduling_algorithm_duration_seconds"
_CPU: Final = "process_cpu_seconds_total"


@dataclass(frozen=True, slots=True)
class CostPlan:
    """How large the cluster is, and how many pods are scheduled in each case."""

    nodes: int = 5000
    pods: int = 20_000
    attempts: int = 500


@dataclass(frozen=True, slots=True)
class Cost:
    """What one case took.

    Attributes:
        key: its name in the JSON.
        title: for people.
        algorithm_milliseconds: how long the scheduler takes to choose a node, by its own metric.
        cpu_milliseconds: the CPU time of the scheduler for each pod, all that it does included. It does not depend on
            what else the machine is busy with.
        pods_per_second: bound in the run.
        most: how many of the case's pods the fullest node got; there are more nodes than pods.
    """

    key: str
    title: str
    algorithm_milliseconds: float
    cpu_milliseconds: float
    pods_per_second: float
    most: int


@dataclass(frozen=True, slots=True)
class _Measured:
    """A kind of pod that is scheduled while others of the given constraint are there."""

    key: str
    title: str
    profile: str
    constraint: Constraint
    is_launcher: bool = True
    max_skew: int = 1


_STAY: Final = (
    # Pods that are there already, and the cases that are measured beside them.
    (
        Constraint.HOSTNAME,
        (
            _Measured("default", "no constraint", profiles.STOCK, Constraint.NONE),
            _Measured("constraint", "topology spread constraint", profiles.STOCK, Constraint.HOSTNAME),
            _Measured("zone-hostname", "two constraints, zone and hostname", profiles.STOCK, Constraint.BOTH),
            _Measured("profile", "the profile, no constraint", profiles.SHIPPED, Constraint.NONE),
            _Measured("both", "the profile and the constraint", profiles.SHIPPED, Constraint.HOSTNAME),
            _Measured(
                "skew", "the profile and the constraint, maxSkew 5", profiles.SHIPPED, Constraint.HOSTNAME, max_skew=5
            ),
            _Measured("few", "the profile, 2 % of the nodes scored, no constraint", profiles.FEW, Constraint.NONE),
            _Measured("few-both", "the profile, 2 % scored, and the constraint", profiles.FEW, Constraint.HOSTNAME),
            _Measured("other", "a pod that is no launcher", profiles.STOCK, Constraint.NONE, is_launcher=False),
        ),
    ),
    (
        Constraint.ANTI_AFFINITY,
        (
            _Measured("anti-affinity", "preferred anti-affinity", profiles.STOCK, Constraint.ANTI_AFFINITY),
            _Measured(
                "other-anti-affinity",
                "a pod that is no launcher, beside launchers with anti-affinity",
                profiles.STOCK,
                Constraint.NONE,
                is_launcher=False,
            ),
        ),
    ),
)


def measure_cost(plane: BenchPlane, client: SchedulingClient, plan: CostPlan, say: Callable[[str], None]) -> list[Cost]:
    """Build the large cluster, and measure each case on it.

    Raises:
        PlacementError: a pod was not bound in time.
        ApiError: the API server denied a request.
    """
    cluster = PlacementCluster(client)
    namespaces = [f"large-{number:02}" for number in range(1, _NAMESPACES + 1)]
    nodes = make_nodes(((plan.nodes, MIDDLE_NODE),), NodeLoad.EMPTY, NodeImageList.ALL, _zones(plan.nodes))
    say(f"creating {plan.nodes} nodes")
    cluster.rebuild(nodes, _DEVICES)
    cluster.create_namespaces([*namespaces, _MEASURED])
    costs: list[Cost] = []
    names = [node.name for node in nodes]
    for present, cases in _STAY:
        say(f"creating {plan.pods} launcher pods, constraint {present.value}")
        client.send_all(_bound(plan.pods, namespaces, names, present))
        bindings = Bindings(client, f"{pods_path(_MEASURED)}?allowWatchBookmarks=false")
        for case in cases:
            say(f"scheduling {plan.attempts} pods: {case.title}")
            costs.append(_measure(plane, client, bindings, case, plan.attempts))
            say(f"{costs[-1].algorithm_milliseconds:.1f} ms for a node, {costs[-1].cpu_milliseconds:.1f} ms of CPU")
            cluster.empty_namespaces([_MEASURED])
        cluster.empty_namespaces(namespaces)
    return costs


def _measure(plane: BenchPlane, client: SchedulingClient, bindings: Bindings, case: _Measured, count: int) -> Cost:
    _schedule(client, bindings, case, "warm-up", _WARM_UP_PODS)
    before = read_metrics(plane.scheduler_metrics())
    started = time.monotonic()
    nodes = Counter(_schedule(client, bindings, case, "measured", count).values())
    took = time.monotonic() - started
    after = read_metrics(plane.scheduler_metrics())
    algorithm = (after[f"{_ALGORITHM}_sum"] - before[f"{_ALGORITHM}_sum"]) / (
        after[f"{_ALGORITHM}_count"] - before[f"{_ALGORITHM}_count"]
    )
    cpu, most = (after[_CPU] - before[_CPU]) / count, max(nodes.values())
    return Cost(case.key, case.title, 1000 * algorithm, 1000 * cpu, count / took, most)


def _schedule(client: SchedulingClient, bindings: Bindings, case: _Measured, name: str, count: int) -> dict[str, str]:
    """Create pods and wait until they are bound; returns their nodes by their names."""
    prefix = f"{case.key}-{name}"
    pods = [_pod(f"{prefix}-{number}", case.constraint, case.max_skew) for number in range(count)]
    for pod in pods:
        pod["spec"]["schedulerName"] = case.profile
        if not case.is_launcher:
            pod["metadata"]["labels"] = {"app": "shop"}
    client.send_all(SchedulingRequest("POST", pods_path(_MEASURED), pod) for pod in pods)
    return bindings.wait((pod["metadata"]["name"] for pod in pods), _BOUND_WITHIN_SECONDS)


def _bound(
    count: int, namespaces: Sequence[str], nodes: Sequence[str], constraint: Constraint
) -> Iterator[SchedulingRequest]:
    for number in range(count):
        pod = _pod(f"present-{number}", constraint)
        pod["spec"]["nodeName"] = nodes[number % len(nodes)]
        yield SchedulingRequest("POST", pods_path(namespaces[number % len(namespaces)]), pod)


def _pod(name: str, constraint: Constraint, max_skew: int = 1) -> dict[str, Any]:
    vmi = {**launcher.machine(name), "metadata": {"name": name, "uid": name}}
    pod = launcher.pod(vmi)
    pod["metadata"]["name"] = name
    constrain(pod, constraint, max_skew)
    return pod


def read_metrics(text: str) -> dict[str, float]:
    """The metrics that have no labels, by name."""
    return {name: float(value) for name, value in re.findall(r"^([a-z_]+) (\S+)$", text, re.MULTILINE)}


def _zones(nodes: int) -> tuple[int, ...]:
    third = nodes // 3
    return (nodes - 2 * third, third, third)
