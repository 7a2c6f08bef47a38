"""VMIs that no VM stands behind, and whose size is set in them."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.admission.decision import Decision, allow
from webhook.admission.reasons import common
from webhook.admission.wire import Request
from webhook.errors import InputError
from webhook.facts import Facts, Unreadable
from webhook.k8s.types.meta import Object, OwnedMeta, View
from webhook.policies.common.required_facts import is_kubevirts
from webhook.policies.sizes import reasons
from webhook.policies.sizes.judgment import cannot_evaluate, cannot_read, is_from_webhook, judge
from webhook.policies.sizes.settings import SizeSettings
from webhook.policies.sizes.size import Size, SizedDomain

_PATH: Final = ("spec", "domain")


class _Spec(View, frozen=True):
    domain: SizedDomain | None = None


class SizedVmi(Object, frozen=True):
    """A VirtualMachineInstance, as far as it says its size."""

    metadata: OwnedMeta | None = None
    spec: _Spec | None = None


async def validate_vmi(vmi: SizedVmi, request: Request[SizedVmi], facts: Facts, settings: SizeSettings) -> Decision:
    """Deny a new VMI whose size is not allowed in the namespace; KubeVirt creates those of VMs, which were judged."""
    if request.operation != "CREATE":
        return allow(common.other_operation(request.operation))
    try:
        size = Size.of(vmi.spec.domain if vmi.spec else None)
    except InputError as error:
        return cannot_read(error, _PATH)
    if size is None:
        return allow(reasons.no_inline_size)
    if is_from_webhook(vmi, size, _PATH):
        return allow(reasons.written_by_a_webhook)
    decision = judge(size, None, _PATH, settings)
    owner = vmi.meta.controller_owner()
    if decision.denial is None or owner is None:
        return decision
    if (owner.kind, owner.group) != ("VirtualMachine", names.KUBEVIRT_GROUP):
        return decision
    try:
        # A tenant may write such a reference, too.
        if await is_kubevirts(request.user_info, names.CONTROLLER_ACCOUNT, facts, settings.kubevirt_namespace):
            return allow(reasons.owned_by_a_vm)
    except Unreadable as error:
        return cannot_evaluate(error, settings)
    return decision
