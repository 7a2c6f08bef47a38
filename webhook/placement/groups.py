"""Groups of VMs that stay apart or together, or on certain nodes: what their rules mean to kube-scheduler.

Labels alone make a pod a member: kube-scheduler looks at nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

from webhook import names
from webhook.admission.step_budget import spend
from webhook.k8s.types.selectors import IN, NOT_IN, Expression
from webhook.placement.machines import LauncherPod
from webhook.placement.nodes import Node
from webhook.placement.requirements import Label, Origin, domain_word
from webhook.text import abbreviate

# Of a VM's template, from where KubeVirt copies it: the group that the VM belongs to.
GROUP_LABEL: Final = f"{names.DOMAIN}/group"
# KubeVirt's label of launcher pods, with the UID of their VMI.
CREATED_BY: Final = "kubevirt.io/created-by"
# How much a preference of a group counts beside those of owners: as much as any can.
_WEIGHT: Final = 100
_encode: Final = msgspec.json.Encoder(order="sorted").encode
Json = dict[str, Any]
# The node of a name; None: there is none.
FindNode: TypeAlias = Callable[[str], Node | None]


class PlaceRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rule about where VMs are in relation to each other.

    Attributes:
        required: whether it is required; else it is preferred.
        of_others: whether the VM's own pods do not count.
    """

    topology_key: str
    required: bool = False
    of_others: bool = False


class HostRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rule about nodes, by their labels."""

    labels: dict[str, str]
    required: bool = False


class GroupPlacement(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The rules of one group as they count for a VMI, and so for its launcher pods.

    Attributes:
        group: the group's name.
        vmi: the UID of the VMI whose pod it is; empty: before the VMI has one.
        namespaces: those that the group spans; empty: the VM's own alone.
    """

    group: str
    vmi: str = ""
    namespaces: tuple[str, ...] = ()
    apart: PlaceRule | None = None
    together: PlaceRule | None = None
    nodes: HostRule | None = None

    @property
    def text(self) -> str:
        """The annotation's value; equal placements have equal ones."""
        return _encode(self).decode()

    @property
    def is_required(self) -> bool:
        """Whether any of the rules is."""
        return any(each is not None and each.required for each in (self.apart, self.together, self.nodes))

    @property
    def required_rules(self) -> str:
        """What is required, in a few words: ``apart by zone, on nodes with license=oracle``."""
        places = (("apart", self.apart), ("together", self.together))
        rules = [f"{word} by {domain_word(rule.topology_key)}" for word, rule in places if rule and rule.required]
        if self.nodes and self.nodes.required:
            rules.append(f"on nodes with {abbreviate(f'{key}={value}' for key, value in self.nodes.labels.items())}")
        return ", ".join(rules)

    @property
    def selector(self) -> dict[str, str]:
        """The labels of the launcher pods of the group."""
        return {names.APP_LABEL: names.LAUNCHER_APP, GROUP_LABEL: self.group}

    def required_terms(self, rule: PlaceRule | None) -> list[Json]:
        """What a rule comes to in required affinity, or anti-affinity, between pods."""
        return [self._term(rule)] if rule and rule.required else []

    def preferred_terms(self, rule: PlaceRule | None) -> list[Json]:
        """What a rule comes to in preferred affinity, or anti-affinity, between pods."""
        return [{"weight": _WEIGHT, "podAffinityTerm": self._term(rule)}] if rule and not rule.required else []

    def _term(self, rule: PlaceRule) -> Json:
        selector: Json = {"matchLabels": self.selector}
        if rule.of_others:
            selector["matchExpressions"] = [{"key": CREATED_BY, "operator": "NotIn", "values": [self.vmi]}]
        term: Json = {"labelSelector": selector, "topologyKey": rule.topology_key}
        return {**term, "namespaces": [*self.namespaces]} if self.namespaces else term

    def required_nodes(self) -> list[Json]:
        """What the rule about nodes comes to in required node affinity: one term, or none."""
        return [_node_term(self.nodes)] if self.nodes and self.nodes.required else []

    def preferred_nodes(self) -> list[Json]:
        """What the rule about nodes comes to in preferred node affinity."""
        rule = self.nodes
        return [{"weight": _WEIGHT, "preference": _node_term(rule)}] if rule and not rule.required else []


def _node_term(rule: HostRule) -> Json:
    listed = sorted(rule.labels.items())
    return {"matchExpressions": [{"key": key, "operator": IN, "values": [value]} for key, value in listed]}


def parse(text: object) -> GroupPlacement | None:
    """What an annotation says; None where it is none that `GroupPlacement.text` writes: owners may write anything."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text.encode(errors="replace"), type=GroupPlacement)
    except (msgspec.DecodeError, RecursionError):
        return None


def staying(members: Iterable[LauncherPod], find: FindNode) -> list[LauncherPod]:
    """The members on nodes that VMs do not leave: a drained node is cordoned, too, and nobody can join them there."""
    found = ((pod, find(pod.node_name)) for pod in members)
    return [pod for pod, node in found if node and not node.unschedulable and not node.is_being_emptied]


def required_labels(placement: GroupPlacement) -> Iterator[Label]:
    """What the rule about nodes requires of one."""
    if placement.nodes and placement.nodes.required:
        spend(len(placement.nodes.labels), "labels of the group's nodes")
        for key, value in sorted(placement.nodes.labels.items()):
            yield Label(Origin.GROUP, Expression.equals(key, value))


def required_places(
    placement: GroupPlacement, namespace: str, members: Iterable[LauncherPod], find: FindNode
) -> tuple[Label, ...]:
    """What the rules about places require of the node of a VM of this namespace, with the others where they are."""
    listed = list(members)
    return (*_apart(placement, namespace, listed, find), *_together(placement, listed, find))


def _apart(placement: GroupPlacement, namespace: str, members: list[LauncherPod], find: FindNode) -> Iterator[Label]:
    own = placement.apart.topology_key if placement.apart and placement.apart.required else ""
    taken: dict[str, set[str]] = {}
    for pod in members:
        # What stands in a pod that runs counts for those that come, whatever the rule is now.
        for key in {own, *_keeps_off(pod, placement, namespace)} - {""}:
            taken.setdefault(key, set()).update(_places([pod], key, find))
    for key, values in sorted(taken.items()):
        if values:
            yield Label(Origin.APART, Expression(key, NOT_IN, tuple(sorted(values))))


def _keeps_off(pod: LauncherPod, placement: GroupPlacement, namespace: str) -> Iterator[str]:
    """The topology keys by which a pod keeps those of its group away that are in a namespace."""
    affinity = pod.spec.affinity if pod.spec else None
    terms = (affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else None) or ()
    spend(len(terms), "terms of the affinity of the group's pods")
    for term in terms:
        match term:
            case {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": str(key)}:
                # Without any, a term is about the pod's own namespace: the group may span more only since then.
                spaces = term.get("namespaces") or [pod.meta.namespace]
                if labels == placement.selector and isinstance(spaces, list) and namespace in spaces:
                    yield key


def _together(placement: GroupPlacement, members: list[LauncherPod], find: FindNode) -> Iterator[Label]:
    if placement.together and placement.together.required and (stay := staying(members, find)):
        key = placement.together.topology_key
        yield Label(Origin.TOGETHER, Expression(key, IN, tuple(sorted(_places(stay, key, find)))))


def _places(pods: Iterable[LauncherPod], key: str, find: FindNode) -> set[str]:
    found = (find(pod.node_name) for pod in pods)
    return {node.labels[key] for node in found if node and key in node.labels}
