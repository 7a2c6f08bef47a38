"""CEL that keeps requests away which the policy would allow without changes anyway."""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.policies.common.match_conditions import (
    NOT_DELETED,
    created_or_changed,
    has_annotation,
    made_by_kubevirt,
    unset,
)
from webhook.policies.scheduling.settings import SchedulingSettings

_SCHEDULER: Final = names.INJECTED_SCHEDULER_ANNOTATION
_SPREAD: Final = names.INJECTED_SPREAD_ANNOTATION


def _unspread(parent: str) -> str:
    """An object has no topology spread constraints."""
    field = f"{parent}.topologySpreadConstraints"
    return f"!has({field}) || {field} == null || size({field}) == 0"


def _only_by_webhook(field: str, scheduling: SchedulingSettings) -> str:
    """An alternative: a field names a scheduler that only kubevirt-webhook sets; empty if there is none."""
    schedulers = sorted(scheduling.schedulers.items())
    listed = ", ".join(f'"{name}"' for name, declared in schedulers if declared.only_by_webhook)
    return f" || {field} in [{listed}]" if listed else ""


def of_vms(scheduling: SchedulingSettings) -> dict[str, str]:
    """The conditions on VMs, by name: those without a scheduler, and those that have or had an injected one."""
    spec = "object.spec.template.spec"
    template = "has(object.spec) && has(object.spec.template) && has(object.spec.template.spec)"
    free = unset(spec, "schedulerName")
    annotated, was_annotated = (_has_annotation_anywhere(root, _SCHEDULER) for root in ("object", "oldObject"))
    # Copies may contain an injected scheduler without all or any of its annotations.
    named = _only_by_webhook(f"{spec}.schedulerName", scheduling)
    unset_spread = f" || ({_unspread(spec)})" if scheduling.spread_virtual_machines else ""
    created = f"({free}) || ({annotated}){named}{unset_spread}"
    named_or_not = f"({free}) ? ({was_annotated}) && !({annotated}) : ({was_annotated}) || ({annotated}){named}"
    # Injected constraints are replaced by the owner's, independent of the present settings.
    spread = " || ".join(f"({_has_annotation_anywhere(root, _SPREAD)})" for root in ("object", "oldObject"))
    updated = f"({named_or_not}) || {spread}"
    injected = f"({annotated}) || ({_has_annotation_anywhere('object', _SPREAD)})"
    return {
        **NOT_DELETED,
        "unset-or-injected-scheduler": f'{template} && (request.operation == "CREATE" ? ({created}) : ({updated}))',
        "created-or-changed": created_or_changed(injected),
    }


def of_vmis(scheduling: SchedulingSettings) -> dict[str, str]:
    """The conditions on VMIs, by name: the owner has set none."""
    choices = []
    if scheduling.virtual_machine_instances:
        choices.append(unset("object.spec", "schedulerName"))
    if scheduling.spread_virtual_machine_instances:
        choices.append(_unspread("object.spec"))
    return {"scheduler-not-set": f"has(object.spec) && ({' || '.join(choices) or 'false'})"}


def _has_annotation_anywhere(root: str, key: str) -> str:
    """A VM or its template has the annotation."""
    template = f"{root}.spec.template"
    within = f"has({template}.metadata) && {template}.metadata != null && has({template}.metadata.annotations)"
    annotations = f"{template}.metadata.annotations"
    inner = f'{within} && {annotations} != null && "{key}" in {annotations}'
    return f"({has_annotation(root, key)}) || ({inner})"


def of_pods(scheduling: SchedulingSettings) -> dict[str, str]:
    """The conditions on launcher pods, by name: they may get a scheduler, constraints, or fall back."""
    return {
        "made-by-kubevirt": made_by_kubevirt(scheduling.kubevirt_namespace),
        "unbound": unset("object.spec", "nodeName"),
        # Pods with the injected scheduler too: while it is unavailable, they fall back to the default scheduler.
        "default-or-injected-scheduler": (
            f'{unset("object.spec", "schedulerName")} || object.spec.schedulerName == "{names.DEFAULT_SCHEDULER}"'
            f" || {has_annotation('object', _SCHEDULER)}{_only_by_webhook('object.spec.schedulerName', scheduling)}"
            # Constraints do not depend on the scheduler: a namespace, or an owner, can ask for them alone.
            f" || {_unspread('object.spec')}"
        ),
    }
