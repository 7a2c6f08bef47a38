"""CEL that tells, before this server is called, whether the policy scheduling may have something to do.

An expression that fails keeps the request away from a webhook that may be passed over, so whatever may be absent is
tested for first.
"""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.settings.snapshot import SchedulingSettings

_MARK: Final = f'"{names.SCHEDULER_MARK}"'
_SPREAD_MARK: Final = f'"{names.SPREAD_MARK}"'


def unset(parent: str, field: str) -> str:
    """That a field is absent, null or empty."""
    # Null stays where a schema preserves unknown fields.
    return f'!has({parent}.{field}) || {parent}.{field} == null || {parent}.{field} == ""'


def marked(root: str) -> str:
    """That an object carries an annotation with a choice of ours."""
    annotations = f"{root}.metadata.annotations"
    return f"has({annotations}) && ({_MARK} in {annotations} || {_SPREAD_MARK} in {annotations})"


def only_ours(field: str, scheduling: SchedulingSettings) -> str:
    """One more alternative: a field names a scheduler that only this server ever chooses; empty where there is none."""
    listed = ", ".join(f'"{name}"' for name in scheduling.only_by_webhook)
    return f" || {field} in [{listed}]" if listed else ""


def unspread(parent: str) -> str:
    """That an object has no topology spread constraints."""
    field = f"{parent}.topologySpreadConstraints"
    return f"!has({field}) || {field} == null || size({field}) == 0"


def of_vms(scheduling: SchedulingSettings) -> dict[str, str]:
    """The conditions on VMs, by name: they choose no scheduler or no constraints, or carry our choice, or did."""
    spec = "object.spec.template.spec"
    template = "has(object.spec) && has(object.spec.template) && has(object.spec.template.spec)"
    # Copies may bring our choice with some of its annotations, or none.
    ours = " || ".join(f"({_marked_anywhere(root)})" for root in ("object", "oldObject"))
    ours += only_ours(f"{spec}.schedulerName", scheduling)
    if scheduling.spread_virtual_machines:
        ours += f" || ({unspread(spec)})"
    return {
        "nothing-chosen-or-ours": f"{template} && ({unset(spec, 'schedulerName')} || {ours})",
        "created-or-changed": 'request.operation == "CREATE" || object.spec != oldObject.spec',
    }


def of_vmis(scheduling: SchedulingSettings) -> dict[str, str]:
    """The conditions on VMIs, by name: they choose no scheduler, or no constraints."""
    open_choices = []
    if scheduling.virtual_machine_instances:
        open_choices.append(unset("object.spec", "schedulerName"))
    if scheduling.spread_virtual_machine_instances:
        open_choices.append(unspread("object.spec"))
    chosen = " || ".join(open_choices) or "false"
    return {"nothing-chosen": f"has(object.spec) && ({chosen})"}


def _marked_anywhere(root: str) -> str:
    """That a VM or its template carries one of the annotations; there may be no such VM."""
    template = f"{root}.spec.template"
    within = f"has({template}.metadata) && {template}.metadata != null && has({template}.metadata.annotations)"
    annotations = f"{template}.metadata.annotations"
    inner = f"{within} && {annotations} != null && ({_MARK} in {annotations} || {_SPREAD_MARK} in {annotations})"
    return f"{root} != null && (({marked(root)}) || ({inner}))"
