"""New launcher pods: what policies add to them, they add only to those that virt-controller creates."""

from __future__ import annotations

from typing import Any

from webhook import names
from webhook.admission.decision import Decision, Reason, allow
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.facts import Facts, Unreadable
from webhook.k8s.types.meta import Object, OwnerReference
from webhook.kubevirt.launcher import vmi_owner
from webhook.policies.common.required_facts import is_kubevirts
from webhook.settings.policy_section import PolicySettings


async def owner_of_new(
    pod: Object, node_name: str | None, request: Request[Any], facts: Facts, settings: PolicySettings, without: str
) -> OwnerReference | Decision:
    """The VMI of a new launcher pod; else the decision to leave the pod as it is.

    Args:
        pod: what is created or changed.
        node_name: the node that its spec names.
        request: the request with the pod.
        facts: where KubeVirt runs.
        settings: the policy's section.
        without: what it means that the pod is left as it is, a clause, for when nobody knows who created the pod.
    """
    if request.operation != "CREATE":
        return allow(common.immutable_after_create("a pod's placement", request.operation))
    if node_name:
        return allow(common.pod_bound(node_name))
    owner = vmi_owner(pod)
    if isinstance(owner, Reason):
        return allow(owner)
    user = request.user_info
    try:
        by_kubevirt = await is_kubevirts(user, names.CONTROLLER_ACCOUNT, facts, settings.kubevirt_namespace)
    except Unreadable as error:
        what = f"{without}, since who created the pod is not known"
        return allow(common.lookup_failed(what, error.why), warn=True)
    if by_kubevirt is None:
        return allow(common.kubevirt_absent)
    return owner if by_kubevirt else allow(common.not_created_by_kubevirt(user.username))
