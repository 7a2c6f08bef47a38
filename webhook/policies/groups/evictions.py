"""Evictions of launcher pods, of a drain or of the descheduler: what would leave the VM pending is denied.

virt-api would mark the VM for evacuation, and KubeVirt would create migrations of it whose target pods find no node,
again and again. `kubectl drain` retries what is denied with 429, and shows the reason.
"""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.admission.decision import Decision, Reason, allow
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.facts import Facts, ObjectKey, Unreadable
from webhook.k8s.types.core import Eviction
from webhook.kubevirt.config import DEFAULTS
from webhook.kubevirt.launcher import vmi_owner
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.machines import LAUNCHER_PODS, PLACED_VMIS
from webhook.placement.migrations import EvictionEffect, eviction_effect
from webhook.policies.common.required_facts import is_kubevirts, read, read_configuration
from webhook.policies.groups import reasons
from webhook.policies.groups.departures import evaluate
from webhook.policies.groups.settings import GroupSettings

_RETRY: Final = 429


async def evaluate_eviction(_: Eviction, request: Request[Eviction], facts: Facts, settings: GroupSettings) -> Decision:
    """Deny an eviction for which KubeVirt would migrate a VM that its group leaves no node."""
    if request.operation != "CREATE":
        return allow(common.other_operation(request.operation))
    try:
        if await is_kubevirts(request.user_info, names.CONTROLLER_ACCOUNT, facts, settings.kubevirt_namespace):
            return allow(reasons.by_kubevirt)
        return await _evaluate(request.name or "", request.namespace or "", facts, settings)
    except Unreadable as error:
        return allow(common.lookup_failed("the rules of the VM's group were not evaluated", error.why))


async def _evaluate(name: str, namespace: str, facts: Facts, settings: GroupSettings) -> Decision:
    pod = await read(facts, ObjectKey(LAUNCHER_PODS, namespace, name), f"the pod {name}")
    if pod is None or pod.is_over or pod.meta.deletion_timestamp:
        return allow(reasons.not_moved)
    if pod.meta.label(GROUP_LABEL) is None:
        return allow(reasons.no_group)
    owner = vmi_owner(pod)
    if isinstance(owner, Reason):
        return allow(owner)
    vmi_name = owner.name or ""
    vmi = await read(facts, ObjectKey(PLACED_VMIS, namespace, vmi_name), f"VirtualMachineInstance {vmi_name}")
    if vmi is None:
        return allow(common.vmi_not_found(namespace, vmi_name))
    if vmi.meta.uid != owner.uid:
        return allow(common.vmi_replaced(namespace, vmi_name))
    configuration = await read_configuration(facts) or DEFAULTS
    is_moved = eviction_effect(vmi, configuration.eviction_strategy) is EvictionEffect.MIGRATES
    if not is_moved or vmi.node_name != pod.node_name or vmi.meta.deletion_timestamp:
        return allow(reasons.not_moved)
    return await evaluate(vmi, namespace, settings, facts, _RETRY)
