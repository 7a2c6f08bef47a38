"""CEL that keeps requests away which the policy would allow anyway."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.kubevirt.launcher import account
from webhook.policies.common.match_conditions import NOT_DELETED, OF_A_VM, controlled_by, made_by_kubevirt
from webhook.policies.sizes.settings import SizeSettings

_OF_A_POOL: Final = controlled_by("VirtualMachinePool", names.POOL_GROUP)
_SIZED_BY_ITSELF: Final = "!has(object.spec.instancetype) || object.spec.instancetype == null"


def of_sized_vms(_: SizeSettings) -> dict[str, str]:
    """The conditions on VMs that may set a new size, by name."""
    return {
        **NOT_DELETED,
        "names-no-instancetype": _SIZED_BY_ITSELF,
        # A VM that is started, stopped or labeled keeps its size, and does not wait for an answer.
        "created-or-changed": 'request.operation == "CREATE" || object.spec.template != oldObject.spec.template || '
        "(has(oldObject.spec.instancetype) && oldObject.spec.instancetype != null)",
    }


def of_sized_vmis(settings: SizeSettings) -> dict[str, str]:
    """The conditions on VMIs, by name: KubeVirt creates most of them, for VMs.

    Where KubeVirt runs is not always known, and then a tenant may name an account like KubeVirt's: the server asks.
    """
    return _no_vm_behind(settings) if settings.kubevirt_namespace else {}


def of_sized_vmis_if_closed(settings: SizeSettings) -> dict[str, str]:
    """CEL without which no VM could start while no replica answers, where that denies requests."""
    return {} if settings.kubevirt_namespace else _no_vm_behind(settings)


def no_update_by_kubevirt(settings: SizeSettings) -> dict[str, str]:
    """CEL without which KubeVirt could not work on VMs while no replica answers, where that denies requests.

    Its API server plugs volumes into templates, its controller writes out instancetypes and restores snapshots; the
    VMs of a pool follow a user's template. Where KubeVirt runs is not always known, and then a tenant may name an
    account like KubeVirt's: a change of a template is reviewed.
    """
    place, user = settings.kubevirt_namespace, "request.userInfo.username"
    if not place:
        return {}
    by_api, by_controller = (
        f'{user} == "{account(place, each)}"' for each in (names.API_ACCOUNT, names.CONTROLLER_ACCOUNT)
    )
    passes = f"{by_api} || {by_controller} && !({_OF_A_POOL})"
    return {"no-update-by-kubevirt": f'request.operation == "CREATE" || !({passes})'}


def _no_vm_behind(settings: SizeSettings) -> dict[str, str]:
    return {"no-vm-behind": f"!({made_by_kubevirt(settings.kubevirt_namespace)}) || !({OF_A_VM})"}
