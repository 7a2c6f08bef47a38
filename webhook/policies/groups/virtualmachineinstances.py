"""New VMIs: the record of what their group requires, which holds through all of their migrations."""

from __future__ import annotations

from webhook.admission.decision import Decision, allow
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.facts import Facts
from webhook.k8s.types.meta import Object
from webhook.placement.groups import GROUP_LABEL
from webhook.policies.groups import reasons, rows
from webhook.policies.groups.placement import placement_of
from webhook.policies.groups.pods import invalid
from webhook.policies.groups.settings import GroupSettings


async def record_group(vmi: Object, request: Request[Object], _: Facts, settings: GroupSettings) -> Decision:
    """Record in a new VMI what its group requires."""
    if request.operation != "CREATE":
        return allow(common.immutable_after_create("the group of a VMI that runs", request.operation))
    name = vmi.meta.label(GROUP_LABEL)
    if not name:
        return allow(reasons.no_group)
    problem, group = invalid(settings), settings.group(name, request.namespace or "")
    if group is None:
        return rows.add_doubt(allow(reasons.without_rule(name, ""), warn=True), problem)
    placement = placement_of(name, group)
    decision = rows.record(vmi, placement) if placement.is_required else allow(reasons.joined(name))
    return rows.add_doubt(decision, problem)
