"""CEL that determines whether the owner or kubevirt-webhook set a scheduler or a topology spread constraint.

If an expression fails, the API server skips a webhook whose failurePolicy is Ignore, so each expression first tests
that its fields are present.
"""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.settings.snapshot import SchedulingSettings

_INJECTED_ANNOTATION: Final = f'"{names.INJECTED_SCHEDULER_ANNOTATION}"'
_SPREAD_ANNOTATION: Final = f'"{names.INJECTED_SPREAD_ANNOTATION}"'


def unset(parent: str, field: str) -> str:
    """A field is absent, null or empty."""
    # A schema that preserves unknown fields keeps null.
    return f'!has({parent}.{field}) || {parent}.{field} == null || {parent}.{field} == ""'


def has_annotation(root: str, injected_value: str = _INJECTED_ANNOTATION) -> str:
    """CEL: an object carries one of the server's annotations."""
    return f"has({root}.metadata.annotations) && {injected_value} in {root}.metadata.annotations"


def unspread(parent: str) -> str:
    """An object has no topology spread constraints."""
    field = f"{parent}.topologySpreadConstraints"
    return f"!has({field}) || {field} == null || size({field}) == 0"


def only_by_webhook(field: str, scheduling: SchedulingSettings) -> str:
    """An alternative: a field names a scheduler that only kubevirt-webhook sets; empty if there is none."""
    listed = ", ".join(f'"{name}"' for name in scheduling.only_by_webhook)
    return f" || {field} in [{listed}]" if listed else ""


def of_vms(scheduling: SchedulingSettings) -> dict[str, str]:
    """The conditions on VMs, by name: those without a scheduler, and those that have or had an injected one."""
    spec = "object.spec.template.spec"
    template = "has(object.spec) && has(object.spec.template) && has(object.spec.template.spec)"
    free, annotated, was_annotated = (
        unset(spec, "schedulerName"),
        _has_annotation_anywhere("object"),
        _has_annotation_anywhere("oldObject"),
    )
    # Copies may contain an injected scheduler without all or any of its annotations.
    named = only_by_webhook(f"{spec}.schedulerName", scheduling)
    unset_spread = f" || ({unspread(spec)})" if scheduling.spread_virtual_machines else ""
    created = f"({free}) || ({annotated}){named}{unset_spread}"
    named_or_not = f"({free}) ? ({was_annotated}) && !({annotated}) : ({was_annotated}) || ({annotated}){named}"
    # Injected constraints are replaced by the owner's, independent of the present settings.
    spread = " || ".join(f"({_has_annotation_anywhere(root, _SPREAD_ANNOTATION)})" for root in ("object", "oldObject"))
    updated = f"({named_or_not}) || {spread}"
    return {
        "unset-or-injected-scheduler": f'{template} && (request.operation == "CREATE" ? ({created}) : ({updated}))',
        "created-or-changed": 'request.operation == "CREATE" || object.spec != oldObject.spec',
    }


def of_vmis(scheduling: SchedulingSettings) -> dict[str, str]:
    """The conditions on VMIs, by name: the owner has set none."""
    choices = []
    if scheduling.virtual_machine_instances:
        choices.append(unset("object.spec", "schedulerName"))
    if scheduling.spread_virtual_machine_instances:
        choices.append(unspread("object.spec"))
    return {"nobodys-choice": f"has(object.spec) && ({' || '.join(choices) or 'false'})"}


def _has_annotation_anywhere(root: str, injected_value: str = _INJECTED_ANNOTATION) -> str:
    """A VM or its template has the annotation."""
    template = f"{root}.spec.template"
    within = f"has({template}.metadata) && {template}.metadata != null && has({template}.metadata.annotations)"
    annotations = f"{template}.metadata.annotations"
    inner = f"{within} && {annotations} != null && {injected_value} in {annotations}"
    return f"({has_annotation(root, injected_value)}) || ({inner})"
