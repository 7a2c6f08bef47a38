"""What the API server can evaluate of the scheduling policy without a server: the scheduler of VMIs without one."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.policies.common.match_conditions import unset
from webhook.policies.scheduling.settings import SchedulingSettings
from webhook.policy import AdmissionPolicy

NAME: Final = "kubevirt-webhook-scheduler"
_VMIS: Final = "virtualmachineinstances"


def admission_policies(settings: SchedulingSettings) -> tuple[AdmissionPolicy, ...]:
    """Write the namespace's scheduler into VMIs without one; where a namespace only warns, say so."""
    if not settings.schedulers:
        return ()
    declared = ", ".join(f'"{name}"' for name in sorted(settings.schedulers))
    # The namespace's own value, else the settings'.
    own = f"namespaceObject.metadata.?annotations[?'{names.SCHEDULER_NAME_ANNOTATION}'].orValue('')"
    variables = [
        {"name": "chosen", "expression": f"{own} != '' ? {own} : '{settings.scheduler_name}'"},
        # Of a misspelled name, VMs would wait indefinitely.
        {"name": "declared", "expression": f"variables.chosen in [{declared}]"},
    ]
    free = {"name": "no-scheduler", "expression": f"has(object.spec) && ({unset('object.spec', 'schedulerName')})"}
    key = names.INJECTED_SCHEDULER_ANNOTATION.replace("/", "~1")
    patch = (
        'variables.declared ? [JSONPatch{op: "add", path: "/spec/schedulerName", value: variables.chosen}]'
        " + (has(object.metadata.annotations) ? [] :"
        ' [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}])'
        f' + [JSONPatch{{op: "add", path: "/metadata/annotations/{key}", value: variables.chosen}}] : []'
    )
    # VMs are never denied for want of a scheduler.
    common = {"failurePolicy": "Ignore", "matchConditions": [free], "variables": variables}
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]
    mutating = {**common, "reinvocationPolicy": "Never", "mutations": mutations}
    would = {
        "expression": "!variables.declared",
        "message": "kubevirt-webhook: schedulerName would be set",
        "messageExpression": '"kubevirt-webhook: schedulerName would be \'" + variables.chosen + "\'"',
    }
    validating = {**common, "validations": [would]}
    return (
        AdmissionPolicy(NAME, _VMIS, mutating, (names.ENFORCE,), mutates=True),
        AdmissionPolicy(NAME, _VMIS, validating, (names.WARN, names.AUDIT)),
    )
