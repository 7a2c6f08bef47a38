"""`kubevirt-webhook install`, `uninstall`, `cleanup` and `hand-over`."""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from webhook.cli import write
from webhook.cli.options import config_option, kubeconfig_option
from webhook.install.schedulers.render import VARIANTS, Variant
from webhook.k8s.client.identity import Kubeconfig
from webhook.text import pluralize, visible

if TYPE_CHECKING:
    from webhook.install.apply import Installer, PlannedChange
    from webhook.install.plan import Overlay, Plan
    from webhook.install.registration import Manifest
    from webhook.install.schedulers.render import Wanted
    from webhook.k8s.client.transport import KubernetesTransport

_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
_KUBECONFIG: Final = kubeconfig_option()
_DRY_RUN: Final = click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
_DIFF: Final = click.option("--diff", is_flag=True, help="Show new and deleted objects whole, not only their names.")
_YES: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation on a terminal.")
_TIMEOUT: Final = click.option(
    "--timeout", default=180, show_default=True, type=click.IntRange(1), metavar="SECONDS", help="Time limit."
)
_NAMESPACE: Final = click.option(
    *("-n", "--namespace"),
    metavar="NAMESPACE",
    help="Namespace of the replicas.  [default: that of the installation, or kubevirt-webhook]",
)
WITH: Final = "scheduler"
_OWN: Final = "kubevirt-webhook-install"


class SchedulerOptions(msgspec.Struct, frozen=True):
    """The options of `install` for the second scheduler.

    Attributes:
        wanted: it is to be installed or upgraded; otherwise it stays as it is, or away.
        variant: its configuration; None: the one that it has, else spread.
        image: empty: the image of the cluster's own scheduler.
        prometheus: a URL; empty: the one that it has, or metrics-server.
    """

    wanted: bool = False
    variant: Variant | None = None
    image: str = ""
    prometheus: str = ""


def scheduler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command; ``given_options`` takes them out of its arguments."""
    for option in (
        click.option("--prometheus", metavar="URL", default="", help="Source of a load-aware variant's metrics."),
        click.option(
            "--scheduler-image",
            metavar="IMAGE",
            default="",
            help="Image of the second scheduler.  [default: the image of the cluster's own scheduler]",
        ),
        click.option(
            "--scheduler-variant",
            type=click.Choice(VARIANTS),
            help="Configuration of the second scheduler.  [default: unchanged, or spread]",
        ),
        click.option(
            "--with",
            "extras",
            type=click.Choice([WITH]),
            multiple=True,
            help="Also install, or upgrade, a second kube-scheduler for VMs.",
        ),
    ):
        command = option(command)
    return command


def given_options(options: dict[str, Any]) -> SchedulerOptions:
    """Takes the options of the second scheduler out of a command's arguments.

    Raises:
        InputError: there are some, but not --with scheduler.
    """
    from webhook.errors import InputError

    names = ("scheduler_variant", "scheduler_image", "prometheus")
    variant, image, prometheus = (options.pop(name) for name in names)
    wanted = WITH in options.pop("extras")
    if not wanted and (variant or image or prometheus):
        raise InputError("there are options of the second scheduler", "install", f"add --with {WITH}")
    return SchedulerOptions(wanted, variant, image, prometheus)


@click.command()
@_NAMESPACE
@_KUBECONFIG
@click.option(
    "--overlay",
    type=click.Choice(["kubernetes", "openshift"]),
    help="Manifests to apply.  [default: openshift if the cluster is OpenShift, otherwise kubernetes]",
)
@config_option("those in the cluster, or those of the overlay")
@scheduler_options
@click.option(
    "--image",
    metavar="IMAGE",
    help="Image of the replicas; required at first.  [default: what they run]",
)
@click.option(
    "--callers",
    metavar="auto|any|CIDR,...",
    help="Addresses of the API server, for the NetworkPolicy.  [default: unchanged, or those of the overlay]",
)
@_DRY_RUN
@_DIFF
@_YES
@click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait until the replicas are ready before the API server calls them for new requests.",
)
@_TIMEOUT
@click.option("--force-conflicts", is_flag=True, help="Overwrite fields that another tool manages.")
def install(**options: Any) -> None:
    """Install or upgrade kubevirt-webhook in a cluster. Every difference is shown first.

    Objects are applied server-side: RBAC and settings first, then the replicas, then the webhook configurations.
    """
    config_file = options.pop("config_file")
    given = (_read(config_file), str(config_file)) if config_file else None
    scheduler = given_options(options)
    asyncio.run(_install(_InstallOptions(given=given, scheduler=scheduler, **options)))


@dataclass(frozen=True)
class _InstallOptions:
    """The options of `install`.

    Attributes:
        given: a settings file's content and name.
        scheduler: the second scheduler.
    """

    kubeconfig: Kubeconfig | None
    overlay: Overlay | None
    namespace: str | None
    given: tuple[str, str] | None
    scheduler: SchedulerOptions
    image: str | None
    callers: str | None
    dry_run: bool
    diff: bool
    yes: bool
    wait: bool
    timeout: int
    force_conflicts: bool


@click.command()
@_NAMESPACE
@_KUBECONFIG
@_DRY_RUN
@_YES
@_TIMEOUT
def uninstall(**options: Any) -> None:
    """Remove kubevirt-webhook from a cluster: first the webhook configurations, last the namespace.

    Changes in VMs are kept; use `kubevirt-webhook cleanup` to remove them.
    """
    asyncio.run(_uninstall(**options))


@click.command()
@click.option(
    "-n", "--namespace", default="", metavar="NAMESPACE", help="Namespace of the VMs.  [default: all namespaces]"
)
@_KUBECONFIG
@click.option("--allow-restart-required", is_flag=True, help="Also change running VMs, which then require a restart.")
@click.option(
    "--scheduler",
    "schedulers",
    multiple=True,
    metavar="NAME",
    help="Scheduler that no VM owner has chosen; also remove it from VMs without the annotation. May be repeated.",
)
@_DRY_RUN
@_YES
def cleanup(**options: Any) -> None:
    """Remove the annotations, schedulers and topology spread constraints that kubevirt-webhook wrote into VMs.

    Run `kubevirt-webhook uninstall` first. Exit status 1 if a VM could not be changed.
    """
    if asyncio.run(_cleanup(**options)):
        sys.exit(1)


async def _install(options: _InstallOptions) -> None:
    from webhook.install.apply import Installer
    from webhook.install.plan import with_scheduler

    async with _connect(options.kubeconfig) as api:
        installer = Installer(api, write.line, force=options.force_conflicts, seconds=options.timeout)
        is_openshift = options.overlay is None and await installer.serves("config.openshift.io")
        overlay: Overlay = options.overlay or ("openshift" if is_openshift else "kubernetes")
        namespace = await _namespace(installer, options)
        narrow = await _narrowing(api, installer, overlay, namespace, options.callers)
        plan = await _plan(installer, overlay, namespace, options.given, options.image, narrow)
        scheduler = await scheduler_objects(api, installer, options.scheduler, is_openshift=overlay == "openshift")
        plan = with_scheduler(plan, scheduler)
        changes = await installer.changes(plan)
        name_cluster(api)
        for change in changes:
            _show_change(change, whole=options.diff)
        if not changes:
            await _finish_rollout(api, installer, plan, options)
        elif options.dry_run:
            return
        elif confirm(f"Apply {pluralize(len(changes), 'change')} to {cluster_of(api)}?", yes=options.yes):
            await installer.install(plan, wait=options.wait)
            if options.wait:
                await _warn_if_unreachable(api, plan)
            write.line("installed")


async def _namespace(installer: Installer, options: _InstallOptions) -> str:
    """The namespace of the replicas: that of the installation; at first that of the option or of the settings.

    Raises:
        InputError: there is an installation in another namespace, or the settings are invalid.
    """
    from webhook.errors import InputError
    from webhook.install.plan import NAMESPACE
    from webhook.settings.file import parse

    present = await installer.namespace()
    wanted = options.namespace
    if wanted is None and options.given:
        text, where = options.given
        declared = parse(text.encode(), where).webhooks.service.namespace
        # Settings that say nothing mean the namespace in which the replicas are.
        wanted = declared if declared != NAMESPACE else None
    if present and wanted and wanted != present:
        what = f"kubevirt-webhook is installed in the namespace {present}, not in {wanted}"
        raise InputError(what, "--namespace", f"use {present}, or run kubevirt-webhook uninstall first")
    return wanted or present or NAMESPACE


async def _finish_rollout(api: KubernetesTransport, installer: Installer, plan: Plan, options: _InstallOptions) -> None:
    """Wait for the roll-out that an earlier run began: no changes does not mean that the replicas are ready."""
    if options.dry_run:
        shortage = await installer.shortage(plan)
        if shortage:
            write.line(f"warning: the rollout is not complete: {shortage}", err=True)
    elif options.wait:
        await installer.wait(plan)
        await _warn_if_unreachable(api, plan)
    write.line("no changes")


async def _warn_if_unreachable(api: KubernetesTransport, plan: Plan) -> None:
    """Say that ready replicas are of no use where the API server does not reach them: its requests would be skipped."""
    from webhook.errors import Unavailable
    from webhook.install.shortage import REMEDY, why_unreachable

    service = plan.service["metadata"]
    why = await why_unreachable(api, service["namespace"], service["name"])
    if why and not isinstance(why, Unavailable):
        what = f"the API server does not reach a replica, so requests may not be evaluated: {why}"
        write.line(f"warning: {what}; {REMEDY}", err=True)


async def _narrowing(
    api: KubernetesTransport, installer: Installer, overlay: Overlay, namespace: str, callers: str | None
) -> Callable[[Manifest], Manifest]:
    """The change to the overlay's NetworkPolicy: by the option, otherwise as in the cluster's NetworkPolicy."""
    from webhook.cli.data import directory
    from webhook.install import plan
    from webhook.install.callers import ANY, AUTO, blocks_of, discover_callers, parse, restrict_callers

    if callers == ANY:
        blocks = []
    elif callers == AUTO:
        blocks = await discover_callers(api)
    elif callers is not None:
        blocks = parse(callers)
    else:
        blocks = blocks_of(await installer.get(plan.network_policy(directory("manifests"), overlay, namespace)))
    return lambda policy: restrict_callers(policy, blocks) if blocks else policy


async def _plan(
    installer: Installer,
    overlay: Overlay,
    namespace: str,
    given: tuple[str, str] | None,
    image: str | None,
    narrow: Callable[[Manifest], Manifest],
) -> Plan:
    """The plan, with the cluster's settings and image unless others are given.

    Args:
        installer: reads the cluster's settings and image.
        overlay: the overlay of the manifests.
        namespace: the namespace of the replicas.
        given: content and name of a settings file; None: the cluster's settings, else the overlay's.
        image: the image of the replicas; None: that of the cluster's Deployment.
        narrow: changes the overlay's NetworkPolicy.

    Raises:
        InputError: no image is given, and there is no Deployment; or the settings are invalid.
    """
    from webhook.cli.data import directory
    from webhook.errors import InputError
    from webhook.install import plan

    manifests = directory("manifests")
    own = plan.config_map(manifests, overlay, namespace)
    if given:
        text, where = given
    else:
        live = await installer.get(own)
        text = ((live or own).get("data") or {}).get(plan.SETTINGS_KEY) or ""
        where = plan.title(own)
    text = plan.settings_in(text, where, namespace)
    result = plan.of(manifests, overlay, text, where, image or "", narrow)
    if image:
        return result
    running = await installer.get(result.deployment)
    if not running:
        what = "no image is given, and kubevirt-webhook is not installed yet"
        raise InputError(what, fix="build and push the image of the Dockerfile, and name it with --image IMAGE")
    image = running["spec"]["template"]["spec"]["containers"][0]["image"]
    return plan.of(manifests, overlay, text, where, image, narrow)


async def _uninstall(
    *,
    kubeconfig: Kubeconfig | None,
    namespace: str | None,
    dry_run: bool,
    yes: bool,
    timeout: int,  # noqa: ASYNC109
) -> None:
    from webhook.cli.data import directory
    from webhook.install.apply import Installer
    from webhook.install.plan import NAMESPACE, everything, title

    async with _connect(kubeconfig) as api:
        installer = Installer(api, write.line, seconds=timeout)
        where = namespace or await installer.namespace() or NAMESPACE
        own = await installer.present(everything(directory("manifests"), where))
        scheduler = await removable_scheduler(api, installer)
        name_cluster(api)
        # It goes last: until then, what names it can still be placed.
        objects = [*scheduler, *own]
        for manifest in objects:
            write.line(f"- {title(manifest)}", color="red")
        if own:
            await _warn_of_pools(api)
        if not objects:
            write.line("kubevirt-webhook is not installed")
        elif not dry_run and confirm(f"Delete {pluralize(len(objects), 'object')} from {cluster_of(api)}?", yes=yes):
            await installer.uninstall(objects)
            write.line("uninstalled")


async def _warn_of_pools(api: KubernetesTransport) -> None:
    """Name the pools whose VMs lose their size once kubevirt-webhook does not set it again."""
    from webhook.cluster.reader import Reader
    from webhook.doctor.kubevirt import pools_of_defaults
    from webhook.errors import Unavailable

    pools = await pools_of_defaults(Reader(api))
    if isinstance(pools, Unavailable):
        write.line(f"warning: pools whose VMs depend on a default instancetype were not checked: {pools.why}", err=True)
        return
    for pool in pools:
        what = "its VMs have their size from a default instancetype, and lose it when the pool changes later"
        todo = "set an instancetype or a memory size in its spec.virtualMachineTemplate.spec first"
        write.line(f"warning: VirtualMachinePool {pool.title}: {what}; {todo}", err=True)


async def _cleanup(
    *,
    kubeconfig: Kubeconfig | None,
    namespace: str,
    allow_restart_required: bool,
    schedulers: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> int:
    from webhook.cli.data import directory
    from webhook.errors import InputError
    from webhook.install.apply import Installer
    from webhook.install.cleanup import Cleanup
    from webhook.install.plan import CONFIGURATIONS, everything, title

    async with _connect(kubeconfig) as api:
        expected = [one for one in everything(directory("manifests")) if one["kind"] in CONFIGURATIONS]
        present = await Installer(api, write.line).present(expected)
        if present:
            what = "the API server still calls kubevirt-webhook, which would undo the cleanup"
            raise InputError(what, title(present[0]), 'run "kubevirt-webhook uninstall" first')
        work = Cleanup(api, namespace, schedulers)
        tasks = await work.tasks(allow_restart_required=allow_restart_required)
        name_cluster(api)
        for task in tasks:
            for text in task.texts:
                write.line(f"{task.title}: {text}")
            if task.left:
                write.line(f"{task.title}: {task.left}")
        todo = [task for task in tasks if task.operations]
        failed = 0
        if todo and not dry_run and confirm(f"Change {pluralize(len(todo), 'VM')} in {cluster_of(api)}?", yes=yes):
            for task in todo:
                problem = await work.clean(task)
                if problem:
                    failed += 1
                    write.error(f"{task.title}: {problem}")
            write.line(f"cleaned {len(todo) - failed}/{pluralize(len(todo), 'VM')}")
        elif not todo:
            write.line("no VM to clean")
        vmis, pods = await work.remaining()
        if vmis or pods:
            objects = f"{pluralize(vmis, 'VMI')} and {pluralize(pods, 'launcher pod')}"
            write.line(f"{objects} have annotations of kubevirt-webhook until their VMs stop")
        return failed


@asynccontextmanager
async def _connect(kubeconfig: Kubeconfig | None) -> AsyncIterator[KubernetesTransport]:
    from webhook.k8s.client.transport import connect

    transport = await connect(kubeconfig)
    try:
        yield transport
    finally:
        await transport.close()


def _read(file: Path) -> str:
    from webhook.errors import InputError
    from webhook.k8s.yaml_documents import read_file
    from webhook.settings.file import MAX_BYTES

    try:
        return read_file(file, MAX_BYTES).decode()
    except UnicodeDecodeError:
        raise InputError("the file is not valid UTF-8", str(file), "save it as UTF-8") from None


def _show_change(change: PlannedChange, *, whole: bool) -> None:
    """Show a change."""
    from webhook.cli.console import safe
    from webhook.cli.write import dump

    sign = "+" if change.before is None else "-" if change.after is None else "~"
    write.line(f"{sign} {change.title}", color=_STYLES.get(sign))
    if sign != "~" and not whole:
        return
    before, after = ([] if one is None else dump([one]).splitlines() for one in (change.before, change.after))
    for line in list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]:
        write.line(f"  {safe(line)}", color=_STYLES.get(line[0]))


def cluster_of(api: KubernetesTransport) -> str:
    """The name of the cluster, on one line whatever the kubeconfig holds."""
    return visible(api.cluster)


def name_cluster(api: KubernetesTransport) -> None:
    """Write which cluster a command is about."""
    write.line(f"cluster: {cluster_of(api)}")


def confirm(question: str, *, yes: bool) -> bool:
    """Whether to go on: without a terminal, where no answer can come, always.

    Args:
        question: what is asked on a terminal.
        yes: the answer was given beforehand.
    """
    return yes or not is_on_terminal() or click.confirm(question)


def is_on_terminal() -> bool:
    """Whether an answer can come."""
    return sys.stdin.isatty()


async def scheduler_objects(
    api: KubernetesTransport, installer: Installer, options: SchedulerOptions, *, is_openshift: bool
) -> tuple[Manifest, ...]:
    """The objects of the second scheduler; empty where there is none and none is wanted.

    Raises:
        InputError: something of another origin is in its place, or the image cannot be found out.
    """
    from webhook.cli.data import directory
    from webhook.install.schedulers import render as scheduler

    manifests = directory("manifests")
    live = await _live(installer)
    if options.wanted:
        await _check_origin(installer)
        variant: Variant = options.variant or (live.variant if live else "spread")
        # A URL belongs to the variant that it was given for.
        kept = live.prometheus if live and live.variant == variant else ""
        image = await scheduler.find_image(api, options.image, variant)
        live = scheduler.Wanted(variant, image, options.prometheus or kept)
    if live is None:
        return ()
    objects, added = scheduler.with_permissions(
        scheduler.objects(manifests, live, is_openshift=is_openshift), await _upstream_rules(installer)
    )
    if added:
        what = f"{', '.join(map(str, added))}, which the kube-scheduler of this cluster's version needs to start"
        write.line(f"scheduler {scheduler.PROFILE}: its ClusterRole also grants {what}", err=True)
    return objects


async def _upstream_rules(installer: Installer) -> list[Any]:
    """The rules that the API server has for the cluster's own scheduler."""
    from webhook.install.schedulers.render import UPSTREAM_ROLES

    rules: list[Any] = []
    for name in UPSTREAM_ROLES:
        kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}}
        rules += (await installer.get(kind) or {}).get("rules") or ()
    return rules


async def present_scheduler(installer: Installer) -> list[Manifest]:
    """The objects of the second scheduler that an installation has made, in the order in which they were created."""
    from webhook.cli.data import directory
    from webhook.install import plan
    from webhook.install.schedulers import render as scheduler

    found = []
    for manifest in plan.in_order(scheduler.objects(directory("manifests"))):
        live = await installer.get(manifest)
        if live is not None and scheduler.is_ours(live):
            found.append(manifest)
    return found


async def removable_scheduler(api: KubernetesTransport, installer: Installer) -> list[Manifest]:
    """The objects of the second scheduler, unless pods name it, which would wait for it indefinitely."""
    from webhook.install.schedulers.render import PROFILE, count_users

    found = await present_scheduler(installer)
    if not found:
        return []
    users = await count_users(api, PROFILE)
    if not users:
        return found
    todo = "run kubevirt-webhook cleanup, restart VMs that run, then run kubevirt-webhook uninstall again"
    write.line(f"scheduler {PROFILE}: kept, since {users} name it; {todo}", err=True)
    return []


async def _live(installer: Installer) -> Wanted | None:
    from webhook.cli.data import directory
    from webhook.install.schedulers import render as scheduler

    by_kind = {one["kind"]: one for one in scheduler.objects(directory("manifests"))}
    deployment = await installer.get(by_kind["Deployment"])
    config_map = await installer.get(by_kind["ConfigMap"]) if deployment else None
    return scheduler.of_live(deployment, config_map)


async def _check_origin(installer: Installer) -> None:
    """Keep what another tool has put there, which an uninstallation would delete."""
    from webhook.cli.data import directory
    from webhook.errors import InputError
    from webhook.install import plan
    from webhook.install.schedulers import render as scheduler

    for manifest in scheduler.objects(directory("manifests")):
        live = await installer.get(manifest)
        if live is not None and not scheduler.is_ours(live):
            what = "exists, but was not created by kubevirt-webhook"
            fix = f"keep that scheduler and leave --with {WITH} out, or delete it first"
            raise InputError(what, plan.title(manifest), fix)


@click.command("hand-over")
@kubeconfig_option()
@click.option(
    "--from-manager",
    "source",
    default=_OWN,
    show_default=True,
    metavar="MANAGER",
    help="Field manager of the former tool.",
)
@click.option(
    "--to-manager",
    "target",
    required=True,
    metavar="MANAGER",
    help="Field manager of the next tool, for example kubectl, helm, argocd-controller or kustomize-controller.",
)
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation on a terminal.")
def hand_over(*, kubeconfig: Kubeconfig | None, source: str, target: str, dry_run: bool, yes: bool) -> None:
    """Pass the fields of an installation from one tool to another.

    The next tool then meets no conflict, and can also remove what a later version leaves out. The objects do not change
    otherwise.
    """
    asyncio.run(_hand_over(kubeconfig, source, target, dry_run=dry_run, yes=yes))


async def _hand_over(kubeconfig: Kubeconfig | None, source: str, target: str, *, dry_run: bool, yes: bool) -> None:
    from webhook.cli.data import directory
    from webhook.errors import InputError
    from webhook.install.apply import Installer
    from webhook.install.ownership import HandOver
    from webhook.install.plan import NAMESPACE, everything
    from webhook.k8s.client.transport import connect

    if source == target:
        raise InputError("the tools have the same field manager", "--to-manager", "name the next tool's")
    api = await connect(kubeconfig)
    try:
        name_cluster(api)
        work = HandOver(api, source, target)
        namespace = await Installer(api, write.line).namespace() or NAMESPACE
        transfers = await work.transfers(everything(directory("manifests"), namespace))
        for one in transfers:
            write.line(f"{one.title}: from {source} to {target}")
        if not transfers:
            write.line(f"{source} owns no field of the installation")
        elif not dry_run and confirm(f"Hand over {pluralize(len(transfers), 'object')} in {cluster_of(api)}?", yes=yes):
            for one in transfers:
                await work.transfer(one)
            write.line(f"handed over {pluralize(len(transfers), 'object')}")
    finally:
        await api.close()
