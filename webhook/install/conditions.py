"""The match conditions of the webhook configurations: CEL with which the API server skips irrelevant requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from webhook import names
from webhook.install.scheduler_conditions import has_annotation, of_vmis, of_vms, only_by_webhook, unset, unspread
from webhook.kubevirt.launcher import controller_account
from webhook.policies.common.migration_targets import JOB_NAME
from webhook.policies.eviction.pods import REQUESTED_BY
from webhook.review.endpoints import Endpoint
from webhook.settings.snapshot import SchedulingSettings, Settings


def fails_closed(endpoint: Endpoint, settings: Settings) -> bool:
    """Whether requests are denied while no replica answers."""
    return endpoint.fails_closed(settings) and endpoint.stage == "enforce"


def match_conditions(endpoint: Endpoint, settings: Settings) -> list[dict[str, Any]]:
    """CEL that keeps requests away which the policy would allow without changes anyway."""
    scheduling = settings.scheduling
    by_place = {
        ("mutate", names.SCHEDULING, "pods"): _pod_conditions(scheduling),
        ("mutate", names.SCHEDULING, "virtualmachines"): {**_NOT_DELETED, **of_vms(scheduling)},
        ("mutate", names.SCHEDULING, "virtualmachineinstances"): of_vmis(scheduling),
        ("mutate", names.INSTANCETYPES, "virtualmachines"): {
            **_NOT_DELETED,
            "created-or-changed": 'request.operation == "CREATE" || object.spec != oldObject.spec',
        },
        ("mutate", names.INSTANCETYPES, "virtualmachineinstances"): {"no-vm-behind": f"!({_OF_A_VM})"},
        ("validate", names.INSTANCETYPES, "virtualmachines"): {
            **_NOT_DELETED,
            "has-a-matcher": "has(object.spec.instancetype) || has(object.spec.preference)",
            # The API server counts the changes of the spec before it validates.
            "created-or-changed": 'request.operation == "CREATE" || '
            "object.metadata.generation != oldObject.metadata.generation",
            **(_kubevirts_updates(settings) if fails_closed(endpoint, settings) else {}),
        },
    }
    by_place |= {
        ("validate", names.MIGRATION, "virtualmachineinstancemigrations"): {"adds-a-selector": _ADDS},
        # KubeVirt's own migrations, for example evacuations, must not wait for kubevirt-webhook.
        ("mutate", names.MIGRATION, "virtualmachineinstancemigrations"): {
            "adds-no-selector": f"!({_ADDS})",
            "made-by-a-user": _BY_A_USER,
        },
        ("mutate", names.MIGRATION, "pods"): {
            "made-by-kubevirt": _pod_conditions(scheduling)["made-by-kubevirt"],
            "unbound": unset("object.spec", "nodeName"),
            # Drains must not wait for kubevirt-webhook; other migrations with such a name and a selector are denied.
            "not-of-a-drain": f"!({_OF_A_DRAIN})",
        },
        # Drains must not wait for kubevirt-webhook. An Eviction lacks its pod's labels, so its name is tested.
        ("mutate", names.EVICTION, "pods"): {
            "of-a-launcher-pod": f'request.name.startsWith("{names.LAUNCHER_APP}-")',
            "requested-by": _requester_condition(settings.eviction.requesters),
            "not-by-kubevirt": _BY_A_USER,
        },
    }
    conditions = by_place[endpoint.verb, endpoint.policy, endpoint.resource]
    return [{"name": name, "expression": cel} for name, cel in conditions.items()]


def _kubevirts_updates(settings: Settings) -> dict[str, str]:
    """CEL without which KubeVirt could not work on VMs while no replica answers, where that denies requests.

    What KubeVirt creates follows a user's template (of a pool, a clone, a snapshot) and is matched, as is another
    instancetype. Where KubeVirt runs is not always known, and then a tenant may name an account like KubeVirt's: all
    that this gains is an update that leaves the instancetype as it is.
    """
    user, place = "request.userInfo.username", settings.scheduling.kubevirt_namespace
    accounts = (names.CONTROLLER_ACCOUNT, names.API_ACCOUNT)
    if place:
        maker = f"{user} in [" + ", ".join(f'"system:serviceaccount:{place}:{account}"' for account in accounts) + "]"
    else:
        ends = " || ".join(f'{user}.endsWith(":{account}")' for account in accounts)
        maker = f'{user}.startsWith("system:serviceaccount:") && ({ends})'
    field = "spec.instancetype"
    same = (
        f"has(object.{field}) == has(oldObject.{field}) && "
        f"(!has(object.{field}) || object.{field} == oldObject.{field})"
    )
    return {"no-update-by-kubevirt": f'request.operation == "CREATE" || !({maker}) || !({same})'}


_BY_A_USER: Final = f'!request.userInfo.username.endsWith(":{names.CONTROLLER_ACCOUNT}")'
_ADDS: Final = "has(object.spec.addedNodeSelector) && size(object.spec.addedNodeSelector) > 0"
_POLICY: Final = f'object.metadata.annotations["{JOB_NAME}"]'
_OF_A_DRAIN: Final = (
    f'has(object.metadata.annotations) && "{JOB_NAME}" in object.metadata.annotations && ('
    + " || ".join(f'{_POLICY}.startsWith("{prefix}")' for prefix in names.OWN_MIGRATIONS)
    + ")"
)
_NOT_DELETED: Final = {"not-being-deleted": "!has(object.metadata.deletionTimestamp)"}
_OF_A_VM: Final = (
    "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(owner, "
    "has(owner.controller) && owner.controller == true && "
    f'owner.kind == "VirtualMachine" && owner.apiVersion.startsWith("{names.KUBEVIRT_GROUP}/"))'
)


def _pod_conditions(scheduling: SchedulingSettings) -> dict[str, str]:
    user = "request.userInfo.username"
    if scheduling.kubevirt_namespace:
        maker = f'{user} == "{controller_account(scheduling.kubevirt_namespace)}"'
    else:
        maker = f'{user}.startsWith("system:serviceaccount:") && {user}.endsWith(":{names.CONTROLLER_ACCOUNT}")'
    # Constraints do not depend on the scheduler, so a namespace can enable them alone.
    spread = "" if scheduling.spread == names.OFF else f" || {unspread('object.spec')}"
    return {
        "made-by-kubevirt": maker,
        "unbound": unset("object.spec", "nodeName"),
        # Pods with the injected scheduler too: while it is unavailable, they fall back to the default scheduler.
        "default-or-injected-scheduler": (
            f'{unset("object.spec", "schedulerName")} || object.spec.schedulerName == "{names.DEFAULT_SCHEDULER}"'
            f" || {has_annotation('object')}{only_by_webhook('object.spec.schedulerName', scheduling)}"
            f"{spread}"
        ),
    }


def _requester_condition(requesters: Iterable[str]) -> str:
    annotations, key = "object.metadata.annotations", f'"{REQUESTED_BY}"'
    listed = ", ".join(f'"{requester}"' for requester in requesters)
    return f"has({annotations}) && {key} in {annotations} && {annotations}[{key}] in [{listed}]"
