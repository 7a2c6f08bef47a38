"""`kubevirt-webhook explain`: what a decision means, or would be."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

import click
import msgspec

from webhook import names
from webhook.admission.reasons import MEANINGS, Meaning, similar
from webhook.cli import explain_vm, write
from webhook.cli.console import Paragraph, print_paragraphs, print_report
from webhook.cli.inputs import parse_machine
from webhook.cli.options import (
    CLUSTER_FROM,
    VM_NAMESPACE,
    CommandGroup,
    config_option,
    kubeconfig_option,
    output_option,
)
from webhook.cluster.directory import describe_wrong_type
from webhook.cluster.files import FilesCluster
from webhook.cluster.reader import Reader
from webhook.cluster.selection import once, require_single_source
from webhook.errors import InputError, Unavailable, quote
from webhook.facts import Facts
from webhook.forecast import report
from webhook.forecast.drain import plan
from webhook.forecast.report import PENDING_SECONDS, DrainPlan, Limits, Step, VmPlan
from webhook.forecast.snapshot import BUDGETS, RUNNING_PODS, ClusterObjects
from webhook.forecast.vm import SpreadAnswer, explain_spread
from webhook.k8s.client.identity import Kubeconfig
from webhook.k8s.client.transport import connect
from webhook.k8s.quantity import parse
from webhook.k8s.resources import NAMESPACES, NODES, Resource
from webhook.k8s.types.meta import Object
from webhook.k8s.types.selectors import parse_selector
from webhook.kubevirt.config import DEFAULTS, KubeVirtInstall
from webhook.kubevirt.migrationpolicy import MIGRATION_POLICIES
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.kubevirt.types.views import KubeVirt
from webhook.placement.machines import CLAIMS, MIGRATIONS, VMIS, VOLUMES
from webhook.placement.nodes import MEMORY, format_request
from webhook.placement.quota import LIMIT_RANGES, QUOTAS
from webhook.placement.target_pods import DEVICE_CLASSES, RUNTIME_CLASSES
from webhook.policies.common.required_facts import Unreadable
from webhook.policies.migration.explanation import MigrationExplanation, Nodes, ReasonReport, few
from webhook.policies.migration.explanation import explain as explain_migration
from webhook.review.replay import replay
from webhook.settings.file import default_settings, load
from webhook.text import pluralize

_WHAT = {
    "changed": "kubevirt-webhook changed the object",
    "denied": "the request was denied, or got a warning",
    "allowed": "the request was allowed",
    "skipped": "the request was left alone",
    "failed": "the request could not be evaluated",
}
_SECONDS: Final = 30.0
# In text output; a cluster whose nodes all have different taints has thousands.
_MOST_REASONS: Final = 20
_BLOCKED: Final = 1
_UNREADABLE: Final = 3
_NANOS: Final = 10**9
# In text output; a rolling upgrade of a large cluster has thousands.
_MOST_VMS: Final = 50
_HEADS: Final = {report.BLOCKS: "blocks", report.SHUTS_DOWN: "shuts down", report.HANDED_OVER: "handed over"}
_MOST_CHANGES: Final = 3
V = TypeVar("V", bound=Object)
Answer = TypeVar("Answer")


@click.group(cls=CommandGroup)
def explain() -> None:
    """Explain a reason code, or what kubevirt-webhook, KubeVirt, or a drain would do. This changes nothing."""


@click.command()
@click.argument("code", required=False)
@output_option("text", "json")
def reason(code: str | None, output: str) -> None:
    """Explain a reason CODE, the word in brackets that ends a denial or warning.

    Without a code, list all codes. Exit status 2 if the code does not exist.
    """
    if code is None:
        _list_codes(output)
        return
    code = code.strip().strip("[]")
    meaning = MEANINGS.get(code)
    if meaning is None:
        near = similar(code)
        fix = f"did you mean {' or '.join(near)}?" if near else "list the codes with `kubevirt-webhook explain reason`"
        raise InputError(f"reason code {quote(code)} does not exist", fix=fix)
    if output == "json":
        write.data(json.dumps(_meaning_as_json(code, meaning), indent=2))
    else:
        print_paragraphs(_meaning_paragraphs(code, meaning))


def _list_codes(output: str) -> None:
    if output == "json":
        write.data(json.dumps([_meaning_as_json(code, meaning) for code, meaning in MEANINGS.items()], indent=2))
        return
    width = max(map(len, MEANINGS))
    for code, meaning in sorted(MEANINGS.items()):
        write.data(f"{code:{width}}  {', '.join(meaning.policies) if len(meaning.policies) < 4 else 'any policy'}")


def _meaning_as_json(code: str, meaning: Meaning) -> dict[str, object]:
    return {"code": code, **msgspec.to_builtins(meaning)}


def _meaning_paragraphs(code: str, meaning: Meaning) -> Iterator[Paragraph]:
    yield Paragraph(f"{code} ({', '.join(meaning.policies)}): {_WHAT[meaning.kind]}", "bold")
    yield Paragraph()
    yield Paragraph(meaning.meaning)
    if meaning.remedy:
        yield Paragraph()
        yield Paragraph(f"What to do: {meaning.remedy}")


@click.command()
@click.argument("vm", metavar="[NAMESPACE/]VM")
@VM_NAMESPACE
@CLUSTER_FROM
@kubeconfig_option()
@config_option("the built-in defaults")
@output_option("text", "json", "yaml")
def spread(
    vm: str,
    namespace: str | None,
    config_file: Path | None,
    cluster_from: Path | None,
    kubeconfig: Kubeconfig | None,
    output: str,
) -> None:
    """Show the topology spread constraints that the next launcher pods of a VM get, and why.

    Running pods do not change; the result applies from the VM's next start or migration.

    Exit status 0 if the pods get constraints, 1 if not, 2 if this is unknown: invalid input, or the VM does not exist.
    """
    where, name = parse_machine(vm, namespace)
    settings = load(config_file) if config_file else default_settings()
    explainer = partial(explain_spread, where, name, settings)
    answer = asyncio.run(_read_answer(explainer, "explain spread", cluster_from, kubeconfig))
    print_report(answer, output, _spread_lines)
    if not answer.is_spread:
        raise SystemExit(1)


async def _read_answer(
    explainer: Callable[[Facts], Answer], name: str, cluster_from: Path | None, kubeconfig: Kubeconfig | None
) -> Answer:
    """What a function of facts says, once they are read from a cluster or files."""
    deadline = asyncio.get_running_loop().time() + _SECONDS
    async with once(cluster_from, kubeconfig) as cluster:
        try:
            return await replay(explainer, cluster, Facts(time.time(), cluster.peek), deadline, name)
        except Unreadable as error:
            fix = "correct the file" if cluster_from else "check the kubeconfig and its permissions"
            raise InputError(error.why, fix=fix) from None


def _spread_lines(answer: SpreadAnswer) -> Iterator[Paragraph]:
    style = "bold green" if answer.is_spread else "bold yellow"
    yield Paragraph(f"{_spread_summary(answer)}: {answer.reason} ({answer.code})", style)
    for constraint in answer.injected or answer.present:
        fields = (f"{key}: {constraint.get(key)}" for key in ("topologyKey", "whenUnsatisfiable", "maxSkew"))
        yield Paragraph(", ".join(fields), "", "  ")


def _spread_summary(answer: SpreadAnswer) -> str:
    pods = f"the next launcher pods of {answer.namespace}/{answer.name}"
    if answer.present:
        return f"{pods} keep the constraints that the VM has"
    if not answer.injected:
        return f"{pods} get no constraints"
    if answer.mode == names.ENFORCE:
        return f"{pods} get constraints"
    return f"{pods} would get constraints, but the mode of the namespace is {answer.mode}"


@click.command()
@click.argument("vm", metavar="[NAMESPACE/]VM")
@VM_NAMESPACE
@click.option(
    "--to",
    "selector",
    multiple=True,
    metavar="KEY=VALUE",
    help="Label in the migration's addedNodeSelector; may be repeated.",
)
@click.option("--node", metavar="NAME", help="Explain the result for one node.")
@CLUSTER_FROM
@kubeconfig_option()
@output_option("text", "json", "yaml")
def migration(**options: Any) -> None:
    """Show the nodes to which a running VM can migrate, and the reasons against the others.

    Exit status 0 if the migration can succeed (with --node: on that node), 1 if not, 2 if this is unknown: invalid
    input, the VM does not exist, or the VM does not run.
    """
    _run_migration(_ExplainMigrationOptions(**options))


@dataclass(frozen=True)
class _ExplainMigrationOptions:
    """The options of the command."""

    vm: str
    namespace: str | None
    selector: tuple[str, ...]
    node: str | None
    cluster_from: Path | None
    kubeconfig: Kubeconfig | None
    output: str


def _run_migration(options: _ExplainMigrationOptions) -> None:
    namespace, name = parse_machine(options.vm, options.namespace)
    added = parse_selector(options.selector, "--to")
    explainer = partial(_explain_migration, namespace, name, added, options.node or "")
    answer = asyncio.run(_read_answer(explainer, "explain migration", options.cluster_from, options.kubeconfig))
    if not answer.running_on:
        what = f"VirtualMachineInstance {namespace}/{name} is not on a node yet, so it cannot migrate"
        raise InputError(what, fix="wait until it runs; `kubevirt-webhook explain vm` shows where it can start")
    print_report(answer, options.output, _migration_lines)
    if not answer.favourable:
        raise SystemExit(1)


def _explain_migration(
    namespace: str, name: str, added: Mapping[str, str], node: str, facts: Facts
) -> MigrationExplanation:
    return explain_migration(namespace, name, added, facts, node=node)


def _migration_lines(answer: MigrationExplanation) -> Iterator[Paragraph]:
    headline, *rest = _node_lines(answer) if answer.node else _all_nodes_lines(answer)
    yield headline._replace(style="bold green" if answer.favourable else "bold red")
    yield from rest


def _all_nodes_lines(answer: MigrationExplanation) -> Iterator[Paragraph]:
    """The answer, its headline first."""
    yield Paragraph(answer.summary)
    yield from _request_lines(answer)
    for contradiction in answer.contradictions:
        if contradiction.text not in answer.summary:
            yield Paragraph(f"Contradiction: {contradiction.text}.")
    if answer.reasons:
        is_overlapping = sum(reason.nodes.count for reason in answer.reasons) > answer.total - answer.eligible.count
        yield Paragraph()
        yield Paragraph(f"Not eligible{' (some for several reasons)' if is_overlapping else ''}:", "bold")
        width = len(str(max(reason.nodes.count for reason in answer.reasons)))
        for reason in answer.reasons[:_MOST_REASONS]:
            yield from _reason_lines(reason, width)
        rest = len(answer.reasons) - _MOST_REASONS
        if rest > 0:
            yield Paragraph(f"and {pluralize(rest, 'more reason')}; -o json shows all.", "", "  ")
    yield Paragraph()
    yield Paragraph(f"KubeVirt by itself {answer.kubevirt.text}.")
    if answer.openings:
        best = answer.openings[0]
        yield Paragraph(f"What would help most: {best.change} ({_more_nodes(best.nodes)}).")
    yield from _remarks(answer)


def _node_lines(answer: MigrationExplanation) -> Iterator[Paragraph]:
    node = answer.node
    assert node
    yield Paragraph(f"{node.name} is {'eligible' if node.eligible else 'not eligible'}")
    yield from _request_lines(answer)
    for reason in node.reasons:
        yield Paragraph(reason.text, "", "  - ")
    yield Paragraph(f"All nodes: {answer.summary}.")
    if node.eligible:
        yield from _remarks(answer)


def _request_lines(answer: MigrationExplanation) -> Iterator[Paragraph]:
    added = ", ".join(f"{key}={value}" for key, value in answer.added_node_selector.items())
    on = f"runs on {answer.running_on}" if answer.running_on else "is not on a node yet"
    yield Paragraph(f"{answer.namespace}/{answer.name} {on}; the migration adds {added or 'nothing'}.")
    for obstacle in answer.obstacles:
        yield Paragraph(f"But {obstacle}.", "yellow")


def _remarks(answer: MigrationExplanation) -> Iterator[Paragraph]:
    for note in answer.notes:
        yield Paragraph(f"Note: {note}.")
    for gap in answer.gaps:
        yield Paragraph(f"Not evaluated: {gap}.", "yellow")


def _reason_lines(reason: ReasonReport, width: int) -> Iterator[Paragraph]:
    yield Paragraph(reason.text, "", f"  {reason.nodes.count:>{width}}  ")
    yield Paragraph(few(reason.nodes.names), "", " " * (width + 6))


def _more_nodes(nodes: Nodes) -> str:
    return f"{pluralize(nodes.count, 'more node')}: {few(nodes.names)}"


@click.command()
@click.argument("nodes", nargs=-1, metavar="NODE...")
@click.option("--rolling", is_flag=True, help="Drain one node after the other; without NODE: every node.")
@click.option(
    "--bandwidth",
    metavar="QUANTITY",
    help="Bytes per second that one migration copies where KubeVirt limits none.  [default: 256Mi]",
)
@click.option(
    "--external-blocks",
    is_flag=True,
    help="Exit status 1 also where another controller has to move or end VMs (evictionStrategy External).",
)
@CLUSTER_FROM
@kubeconfig_option()
@output_option("text", "json", "yaml")
def drain(**options: Any) -> None:
    """Show which VMs a drain of nodes would move, shut down, or not get rid of, and how long it takes.

    Several nodes are drained at the same time; with --rolling, one after the other, as an upgrade does. Nothing is
    changed.

    Exit status 0 if the drain can end, 1 if something blocks it, 2 on invalid input, 3 if the cluster cannot be read.
    """
    _run_drain(_ExplainDrainOptions(**options))


@dataclass(frozen=True)
class _ExplainDrainOptions:
    """The options of the command."""

    nodes: tuple[str, ...]
    rolling: bool
    bandwidth: str | None
    external_blocks: bool
    cluster_from: Path | None
    kubeconfig: Kubeconfig | None
    output: str


def _run_drain(options: _ExplainDrainOptions) -> None:
    if not options.nodes and not options.rolling:
        raise InputError("no node is named", fix="name nodes, or use --rolling for all nodes, one after the other")
    bandwidth = _bytes(options.bandwidth) if options.bandwidth is not None else None
    require_single_source(options.cluster_from, options.kubeconfig)
    try:
        snapshot = _read_snapshot(options)
    except SnapshotError as error:
        write.error(f"Error: {error.why}; check the kubeconfig and its permissions")
        raise SystemExit(_UNREADABLE) from None
    found = plan(snapshot, options.nodes, rolling=options.rolling, bandwidth=bandwidth)
    print_report(found, options.output, _drain_lines)
    if found.blocks or (options.external_blocks and found.handed_over):
        raise SystemExit(_BLOCKED)


def _read_snapshot(options: _ExplainDrainOptions) -> ClusterObjects:
    if options.cluster_from:
        return from_files(options.cluster_from)
    return asyncio.run(from_cluster(options.kubeconfig))


def _bytes(text: str) -> int:
    try:
        amount = parse(text).nanos // _NANOS
    except InputError:
        amount = 0
    if amount < 1:
        raise InputError(f"{quote(text)} is not a number of bytes per second", "--bandwidth", "use for example 512Mi")
    return amount


def duration(seconds: int) -> str:
    """Seconds for people: ``45s``, ``3m``, ``1h 20m``."""
    if seconds < 60:
        return f"{seconds}s"
    minutes = -(-seconds // 60)
    hours, minutes = divmod(minutes, 60)
    return " ".join(part for part in (f"{hours}h" if hours else "", f"{minutes}m" if minutes else "") if part)


def _drain_lines(plan: DrainPlan) -> Iterator[Paragraph]:
    yield Paragraph(_headline(plan), _style(plan))
    if plan.rolling:
        yield from _rolling(plan)
    else:
        yield from _step_lines(plan.steps[0])
    yield Paragraph()
    yield from _pace(plan)
    if plan.changes:
        yield Paragraph()
        yield Paragraph("What one change would free most:", "bold")
        for change in plan.changes[:_MOST_CHANGES]:
            yield Paragraph(f"{change.change} ({_few_names(change.vms)})", "", "  - ")
    gaps = dict.fromkeys((*plan.gaps, *(gap for step in plan.steps for vm in step.vms for gap in vm.gaps)))
    for gap in gaps:
        yield Paragraph(f"Not evaluated: {gap}.", "yellow")
    yield Paragraph()
    yield Paragraph("The plan assumes:")
    for assumption in plan.assumptions:
        yield Paragraph(assumption, "dim", "  - ")


def _style(plan: DrainPlan) -> str:
    return "bold red" if plan.blocks else "bold yellow" if plan.shuts_down or plan.handed_over else "bold green"


def _headline(plan: DrainPlan) -> str:
    nodes = [node for step in plan.steps for node in step.nodes]
    what = (
        f"a drain of {_few_names(nodes)}" if not plan.rolling else f"drains of {pluralize(len(nodes), 'node')} in turn"
    )
    uncertain = any(vm.code == report.MAY_NOT_FIT for step in plan.steps for vm in step.vms)
    ends = "may end" if uncertain else "can end"
    verdict = "cannot end" if plan.blocks else "ends when others act" if plan.handed_over else ends
    counts = [
        pluralize(plan.moves, "migration"),
        f"{plan.shuts_down} shut down",
        f"{plan.blocks} blocked",
        *([f"{plan.handed_over} handed to another controller"] if plan.handed_over else []),
    ]
    return f"{what[:1].upper()}{what[1:]} {verdict}: {', '.join(counts)}"


def _step_lines(step: Step) -> Iterator[Paragraph]:
    for outcome, title, style in (
        (report.BLOCKS, "Block the drain:", "bold red"),
        (report.HANDED_OVER, "Handed to another controller:", "bold yellow"),
        (report.SHUTS_DOWN, "Shut down:", "bold yellow"),
        (report.MOVES, "Move:", "bold green"),
    ):
        vms = [vm for vm in step.vms if vm.outcome == outcome]
        pods = step.blocked_pods if outcome == report.BLOCKS else ()
        if not vms and not pods:
            continue
        yield Paragraph()
        yield Paragraph(title, style)
        for pod in pods:
            yield Paragraph(f"pod {pod.namespace}/{pod.name}: {pod.reason}", "", "  ")
        yield from _vm_lines(vms)
    if step.other_pods:
        yield Paragraph()
        yield Paragraph(f"{pluralize(step.other_pods, 'pod')} without a VM evicted, too.")


def _vm_lines(vms: Sequence[VmPlan]) -> Iterator[Paragraph]:
    width = max((len(f"{vm.namespace}/{vm.name}") for vm in vms[:_MOST_VMS]), default=0)
    for vm in vms[:_MOST_VMS]:
        yield Paragraph(f"{f'{vm.namespace}/{vm.name}':{width}}  {_where_to(vm)}", "", "  ", width + 4)
        for note in vm.notes:
            yield Paragraph(note, "dim", " " * (width + 4))
    if len(vms) > _MOST_VMS:
        yield Paragraph(f"  and {pluralize(len(vms) - _MOST_VMS, 'more VM')}; -o json shows all")


def _where_to(vm: VmPlan) -> str:
    reason = f" [{vm.code}]"
    if vm.outcome != report.MOVES:
        return f"{vm.node}: {vm.reason}{reason}"
    memory = format_request(MEMORY, vm.memory)
    enough = "with enough in sum" if vm.code == report.MAY_NOT_FIT else "with room"
    room = f"{vm.with_room} of {pluralize(vm.eligible, 'eligible node')} {enough}"
    packed = f"; {vm.reason}{reason}" if vm.reason else ""
    return f"{vm.node} -> {vm.to}  {memory}, {room}{packed}"


def _rolling(plan: DrainPlan) -> Iterator[Paragraph]:
    yield Paragraph()
    width = max((len(step.nodes[0]) for step in plan.steps), default=0)
    for step in plan.steps:
        moves = sum(vm.outcome == report.MOVES for vm in step.vms)
        rest = [vm for vm in step.vms if vm.outcome != report.MOVES]
        if not step.vms and not step.blocked_pods:
            continue
        time = _time(step.seconds, step.at_most_seconds) if moves else ""
        counts = f"{pluralize(moves, 'migration')}{', ' if time else ''}{time}"
        yield Paragraph(f"{step.nodes[0]:{width}}  {counts}", "bold red" if _blocks(step) else "")
        for pod in step.blocked_pods:
            yield Paragraph(f"blocks  pod {pod.namespace}/{pod.name}: {pod.reason}", "", "  ", 10)
        for vm in rest[:_MOST_VMS]:
            head = _HEADS[vm.outcome]
            yield Paragraph(f"{head}  {vm.namespace}/{vm.name}: {vm.reason} [{vm.code}]", "", "  ", len(head) + 4)
    idle = sum(not step.vms and not step.blocked_pods for step in plan.steps)
    if idle:
        yield Paragraph(f"{pluralize(idle, 'node')} without VMs not shown", "dim")


def _blocks(step: Step) -> bool:
    return bool(step.blocked_pods) or any(vm.outcome == report.BLOCKS for vm in step.vms)


def _pace(plan: DrainPlan) -> Iterator[Paragraph]:
    limits = plan.limits
    slots = f"{limits.per_cluster} migrations concurrently, {limits.per_node} from each node"
    if not plan.moves:
        yield Paragraph(f"KubeVirt runs {slots}; here there are none.")
        return
    times = _time(plan.seconds, plan.at_most_seconds)
    yield Paragraph(f"{pluralize(plan.moves, 'migration')}, {times}: KubeVirt runs {slots}{_speed(limits)}.")
    pending = sum(vm.code in report.PENDING for step in plan.steps for vm in step.vms)
    if pending:
        who = "VM without a node counts" if pending == 1 else "VMs without a node count"
        wait = f"KubeVirt waits {duration(PENDING_SECONDS)} for a target pod to be scheduled"
        yield Paragraph(f"{pending} {who} against these limits, too: {wait}.", "yellow")
    for note in plan.notes:
        yield Paragraph(note, "yellow")
    if limits.unfinished:
        yield Paragraph(f"KubeVirt finishes {pluralize(limits.unfinished, 'unfinished migration')} first.", "yellow")


def _speed(limits: Limits) -> str:
    amount = format_request(MEMORY, limits.bandwidth)
    source = "assumed, see --bandwidth" if limits.bandwidth_is_assumed else "KubeVirt's limit or --bandwidth"
    timeout = limits.timeout_seconds_per_gib
    given = f"is given {timeout}s for each GB" if timeout else "may take any time (completionTimeoutPerGiB is 0)"
    return f"; each takes {limits.start_seconds}s to start, copies {amount} a second ({source}), and {given}"


def _time(seconds: int, at_most: int | None) -> str:
    return f"about {duration(seconds)}" + (f", at most {duration(at_most)}" if at_most is not None else "")


def _few_names(names: Sequence[str], most: int = 5) -> str:
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


class _ListToRead(NamedTuple):
    """A list to read.

    Attributes:
        field: the field of `ClusterObjects`; empty: only its length counts.
        missing: what the plan then lacks, a clause; empty: there is no plan without it.
    """

    field: str
    resource: Resource[Any]
    missing: str = ""


_LISTS: Final = (
    _ListToRead("nodes", NODES),
    _ListToRead("pods", RUNNING_PODS),
    _ListToRead("vmis", VMIS),
    _ListToRead("kubevirts", KUBEVIRTS),
    _ListToRead("migrations", MIGRATIONS, "unfinished migrations are not known"),
    _ListToRead("namespaces", NAMESPACES, "the labels of namespaces are not known"),
    _ListToRead("budgets", BUDGETS, "PodDisruptionBudgets are not known"),
    _ListToRead("claims", CLAIMS, "which nodes reach the VMs' volumes is not known"),
    _ListToRead("volumes", VOLUMES, "which nodes reach the VMs' volumes is not known"),
    _ListToRead("runtime_classes", RUNTIME_CLASSES, "what RuntimeClasses require is not known"),
    _ListToRead("device_classes", DEVICE_CLASSES, "which extended resources DeviceClasses provide is not known"),
    _ListToRead("quotas", QUOTAS, "ResourceQuotas are not known"),
    _ListToRead("limit_ranges", LIMIT_RANGES, "what LimitRanges add to target pods is not known"),
    _ListToRead("policies", MIGRATION_POLICIES, "whether MigrationPolicies change the limits is not known"),
)


class SnapshotError(Exception):
    """The cluster cannot be read.

    Args:
        why: the cause, a clause.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why: Final = why


def from_files(directory: Path) -> ClusterObjects:
    """A snapshot of the objects in files.

    Raises:
        InputError: a file cannot be read, or an object has a value of a wrong type.
    """
    files = FilesCluster.load(directory, default_settings())
    found = {
        each.field: [_as_view(value, each.resource) for value in files.objects(each.resource.kind)] for each in _LISTS
    }
    return _cluster_objects(found, [])


async def from_cluster(kubeconfig: Kubeconfig | None) -> ClusterObjects:
    """A snapshot of a running cluster, by one list of each kind.

    Raises:
        InputError: the kubeconfig cannot be used.
        NotRead: a list that every plan needs cannot be read.
    """
    transport = await connect(kubeconfig)
    try:
        reader = Reader(transport)
        lists = await asyncio.gather(*(reader.all(each.resource) for each in _LISTS))
    finally:
        await transport.close()
    gaps, found = [], {}
    for each, listed in zip(_LISTS, lists, strict=True):
        if not isinstance(listed, Unavailable):
            found[each.field] = list(listed)
        elif each.missing:
            gaps.append(f"{each.missing}: {listed.why}")
        else:
            raise SnapshotError(listed.why)
    for kind, number in reader.malformed.items():
        gaps.append(
            f"{pluralize(number, f'object of the kind {kind}', f'objects of the kind {kind}')} cannot be decoded"
        )
    return _cluster_objects(found, gaps)


def _as_view(value: dict[str, Any], resource: Resource[V]) -> V:
    try:
        return msgspec.convert(value, resource.view)
    except msgspec.ValidationError as error:
        metadata = value["metadata"]
        where = f"{resource.kind} {metadata.get('namespace', '')}/{metadata['name']}"
        raise InputError(describe_wrong_type(value, error)[1], where) from None


def _cluster_objects(found: dict[str, list[Any]], gaps: list[str]) -> ClusterObjects:
    kubevirts = cast("Sequence[KubeVirt]", found.pop("kubevirts"))
    install = KubeVirtInstall.of(kubevirts)
    configuration = install.configuration if install else DEFAULTS
    if isinstance(configuration, Unavailable):
        raise SnapshotError(f"KubeVirt's configuration cannot be decoded: {configuration.why}")
    if install is None:
        gaps.append("no KubeVirt object was found, so KubeVirt's built-in settings apply")
    lists: Any = {field: tuple(listed) for field, listed in found.items()}
    return ClusterObjects(
        now=time.time(),
        **lists,
        kubevirt=configuration,
        gaps=tuple(dict.fromkeys(gaps)),
    )


for _command in (migration, drain, spread, explain_vm.vm, reason):
    explain.add_command(_command)
