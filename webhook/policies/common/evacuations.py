"""Where a VM could go that has to leave its node: by the nodes that could take it, and the quotas of its namespace."""

from __future__ import annotations

import msgspec

from webhook.facts import Facts, ListKey
from webhook.placement.eligibility import Eligibility
from webhook.placement.machines import Vmi
from webhook.placement.quota import QUOTAS, QuotaReview
from webhook.placement.requirements import Origin, Staying
from webhook.policies.common import migration_targets


class Evacuation(msgspec.Struct, frozen=True):
    """What stands in the way of a VM's leaving its node.

    Attributes:
        cpu_problem: why KubeVirt creates no target pod, a clause; None: it does. Then the rest is not known.
        eligibility: which nodes could take the VM, those that are being emptied left out.
        quota: what the quotas say to its target pod; read only where a node is eligible.
    """

    cpu_problem: str | None = None
    eligibility: Eligibility | None = None
    quota: QuotaReview = QuotaReview()


async def look_for(vmi: Vmi, namespace: str, facts: Facts) -> Evacuation:
    """What stands in the way of a VM's leaving.

    Raises:
        Unreadable: something that its target depends on cannot be read.
    """
    quotas = ListKey(QUOTAS, namespace)
    await facts.prefetch(*migration_targets.keys_by_vmi(vmi, namespace), quotas)
    limits = await migration_targets.keys_by_quotas(namespace, facts)
    await facts.prefetch(*await migration_targets.keys_by_pod(vmi, namespace, facts), *limits)
    target = await migration_targets.of(vmi, namespace, facts)
    if problem := migration_targets.cpu_problem(vmi, target.pod, target.nodes.get(vmi.node_name)):
        return Evacuation(problem)
    staying = (*target.requirements, Staying(Origin.DEPARTURE))
    eligibility = msgspec.structs.replace(target, requirements=staying).review()
    if not eligibility.count:
        return Evacuation(eligibility=eligibility)
    return Evacuation(eligibility=eligibility, quota=await migration_targets.review_quota(target, namespace, facts))
