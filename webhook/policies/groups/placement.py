"""What a group's rules come to for one VM, by the settings and by the record in its VMI."""

from __future__ import annotations

from msgspec.structs import replace

from webhook.placement.groups import GROUP_LABEL, GroupPlacement, HostRule, PlaceRule, parse
from webhook.placement.machines import Vmi
from webhook.placement.nodes import HOSTNAME
from webhook.policies.groups.settings import INJECTED_ANNOTATION, ClusterGroup, GroupSettings


def placement_of(name: str, group: ClusterGroup) -> GroupPlacement:
    """What the rules of a group are for a VM that starts now."""
    apart, together, nodes = group.apart, group.together, group.nodes
    return GroupPlacement(
        # As plain text, whatever text the label is.
        str(name),
        namespaces=tuple(group.namespaces),
        apart=PlaceRule(apart.topology_key, apart.required) if apart else None,
        together=PlaceRule(together.topology_key, together.required) if together else None,
        nodes=HostRule(dict(nodes.labels), nodes.required) if nodes else None,
    )


def held_to(now: GroupPlacement, recorded: GroupPlacement | None, uid: str) -> GroupPlacement:
    """The rules of now for a launcher pod: what its VMI's record does not require, the pod only prefers.

    Args:
        now: the rules of the VM's group.
        recorded: what the rules were when the VMI was created; None: there is no record.
        uid: the VMI's UID.
    """
    same = GroupPlacement(now.group)
    if recorded and (recorded.group, recorded.namespaces) == (now.group, now.namespaces):
        same = recorded
    apart, together, nodes = _held(now.apart, same.apart), _held(now.together, same.together), now.nodes
    if nodes and nodes != same.nodes:
        nodes = HostRule(nodes.labels)
    if apart and apart.topology_key != HOSTNAME:
        # A migration stays within a zone, where the VM's own pod is until it ends; its node it leaves in any case.
        apart = replace(apart, of_others=True)
    return replace(now, vmi=str(uid), apart=apart, together=together, nodes=nodes)


def _held(now: PlaceRule | None, recorded: PlaceRule | None) -> PlaceRule | None:
    if now is None or not now.required:
        return now
    same = recorded and recorded.required and recorded.topology_key == now.topology_key
    return now if same else PlaceRule(now.topology_key)


def placement_of_vmi(vmi: Vmi, namespace: str, settings: GroupSettings) -> GroupPlacement | None:
    """The rules of a VMI's group, as its next launcher pod gets them; None: it is in none that has rules."""
    name = vmi.meta.label(GROUP_LABEL)
    group = settings.group(name, namespace) if name else None
    if not name or group is None:
        return None
    return held_to(placement_of(name, group), parse(vmi.meta.annotation(INJECTED_ANNOTATION)), vmi.meta.uid or "")
