"""What doctor checks of the groups policy: labels without rules, rules that VMs break.

A rule that cannot be met shows here before a VM waits, and while nodes are drained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from webhook import names
from webhook.errors import quote
from webhook.findings import Finding, check, ok, readable, warning
from webhook.k8s.resources import NAMESPACES, NODES
from webhook.kubevirt.heartbeat import SCHEDULABLE
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.machines import PLACED_VMIS, Vmi
from webhook.placement.nodes import TRUE, Node
from webhook.policies.groups.settings import GROUPS, GROUPS_ANNOTATION, ClusterGroup, GroupSettings, NodeRule
from webhook.policy import Installed
from webhook.text import abbreviate, pluralize

_OPTED_IN: Final = (names.ENFORCE, names.WARN, names.AUDIT)
_MOVE: Final = "migrate or restart them, or prefer the rule instead of requiring it"


@check("groups")
async def check_groups(installation: Installed) -> list[Finding]:
    """Look at the groups of the settings and of each namespace, and at their VMs where a namespace has opted in."""
    settings = installation.settings.of(GroupSettings)
    namespaces = readable("namespaces", await installation.reader.all(NAMESPACES))
    sections = {
        each.meta.name or "": settings.with_annotations(each.meta.annotations or {})
        for each in namespaces
        if each.meta.annotation(GROUPS_ANNOTATION)
    }
    findings: list[Finding] = []
    modes = readable("namespaces", await installation.modes(GROUPS))
    opted_in = {name: sections.get(name, settings) for name, mode in modes.items() if mode in _OPTED_IN}
    if opted_in:
        vmis = readable("VMs", await installation.reader.all(PLACED_VMIS))
        nodes = {node.name: node for node in map(Node.of, readable("nodes", await installation.reader.all(NODES)))}
        findings += _of_vms(vmis, opted_in, nodes)
    own = pluralize(sum(not section.annotation_mistakes for section in sections.values()), "namespace")
    return findings or [ok("groups-valid", "groups", f"no mistakes in the groups of the settings and of {own}")]


def _of_vms(vmis: Iterable[Vmi], opted_in: Mapping[str, GroupSettings], nodes: Mapping[str, Node]) -> Iterator[Finding]:
    groups: dict[tuple[str, str], ClusterGroup] = {}
    members: dict[tuple[str, str], list[Vmi]] = defaultdict(list)
    without: dict[tuple[str, str], list[Vmi]] = defaultdict(list)
    for vmi in vmis:
        namespace, name = vmi.meta.namespace or "", vmi.meta.label(GROUP_LABEL)
        if not name or namespace not in opted_in or vmi.has_ended:
            continue
        group = opted_in[namespace].group(name, namespace)
        if group is None:
            without[namespace, name].append(vmi)
            continue
        key = ("" if group.namespaces else namespace, name)
        groups[key] = group
        members[key].append(vmi)
    for (namespace, name), several in sorted(without.items()):
        clause = f"{pluralize(len(several), 'VM')} name the group {quote(name)}, for which there are no rules"
        yield warning("group-without-rule", f"Namespace {namespace}", clause, "correct the label, or make the group")
    for key, group in sorted(groups.items(), key=lambda each: each[0]):
        where = f" of namespace {key[0]}" if key[0] else ""
        yield from _of_group(f"Group {key[1]}{where}", group, members[key], nodes)


def _of_group(subject: str, group: ClusterGroup, vmis: list[Vmi], nodes: Mapping[str, Node]) -> Iterator[Finding]:
    """What of the required rules does not hold, or cannot."""
    apart, together, hosts = group.apart, group.together, group.nodes
    if apart and apart.required:
        usable = [node for node in nodes.values() if _takes(node, hosts)]
        places = {node.labels.get(apart.topology_key) or node.name for node in usable if not node.unschedulable}
        if len(places) < len(vmis):
            cordoned = sum(node.unschedulable for node in usable)
            drained = f", while {pluralize(cordoned, 'node')} are cordoned" if cordoned else ""
            clause = (
                f"{pluralize(len(vmis), 'VM')} must be apart by {apart.topology_key}, and there are"
                f" {pluralize(len(places), 'place')} for them{drained}"
            )
            yield warning("group-too-large", subject, clause, "add or uncordon nodes, or prefer the rule")
        beside = [
            each for several in _by_place(vmis, nodes, apart.topology_key) if len(several) > 1 for each in several
        ]
        if beside:
            clause = f"must be apart by {apart.topology_key}, and {_are_not(beside)}"
            yield warning("group-rule-broken", subject, clause, _MOVE)
    if together and together.required and len(_by_place(vmis, nodes, together.topology_key)) > 1:
        clause = f"must be together by {together.topology_key}, and {_are_not(vmis)}"
        yield warning("group-rule-broken", subject, clause, _MOVE)
    if hosts and hosts.required:
        elsewhere = [vmi for vmi in vmis if (node := nodes.get(vmi.node_name)) and not _has(node, hosts)]
        if not any(_takes(node, hosts) for node in nodes.values()):
            clause = f"must be on nodes with {_labels(hosts)}, and no node that takes VMs has that: none of them starts"
            todo = "label nodes, or prefer the rule instead of requiring it"
            yield warning("group-without-nodes", subject, clause, todo)
        elif elsewhere:
            clause = f"must be on nodes with {_labels(hosts)}, and {_are_not(elsewhere)}"
            yield warning("group-rule-broken", subject, clause, _MOVE)


def _by_place(vmis: Iterable[Vmi], nodes: Mapping[str, Node], key: str) -> list[list[Vmi]]:
    """The VMs that run, by the place where they do; a node without the label is none."""
    found: dict[str, list[Vmi]] = defaultdict(list)
    for vmi in vmis:
        node = nodes.get(vmi.node_name)
        if node and (place := node.labels.get(key)):
            found[place].append(vmi)
    return list(found.values())


def _takes(node: Node, hosts: NodeRule | None) -> bool:
    return node.labels.get(SCHEDULABLE) == TRUE and not (hosts and hosts.required and not _has(node, hosts))


def _has(node: Node, hosts: NodeRule) -> bool:
    return all(node.labels.get(key) == value for key, value in hosts.labels.items())


def _labels(hosts: NodeRule) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(hosts.labels.items()))


def _are_not(vmis: Collection[Vmi]) -> str:
    listed = abbreviate(sorted(f"{vmi.meta.namespace}/{vmi.meta.name}" for vmi in vmis))
    return f"{listed} {'is' if len(vmis) == 1 else 'are'} not"
