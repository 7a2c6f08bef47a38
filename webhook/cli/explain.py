"""`kubevirt-webhook explain`: what a decision means, or would be."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from webhook import names
from webhook.cli import defaults, namespaces, options, write
from webhook.cli.console import Paragraph, print_paragraphs, print_report
from webhook.cli.defaults import AppliedSettings
from webhook.cli.inputs import connected, parse_release, say_skipped
from webhook.cli.options import Source, VmName, WholeNumber, config_option, output_option, source_option, vm_argument
from webhook.cluster.directory import FileObject, describe_wrong_type
from webhook.cluster.files import FilesCluster, read_index
from webhook.cluster.reader import FileReader, OnceCluster, Reader, kubernetes_version
from webhook.cluster.scheduler_health import HealthEvidence, watch_lease
from webhook.cluster.selection import NoAnswerError, require_single_source
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable, quote
from webhook.facts import Facts, FindAdditions, ObjectKey, SchedulerHealth, Unreadable, find_none
from webhook.forecast import report
from webhook.forecast import update as updates
from webhook.forecast.additions import additions_by
from webhook.forecast.drain import plan
from webhook.forecast.placement import NodeReport, PlacementReport, explain_placement
from webhook.forecast.priorities import PRIORITY_CLASSES
from webhook.forecast.profiles import profiles_in, read_profiles
from webhook.forecast.report import BlockedPod, DrainPlan, PlannedTransfer, UpdatePlan, VmPlan, waiting_times
from webhook.forecast.snapshot import BUDGETS, RUNNING_PODS, ClusterObjects
from webhook.install.webhooks import CONFIGURATIONS
from webhook.k8s.client.api import Transport, explain_all
from webhook.k8s.client.clock import REAL_TIME
from webhook.k8s.client.freshness import Fresh
from webhook.k8s.client.identity import Kubeconfig
from webhook.k8s.quantity import parse
from webhook.k8s.resources import CONFIG_MAPS, NAMESPACES, NODES_WITH_IMAGES, Resource
from webhook.k8s.types.meta import Object
from webhook.k8s.types.selectors import parse_selector
from webhook.kubevirt.config import DEFAULTS, KubeVirtInstall, find_in_use
from webhook.kubevirt.migrationpolicy import MIGRATION_POLICIES
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.release import Release, detect
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.kubevirt.run_strategy import RUNNABLE_VMS
from webhook.kubevirt.types.views import WorkloadUpdateStrategy
from webhook.placement.machines import CLAIMS, MIGRATIONS, PLACED_VMIS, VOLUMES, Vmi
from webhook.placement.nodes import MEMORY, format_amount
from webhook.placement.profiles import Profiles
from webhook.placement.quota import LIMIT_RANGES, QUOTAS
from webhook.placement.running_pods import SERVICES
from webhook.placement.scores import NEWEST, KubernetesVersion
from webhook.placement.target_pods import DEVICE_CLASSES, RUNTIME_CLASSES
from webhook.policies.migration.explanation import MigrationExplanation, Question
from webhook.policies.migration.explanation import explain as explain_migration
from webhook.review.driver import drive
from webhook.settings.schedulers import HealthCheck
from webhook.settings_file import default_settings
from webhook.text import abbreviate, pluralize

_WHAT = {
    "changed": "kubevirt-webhook changed the object",
    "denied": "the request was denied, or got a warning",
    "allowed": "the request was allowed",
    "skipped": "the request was left alone",
    "warned": "the request was evaluated, and got a warning",
    "failed": "the request could not be evaluated",
}
# What the outcomes of plans mean.
_PLANS: Final = "plans"
_PLANNED: Final = {
    report.MOVES: "the VM moves",
    report.SHUTS_DOWN: "the VM shuts down",
    report.BLOCKS: "the VM keeps a drain from ending; at an update of KubeVirt it stays outdated",
    report.HANDED_OVER: "another controller moves or ends the VM",
    report.STAYS: "the VM stays outdated",
    report.STARTS: "the VM starts again once its node is lost",
    report.WAITS: "the VM does not start again once its node is lost",
    report.DOWN: "nothing starts the VM again once its node is lost",
    report.STAYS_PUT: "the VM is not moved to balance nodes",
}
# What help says of options.
_TO: Final = "Label in the migration's addedNodeSelector; may be repeated."
_BANDWIDTH: Final = "Bytes per second that one migration copies where KubeVirt limits none.  [default: 256Mi]"
_PARALLEL: Final = "With --rolling: drain so many nodes at the same time.  [default: 1]"
_SELECTED: Final = "Drain the nodes with this label; may be repeated, for nodes with all of them."
_EXTERNAL: Final = "Exit status 1 also where another controller has to move or end VMs (evictionStrategy External)."
# In text output; a cluster whose nodes all have different taints has thousands.
# What kubevirt-webhook:explain and kubevirt-webhook:explain-nodes let users read, those of namespaces in the VM's own.
IN_ROLES: Final = frozenset(
    (
        "configmaps",
        "controllerrevisions",
        "datasources",
        "datavolumes",
        "deviceclasses",
        "limitranges",
        "namespaces",
        "network-attachment-definitions",
        "nodes",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "priorityclasses",
        "resourcequotas",
        "runtimeclasses",
        "storageclasses",
        "virtualmachineclusterinstancetypes",
        "virtualmachineclusterpreferences",
        "virtualmachineinstancemigrations",
        "virtualmachineinstances",
        "virtualmachineinstancetypes",
        "virtualmachinepreferences",
        "virtualmachines",
    )
)
_GRANT: Final = re.compile(r"(?:grant |, )\w+ on ([\w-]+)([^,;]*)")
_MOST_REASONS: Final = 20
# In text output; a rolling upgrade of a large cluster has thousands.
_MOST_VMS: Final = 50
_HEADS: Final = {report.BLOCKS: "blocks", report.SHUTS_DOWN: "shuts down", report.HANDED_OVER: "handed over"}
_FROM: Final = "KubeVirt release of the launchers that run.  [default: that of the KubeVirt object]"
_TO_RELEASE: Final = "KubeVirt release to update to.  [default: the same, as after a change of its images]"
_OUTDATED: Final = "Only the VMs whose launchers are outdated now, or whose hotplug waits; else every VM that runs."
SECONDS: Final = 30.0
# For how long an old Lease of a scheduler is watched.
_LEASE_SECONDS: Final = 15.0
# The exit status where a cluster cannot be read, or something could not be evaluated.
UNREADABLE: Final = 3
# The modules of commands that are imported only when they run.
_MODULES: Final = {"balance": "explain_balance", "loss": "explain_loss", "spread": "explain_vm", "vm": "explain_vm"}
V = TypeVar("V", bound=Object)
Answer = TypeVar("Answer")


# By field of `ClusterObjects`: the list to read, and what the plan lacks without it, a clause; empty: there is none.
Lists: TypeAlias = Mapping[str, tuple[Resource[Any], str]]
LISTS: Final[Lists] = {
    "nodes": (NODES_WITH_IMAGES, ""),
    "pods": (RUNNING_PODS, ""),
    "vmis": (PLACED_VMIS, ""),
    "kubevirts": (KUBEVIRTS, ""),
    "migrations": (MIGRATIONS, "unfinished migrations are not known"),
    "namespaces": (NAMESPACES, "the labels of namespaces are not known"),
    "budgets": (BUDGETS, "PodDisruptionBudgets are not known"),
    "claims": (CLAIMS, "which nodes reach the VMs' volumes is not known"),
    "volumes": (VOLUMES, "which nodes reach the VMs' volumes is not known"),
    "runtime_classes": (RUNTIME_CLASSES, "what RuntimeClasses require is not known"),
    "device_classes": (DEVICE_CLASSES, "which extended resources DeviceClasses provide is not known"),
    "quotas": (QUOTAS, "ResourceQuotas are not known"),
    "limit_ranges": (LIMIT_RANGES, "what LimitRanges add to target pods is not known"),
    "priority_classes": (
        PRIORITY_CLASSES,
        "PriorityClasses are not known; those of the present pods count",
    ),
    "services": (SERVICES, "whether kube-scheduler spreads VMs of Services is not known"),
    "policies": (MIGRATION_POLICIES, "whether MigrationPolicies change the limits is not known"),
}
# With what decides whether VMs start again.
WITH_VMS: Final[Lists] = {
    **LISTS,
    "vms": (RUNNABLE_VMS, "whether KubeVirt starts VMs again (runStrategy) is not known"),
}


class Releases(NamedTuple):
    """The releases of KubeVirt that a plan is about.

    Attributes:
        before: made the launchers; None: the one that the KubeVirt object names.
        after: the one whose rules count; None: the first one.
    """

    before: Release | None = None
    after: Release | None = None


class _Explain(options.CommandGroup):
    """Imports what runs policies, or plans losses, only for the commands that do: that takes long."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted([*super().list_commands(ctx), *_MODULES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command, with its module."""
        if cmd_name not in _MODULES:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(importlib.import_module(f"webhook.cli.{_MODULES[cmd_name]}"), cmd_name)
        return command


@click.group(cls=_Explain)
def explain() -> None:
    """Explain a reason code, or what kubevirt-webhook, KubeVirt, or a drain would do.

    Only `balance --run` changes anything.
    """


def _complete_code(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The codes that begin with a text, each with the policies that use it."""
    from webhook.policies.meanings import MEANINGS

    codes = sorted(code for code in {*MEANINGS, *report.MEANINGS} if code.startswith(incomplete.lstrip("[")))
    return [CompletionItem(code, help=", ".join(_givers(code))) for code in codes]


def _givers(code: str) -> list[str]:
    """Who gives a code: policies, and plans."""
    from webhook.policies.meanings import MEANINGS
    from webhook.policies.registry import POLICIES

    policies = list(MEANINGS[code].policies) if code in MEANINGS else []
    plans = [_PLANS] if code in report.MEANINGS else []
    return [*(policies if len(policies) < len(POLICIES) else ["any policy"]), *plans]


def _described(code: str) -> dict[str, Any]:
    """A code as ``-o json`` prints it."""
    from webhook.policies.meanings import MEANINGS

    if code in MEANINGS:
        described = {"code": code, **msgspec.to_builtins(MEANINGS[code])}
    else:
        described = {"code": code, "policies": [], "kind": "planned", "meaning": report.MEANINGS[code], "remedy": ""}
    if code in report.MEANINGS:
        described["plan"] = {"outcomes": _outcomes(code), "meaning": report.MEANINGS[code]}
    return described


def _outcomes(code: str) -> list[str]:
    return [outcome for outcome, codes in report.CODES.items() if code in codes]


@explain.command()
@click.argument("code", required=False, shell_complete=_complete_code)
@output_option("text", "json")
def reason(code: str | None, output: str) -> None:
    """Explain a reason CODE, the word in brackets that ends a denial, a warning, or a line of a plan.

    Without a code, list all codes. Exit status 2 if the code does not exist.
    """
    from webhook.policies.meanings import MEANINGS, similar

    codes = sorted({*MEANINGS, *report.MEANINGS})
    code = None if code is None else code.strip().strip("[]")
    if code is not None and code not in codes:
        near = similar(code, codes)
        fix = f"did you mean {' or '.join(near)}?" if near else "list the codes with `kubevirt-webhook explain reason`"
        raise InputError(f"reason code {quote(code)} does not exist", fix=fix)
    if output == "json":
        write.data(json.dumps([*map(_described, codes)] if code is None else _described(code), indent=2))
        return
    if code is None:
        width = max(map(len, codes))
        for each in codes:
            write.data(f"{each:{width}}  {', '.join(_givers(each))}")
        return
    paragraphs = []
    if meaning := MEANINGS.get(code):
        paragraphs.append(Paragraph(f"{code} ({', '.join(meaning.policies)}): {_WHAT[meaning.kind]}", "bold"))
        paragraphs += [Paragraph(), Paragraph(meaning.meaning)]
        paragraphs += [Paragraph(), Paragraph(f"What to do: {meaning.remedy}")] if meaning.remedy else []
    if code in report.MEANINGS:
        what = "; ".join(_PLANNED[outcome] for outcome in _outcomes(code))
        paragraphs += [Paragraph()] if paragraphs else []
        paragraphs += [Paragraph(f"{code} ({_PLANS}): {what}", "bold"), Paragraph(), Paragraph(report.MEANINGS[code])]
    print_paragraphs(paragraphs)
    # Not a paragraph of them: at the end of a URL, a long code looks like a credential.
    write.line(f"\nOn a page:\n{names.SITE}/messages#{code}")


async def answer_of(
    explainer: Callable[[Facts], Coroutine[Any, Any, Answer]],
    name: str,
    cluster: Cluster,
    additions: FindAdditions = find_none,
) -> Answer:
    """What a coroutine that awaits facts returns; an `InputError` where they cannot be read from the cluster."""
    deadline = asyncio.get_running_loop().time() + SECONDS
    if isinstance(cluster, FilesCluster):
        say_skipped(cluster.skipped)
    try:
        facts = Facts(time.time(), cluster.peek, additions=additions)
        return await drive(explainer(facts), cluster, facts, deadline, name)
    except Unreadable as error:
        if isinstance(cluster, OnceCluster):
            write.error(f"Error: {error.why}; {unreadable_fix(error.why, of_one_vm=True)}")
            raise SystemExit(UNREADABLE) from None
        raise InputError(error.why, fix="correct the file") from None


def is_in_roles(why: str) -> bool:
    """Whether the roles for owners have a permission whose lack keeps something from being read."""
    return any(plural in IN_ROLES and "all namespaces" not in where for plural, where in _GRANT.findall(why))


def unreadable_fix(why: str, *, of_one_vm: bool = False) -> str:
    """What to do where a cluster cannot be read, a clause; ``of_one_vm``: where roles for that are shipped."""
    if "(403)" not in why:
        return "check the kubeconfig and its permissions"
    if of_one_vm and not is_in_roles(why):
        return "ask your admin for the answer"
    if of_one_vm:
        roles = "kubevirt-webhook:explain and kubevirt-webhook:explain-nodes (manifests/roles/migrate.yaml)"
        return f"ask your admin for the roles {roles}, or for the answer if you have them"
    roles = "view and kubevirt-webhook:explain-nodes (manifests/roles/migrate.yaml)"
    return f"this reads the whole cluster: ask your admin for the answer, or for ClusterRoleBindings to {roles}"


@explain.command()
@vm_argument
@click.option("--to", "selector", multiple=True, metavar="KEY=VALUE", help=_TO)
@click.option("--node", metavar="NAME", help="Explain the result for one node.")
@source_option()
@config_option("those in the cluster")
@output_option("text", "json", "yaml")
def migration(
    *,
    vm_name: VmName,
    selector: tuple[str, ...],
    node: str | None,
    config_file: Path | None,
    source: Source,
    output: str,
) -> None:
    """Show the nodes to which a running VM can migrate, and the reasons against the others.

    Exit status 0 if the migration can succeed (with --node: on that node), 1 if not, 2 if this is unknown: invalid
    input, the VM does not exist, or the VM does not run; 3 if the cluster cannot be read.
    """
    added, vm_name = parse_selector(selector, "--to"), namespaces.complete(vm_name, source)

    async def explainer(facts: Facts) -> tuple[MigrationExplanation, bool]:
        answer = await explain_migration(Question(*vm_name, added, node or ""), facts)
        vmi = await facts.get(ObjectKey(PLACED_VMIS, *vm_name))
        # A VM that comes from another cluster is on no node of this one until its migration has succeeded.
        return answer, bool(answer.running_on) or (isinstance(vmi, Vmi) and vmi.waits_for_source)

    async def explained() -> tuple[MigrationExplanation, bool]:
        async with source.open() as cluster:
            applied = await defaults.settings_beside(cluster, config_file, source)
            additions = additions_by(applied.settings, tuple(_unknown_settings(applied)))
            return await answer_of(explainer, "explain migration", cluster, additions)

    answer, can_migrate = asyncio.run(explained())
    if not can_migrate:
        what = f"VirtualMachineInstance {'/'.join(vm_name)} is not on a node yet, so it cannot migrate"
        raise InputError(what, fix="wait until it runs; `kubevirt-webhook explain vm` shows where it can start")
    print_report(answer, output, _migration_lines)
    if not answer.favorable:
        raise SystemExit(1)


def _migration_lines(answer: MigrationExplanation) -> Iterator[Paragraph]:
    style, node = "bold green" if answer.favorable else "bold red", answer.node
    headline = f"{node.name} is {'eligible' if node.eligible else 'not eligible'}" if node else answer.summary
    yield Paragraph(headline, style)
    added = ", ".join(f"{key}={value}" for key, value in answer.added_node_selector.items())
    on = f"runs on {answer.running_on}" if answer.running_on else "is not on a node yet"
    yield Paragraph(f"{answer.namespace}/{answer.name} {on}; the migration adds {added or 'nothing'}.")
    yield from (Paragraph(f"But {obstacle}.", "yellow") for obstacle in answer.obstacles)
    if answer.evacuation:
        yield Paragraph(f"{answer.evacuation}.", "yellow")
    if answer.hotplug:
        yield Paragraph(f"Note: {answer.hotplug}.", "yellow")
    if answer.undecided:
        yield Paragraph(f"Note: {answer.undecided}.", "yellow")
    if node:
        yield from (Paragraph(reason.text, "", "  - ") for reason in node.reasons)
        yield Paragraph(f"All nodes: {answer.summary}.")
    else:
        yield from _all_nodes_lines(answer)
    if node.eligible if node else answer.eligible.count:
        yield Paragraph("What is free on eligible nodes is not evaluated; `explain drain` does that.")
    if node is None or node.eligible:
        yield from (Paragraph(f"Note: {note}.") for note in answer.notes)
        yield from (Paragraph(f"Not evaluated: {gap}.", "yellow") for gap in answer.gaps)


def _all_nodes_lines(answer: MigrationExplanation) -> Iterator[Paragraph]:
    for contradiction in answer.contradictions:
        if contradiction.text not in answer.summary:
            yield Paragraph(f"Contradiction: {contradiction.text}.")
    if answer.reasons:
        is_overlapping = sum(reason.nodes.count for reason in answer.reasons) > answer.total - answer.eligible.count
        yield Paragraph()
        yield Paragraph(f"Not eligible{' (some for several reasons)' if is_overlapping else ''}:", "bold")
        width = len(str(max(reason.nodes.count for reason in answer.reasons)))
        for reason in answer.reasons[:_MOST_REASONS]:
            yield Paragraph(reason.text, "", f"  {reason.nodes.count:>{width}}  ")
            yield Paragraph(abbreviate(reason.nodes.names), "", " " * (width + 6))
        if (rest := len(answer.reasons) - _MOST_REASONS) > 0:
            yield Paragraph(f"and {pluralize(rest, 'more reason')}; -o json shows all.", "", "  ")
    yield from (Paragraph(), Paragraph(f"KubeVirt by itself {answer.kubevirt.text}."))
    # While an obstacle stands, more nodes help nothing.
    if answer.openings and not answer.obstacles:
        change, nodes = answer.openings[0].change, answer.openings[0].nodes
        more = f"{pluralize(nodes.count, 'more node')}: {abbreviate(nodes.names)}"
        yield Paragraph(f"What would help most: {change} ({more}).")


@explain.command()
@vm_argument
@source_option()
@config_option("those in the cluster")
@output_option("text", "json", "yaml")
def placement(*, vm_name: VmName, config_file: Path | None, source: Source, output: str) -> None:
    """Show why a running VM is where it is: the filters and scores of each node, if its pod were placed now.

    The scheduler's own scores of then are not kept anywhere; pods have come and gone since. What a scheduler adds that
    is not known, such as plugins of its own, is named. Nothing is changed.

    Exit status 0 if the VM's node is among the best, 1 if another one is better, 2 on invalid input, or if the VM does
    not run, 3 if the cluster cannot be read.
    """
    vm_name = namespaces.complete(vm_name, source)
    with reading(source, config_file) as objects:
        found = explain_placement(objects, *vm_name)
        print_report(found, output, _placement_lines)
    if found.node not in found.chosen:
        raise SystemExit(1)


def _placement_lines(found: PlacementReport) -> Iterator[Paragraph]:
    since = f" since {found.since}" if found.since else ""
    yield Paragraph(f"{found.namespace}/{found.name} runs on {found.node}{since}, placed by {found.scheduler}.", "bold")
    if not found.chosen:
        yield Paragraph("If its pod were placed now, it would find no node.", "yellow")
    elif found.node in found.chosen:
        others = [each for each in found.chosen if each != found.node]
        tie = f"; {abbreviate(others)} would be as good" if others else ""
        yield Paragraph(f"If its pod were placed now, it would go there again{tie}.")
    else:
        one = "one of " if len(found.chosen) > 1 else ""
        yield Paragraph(f"If its pod were placed now, it would go to {one}{abbreviate(found.chosen)}.", "yellow")
    fitting = [each for each in found.nodes if not each.reasons]
    width = max(len(each.name) for each in found.nodes) if found.nodes else 0
    if fitting:
        yield from (Paragraph(), Paragraph("It fits, with the sum of the scores:", "bold"))
        for each in fitting[:_MOST_REASONS]:
            parts = ", ".join(f"{plugin} {score}" for plugin, score in sorted(each.scores.items()))
            yield Paragraph(f"{each.total:>4}  {parts}", "", f"  {_node(each):{width + 4}}")
        if (rest := len(fitting) - _MOST_REASONS) > 0:
            yield Paragraph(f"and {pluralize(rest, 'more node')}; -o json shows all.", "", "  ")
    unfit = [each for each in found.nodes if each.reasons]
    if unfit:
        yield from (Paragraph(), Paragraph("It does not fit:", "bold"))
        for each in unfit[:_MOST_REASONS]:
            yield Paragraph("; ".join(each.reasons), "", f"  {_node(each):{width + 4}}")
        if (rest := len(unfit) - _MOST_REASONS) > 0:
            yield Paragraph(f"and {pluralize(rest, 'more node')}; -o json shows all.", "", "  ")
    yield Paragraph()
    yield Paragraph("What its scheduler saw when it placed the pod is not kept; pods have come and gone since.")
    yield from (Paragraph(f"Note: {note}.") for note in found.notes)
    yield from (Paragraph(f"Not evaluated: {gap}.", "yellow") for gap in found.gaps)


def _node(each: NodeReport) -> str:
    return f"{each.name} *" if each.runs_here else each.name


@explain.command()
@click.argument("nodes", nargs=-1, metavar="NODE...")
@click.option("--rolling", is_flag=True, help="Drain one node after the other; without NODE: every node.")
@click.option("--parallel", metavar="N", type=WholeNumber(min=1), help=_PARALLEL)
@click.option("--node-selector", "selector", multiple=True, metavar="KEY=VALUE", help=_SELECTED)
@click.option("--bandwidth", metavar="QUANTITY", help=_BANDWIDTH)
@click.option("--external-blocks", is_flag=True, help=_EXTERNAL)
@source_option()
@config_option("those in the cluster")
@output_option("text", "json", "yaml")
def drain(
    *,
    nodes: tuple[str, ...],
    rolling: bool,
    parallel: int | None,
    selector: tuple[str, ...],
    bandwidth: str | None,
    external_blocks: bool,
    config_file: Path | None,
    source: Source,
    output: str,
) -> None:
    """Show which VMs a drain of nodes would move, shut down, or not get rid of, and how long it takes.

    Several nodes are drained at the same time; with --rolling, one after the other, as an upgrade does, or as many
    together as --parallel says. Nothing is changed.

    Exit status 0 if the drain can end, 1 if something blocks it, 2 on invalid input, 3 if the cluster cannot be read.
    """
    if not nodes and not rolling and not selector:
        raise InputError("no node is named", fix="name nodes, or use --rolling for all nodes, one after the other")
    if nodes and selector:
        raise InputError("nodes are named and selected", "--node-selector", "remove one of them")
    if parallel and not rolling:
        fix = "nodes that you name are drained together"
        raise InputError("it has no meaning without --rolling", "--parallel", fix)
    required = parse_selector(selector, "--node-selector")
    rate = as_bytes(bandwidth) if bandwidth is not None else None
    with reading(source, config_file, lists=WITH_VMS) as objects:
        if required:
            nodes = select_nodes(objects, required)
        drain_plan = plan(objects, nodes, rolling=rolling, parallel=parallel or 1, bandwidth=rate)
        print_report(drain_plan, output, _drain_lines)
    if drain_plan.blocks or (external_blocks and drain_plan.handed_over):
        raise SystemExit(1)


@explain.command()
@click.option("--from-version", metavar="VERSION", help=_FROM)
@click.option("--to-version", metavar="VERSION", help=_TO_RELEASE)
@click.option("--outdated", is_flag=True, help=_OUTDATED)
@click.option("--bandwidth", metavar="QUANTITY", help=_BANDWIDTH)
@source_option()
@config_option("those in the cluster")
@output_option("text", "json", "yaml")
def update(
    *,
    from_version: str | None,
    to_version: str | None,
    outdated: bool,
    bandwidth: str | None,
    config_file: Path | None,
    source: Source,
    output: str,
) -> None:
    """Show which VMs an update of KubeVirt moves, shuts down, or leaves outdated, and how long it takes.

    KubeVirt updates the launchers of VMs as spec.workloadUpdateStrategy of the KubeVirt object says. Nothing is
    changed.

    Exit status 0 if every VM can be updated, 1 if some stay outdated, 2 on invalid input, 3 if the cluster cannot be
    read.
    """
    releases = Releases(parse_release(from_version, "--from-version"), parse_release(to_version, "--to-version"))
    rate = as_bytes(bandwidth) if bandwidth is not None else None
    with reading(source, config_file, releases, WITH_VMS) as objects:
        update_plan = updates.plan(objects, outdated_only=outdated, bandwidth=rate)
        print_report(update_plan, output, _update_lines)
    if update_plan.stays:
        raise SystemExit(1)


def select_nodes(objects: ClusterObjects, required: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the nodes with these labels, sorted; an `InputError` where there are none."""
    metas = [node.meta for node in objects.nodes if required.items() <= (node.meta.labels or {}).items()]
    nodes = tuple(sorted(filter(None, (meta.name for meta in metas))))
    if not nodes:
        raise InputError("no node has these labels", "--node-selector", "kubectl get nodes --show-labels lists them")
    return nodes


@contextmanager
def reading(
    source: Source, config_file: Path | None, releases: Releases | None = None, lists: Lists = LISTS
) -> Iterator[ClusterObjects]:
    """The cluster's objects; exit status 3 where it cannot be read.

    The collector is off meanwhile: the objects stay, and it would visit all of them each time they have grown.
    """
    require_single_source(*source)
    directory, kubeconfig = source
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        try:
            if directory:
                objects = from_files(directory, releases, config_file, lists)
            else:
                objects = asyncio.run(from_cluster(kubeconfig, releases, config_file, lists))
        except Unreadable as error:
            if directory:
                raise InputError(error.why, fix="correct the file") from None
            write.error(f"Error: {error.why}; {unreadable_fix(error.why)}")
            raise SystemExit(UNREADABLE) from None
        except NoAnswerError as error:
            write.error(f"Error: {error}")
            raise SystemExit(UNREADABLE) from None
        yield objects
    finally:
        if was_enabled:
            gc.enable()


def as_bytes(text: str) -> int:
    """A number of bytes per second, an option's value; an `InputError` for anything else."""
    amount = 0
    with suppress(InputError):
        amount = parse(text).nanos // 10**9
    if amount < 1:
        raise InputError(f"{quote(text)} is not a number of bytes per second", "--bandwidth", "use for example 512Mi")
    return amount


def duration(seconds: int) -> str:
    """Seconds for people: ``45s``, ``3m``, ``1h 20m``."""
    if seconds < 60:
        return f"{seconds}s"
    hours, minutes = divmod(-(-seconds // 60), 60)
    return " ".join(f"{number}{unit}" for number, unit in ((hours, "h"), (minutes, "m")) if number)


def _drain_lines(plan: DrainPlan) -> Iterator[Paragraph]:
    costs = plan.shuts_down or plan.handed_over or plan.preempted
    color = "red" if plan.blocks else "yellow" if costs else "green"
    nodes = [node for step in plan.steps for node in step.nodes]
    together = f", {plan.parallel} at a time," if plan.parallel > 1 else " in turn"
    what = f"Drains of {pluralize(len(nodes), 'node')}{together}" if plan.rolling else f"A drain of {abbreviate(nodes)}"
    vms = [vm for step in plan.steps for vm in step.vms]
    uncertain = any(vm.code in report.UNCERTAIN for vm in vms)
    ends = "ends when others act" if plan.handed_over else "may end" if uncertain else "can end"
    counts = f"{pluralize(plan.moves, 'migration')}, {plan.shuts_down} shut down, {plan.blocks} blocked"
    more = "".join(_further_counts(plan, vms))
    yield Paragraph(f"{what} {'cannot end' if plan.blocks else ends}: {counts}{more}", f"bold {color}")
    if plan.rolling:
        yield from _rolling(plan)
    else:
        step = plan.steps[0]
        yield from _vm_groups(step.vms, _DRAIN_GROUPS, step.blocked_pods)
        if step.transfers:
            yield from (Paragraph(), Paragraph("Cut off:", "bold yellow"))
        yield from (Paragraph(_transfer(transfer), "", "  ") for transfer in step.transfers)
        if step.other_pods:
            yield from (Paragraph(), Paragraph(f"{pluralize(step.other_pods, 'pod')} without a VM evicted, too."))
    yield from _pace(plan, vms)
    if plan.order:
        yield Paragraph(f"Fewer VMs block or move in the order {', '.join(plan.order[:_MOST_VMS])}.", "yellow")
    if spare := plan.spare:
        counts = f"{pluralize(spare.moves, 'migration')}, {spare.blocks} blocked, about {duration(spare.seconds)}"
        yield Paragraph(f"With one more node like {spare.like}: {counts}.", "yellow")
    yield from _remedies(plan, vms, "What one change would free most:")


def _further_counts(plan: DrainPlan | UpdatePlan, vms: Sequence[VmPlan]) -> Iterator[str]:
    if down := sum(bool(vm.stays_down) for vm in vms):
        yield f", {down} {'stays' if down == 1 else 'stay'} down"
    if plan.handed_over:
        yield f", {plan.handed_over} handed to another controller"
    if plan.preempted:
        yield f", {pluralize(plan.preempted, 'pod')} preempted"


def _update_lines(plan: UpdatePlan) -> Iterator[Paragraph]:
    costs = plan.shuts_down or plan.handed_over or plan.preempted
    color = "red" if plan.stays else "yellow" if costs else "green"
    if not plan.vms:
        yield Paragraph(f"No launcher is outdated: {pluralize(plan.up_to_date, 'VM')} up to date", "bold green")
        return
    before, after = parse_version(plan.from_version), parse_version(plan.to_version)
    is_downgrade = before is not None and after is not None and after < before
    what = f"{'A downgrade' if is_downgrade else 'An update'} from KubeVirt {plan.from_version} to {plan.to_version}"
    if plan.from_version == plan.to_version:
        what = f"An update of the launchers of KubeVirt {plan.to_version}"
    uncertain = any(vm.outcome == report.MOVES and vm.code != report.MIGRATES for vm in plan.vms)
    updates = f"{'may update' if uncertain else 'can update'} all {pluralize(len(plan.vms), 'outdated VM')}"
    counts = f"{pluralize(plan.moves, 'migration')}, {plan.shuts_down} shut down, {plan.stays} not updated"
    more = "".join(_further_counts(plan, plan.vms))
    leaves = f"leaves {plan.stays} of {pluralize(len(plan.vms), 'VM')} outdated"
    yield Paragraph(f"{what} {leaves if plan.stays else updates}: {counts}{more}", f"bold {color}")
    yield from _vm_groups(plan.vms, _UPDATE_GROUPS)
    yield from _pace(plan, plan.vms)
    batches = plan.evictions
    if batches.vms:
        time = _time(batches.seconds, batches.at_most_seconds)
        at_once = f"{time}: KubeVirt evicts {pluralize(batches.size, 'VM')} at once"
        evicted = f"{pluralize(batches.vms, 'eviction')}, {at_once}"
        yield Paragraph(f"{evicted}, and the next ones {duration(batches.interval_seconds)} later.")
    yield from _remedies(plan, plan.vms, "What one change would update most:")


def _remedies(plan: DrainPlan | UpdatePlan, vms: Sequence[VmPlan], title: str) -> Iterator[Paragraph]:
    if plan.changes:
        yield from (Paragraph(), Paragraph(title, "bold"))
    for change in plan.changes[:3]:
        yield Paragraph(f"{change.change} ({abbreviate(change.vms)})", "", "  - ")
    for gap in dict.fromkeys((*plan.gaps, *(gap for vm in vms for gap in vm.gaps))):
        yield Paragraph(f"Not evaluated: {gap}.", "yellow")
    yield from (Paragraph(), Paragraph("The plan assumes:"))
    yield from (Paragraph(assumption, "dim", "  - ") for assumption in plan.assumptions)


_DRAIN_GROUPS: Final = (
    (report.BLOCKS, "Block the drain:", "bold red"),
    (report.HANDED_OVER, "Handed to another controller:", "bold yellow"),
    (report.SHUTS_DOWN, "Shut down:", "bold yellow"),
    (report.MOVES, "Move:", "bold green"),
)
_UPDATE_GROUPS: Final = ((report.STAYS, "Stay outdated:", "bold red"), *_DRAIN_GROUPS[1:])


def _vm_groups(
    vms: Sequence[VmPlan], groups: Sequence[tuple[str, str, str]], blocked: Sequence[BlockedPod] = ()
) -> Iterator[Paragraph]:
    """The VMs by their outcomes, with the pods that block."""
    for outcome, title, style in groups:
        members = [vm for vm in vms if vm.outcome == outcome]
        pods = blocked if outcome == report.BLOCKS else ()
        if not members and not pods:
            continue
        yield from (Paragraph(), Paragraph(title, style))
        yield from (Paragraph(f"pod {pod.namespace}/{pod.name}: {pod.reason}", "", "  ") for pod in pods)
        width = max((len(f"{vm.namespace}/{vm.name}") for vm in members[:_MOST_VMS]), default=0)
        for vm in members[:_MOST_VMS]:
            about = f"{vm.node}: {vm.reason} [{vm.code}]"
            if vm.outcome == report.MOVES:
                enough = {report.MAY_NOT_FIT: "with enough in sum", report.MIGRATES_LATER: "with room now"}
                nodes = f"{vm.with_room} of {pluralize(vm.eligible, 'eligible node')}"
                room = f"{format_amount(MEMORY, vm.memory)}, {nodes} {enough.get(vm.code, 'with room')}"
                packed = f"; {vm.reason} [{vm.code}]" if vm.reason else ""
                if vm.code == report.ALREADY_MIGRATING:
                    room = format_amount(MEMORY, vm.memory)
                about = f"{vm.node} -> {vm.to}  {room}{packed}"
            yield Paragraph(f"{f'{vm.namespace}/{vm.name}':{width}}  {about}", "", "  ", width + 4)
            if vm.stays_down:
                yield Paragraph(f"it stays down: {vm.stays_down}", "yellow", " " * (width + 4))
            yield from (Paragraph(note, "dim", " " * (width + 4)) for note in vm.notes)
        if len(members) > _MOST_VMS:
            yield Paragraph(f"  and {pluralize(len(members) - _MOST_VMS, 'more VM')}; -o json shows all")


def _transfer(pod: PlannedTransfer) -> str:
    since = "not started yet" if pod.running_seconds is None else f"for {duration(pod.running_seconds)} now"
    by_force = "; no controller owns it, so kubectl drain needs --force"
    work = f"of {pod.owner}, {since}" if pod.owner else f"{since}{by_force}"
    return f"pod {pod.namespace}/{pod.name}: {pod.what} {work}; {pod.loss}"


def _rolling(plan: DrainPlan) -> Iterator[Paragraph]:
    yield Paragraph()
    width = max((len(abbreviate(step.nodes)) for step in plan.steps), default=0)
    busy = [step for step in plan.steps if step.vms or step.blocked_pods or step.transfers]
    for step in busy:
        rest = [vm for vm in step.vms if vm.outcome != report.MOVES]
        moves = sum(bool(vm.to) for vm in step.vms)
        time = f", {_time(step.seconds, step.at_most_seconds)}" if moves else ""
        is_blocked = step.blocked_pods or any(vm.outcome == report.BLOCKS for vm in rest)
        counts = f"{abbreviate(step.nodes):{width}}  {pluralize(moves, 'migration')}{time}"
        yield Paragraph(counts, "bold red" if is_blocked else "")
        for pod in step.blocked_pods:
            yield Paragraph(f"blocks  pod {pod.namespace}/{pod.name}: {pod.reason}", "", "  ", 10)
        yield from (Paragraph(f"cuts off  {_transfer(transfer)}", "", "  ", 12) for transfer in step.transfers)
        for vm in rest[:_MOST_VMS]:
            head = _HEADS[vm.outcome]
            down = f"; it stays down: {vm.stays_down}" if vm.stays_down else ""
            text = f"{head}  {vm.namespace}/{vm.name}: {vm.reason} [{vm.code}]{down}"
            yield Paragraph(text, "", "  ", len(head) + 4)
    if idle := sum(len(step.nodes) for step in plan.steps) - sum(len(step.nodes) for step in busy):
        yield Paragraph(f"{pluralize(idle, 'node')} without VMs not shown", "dim")


def _pace(plan: DrainPlan | UpdatePlan, vms: Sequence[VmPlan]) -> Iterator[Paragraph]:
    limits = plan.limits
    yield Paragraph()
    slots = f"{limits.per_cluster} migrations concurrently, {limits.per_node} from each node"
    if not plan.moves:
        yield Paragraph(f"KubeVirt runs {slots}; here there are none.")
        yield from (Paragraph(note, "yellow") for note in plan.notes)
        return
    amount = format_amount(MEMORY, limits.bandwidth)
    source = "assumed, see --bandwidth" if limits.bandwidth_is_assumed else "KubeVirt's limit or --bandwidth"
    timeout = limits.timeout_seconds_per_gib
    allowance = f"is given {timeout}s for each GB" if timeout else "may take any time (completionTimeoutPerGiB is 0)"
    yield Paragraph(
        f"{pluralize(plan.moves, 'migration')}, {_time(plan.seconds, plan.at_most_seconds)}: KubeVirt runs {slots}; "
        f"each takes {limits.start_seconds}s to start, copies {amount} a second ({source}), and {allowance}."
    )
    pending = sum(vm.code in report.UNSCHEDULED for vm in vms)
    if pending and isinstance(plan, DrainPlan):
        who = "VM without a node counts" if pending == 1 else "VMs without a node count"
        wait = f"KubeVirt waits {waiting_times(vm.code for vm in vms)} for a target pod to be scheduled"
        yield Paragraph(f"{pending} {who} against these limits, too: {wait}.", "yellow")
    yield from (Paragraph(note, "yellow") for note in plan.notes)
    if limits.unfinished:
        yield Paragraph(f"KubeVirt finishes {pluralize(limits.unfinished, 'unfinished migration')} first.", "yellow")


def _time(seconds: int, at_most: int | None) -> str:
    return f"about {duration(seconds)}" + (f", at most {duration(at_most)}" if at_most is not None else "")


def from_files(
    directory: Path, releases: Releases | None = None, config_file: Path | None = None, lists: Lists = LISTS
) -> ClusterObjects:
    """A snapshot of the objects in files; an `InputError` for one that cannot be read, or has a wrong type."""
    skipped: dict[str, None] = {}
    index = read_index(directory, skipped)
    say_skipped(skipped)
    by_field = {
        field: [_as_view(each, kind) for each in index[kind.kind].values()] for field, (kind, _) in lists.items()
    }
    profiles = profiles_in(_as_view(each, CONFIG_MAPS) for each in index[CONFIG_MAPS.kind].values())
    kinds = (CONFIG_MAPS.kind, *CONFIGURATIONS)
    installed = FilesCluster(defaultdict(dict, {kind: index[kind] for kind in kinds}), default_settings())
    applied = asyncio.run(defaults.settings_from(config_file, FileReader(installed)))
    return _cluster_objects(by_field, [], releases, profiles, NEWEST, applied)


async def from_cluster(
    kubeconfig: Kubeconfig | None,
    releases: Releases | None = None,
    config_file: Path | None = None,
    lists: Lists = LISTS,
) -> ClusterObjects:
    """A snapshot of a running cluster, by one list of each kind.

    An `InputError` says that the kubeconfig cannot be used, an `Unreadable` that a list cannot be read that is needed,
    with all permissions that are missing.
    """
    async with connected(kubeconfig) as transport:
        reader = Reader(transport)
        (applied, health), profiles, version, *answers = await asyncio.gather(
            _settings_and_health(config_file, reader),
            read_profiles(reader),
            kubernetes_version(transport),
            *(reader.all(resource) for resource, _ in lists.values()),
        )
    gaps, by_field = [f"whether scheduler {name} is available: {each.why}" for name, each in _of(health, "unknown")], {}
    unread = {name: answer for name, answer in zip(lists, answers, strict=True) if isinstance(answer, Unavailable)}
    if any(not lists[name][1] for name in unread):
        # With what a plan can do without: whoever grants permissions does so once.
        raise Unreadable(explain_all(unread.values()))
    if isinstance(version, Unavailable):
        gaps.append(f"which version kube-scheduler has is not known: {version.why}")
        version = NEWEST
    for (field, (_, missing)), listed in zip(lists.items(), answers, strict=True):
        if not isinstance(listed, Unavailable):
            by_field[field] = list(listed)
        else:
            gaps.append(f"{missing}: {listed.why}")
    for kind, number in reader.malformed.items():
        objects = pluralize(number, f"object of the kind {kind}", f"objects of the kind {kind}")
        gaps.append(f"{objects} cannot be decoded")
    found = _cluster_objects(by_field, gaps, releases, profiles, version, applied)
    return msgspec.structs.replace(found, schedulers_down={name: each.why for name, each in _of(health, "unavailable")})


async def _settings_and_health(
    config_file: Path | None, reader: Reader
) -> tuple[AppliedSettings, Mapping[str, SchedulerHealth]]:
    """The settings, and the health of the schedulers that they declare with a Lease."""
    applied = await defaults.settings_from(config_file, reader)
    by_lease = {
        name: each.watched for name, each in applied.settings.watched_schedulers.items() if each.watched.kind == "lease"
    }
    found = await asyncio.gather(*(_health_of(reader.api, each) for each in by_lease.values()))
    return applied, dict(zip(by_lease, found, strict=True))


async def _health_of(transport: Transport, health_check: HealthCheck) -> SchedulerHealth:
    """The health of a scheduler, by its Lease alone."""
    state = HealthEvidence(health_check, lambda _: False, is_brief=True)
    state.observe_watch(Fresh(0.0))
    await watch_lease(transport, state, health_check, _LEASE_SECONDS)
    return state.health(REAL_TIME.now())


def _of(health: Mapping[str, SchedulerHealth], state: str) -> Iterator[tuple[str, SchedulerHealth]]:
    return ((name, each) for name, each in health.items() if each.state == state)


def _as_view(entry: FileObject, resource: Resource[V]) -> V:
    value = entry.value
    if type(entry.view) is resource.view:
        return entry.view
    try:
        return msgspec.convert(value, resource.view)
    except msgspec.ValidationError as error:
        metadata = value["metadata"]
        where = f"{resource.kind} {'/'.join(filter(None, (metadata.get('namespace'), metadata['name'])))}"
        raise InputError(describe_wrong_type(value, error)[1], where) from None


def _unknown_settings(applied: AppliedSettings) -> list[str]:
    """That what policies add to pods is not known, clauses."""
    return [f"what kubevirt-webhook adds to pods is not known: {applied.gap}"] if applied.gap else []


def _cluster_objects(
    by_field: dict[str, list[Any]],
    gaps: list[str],
    releases: Releases | None,
    profiles: Profiles,
    kubernetes: KubernetesVersion,
    applied: AppliedSettings,
) -> ClusterObjects:
    gaps += _unknown_settings(applied)
    kubevirts, (before, after) = by_field.pop("kubevirts"), releases or Releases()
    kubevirt, declared = find_in_use(kubevirts), after or before
    install = KubeVirtInstall.of(kubevirts, declared.version if declared else None)
    configuration = install.configuration if install else DEFAULTS
    if isinstance(configuration, Unavailable):
        raise Unreadable(f"KubeVirt's configuration cannot be decoded: {configuration.why}")
    if kubevirt is None:
        gaps.append("no KubeVirt object was found, so KubeVirt's built-in settings apply")
    made_by = before or (detect(*kubevirt.versions) if kubevirt and after else None)
    if after and made_by is None:
        gaps.append("which release made the launchers is not known, see --from-version")
    strategy = kubevirt.spec.workload_update_strategy if kubevirt and kubevirt.spec else None
    lists: Any = {field: tuple(listed) for field, listed in by_field.items()}
    return ClusterObjects(
        now=time.time(),
        **lists,
        kubevirt=replace(configuration, launchers_of=made_by),
        workload_updates=strategy or WorkloadUpdateStrategy(),
        profiles=profiles,
        kubernetes=kubernetes,
        settings=applied.settings,
        gaps=tuple(dict.fromkeys(gaps)),
    )
