"""Migrations that users create: what would break what a group requires is denied before KubeVirt tries."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from webhook import names
from webhook.admission.decision import Decision, allow
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.facts import Facts, ObjectKey, Unreadable
from webhook.placement.machines import PLACED_VMIS, Migration
from webhook.policies.common.required_facts import is_kubevirts, read
from webhook.policies.groups import reasons
from webhook.policies.groups.departures import evaluate
from webhook.policies.groups.settings import GroupSettings

_FORBIDDEN: Final = 403


async def validate_migration(
    migration: Migration, request: Request[Migration], facts: Facts, settings: GroupSettings
) -> Decision:
    """Deny a migration of a VM that its group leaves no node."""
    if request.operation != "CREATE":
        return allow(common.immutable_after_create("a migration's spec", request.operation))
    namespace, name = request.namespace or "", migration.vmi_name
    try:
        if await is_kubevirts(request.user_info, names.CONTROLLER_ACCOUNT, facts, settings.kubevirt_namespace):
            return allow(reasons.by_kubevirt)
        if migration.sends or migration.receives:
            return allow(reasons.between_clusters)
        vmi = await read(facts, ObjectKey(PLACED_VMIS, namespace, name), f"VirtualMachineInstance {namespace}/{name}")
        if vmi is None:
            return allow(common.vmi_not_found(namespace, name))
        decision = await evaluate(vmi, namespace, settings, facts, _FORBIDDEN, migration)
    except Unreadable as error:
        return allow(common.lookup_failed("the rules of the VM's group were not evaluated", error.why), warn=True)
    # Whoever migrates a VM may own it, and correct its label.
    return replace(decision, warnings=decision.reasons) if decision.code == reasons.WITHOUT_RULE else decision
