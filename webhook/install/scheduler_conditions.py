"""CEL that tells, before this server is called, whose choice a scheduler is.

An expression that fails keeps the request away from a webhook that may be passed over, so whatever may be absent is
tested for first.
"""

from __future__ import annotations

from typing import Final

from webhook import names
from webhook.settings.snapshot import SchedulingSettings

_MARK: Final = f'"{names.SCHEDULER_MARK}"'


def unset(parent: str, field: str) -> str:
    """That a field is absent, null or empty."""
    # Null stays where a schema preserves unknown fields.
    return f'!has({parent}.{field}) || {parent}.{field} == null || {parent}.{field} == ""'


def marked(root: str) -> str:
    """That an object carries the annotation with our choice."""
    return f"has({root}.metadata.annotations) && {_MARK} in {root}.metadata.annotations"


def only_ours(field: str, scheduling: SchedulingSettings) -> str:
    """One more alternative: a field names a scheduler that only this server ever chooses; empty where there is none."""
    listed = ", ".join(f'"{name}"' for name in scheduling.only_by_webhook)
    return f" || {field} in [{listed}]" if listed else ""


def of_vms(scheduling: SchedulingSettings) -> dict[str, str]:
    """The conditions on VMs, by name: those that choose no scheduler, and those that carry our choice or did so."""
    spec = "object.spec.template.spec"
    template = "has(object.spec) && has(object.spec.template) && has(object.spec.template.spec)"
    free, ours, was_ours = unset(spec, "schedulerName"), _marked_anywhere("object"), _marked_anywhere("oldObject")
    # Copies may bring our choice with some of its annotations, or none.
    named = only_ours(f"{spec}.schedulerName", scheduling)
    created = f"({free}) || ({ours}){named}"
    updated = f"({free}) ? ({was_ours}) && !({ours}) : ({was_ours}) || ({ours}){named}"
    return {
        "ours-or-nobodys-choice": f'{template} && (request.operation == "CREATE" ? ({created}) : ({updated}))',
        "created-or-changed": 'request.operation == "CREATE" || object.spec != oldObject.spec',
    }


def _marked_anywhere(root: str) -> str:
    """That a VM or its template carries the annotation."""
    template = f"{root}.spec.template"
    within = f"has({template}.metadata) && {template}.metadata != null && has({template}.metadata.annotations)"
    annotations = f"{template}.metadata.annotations"
    inner = f"{within} && {annotations} != null && {_MARK} in {annotations}"
    return f"({marked(root)}) || ({inner})"
