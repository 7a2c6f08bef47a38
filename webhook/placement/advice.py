"""What may keep a VM from a node that is eligible: worth a note, but never a reason for a denial.

It changes by the second (free resources), depends on other pods (affinity between pods, spread), or KubeVirt itself
ignores it (hotplugged volumes that only some nodes reach).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from webhook.admission.work import spend
from webhook.errors import quote
from webhook.placement.node import Node
from webhook.placement.vmis import PlacedVmiSpec, Vmi
from webhook.placement.volumes import PersistentVolume

_HARD: Final = "DoNotSchedule"


def notes(
    vmi: Vmi,
    eligible: Iterable[Node],
    *,
    volumes: Mapping[str, PersistentVolume] | None = None,
    requests: Mapping[str, int] | None = None,
    free: Mapping[str, Mapping[str, int]] | None = None,
) -> tuple[str, ...]:
    """Notes about the eligible nodes, clauses.

    Args:
        vmi: the VMI that migrates.
        eligible: the nodes that meet all requirements.
        volumes: the PersistentVolumes to which the VM's hotplugged volumes are bound, by the volumes' names.
        requests: the requests of the VM's pod, by resource, each in a unit of its own.
        free: the unrequested rest of nodes, by node and resource in the same units; nodes that are missing here are not
            evaluated.
    """
    nodes = tuple(eligible)
    return (
        *_unevaluated_rules(vmi.spec or PlacedVmiSpec()),
        *_unreachable(nodes, volumes or {}),
        *_short(nodes, requests or {}, free or {}),
    )


def _unevaluated_rules(spec: PlacedVmiSpec) -> Iterator[str]:
    affinity = spec.affinity
    if affinity and affinity.pod_affinity and affinity.pod_affinity.is_required:
        yield "the VM's pod affinity is not evaluated here"
    if affinity and affinity.pod_anti_affinity and affinity.pod_anti_affinity.is_required:
        yield "the VM's pod anti-affinity is not evaluated here"
    if any(_is_hard(constraint) for constraint in spec.topology_spread_constraints or ()):
        yield "the VM's topology spread constraints are not evaluated here"


def _is_hard(constraint: Any) -> bool:
    return isinstance(constraint, dict) and constraint.get("whenUnsatisfiable") == _HARD


def _unreachable(nodes: tuple[Node, ...], volumes: Mapping[str, PersistentVolume]) -> Iterator[str]:
    for name, volume in volumes.items():
        terms = volume.terms
        if not terms:
            continue
        spend(len(terms) * len(nodes), "volumes that only some nodes reach")
        reaching = sum(any(term.matches(node.labels, node.name) for term in terms) for node in nodes)
        if reaching < len(nodes):
            yield f"volume {quote(name)} is available on {reaching}/{len(nodes)} eligible nodes"


def _short(
    nodes: tuple[Node, ...], requests: Mapping[str, int], free: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    for resource, wanted in requests.items():
        short = sum(free[node.name].get(resource, 0) < wanted for node in nodes if node.name in free)
        if short:
            yield f"{short}/{len(nodes)} eligible nodes have less free {resource} than the VM requests"
