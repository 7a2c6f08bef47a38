"""`kubevirt-webhook explain vm`: everything that the policies do to a VM, and where the values of its VMI come from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from webhook import names
from webhook.admission.reasons import common
from webhook.cli import defaults, namespaces, write
from webhook.cli.console import STYLES, Paragraph, change_line, print_report
from webhook.cli.explain import SECONDS, UNREADABLE, answer_of, is_in_roles, unreadable_fix
from webhook.cli.inputs import say_skipped
from webhook.cli.options import Source, VmName, config_option, output_option, source_option, vm_argument
from webhook.cluster.files import FilesCluster
from webhook.cluster.selection import NoAnswerError, require_single_source
from webhook.facts import Unreadable
from webhook.forecast.requests import DELETION, DRAIN, PolicyReport
from webhook.forecast.vm import FieldReport, Sources, SpreadAnswer, VmExplanation, explain_spread, explain_vm
from webhook.placement.requirements import Origin
from webhook.policies.defaults.given import DefaultReport
from webhook.policies.migration.explanation import Nodes
from webhook.policies.scheduling import reasons as scheduling
from webhook.text import abbreviate, pluralize, shorten

# In text output; JSON has all. A toleration or an affinity fits, of which the end is often what somebody looks for.
_LONGEST: Final = 1000
_MOST_FIELDS: Final = 25
_MOST_REASONS: Final = 5
# What keeps a VM from nodes without anyone having chosen those; the other reasons are shown where no node remains.
_TIES: Final = (Origin.VOLUMES, Origin.RESOURCES, Origin.SPREAD, Origin.POD_AFFINITY)
# How a reason's text begins where a policy leaves a request alone.
_SKIPPED: Final = "skipped: "
_POD: Final = "Pod"
# What a policy says where it could not read something.
_UNREAD: Final = (
    *(common.LOOKUP_FAILED, scheduling.KUBEVIRT_UNREADABLE),
    *(scheduling.VMI_UNREADABLE, scheduling.INSTANCETYPE_UNREADABLE),
)
_ENDS_OF_UNREAD: Final = tuple(f"[{code}]" for code in _UNREAD)
_UNKNOWN: Final = f"[{scheduling.SCHEDULER_HEALTH_UNKNOWN}]"
_WHEN: Final = {
    "VirtualMachine": "When its owner creates it",
    "VirtualMachineInstance": "When KubeVirt creates its VMI",
    _POD: "When KubeVirt creates the pod of its next start",
    "VirtualMachineInstanceMigration": "When a user migrates it without a selector",
    "Eviction": "When the descheduler evicts it",
    DRAIN: "When its node is drained",
    DELETION: "When a pod of higher priority preempts it, or a NoExecute taint removes it",
}
# Values that a default of a policy may stand for; what owners wrote, or named, it leaves alone.
_REPLACEABLE: Final = ("cluster settings", "KubeVirt default")
# What was added comes first; owners know what they wrote, and KubeVirt's defaults are many.
_ORDER: Final = ("kubevirt-webhook", "instancetype", "preference", "cluster settings", "vm", "KubeVirt default")


@click.command()
@vm_argument
@source_option()
@config_option("those in the cluster")
@output_option("text", "json", "yaml")
def spread(vm_name: VmName, config_file: Path | None, source: Source, output: str) -> None:
    """Show the topology spread constraints that the next launcher pods of a VM get, and why.

    Running pods do not change; the result applies from the VM's next start or migration. Of a running VM whose template
    asks for something else, both are shown, and the exit status is that of its migrations.

    Exit status 0 if the pods get constraints, 1 if not, 2 if this is unknown: invalid input, or the VM does not exist;
    3 if the cluster cannot be read, or the installed settings.
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
    if answer.code == common.SETTINGS_UNREADABLE:
        raise SystemExit(UNREADABLE)
    if not answer.is_spread:
        raise SystemExit(1)


def _spread_lines(answer: SpreadAnswer) -> Iterator[Paragraph]:
    vm_name, following = f"{answer.namespace}/{answer.name}", answer.at_next_start
    if following is None:
        yield from _lines_of_pods(answer, f"the next launcher pods of {vm_name}")
        return
    yield from _lines_of_pods(answer, f"until it restarts, the launcher pods of {vm_name}")
    yield from _lines_of_pods(following, "from its next start on, they")


def _lines_of_pods(answer: SpreadAnswer, pods: str) -> Iterator[Paragraph]:
    """What pods get, by the answer for them."""
    if answer.code == common.SETTINGS_UNREADABLE:
        yield Paragraph(f"{pods}: {answer.reason} [{answer.code}]", "yellow")
        return
    will = "get constraints"
    if answer.present:
        will = "keep the constraints that the VM has"
    elif not answer.injected:
        will = "get no constraints"
    elif answer.mode != names.ENFORCE:
        will = f"get no constraints, because the mode of the namespace is {answer.mode}; with enforce"
    yield Paragraph(
        f"{pods} {will}: {answer.reason} [{answer.code}]", "bold green" if answer.is_spread else "bold yellow"
    )
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

    Exit status 0 if the VM is accepted, also if its pod is denied as yet, 1 if a policy or KubeVirt would deny the VM
    or its VMI, 2 on invalid input, or if the VM does not exist, 3 if the cluster cannot be read.
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
            return await explain_vm(Sources(cluster, other), applied.settings, *vm_name, deadline), applied.origin

    try:
        explanation, origin = asyncio.run(explained())
    except Unreadable as error:
        write.error(f"Error: {error.why}; {unreadable_fix(error.why, of_one_vm=True)}")
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
    if explanation.settings_gap:
        what = "Not evaluated: the installed settings, so that policies may do more than is shown here"
        yield Paragraph(f"{what}: {explanation.settings_gap}.", "bold yellow")
    if explanation.waiting:
        yield Paragraph(f"It waits: {explanation.waiting.rstrip('.')}.", "bold yellow")
    if explanation.denial:
        it = "" if explanation.running_on else "It does not start: "
        yield Paragraph(f"{it}KubeVirt would not create its VMI: {explanation.denial}", "bold red")
    if explanation.scheduler:
        when = "at its next start" if explanation.kind == "VirtualMachine" else "of its next pods"
        yield Paragraph(f"Scheduler {when}: {explanation.scheduler}")
    yield from (Paragraph(f"Note: {each}.") for each in explanation.until_restarted)
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
        if explanation.migration.undecided:
            yield Paragraph(f"Note: {explanation.migration.undecided}.", "yellow")
    yield from _gap_lines(explanation.gaps)
    yield from (Paragraph(f"Warning: {each}.", "yellow") for each in explanation.warnings)
    yield from _default_lines(explanation.defaults)
    yield from _request_lines(explanation)
    yield from _field_lines(explanation)


def _gap_lines(gaps: Sequence[str]) -> Iterator[Paragraph]:
    yield from (Paragraph(f"Not evaluated: {gap}.", "yellow") for gap in gaps)
    forbidden = [gap for gap in gaps if "(403)" in gap]
    if forbidden:
        fix = unreadable_fix(next(filter(is_in_roles, forbidden), forbidden[0]), of_one_vm=True)
        yield Paragraph(f"For what you may not read, {fix}.", "yellow")


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


def _default_lines(defaults: Sequence[DefaultReport]) -> Iterator[Paragraph]:
    if defaults:
        yield from (Paragraph(), Paragraph("Defaults of kubevirt-webhook:", "bold"))
    alone = [each for each in defaults if each.unread and each == DefaultReport(each.field, unread=each.unread)]
    for each in defaults:
        if each in alone:
            continue
        parts = []
        if each.owner is not None:
            parts.append(f"the owner chose {_value(each.owner)}")
        if each.unread:
            parts += [f"{_value(each.given)} now"] if each.given is not None else []
            parts.append(f"not evaluated at its next start ({each.unread})")
        elif each.given is not None and each.given == each.next:
            parts.append(f"{_value(each.given)} now, and at its next start")
        else:
            parts += [f"{_value(each.given)} now"] if each.given is not None else []
            none = "no default" if each.owner is None else "the owner's alone"
            at_next = _value(each.next) if each.next is not None else none
            parts += [f"{at_next} at its next start"] if each.given is not None or each.next is not None else []
        yield Paragraph(f"{each.field}: {'; '.join(parts)}", "", "  ", 4)
    for why in dict.fromkeys(each.unread for each in alone):
        fields = ", ".join(each.field for each in alone if each.unread == why)
        yield Paragraph(f"{fields}: not evaluated at its next start ({why})", "", "  ", 4)


def _value(value: Any) -> str:
    return shorten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _LONGEST)


def _when(request: str, explained: str) -> str:
    """When a request is sent; the kind of what is explained says whether pods of another VMI follow."""
    is_vmi = explained == "VirtualMachineInstance"
    return "When KubeVirt creates its next pod" if request == _POD and is_vmi else _WHEN[request]


def _request_lines(explanation: VmExplanation) -> Iterator[Paragraph]:
    for request in explanation.requests:
        yield from (Paragraph(), Paragraph(f"{_when(request.kind, explanation.kind)}:", "bold"))
        if request.outcome:
            yield Paragraph(f"{request.outcome}", "", "  ", 4)
        if not request.policies:
            yield Paragraph("no policy is called", "dim", "  ")
        # A policy may have several endpoints for it, which all say the same of a namespace that is out of scope.
        policies = [each for at, each in enumerate(request.policies) if each not in request.policies[:at]]
        yield from _lines_by_settings(policies)
        for policy in policies:
            if _depends_on_settings(policy):
                continue
            for number, reason in enumerate(policy.reasons):
                decision = policy.decision
                # What a policy allows because it skipped it is called skipped, as `review` does.
                if decision == "allowed" and reason.text.startswith(_SKIPPED):
                    decision = "skipped"
                if reason.code == common.SETTINGS_UNREADABLE:
                    head = f"{policy.policy} ({policy.mode}): " if not number else ""
                    yield Paragraph(f"{head}{reason.text} [{reason.code}]", "yellow", "  ", 6)
                    continue
                if reason.code in _UNREAD and policy.unread:
                    # What this user may not read, the server may; so what the policy says of it is not so there.
                    head = f"{policy.policy} ({policy.mode}): " if not number else ""
                    text = f"{head}not evaluated: {'; '.join(policy.unread)} [{reason.code}]"
                    yield Paragraph(text, "yellow", "  ", 6)
                    continue
                if reason.code == scheduling.SCHEDULER_HEALTH_UNKNOWN and request.unknown_schedulers:
                    head = f"{policy.policy} ({policy.mode}): " if not number else ""
                    text = f"{head}not evaluated: the health of scheduler {'; '.join(request.unknown_schedulers)}"
                    yield Paragraph(f"{text} [{reason.code}]", "yellow", "  ", 6)
                    continue
                head = f"{policy.policy} ({policy.mode}): {decision}, " if not number else ""
                reads = reason.text.removeprefix(_SKIPPED)
                yield Paragraph(f"{head}{reads} [{reason.code}]", STYLES.get(decision, ""), "  ", 6)
            for change in policy.changes:
                line = change_line({"path": change.path, "old": change.old, "new": change.new})
                yield Paragraph(shorten(line, _LONGEST), "", "      ", 8)
            # Nor does it warn there of what this user alone may not read.
            own = (*(_ENDS_OF_UNREAD if policy.unread else ()), *([_UNKNOWN] if request.unknown_schedulers else ()))
            sent = [each for each in policy.warnings if not each.endswith(own)]
            yield from (Paragraph(f"warning: {warning}", "yellow", "      ") for warning in sent)


def _depends_on_settings(policy: PolicyReport) -> bool:
    """Whether nothing is known of what a policy does, without the installed settings."""
    return all(each.code == common.SETTINGS_UNREADABLE for each in policy.reasons)


def _lines_by_settings(policies: Sequence[PolicyReport]) -> Iterator[Paragraph]:
    """The policies of which nothing is known, in one line for all of which the same is said."""
    said: dict[str, list[str]] = {}
    for policy in policies:
        if _depends_on_settings(policy):
            text = "; ".join(each.text for each in policy.reasons)
            said.setdefault(text, []).append(f"{policy.policy} ({policy.mode})")
    for text, heads in said.items():
        whose = ", ".join(dict.fromkeys(heads))
        yield Paragraph(f"{whose}: {text} [{common.SETTINGS_UNREADABLE}]", "yellow", "  ", 6)


def _field_lines(explanation: VmExplanation) -> Iterator[Paragraph]:
    groups: dict[str, list[FieldReport]] = {}
    for field in explanation.fields:
        if not field.path.startswith(("status", "metadata.ownerReferences", "metadata.finalizers")):
            groups.setdefault(f"{field.origin} {field.name}".strip(), []).append(field)

    def place(group: tuple[str, object]) -> int:
        return next((place for place, origin in enumerate(_ORDER) if group[0].startswith(origin)), len(_ORDER))

    for label, fields in sorted(groups.items(), key=place):
        unless = ", unless policies write others" if explanation.settings_gap and label in _REPLACEABLE else ""
        # What runs now keeps what it was started with.
        whose = "its next VMI" if explanation.kind == "VirtualMachine" else "the VMI"
        heading = f"From {label}: {pluralize(len(fields), 'value')} of {whose}{unless}"
        yield from (Paragraph(), Paragraph(heading, "bold"))
        for field in fields[:_MOST_FIELDS]:
            value = _value(field.value)
            note = " (random in KubeVirt; here derived from the name)" if field.random else ""
            yield Paragraph(f"{field.path} = {value}{note}", "", "  ", 4)
        if len(fields) > _MOST_FIELDS:
            yield Paragraph(f"and {len(fields) - _MOST_FIELDS} more; -o json shows all", "dim", "  ")
