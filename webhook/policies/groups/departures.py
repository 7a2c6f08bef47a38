"""Whether a VM that is to move has a node on which what its group requires holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from webhook.admission.decision import Decision, Denial, Reason, allow
from webhook.admission.reasons import common
from webhook.errors import quote
from webhook.facts import Facts
from webhook.kubevirt.resources import VMIS
from webhook.placement.eligibility import Eligibility
from webhook.placement.groups import GROUP_LABEL, GroupPlacement, required_labels, required_places
from webhook.placement.machines import NO_MIGRATION, LauncherPod, Migration, Vmi
from webhook.policies.common import group_members, migration_targets
from webhook.policies.common.migration_targets import Target, details, no_node
from webhook.policies.groups import reasons
from webhook.policies.groups.placement import placement_of_vmi
from webhook.policies.groups.pods import invalid
from webhook.policies.groups.settings import GroupSettings
from webhook.text import abbreviate, shorten

# What a VMI's annotation says its owner may have written; what keeps nodes out stands after it.
_LONGEST_RULES: Final = 200


async def evaluate(
    vmi: Vmi, namespace: str, settings: GroupSettings, facts: Facts, code: int, migration: Migration = NO_MIGRATION
) -> Decision:
    """Deny, with an HTTP status, that a VM moves where only its group leaves it no node.

    Raises:
        Unreadable: the members of the group or what the VM requires cannot be read.
    """
    placement = placement_of_vmi(vmi, namespace, settings)
    if placement is None:
        return _without_rules(vmi, settings)
    if not placement.is_required:
        return allow(reasons.nothing_required(placement.group))
    await facts.prefetch(*group_members.keys(placement, namespace), *migration_targets.keys_by_vmi(vmi, namespace))
    others = await group_members.others(placement, namespace, vmi.meta.uid or "", facts)
    # Last, since nodes may change while anything is read.
    target = await migration_targets.of(vmi, namespace, facts, migration)
    reason, eligibility = judge(placement, namespace, others, target)
    if reason.code != reasons.BROKEN:
        return allow(reason)
    return Decision((reason,), denial=Denial(code, reason.text), details=details(eligibility))


def _without_rules(vmi: Vmi, settings: GroupSettings) -> Decision:
    """That the VM is in no group, or in one without rules; no warning, as who drains a node cannot correct a label."""
    name, problem = vmi.meta.label(GROUP_LABEL), invalid(settings)
    if not name:
        return allow(reasons.no_group)
    return Decision((reasons.without_rule(name, ""), *([problem] if problem else [])))


def judge(
    placement: GroupPlacement, namespace: str, others: Iterable[LauncherPod], target: Target
) -> tuple[Reason, Eligibility]:
    """Whether what a group requires of a VM leaves it a node to move to: `reasons.BROKEN` says that it does not.

    Args:
        placement: the rules of its group, as its next launcher pod gets them.
        namespace: the VM's.
        others: the launcher pods of the group's other VMs.
        target: what its target pod requires.
    """
    without = target.apart_from_group()
    required = (*required_labels(placement), *required_places(placement, namespace, others, target.nodes.get))
    eligibility = replace(without, requirements=(*without.requirements, *required)).review()
    if eligibility.count:
        return common.eligible(eligibility.count, eligibility.total), eligibility
    if not without.review().count:
        return reasons.nowhere_anyway, eligibility
    # Of other namespaces the owner may see nothing.
    owners = [pod.meta.controller_owner() for pod in others if pod.meta.namespace == namespace]
    members = sorted({owner.name or "" for owner in owners if owner and owner.kind == VMIS.kind})
    # Whoever may create pods may write any text as the name of an owner.
    listed = abbreviate(map(quote, members))
    return reasons.broken(
        placement.group, shorten(placement.required_rules, _LONGEST_RULES), listed, no_node(eligibility).text
    ), eligibility
