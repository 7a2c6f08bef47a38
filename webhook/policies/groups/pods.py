"""Launcher pods: the affinity that the rules of a VM's group come to, beside all that its owner wrote."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from webhook.admission.decision import Decision, Reason, allow
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.facts import Facts, NodesKey, Unreadable
from webhook.placement.groups import GROUP_LABEL, GroupPlacement, PlaceRule, parse, staying
from webhook.placement.machines import JOB_UID
from webhook.policies.common import group_members
from webhook.policies.common.launcher_pods import owner_of_new
from webhook.policies.common.required_facts import read
from webhook.policies.groups import reasons, rows
from webhook.policies.groups.placement import held_to, placement_of
from webhook.policies.groups.settings import INJECTED_ANNOTATION, GroupSettings
from webhook.policies.groups.views import GroupedPod


async def place_pod(pod: GroupedPod, request: Request[GroupedPod], facts: Facts, settings: GroupSettings) -> Decision:
    """Have a new launcher pod follow the rules of its VM's group."""
    return await _place(pod, request, facts, settings, is_in_force=True)


async def observe_pod(pod: GroupedPod, request: Request[GroupedPod], facts: Facts, settings: GroupSettings) -> Decision:
    """What `place_pod` would write if the policy were in force, in a mode that records nothing in VMIs.

    In force, it would have recorded the rules of now in a VMI that has just been created. A VMI that migrates would
    stay without a record.
    """
    return await _place(pod, request, facts, settings, is_in_force=False)


async def _place(
    pod: GroupedPod, request: Request[GroupedPod], facts: Facts, settings: GroupSettings, *, is_in_force: bool
) -> Decision:
    node_name = pod.spec.node_name if pod.spec else None
    owner = await owner_of_new(pod, node_name, request, facts, settings, "the rules of its group are not set")
    if isinstance(owner, Decision):
        return owner
    name, namespace = pod.meta.label(GROUP_LABEL), request.namespace or ""
    if not name:
        return allow(reasons.no_group)
    group, problem = settings.group(name, namespace), invalid(settings)
    if group is None:
        return rows.add_doubt(allow(reasons.without_rule(name, ""), warn=True), problem)
    recorded = parse(pod.meta.annotation(INJECTED_ANNOTATION))
    now = placement_of(name, group)
    if recorded is None and not is_in_force and pod.meta.label(JOB_UID) is None:
        recorded = now
    placement = held_to(now, recorded, owner.uid or "")
    target = await _as_target(pod, placement, namespace, owner.uid or "", facts)
    return rows.add_doubt(rows.add_doubt(rows.write(pod, target.placement), target.doubt), problem)


def invalid(settings: GroupSettings) -> Reason | None:
    """That the namespace's groups do not count; None: nothing is wrong with them."""
    return next(map(reasons.invalid, settings.annotation_mistakes.values()), None)


class _Target(NamedTuple):
    placement: GroupPlacement
    doubt: Reason | None = None


async def _as_target(pod: GroupedPod, placement: GroupPlacement, namespace: str, uid: str, facts: Facts) -> _Target:
    """The rules for the target pod of a migration; those of other pods are what they are.

    VMs that must be together move one by one. The first one that leaves nodes which are being emptied may go anywhere,
    and the others follow it; where some stay, it has to stay with them. Its own pod, from which it moves, never counts.
    """
    together = placement.together
    if together is None or not together.required or pod.meta.label(JOB_UID) is None:
        return _Target(placement)
    await facts.prefetch(*group_members.keys(placement, namespace), NodesKey())
    try:
        others = await group_members.others(placement, namespace, uid, facts)
        nodes = await read(facts, NodesKey(), "the nodes")
    except Unreadable as error:
        what = "the VM is not held together with its group in this migration"
        preferred = replace(placement, together=PlaceRule(together.topology_key))
        return _Target(preferred, common.lookup_failed(what, error.why))
    assert nodes is not None
    is_held = bool(staying(others, nodes.get))
    rule = replace(together, of_others=True) if is_held else PlaceRule(together.topology_key)
    return _Target(replace(placement, together=rule))
