"""Why a VM is where it is: each node's filters and scores, if kube-scheduler had to place the VM's pod now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.errors import InputError
from webhook.forecast import movers
from webhook.forecast.snapshot import ClusterObjects, PlannedCluster, namespaced_name
from webhook.k8s.resources import NamespacedName
from webhook.k8s.types.meta import View
from webhook.placement.eligibility import Eligibility
from webhook.placement.machines import Vmi
from webhook.placement.nodes import bitset_positions, format_amount
from webhook.placement.pod_rules import NodesByNumber
from webhook.placement.requirements import Elsewhere
from webhook.placement.running_pods import RunningPod
from webhook.placement.simulate import FilterResult, SimulatedPod, Simulation, nodes_to_score
from webhook.text import pluralize

SCHEMA: Final = "kubevirt-webhook.github.io/explain-placement/v1alpha1"


class NodeReport(View, frozen=True):
    """A node, for the VM's pod.

    Attributes:
        runs_here: whether the VM runs on it.
        reasons: why the pod does not fit on it now, as clauses; empty: it fits.
        scores: what each plugin gives it, weighted; of those that look at more than resources, those that give all
            nodes the same are left out.
        total: their sum.
    """

    name: str
    runs_here: bool
    reasons: tuple[str, ...]
    scores: dict[str, int]
    total: int


class PlacementReport(View, frozen=True):
    """All nodes, the best first.

    Attributes:
        node: where the VM runs.
        scheduler: the one that its pod names.
        since: when its pod was made; empty: not known.
        chosen: the nodes with the highest sum, of which kube-scheduler would take one; empty: it would find none.
        notes: what the scores are about, sentences.
        gaps: what decides, too, and was not evaluated, clauses.
    """

    schema: str
    namespace: str
    name: str
    node: str
    scheduler: str
    since: str
    chosen: tuple[str, ...]
    nodes: tuple[NodeReport, ...]
    notes: tuple[str, ...]
    gaps: tuple[str, ...]


def explain_placement(objects: ClusterObjects, namespace: str, name: str) -> PlacementReport:
    """What kube-scheduler would say of each node if it had to place a running VM's pod now, as if that were gone.

    Args:
        objects: the cluster.
        namespace: of the VM.
        name: of the VM.

    Raises:
        InputError: there is no such VM, or it does not run.
    """
    cluster = PlannedCluster(objects)
    vmi = cluster.vmis.get((namespace, name))
    if vmi is None:
        what = f"VirtualMachineInstance {namespace}/{name} does not exist"
        raise InputError(what, fix="start the VM, or correct the name")
    if not vmi.node_name:
        fix = "`kubevirt-webhook explain vm` shows where it can start"
        raise InputError(f"VirtualMachineInstance {namespace}/{name} is not on a node yet", fix=fix)
    classes = movers.EquivalenceClasses(cluster)
    whole = movers.mover_of(vmi, classes, None)
    mover = whole.scheduled or whole
    simulation = _without(vmi, cluster, classes, mover.pod)
    # The pod is to be placed anew, so that the node where it runs counts as the others do.
    required = tuple(each for each in mover.requirements if not isinstance(each, Elsewhere))
    eligibility = cluster.index.review(required)
    filtered = simulation.filter(mover.pod, eligibility)
    result = simulation.schedule(mover.pod, eligibility)
    names = {cluster.index.position(each): each for each in cluster.views}
    scores = simulation.scores(mover.pod, eligibility, filtered.feasible)
    reports = [
        _report(each, position, vmi, simulation, mover.pod, filtered, scores)
        for position, each in names.items()
        if position is not None
    ]
    pod = cluster.pod_of(vmi)
    return PlacementReport(
        schema=SCHEMA,
        namespace=namespace,
        name=name,
        node=vmi.node_name,
        scheduler=(pod.spec.scheduler_name if pod and pod.spec else None) or "default-scheduler",
        since=(pod.meta.creation_timestamp if pod else None) or "",
        chosen=tuple(sorted(names[at] for at in bitset_positions(result.ties))) if result else (),
        nodes=tuple(sorted(reports, key=lambda each: (bool(each.reasons), -each.total, each.name))),
        notes=tuple(_notes(filtered.feasible.bit_count())),
        gaps=(*objects.gaps, *mover.gaps),
    )


def _without(vmi: Vmi, cluster: PlannedCluster, classes: movers.EquivalenceClasses, target: SimulatedPod) -> Simulation:
    """The nodes with all pods that run but the VM's own."""
    own: set[NamespacedName] = {namespaced_name(pod) for pod in cluster.launchers.get(vmi.meta.uid or "", ())}
    own |= {namespaced_name(pod) for key in [*own] for pod in cluster.attachments.get(key, ())}
    simulation = Simulation(cluster.index, cluster.views, cluster.objects.kubernetes)
    others = [pod for pod in cluster.objects.pods if _counts(pod) and namespaced_name(pod) not in own]
    simulated = [classes.running(pod) for pod in others]
    for each in (*simulated, target):
        simulation.rules.track(each.info)
    for each, pod in zip(simulated, others, strict=True):
        position = cluster.index.position(pod.node_name)
        if position is not None:
            simulation.bind(each, position)
    return simulation


def _counts(pod: RunningPod) -> bool:
    return bool(pod.node_name) and not pod.is_over


def _report(  # noqa: PLR0913 - all that is known of one node
    name: str,
    position: int,
    vmi: Vmi,
    simulation: Simulation,
    pod: SimulatedPod,
    filtered: FilterResult,
    scores: dict[str, NodesByNumber],
) -> NodeReport:
    bit = 1 << position
    reasons = () if filtered.feasible & bit else tuple(_reasons(bit, position, simulation, pod, filtered))
    own = (
        {}
        if reasons
        else {plugin: score for plugin, scored in scores.items() for score, at in scored.items() if at & bit}
    )
    return NodeReport(name, name == vmi.node_name, reasons, own, sum(own.values()))


def _reasons(
    bit: int, position: int, simulation: Simulation, pod: SimulatedPod, filtered: FilterResult
) -> Iterator[str]:
    yield from _unmet(filtered.eligibility, bit)
    free = simulation.resources(position).free
    for resource, amount in pod.requests.items():
        if not simulation.with_free(resource, amount) & bit:
            left = format_amount(resource, max(0, free.get(resource, 0)), is_offer=True)
            yield f"too little {resource} is free: the pod requests {format_amount(resource, amount)}, {left} is left"
    yield from (rule for rule, nodes in filtered.apart if nodes & bit)


def _unmet(eligibility: Eligibility, bit: int) -> Iterator[str]:
    yield from (failure.lacking for failure in eligibility.failures if failure.nodes & bit)


def _notes(feasible: int) -> Iterator[str]:
    scored = nodes_to_score(feasible)
    if scored < feasible:
        yield (
            f"by default kube-scheduler scores only {scored} of {pluralize(feasible, 'node')} on which a pod fits, so"
            " that the best one may not be among them"
        )
