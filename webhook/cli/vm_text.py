"""The explanation of a VM as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from webhook.cli.paragraphs import Paragraph, print_paragraphs
from webhook.cli.show import STYLES, change_line
from webhook.policies.migration.explanation import few
from webhook.review.vm_explanation import FieldReport, VmExplanation
from webhook.text import pluralize, shorten

_LONGEST_CHANGE: Final = 100
_LONGEST: Final = 60
# In text output; JSON has all.
_MOST_FIELDS: Final = 25
_WHEN: Final = {
    "VirtualMachine": "When its owner creates it",
    "VirtualMachineInstance": "When KubeVirt creates its VMI",
    "Pod": "When KubeVirt creates its next pod",
    "VirtualMachineInstanceMigration": "When a user migrates it without a selector",
    "Eviction": "When the descheduler evicts it",
}
_ORDER: Final = ("kubevirt-webhook", "instancetype", "preference", "cluster settings", "vm", "KubeVirt default")
_BOOKKEEPING: Final = ("status", "metadata.ownerReferences", "metadata.finalizers")


def print_vm(found: VmExplanation) -> None:
    """Print an explanation: the answers first, then the requests, then each value."""
    print_paragraphs(_lines(found))


def _lines(found: VmExplanation) -> Iterator[Paragraph]:
    where = f"runs on {found.running_on}" if found.running_on else "does not run"
    yield Paragraph(f"{found.kind} {found.namespace}/{found.name} {where}", "bold")
    if found.denial:
        yield Paragraph(f"KubeVirt would not create its VMI: {found.denial}", "bold red")
    if found.scheduler:
        yield Paragraph(f"Scheduler of its next pods: {found.scheduler}")
    for named in found.named:
        how = "chosen by kubevirt-webhook" if named.injected else "named by the VM"
        if named.inferred_from:
            how = f"inferred from volume {named.inferred_from}"
        yield Paragraph(f"{named.role.capitalize()}: {named.kind} {named.name}, {how}")
    if found.nodes is not None:
        nodes = _nodes(found.nodes.count, found.nodes.names)
        yield Paragraph(f"It could start on {nodes}; what is free there is not evaluated.")
    if found.migration:
        yield Paragraph(f"If it migrates, {found.migration.summary}.")
        for obstacle in found.migration.obstacles:
            yield Paragraph(f"But {obstacle}.", "yellow")
    yield from _requests(found)
    yield from _fields(found)


def _nodes(count: int, names: list[str]) -> str:
    return f"{pluralize(count, 'node')}: {few(names)}" if count else "no node"


def _requests(found: VmExplanation) -> Iterator[Paragraph]:
    for request in found.requests:
        yield Paragraph()
        yield Paragraph(f"{_WHEN[request.kind]}:", "bold")
        if not request.policies:
            yield Paragraph("no policy is called", "dim", "  ")
        for policy in request.policies:
            for number, reason in enumerate(policy.reasons):
                head = f"{policy.policy} ({policy.mode}): {policy.decision}, " if not number else ""
                reads = reason.text.removeprefix("skipped: ")
                yield Paragraph(f"{head}{reads} [{reason.code}]", STYLES.get(policy.decision, ""), "  ", 6)
            for change in policy.changes:
                line = change_line({"path": change.path, "old": change.old, "new": change.new})
                yield Paragraph(shorten(line, _LONGEST_CHANGE), "", "      ", 8)
            for warning in policy.warnings:
                yield Paragraph(f"warning: {warning}", "yellow", "      ")


def _fields(found: VmExplanation) -> Iterator[Paragraph]:
    groups: dict[str, list[FieldReport]] = {}
    for field in found.fields:
        if not field.path.startswith(_BOOKKEEPING):
            groups.setdefault(f"{field.origin} {field.name}".strip(), []).append(field)
    for label, fields in sorted(groups.items(), key=lambda group: _place(group[0])):
        yield Paragraph()
        yield Paragraph(f"From {label}: {pluralize(len(fields), 'value')} of its VMI", "bold")
        for field in fields[:_MOST_FIELDS]:
            value = field.value if isinstance(field.value, str) else json.dumps(field.value, ensure_ascii=False)
            note = " (another one each time)" if field.random else ""
            yield Paragraph(f"{field.path} = {shorten(value, _LONGEST)}{note}", "", "  ", 4)
        if len(fields) > _MOST_FIELDS:
            yield Paragraph(f"and {len(fields) - _MOST_FIELDS} more; -o json shows all", "dim", "  ")


def _place(label: str) -> int:
    """What was added comes first; owners know what they wrote, and KubeVirt's defaults are many."""
    return next((place for place, origin in enumerate(_ORDER) if label.startswith(origin)), len(_ORDER))
