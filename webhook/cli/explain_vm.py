"""`kubevirt-webhook explain vm`: everything that the policies do to a VM, and where the values of its VMI come from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Final

import click

from webhook import names
from webhook.cli import defaults, namespaces, write
from webhook.cli.console import STYLES, Paragraph, change_line, print_report
from webhook.cli.explain import SECONDS, UNREADABLE, answer_of
from webhook.cli.inputs import say_skipped
from webhook.cli.options import Source, VmName, config_option, output_option, source_option, vm_argument
from webhook.cluster.files import FilesCluster
from webhook.cluster.selection import NoAnswerError, require_single_source
from webhook.facts import Unreadable
from webhook.forecast.vm import FieldReport, Sources, SpreadAnswer, VmExplanation, explain_spread, explain_vm
from webhook.placement.requirements import Origin
from webhook.policies.migration.explanation import Nodes
from webhook.text import abbreviate, pluralize, shorten

_LONGEST_CHANGE: Final = 100
_LONGEST: Final = 60
# In text output; JSON has all.
_MOST_FIELDS: Final = 25
_MOST_REASONS: Final = 5
# What keeps a VM from nodes without anyone having chosen those; the other reasons are shown where no node remains.
_TIES: Final = (Origin.VOLUMES, Origin.RESOURCES, Origin.SPREAD, Origin.POD_AFFINITY)
_WHEN: Final = {
    "VirtualMachine": "When its owner creates it",
    "VirtualMachineInstance": "When KubeVirt creates its VMI",
    "Pod": "When KubeVirt creates its next pod",
    "VirtualMachineInstanceMigration": "When a user migrates it without a selector",
    "Eviction": "When the descheduler evicts it",
}
# What was added comes first; owners know what they wrote, and KubeVirt's defaults are many.
_ORDER: Final = ("kubevirt-webhook", "instancetype", "preference", "cluster settings", "vm", "KubeVirt default")


@click.command()
@vm_argument
@source_option()
@config_option("those in the cluster")
@output_option("text", "json", "yaml")
def spread(vm_name: VmName, config_file: Path | None, source: Source, output: str) -> None:
    """Show the topology spread constraints that the next launcher pods of a VM get, and why.

    Running pods do not change; the result applies from the VM's next start or migration.

    Exit status 0 if the pods get constraints, 1 if not, 2 if this is unknown: invalid input, or the VM does not exist.
    """
    require_single_source(*source)
    vm_name = namespaces.complete(vm_name, source)

    async def explained() -> tuple[SpreadAnswer, str]:
        async with source.open() as cluster:
            applied = await defaults.settings_beside(cluster, config_file, source)
            explainer = partial(explain_spread, *vm_name, applied.settings)
            return await answer_of(explainer, "explain spread", cluster), applied.origin

    answer, origin = asyncio.run(explained())
    print_report(answer, output, _spread_lines)
    defaults.say_what_applies(origin, vm_name[0])
    if not answer.is_spread:
        raise SystemExit(1)


def _spread_lines(answer: SpreadAnswer) -> Iterator[Paragraph]:
    will = "get constraints"
    if answer.present:
        will = "keep the constraints that the VM has"
    elif not answer.injected:
        will = "get no constraints"
    elif answer.mode != names.ENFORCE:
        will = f"get no constraints, because the mode of the namespace is {answer.mode}; with enforce"
    summary = f"the next launcher pods of {answer.namespace}/{answer.name} {will}"
    yield Paragraph(f"{summary}: {answer.reason} [{answer.code}]", "bold green" if answer.is_spread else "bold yellow")
    for constraint in answer.injected or answer.present:
        fields = (f"{key}: {constraint.get(key)}" for key in ("topologyKey", "whenUnsatisfiable", "maxSkew"))
        yield Paragraph(", ".join(fields), "", "  ")


@click.command()
@vm_argument
@source_option()
@config_option("those in the cluster")
@output_option("text", "json", "yaml")
def vm(vm_name: VmName, config_file: Path | None, source: Source, output: str) -> None:
    """Show what the policies do to a VM and why, its next scheduler, the origin of each value, and where it can go.

    The policies are run on the requests of the VM's life as if they were sent now; nothing is sent or changed.

    Exit status 0 if the VM is accepted, 1 if a policy or KubeVirt would deny it, 2 on invalid input, or if the VM does
    not exist, 3 if the cluster cannot be read.
    """
    require_single_source(*source)
    vm_name = namespaces.complete(vm_name, source)

    async def explained() -> tuple[VmExplanation, str]:
        async with (
            defaults.open_with_settings(source, config_file) as (cluster, applied),
            nullcontext(cluster) if source.cluster_from else source.open() as other,
        ):
            if isinstance(cluster, FilesCluster):
                say_skipped(cluster.skipped)
            deadline = asyncio.get_running_loop().time() + SECONDS
            explanation = await explain_vm(Sources(cluster, other), applied.settings, *vm_name, deadline)
            return explanation, applied.origin

    try:
        explanation, origin = asyncio.run(explained())
    except Unreadable as error:
        write.error(f"Error: {error.why}; check the kubeconfig and its permissions")
        raise SystemExit(UNREADABLE) from None
    except NoAnswerError as error:
        write.error(f"Error: {error}")
        raise SystemExit(UNREADABLE) from None
    print_report(explanation, output, _vm_lines)
    defaults.say_what_applies(origin, vm_name[0])
    if explanation.is_denied:
        raise SystemExit(1)


def _vm_lines(explanation: VmExplanation) -> Iterator[Paragraph]:
    where = f"runs on {explanation.running_on}" if explanation.running_on else "does not run"
    yield Paragraph(f"{explanation.kind} {explanation.namespace}/{explanation.name} {where}", "bold")
    if explanation.waiting:
        yield Paragraph(f"It waits: {explanation.waiting.rstrip('.')}.", "bold yellow")
    if explanation.denial:
        yield Paragraph(f"KubeVirt would not create its VMI: {explanation.denial}", "bold red")
    if explanation.scheduler:
        yield Paragraph(f"Scheduler of its next pods: {explanation.scheduler}")
    for named in explanation.named:
        how = "chosen by kubevirt-webhook" if named.injected else "named by the VM"
        if named.inferred_from:
            how = f"inferred from volume {named.inferred_from}"
        yield Paragraph(f"{named.role.capitalize()}: {named.kind} {named.name}, {how}")
    if explanation.nodes is not None:
        yield from _start_lines(explanation, explanation.nodes)
    if explanation.migration:
        yield Paragraph(f"If it migrates, {explanation.migration.summary}.")
        yield from (Paragraph(f"But {obstacle}.", "yellow") for obstacle in explanation.migration.obstacles)
        if explanation.migration.evacuation:
            yield Paragraph(f"{explanation.migration.evacuation}.", "yellow")
        if explanation.migration.hotplug:
            yield Paragraph(f"Note: {explanation.migration.hotplug}.", "yellow")
    yield from (Paragraph(f"Not evaluated: {gap}.", "yellow") for gap in explanation.gaps)
    yield from _request_lines(explanation)
    yield from _field_lines(explanation)


def _start_lines(explanation: VmExplanation, nodes: Nodes) -> Iterator[Paragraph]:
    where = f"{pluralize(nodes.count, 'node')}: {abbreviate(nodes.names)}" if nodes.count else "no node"
    free = "; what is free there is not evaluated" if nodes.count else ""
    yield from (Paragraph(f"It does not start: {obstacle}.", "bold red") for obstacle in explanation.obstacles)
    it = "Apart from that, it" if explanation.obstacles else "It"
    yield Paragraph(f"{it} could start on {where}{free}.", "" if nodes.count else "bold red")
    shown = explanation.reasons if not nodes.count else [each for each in explanation.reasons if each.origin in _TIES]
    for reason in shown[:_MOST_REASONS]:
        yield Paragraph(
            f"{pluralize(reason.nodes.count, 'node')} {reason.text}: {abbreviate(reason.nodes.names)}", "", "  ", 4
        )
    yield from (Paragraph(f"Note: {note}.") for note in explanation.notes)


def _request_lines(explanation: VmExplanation) -> Iterator[Paragraph]:
    for request in explanation.requests:
        yield from (Paragraph(), Paragraph(f"{_WHEN[request.kind]}:", "bold"))
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
            yield from (Paragraph(f"warning: {warning}", "yellow", "      ") for warning in policy.warnings)


def _field_lines(explanation: VmExplanation) -> Iterator[Paragraph]:
    groups: dict[str, list[FieldReport]] = {}
    for field in explanation.fields:
        if not field.path.startswith(("status", "metadata.ownerReferences", "metadata.finalizers")):
            groups.setdefault(f"{field.origin} {field.name}".strip(), []).append(field)

    def place(group: tuple[str, object]) -> int:
        return next((place for place, origin in enumerate(_ORDER) if group[0].startswith(origin)), len(_ORDER))

    for label, fields in sorted(groups.items(), key=place):
        yield from (Paragraph(), Paragraph(f"From {label}: {pluralize(len(fields), 'value')} of its VMI", "bold"))
        for field in fields[:_MOST_FIELDS]:
            value = field.value if isinstance(field.value, str) else json.dumps(field.value, ensure_ascii=False)
            note = " (random in KubeVirt; here derived from the name)" if field.random else ""
            yield Paragraph(f"{field.path} = {shorten(value, _LONGEST)}{note}", "", "  ", 4)
        if len(fields) > _MOST_FIELDS:
            yield Paragraph(f"and {len(fields) - _MOST_FIELDS} more; -o json shows all", "dim", "  ")
