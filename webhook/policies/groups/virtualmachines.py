"""VMs: their owners hear what the label of a group comes to. Nothing is written, and nobody is denied."""

from __future__ import annotations

from typing import Final

from webhook.admission.decision import Decision, allow
from webhook.admission.wire import Request
from webhook.errors import quote
from webhook.facts import Facts
from webhook.placement.groups import GROUP_LABEL
from webhook.policies.groups import reasons, rows
from webhook.policies.groups.pods import invalid
from webhook.policies.groups.settings import GroupSettings
from webhook.policies.groups.views import GroupedVm

# Names of groups in a warning.
_MOST_NAMED: Final = 5


async def warn_of_group(vm: GroupedVm, request: Request[GroupedVm], _: Facts, settings: GroupSettings) -> Decision:
    """Warn of a label without rules, and of one that is on the VM instead of its template."""
    name, on_vm = vm.group, vm.meta.label(GROUP_LABEL)
    if not name:
        return allow(reasons.misplaced, warn=True) if on_vm else allow(reasons.no_group)
    namespace, problem = request.namespace or "", invalid(settings)
    if settings.group(name, namespace):
        return rows.add_doubt(allow(reasons.joined(name)), problem)
    known = sorted(each for each in settings.rules if settings.group(each, namespace))
    listed = ", ".join(map(quote, known[:_MOST_NAMED])) + (", …" if len(known) > _MOST_NAMED else "")
    there_are = f"; there are rules for {listed}" if known else ""
    return rows.add_doubt(allow(reasons.without_rule(name, there_are), warn=True), problem)
