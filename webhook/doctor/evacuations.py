"""VMs that KubeVirt still evacuates though the drain is over: an uncordon does not end an evacuation.

It evacuates VMs that are marked, and all those of nodes with the taint of ``nodeDrainTaintKey``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from webhook.doctor.installation import Installation
from webhook.errors import InputError
from webhook.findings import Finding, check, ok, readable, warning
from webhook.k8s.resources import NODES
from webhook.kubevirt.config import DEFAULTS, ClusterConfig, find_in_use
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.kubevirt.types.views import KubeVirt
from webhook.placement.machines import MIGRATIONS, PLACED_VMIS, Migration, Vmi
from webhook.placement.migrations import (
    cancel_evacuation,
    end_of_taint,
    evacuated_node,
    evacuating_taint,
    is_moved_by_evacuation,
    stale_evacuation,
)
from webhook.placement.nodes import NO_SCHEDULE, Node
from webhook.text import abbreviate, pluralize

_VMS: Final = "VMs"
_NODES: Final = "nodes"


@check("evacuations")
async def check_evacuations(installation: Installation) -> list[Finding]:
    """Look for marks of evacuations on VMs, and whether something still asks for them; and for the drain taint."""
    reader = installation.reader
    vmis = readable(_VMS, await reader.all(PLACED_VMIS))
    marked = [vmi for vmi in vmis if evacuated_node(vmi)]
    stale = [vmi for vmi in vmis if vmi.node_name and stale_evacuation(vmi)]
    none = ok("none", _VMS, "no VM is marked for an evacuation, and none is on a node with the drain taint")
    if not any(vmi.node_name for vmi in vmis):
        return [none]
    nodes = {node.name: node for node in map(Node.of, readable("nodes", await reader.all(NODES)))}
    migrations = readable("migrations", await reader.all(MIGRATIONS)) if marked else ()
    configuration = _configuration(readable("KubeVirt", await reader.all(KUBEVIRTS)))
    left = [vmi for vmi in marked if _is_left(vmi, nodes.get(vmi.node_name), migrations)]
    findings = list(_tainted(vmis, nodes, configuration))
    if left:
        what = f"{pluralize(len(left), 'VM')} still marked for the evacuation of nodes that take VMs: {_named(left)}"
        what += "; KubeVirt migrates them until that succeeds, and an uncordon does not end it"
        findings.append(warning("left-over", _VMS, what, cancel_evacuation(left[0], configuration.release)))
    if stale:
        count = pluralize(len(stale), "VM")
        what = f"{count} marked for the evacuation of a node where they do not run: {_named(stale)}"
        what += "; virt-api denies their evictions, and KubeVirt migrates them for none"
        findings.append(warning("stale", _VMS, what, cancel_evacuation(stale[0], configuration.release)))
    if under_way := len(marked) - len(left):
        why = "the node is cordoned or being emptied, or the first migration has not ended"
        what = f"{pluralize(under_way, 'VM')} being evacuated: {why}"
        findings.append(ok("under-way", _VMS, what))
    return findings or [none]


def _tainted(vmis: Sequence[Vmi], nodes: Mapping[str, Node], configuration: ClusterConfig) -> Iterator[Finding]:
    """Nodes whose VMs KubeVirt evacuates for their taint, without any eviction; a cordon says that a drain goes on."""
    on_node: dict[str, list[Vmi]] = {}
    for vmi in vmis:
        if not vmi.has_ended:
            on_node.setdefault(vmi.node_name, []).append(vmi)
    cordoned: list[str] = []
    others: list[str] = []
    ends: dict[str, None] = {}
    for name, node in sorted(nodes.items()):
        taint = evacuating_taint(node, configuration)
        own = on_node.get(name)
        if not taint or not own:
            continue
        moved = sum(is_moved_by_evacuation(vmi, configuration) for vmi in own)
        stay = f", of which {len(own) - moved} cannot move" if moved < len(own) else ""
        (cordoned if node.unschedulable else others).append(f"{name} ({pluralize(len(own), 'VM')}{stay})")
        if not node.unschedulable:
            ends[end_of_taint(taint)] = None
    what = f"KubeVirt evacuates the VMs for the taint {configuration.drain_taint}:{NO_SCHEDULE} (nodeDrainTaintKey)"
    what += ", without any eviction, until none is left that can migrate"
    if others:
        found = f"{what}: {abbreviate(others)}"
        yield warning("drain-taint", _NODES, found, f"if no drain goes on, {' and '.join(ends)}")
    if cordoned:
        found = f"{what}: {abbreviate(cordoned)}, cordoned"
        yield ok("drain-taint-cordoned", _NODES, found)


def _is_left(vmi: Vmi, node: Node | None, migrations: Sequence[Migration]) -> bool:
    """Whether nobody seems to ask for the evacuation any more: no drain, and no first attempt that is not over."""
    if node and (node.unschedulable or node.departure):
        return False
    place = (vmi.meta.namespace, vmi.meta.name)
    own = [each for each in migrations if (each.meta.namespace, each.vmi_name) == place and each.evacuates]
    return not any(each.is_unfinished for each in own) or any(each.phase == "Failed" for each in own)


def _configuration(kubevirts: Sequence[KubeVirt]) -> ClusterConfig:
    kubevirt = find_in_use(kubevirts)
    try:
        return ClusterConfig.of_kubevirt(kubevirt) if kubevirt else DEFAULTS
    except InputError:
        return DEFAULTS  # which the check of KubeVirt reports


def _named(vmis: Sequence[Vmi]) -> str:
    return abbreviate([f"{vmi.meta.namespace}/{vmi.meta.name} ({vmi.node_name})" for vmi in vmis])
