"""The rounds: in each, the same pods are made in one namespace after the other, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.placement import launcher
from bench.placement.cases import CASES, Case
from bench.placement.cluster import Layout
from bench.placement.errors import PlacementError
from bench.placement.server import serving
from bench.placement.spread import Spread
from tests.e2e import commands
from tests.e2e.kube import Kube, Objects, eventually
from tests.e2e.plane import ControlPlane
from webhook import names

_PODS: Final = "v1/pods"
_MACHINES: Final = "kubevirt.io/v1/virtualmachineinstances"
_EVENTS: Final = "events.k8s.io/v1/events"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured."""

    pods: int
    nodes: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured.

    Attributes:
        kubernetes: the version.
        spreads: of each case, those of all rounds.
    """

    kubernetes: str
    spreads: dict[str, list[Spread]]


def measure(plan: Plan, binaries: Path, directory: Path, say: Callable[[str], None]) -> Outcome:
    """Run all rounds on a control plane of their own.

    Args:
        binaries: those of the control plane.
        directory: for its data and logs.
        say: is told of the progress.

    Raises:
        PlacementError: something else than what was to be measured has happened.
        StartError: a server did not start.
    """
    layout = Layout(plan.nodes)
    with ControlPlane(directory, binaries) as plane:
        layout.build(plane.admin)
        plane.start_scheduler("default", commands.DEFAULT_SCHEDULER, lease=commands.DEFAULT_SCHEDULER_LEASE)
        plane.start_scheduler("kubevirt", commands.KUBEVIRT_SCHEDULER, lease=commands.KUBEVIRT_SCHEDULER_LEASE)
        outcome = Outcome(plane.admin.request("GET", "/version")["gitVersion"], {case.key: [] for case in CASES})
        with serving(plane):
            for number in range(1, plan.rounds + 1):
                for case in CASES:
                    say(f"round {number} of {plan.rounds}: {case.title}")
                    pods = _placed(plane.kubevirt_controller, plane.admin, case, plan.pods)
                    spread = Spread.of(layout.names, (pod["spec"]["nodeName"] for pod in pods))
                    outcome.spreads[case.key].append(spread)
    return outcome


def _placed(controller: Kube, admin: Kube, case: Case, count: int) -> Objects:
    """Make as many machines and their launcher pods, and return those, bound, when they have been deleted again.

    All are gone at once, for no kubelet is there to end them. The schedulers know it before they hear of the next pods:
    one watch tells them of both, in order.
    """
    warnings: list[str] = []
    for number in range(1, count + 1):
        vmi = controller.create(_MACHINES, launcher.machine(f"vm-{number}"), case.namespace)
        warnings += controller.create(_PODS, launcher.pod(vmi), case.namespace).warnings
    pods = eventually(
        lambda: _all_bound(admin, case, count),
        what=f"{count} launcher pods to be bound in {case.namespace}",
        timeout=120,
    )
    _check(admin, case, pods, warnings)
    admin.delete_all(_PODS, case.namespace, gracePeriodSeconds="0")
    admin.delete_all(_MACHINES, case.namespace)
    eventually(lambda: not admin.list(_PODS, case.namespace), what=f"no pod to be left in {case.namespace}")
    return pods


def _all_bound(admin: Kube, case: Case, count: int) -> Objects | None:
    pods = admin.list(_PODS, case.namespace)
    return pods if len(pods) == count and all(pod["spec"].get("nodeName") for pod in pods) else None


def _check(admin: Kube, case: Case, pods: Objects, warnings: list[str]) -> None:
    """That the pods were placed by whom the figures will say; by what they carry, and by what the scheduler reports.

    Raises:
        PlacementError: they were not.
    """
    reason = f": {warnings[0]}" if warnings else ""
    chosen = Counter(pod["spec"]["schedulerName"] for pod in pods)
    if chosen != {case.scheduler: len(pods)}:
        raise PlacementError(f"in {case.namespace} the pods ask for {_listed(chosen)}, not {case.scheduler}{reason}")
    marks = Counter(str(pod["metadata"]["annotations"].get(names.SCHEDULER_MARK)) for pod in pods)
    if marks != {str(case.mark): len(pods)}:
        raise PlacementError(f"in {case.namespace} our webhook's marks are {_listed(marks)}, not {case.mark}{reason}")
    uids = {pod["metadata"]["uid"] for pod in pods}
    binders = eventually(lambda: _binders(admin, case, uids), what=f"the events of the bindings in {case.namespace}")
    if binders != {case.scheduler: len(pods)}:
        raise PlacementError(f"in {case.namespace} the pods were bound by {_listed(binders)}, not {case.scheduler}")


def _binders(admin: Kube, case: Case, uids: set[str]) -> Counter[str] | None:
    """The schedulers that say that they bound these pods; None until all have been told of."""
    events = admin.list(_EVENTS, case.namespace, fieldSelector="reason=Scheduled")
    binders = {
        event["regarding"]["uid"]: event["reportingController"] for event in events if event["regarding"]["uid"] in uids
    }
    return Counter(binders.values()) if binders.keys() == uids else None


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.most_common())
