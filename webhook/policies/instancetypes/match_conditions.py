"""CEL that keeps requests away which the policy would allow without changes anyway."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.policies.common.match_conditions import NOT_DELETED, OF_A_VM, created_or_changed, has_annotation
from webhook.policies.instancetypes.settings import InstancetypeSettings

_INJECTED: Final = (names.INJECTED_INSTANCETYPE_ANNOTATION, names.INJECTED_PREFERENCE_ANNOTATION)


def of_vms(_: InstancetypeSettings) -> dict[str, str]:
    """The conditions on VMs that get defaults, by name."""
    injected = " || ".join(has_annotation("object", key) for key in _INJECTED)
    return {**NOT_DELETED, "created-or-changed": created_or_changed(injected)}


def of_vmis(_: InstancetypeSettings) -> dict[str, str]:
    """The conditions on VMIs, by name: no VM stands behind one."""
    return {"no-vm-behind": f"!({OF_A_VM})"}


def of_validated_vms(_: InstancetypeSettings) -> dict[str, str]:
    """The conditions on VMs whose instancetype or preference may be denied, by name."""
    return {
        **NOT_DELETED,
        "has-a-matcher": "has(object.spec.instancetype) || has(object.spec.preference)",
        # The API server counts the changes of the spec before it validates.
        "created-or-changed": 'request.operation == "CREATE" || '
        "object.metadata.generation != oldObject.metadata.generation",
    }


def no_update_by_kubevirt(settings: InstancetypeSettings) -> dict[str, str]:
    """CEL without which KubeVirt could not work on VMs while no replica answers, where that denies requests.

    What KubeVirt creates follows a user's template (of a pool, a clone, a snapshot) and is matched, as is another
    instancetype. Where KubeVirt runs is not always known, and then a tenant may name an account like KubeVirt's: all
    that this gains is an update that leaves the instancetype as it is.
    """
    user, place = "request.userInfo.username", settings.kubevirt_namespace
    accounts = (names.CONTROLLER_ACCOUNT, names.API_ACCOUNT)
    if place:
        maker = f"{user} in [" + ", ".join(f'"system:serviceaccount:{place}:{account}"' for account in accounts) + "]"
    else:
        ends = " || ".join(f'{user}.endsWith(":{account}")' for account in accounts)
        maker = f'{user}.startsWith("system:serviceaccount:") && ({ends})'
    field = "spec.instancetype"
    both = f"has(object.{field}) == has(oldObject.{field})"
    same = f"{both} && (!has(object.{field}) || object.{field} == oldObject.{field})"
    return {"no-update-by-kubevirt": f'request.operation == "CREATE" || !({maker}) || !({same})'}
