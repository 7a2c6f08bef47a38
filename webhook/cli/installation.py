"""`kubevirt-webhook install`, `uninstall`, `cleanup` and `hand-over`."""

from __future__ import annotations

import asyncio
import difflib
import functools
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import msgspec

from webhook import names
from webhook.cli import write
from webhook.cli.data import directory
from webhook.cli.inputs import connected
from webhook.cli.options import WholeNumber, config_option, image_option, kubeconfig_option, namespace_option
from webhook.cli.prompt import confirm
from webhook.cluster.reader import Reader, all_of
from webhook.errors import InputError, Unavailable
from webhook.install import callers as network
from webhook.install import cleanup as cleaning
from webhook.install import ownership, plan
from webhook.install.apply import FIELD_MANAGER, Installer, PlannedChange, in_order_of_deletion
from webhook.install.plan import NAMESPACE, Overlay, Plan, everything, title
from webhook.install.registration import Manifest, deletion_command
from webhook.install.schedulers import render as scheduler
from webhook.install.schedulers.render import VARIANTS, Scheduler, Variant
from webhook.install.shortage import REMEDY, why_unreachable
from webhook.install.webhooks import own_configurations
from webhook.k8s.client.api import Requests
from webhook.k8s.client.identity import Kubeconfig
from webhook.k8s.client.transport import KubernetesTransport
from webhook.k8s.resources import NAMESPACES, POLICY_REPORTS
from webhook.policies.instancetypes.pools import pools_of_defaults
from webhook.server.drift_scan import policy_reports
from webhook.settings_file import parse, read_bytes
from webhook.text import pluralize, visible

_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
_KUBECONFIG: Final = kubeconfig_option()
_DRY_RUN: Final = click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
_YES: Final = click.option("--yes", is_flag=True, help="Do not ask for confirmation on a terminal.")
_POSITIVE: Final = WholeNumber(1)
_TIMEOUT: Final = click.option(
    "--timeout", "seconds", default=180, show_default=True, type=_POSITIVE, metavar="SECONDS", help="Time limit."
)
_REPLICAS: Final = "Namespace of the replicas.  [default: that of the installation, or kubevirt-webhook]"
_NAMESPACE: Final = namespace_option(_REPLICAS)
_LABEL_KEY: Final = "app.kubernetes.io/name"
_LABEL_VALUE: Final = "kubevirt-webhook"
# What help says of options.
_FORMER: Final = "Field manager of the former tool."
_NEXT: Final = "Field manager of the next tool, for example kubectl, helm, argocd-controller or kustomize-controller."
_UNCHOSEN: Final = (
    "Scheduler that no VM owner has chosen; also remove it from VMs without the annotation. May be repeated."
)
_OVERLAY: Final = "Manifests to apply.  [default: openshift if the cluster is OpenShift, otherwise kubernetes]"
_EXTRAS: Final = "Also install, or upgrade, a second kube-scheduler for VMs."
_VARIANT: Final = "Configuration of the second scheduler.  [default: unchanged, or spread]"
_SCHEDULER_IMAGE: Final = "Image of the second scheduler.  [default: the image of the cluster's own scheduler]"
_CALLERS: Final = "Addresses of the API server, for the NetworkPolicy.  [default: unchanged, or those of the overlay]"
_WAIT: Final = "Wait until the replicas are ready before the API server calls them for new requests."
_KEPT: Final = (
    "kept: labels and annotations of namespaces; and what was written into VMs, until you run kubevirt-webhook cleanup"
)
_MOST_COMMANDS: Final = 20
_MOST_KEYS: Final = 10
_WITH: Final = "scheduler"
# Content and name of a settings file.
_Settings: TypeAlias = tuple[str, str] | None


def _asynchronous(run: Callable[..., Coroutine[Any, Any, int | None]]) -> Callable[..., None]:
    """A command that runs a coroutine function, whose result is the exit status; None is 0."""

    @functools.wraps(run)
    def command(**options: Any) -> None:
        if status := asyncio.run(run(**options)):
            sys.exit(status)

    return command


@click.command()
@_NAMESPACE
@_KUBECONFIG
@click.option("--overlay", type=click.Choice(["kubernetes", "openshift"]), help=_OVERLAY)
@config_option("those in the cluster, or those of the overlay")
@click.option("--with", "extras", type=click.Choice([_WITH]), multiple=True, help=_EXTRAS)
@click.option("--scheduler-variant", type=click.Choice(VARIANTS), help=_VARIANT)
@click.option("--scheduler-image", metavar="IMAGE", default="", help=_SCHEDULER_IMAGE)
@click.option("--prometheus", metavar="URL", default="", help="Source of a load-aware variant's metrics.")
@image_option("Image of the replicas; required at first.  [default: what they run]")
@click.option("--callers", metavar="auto|any|CIDR,...", help=_CALLERS)
@_DRY_RUN
@click.option("--diff", is_flag=True, help="Show new and deleted objects whole, not only their names.")
@_YES
@click.option("--wait/--no-wait", default=True, help=_WAIT)
@_TIMEOUT
@click.option("--force-conflicts", is_flag=True, help="Overwrite fields that another tool manages.")
@_asynchronous
async def install(
    *,
    kubeconfig: Kubeconfig | None,
    namespace: str | None,
    overlay: Overlay | None,
    config_file: Path | None,
    extras: tuple[str, ...],
    scheduler_variant: Variant | None,
    scheduler_image: str,
    prometheus: str,
    image: str | None,
    callers: str | None,
    dry_run: bool,
    diff: bool,
    yes: bool,
    wait: bool,
    seconds: int,
    force_conflicts: bool,
) -> None:
    """Install or upgrade kubevirt-webhook in a cluster. Every difference is shown first.

    Objects are applied server-side: RBAC and settings first, then the replicas, then the webhook configurations.
    """
    settings = (read_settings(config_file), str(config_file)) if config_file else None
    if not extras and (scheduler_variant or scheduler_image or prometheus):
        raise InputError("there are options of the second scheduler", "install", f"add --with {_WITH}")
    async with connected(kubeconfig) as api:
        installer = Installer(api, write.line, force=force_conflicts, seconds=seconds)
        is_openshift = overlay is None and await installer.serves("config.openshift.io")
        overlay = overlay or ("openshift" if is_openshift else "kubernetes")
        namespace = await _namespace(installer, namespace, "or run kubevirt-webhook uninstall first", settings)
        blocks = await _caller_blocks(api, installer, overlay, namespace, callers)
        desired = await _plan(installer, overlay, namespace, settings, image, blocks)
        by_kind = {one["kind"]: one for one in scheduler.objects(directory("manifests"))}
        deployment = await installer.get(by_kind["Deployment"])
        live = scheduler.of_live(deployment, await installer.get(by_kind["ConfigMap"]) if deployment else None)
        if extras:
            live = await _desired_scheduler(api, installer, live, scheduler_variant, scheduler_image, prometheus)
        if live:
            objects = scheduler.objects(directory("manifests"), live, is_openshift=overlay == "openshift")
            added = plan.in_order(await _with_permissions(installer, objects))
            desired = msgspec.structs.replace(desired, scheduler=tuple(added))
        changes = await installer.changes(desired)
        write.line(f"cluster: {visible(api.cluster)}")
        for change in changes:
            _show_change(change, whole=diff)
        if not changes and dry_run:
            if shortage := await installer.shortage(desired):
                write.line(f"warning: the rollout is not complete: {shortage}", err=True)
        elif not changes and wait:
            # That an earlier run has changed all does not mean that the replicas are ready.
            await installer.wait(desired)
            await _warn_if_unreachable(api, desired)
        if not changes:
            write.line("no changes")
        elif not dry_run and confirm(f"Apply {pluralize(len(changes), 'change')} to {visible(api.cluster)}?", yes=yes):
            await installer.install(desired, wait=wait)
            if wait:
                await _warn_if_unreachable(api, desired)
            write.line("installed")


def read_settings(file: Path) -> str:
    """The text of a settings file, or an `InputError`."""
    try:
        return read_bytes(file).decode()
    except UnicodeDecodeError:
        raise InputError("the file is not valid UTF-8", str(file), "save it as UTF-8") from None


async def _namespace(installer: Installer, requested: str | None, otherwise: str, settings: _Settings = None) -> str:
    """The namespace of the replicas: that of the installation, else the requested one, else that of the manifests.

    The requested one is that of the option, else that of the settings. An `InputError` where it is not that of the
    installation; ``otherwise`` is the end of its advice.
    """
    if requested is None and settings:
        declared = parse(settings[0].encode(), settings[1]).webhooks.service.namespace
        # Settings that say nothing mean the namespace in which the replicas are.
        requested = declared if declared != NAMESPACE else None
    present = await installer.namespace()
    if present and requested and requested != present:
        what = f"kubevirt-webhook is installed in the namespace {present}, not in {requested}"
        raise InputError(what, "--namespace", f"use {present}, {otherwise}")
    return requested or present or NAMESPACE


async def _warn_if_unreachable(api: KubernetesTransport, desired: Plan) -> None:
    """Say that ready replicas are of no use where the API server does not reach them: its requests would be skipped."""
    (service,) = (one["metadata"] for one in desired.before if one["kind"] == "Service")
    why = await why_unreachable(api, service["namespace"], service["name"])
    if why and not isinstance(why, Unavailable):
        what = f"the API server does not reach a replica, so requests may not be evaluated: {why}"
        write.line(f"warning: {what}; {REMEDY}", err=True)


async def _caller_blocks(
    api: KubernetesTransport, installer: Installer, overlay: Overlay, namespace: str, callers: str | None
) -> list[str]:
    """The blocks for the overlay's NetworkPolicy: by the option, otherwise as in the cluster's; empty: it is kept."""
    if callers == network.ANY:
        return []
    if callers == network.AUTO:
        return await network.discover_callers(api)
    if callers is not None:
        return network.parse(callers)
    return network.blocks_of(await installer.get(plan.network_policy(directory("manifests"), overlay, namespace)))


async def _plan(
    installer: Installer, overlay: Overlay, namespace: str, settings: _Settings, image: str | None, blocks: list[str]
) -> Plan:
    """The plan, with the settings of the cluster, else of the overlay, and the cluster's image unless others are given.

    Raises:
        InputError: no image is given, and there is no Deployment; or the settings are invalid.
    """
    manifests = directory("manifests")
    own = plan.config_map(manifests, overlay, namespace)
    stored = {} if settings else (await installer.get(own) or own).get("data") or {}
    text, where = settings or (stored.get(plan.SETTINGS_KEY) or "", title(own))
    text = plan.settings_in(text, where, namespace)
    desired = plan.of(manifests, overlay, text, where, image or "")
    if not image:
        running = await installer.get(desired.deployment)
        if not running:
            what = "no image is given, and kubevirt-webhook is not installed yet"
            raise InputError(what, fix="build and push the image of the Dockerfile, and name it with --image IMAGE")
        image = running["spec"]["template"]["spec"]["containers"][0]["image"]
        desired = plan.of(manifests, overlay, text, where, str(image))
    if not blocks:
        return desired
    before = tuple(
        network.restrict_callers(one, blocks) if one["kind"] == "NetworkPolicy" else one for one in desired.before
    )
    return msgspec.structs.replace(desired, before=before)


def _show_change(change: PlannedChange, *, whole: bool) -> None:
    sign = "+" if change.before is None else "-" if change.after is None else "~"
    write.line(f"{sign} {change.title}", color=_STYLES.get(sign))
    if sign != "~" and not whole:
        return
    before, after = ([] if one is None else write.dump([one]).splitlines() for one in (change.before, change.after))
    found = list(hunks(before, after))
    # A setting such as events changes each entry of a configuration in the same way.
    for lines, same in Counter(lines for _, lines in found).items():
        write.line(f"  {next(place for place, each in found if each == lines)}", color=_STYLES["@"])
        for line in lines:
            write.line(f"  {visible(line)}", color=_STYLES.get(line[0]))
        if same > 1:
            write.line(f"  the same in {pluralize(same - 1, 'other place')}")


def hunks(before: list[str], after: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Where two texts differ: the place in both, as a unified diff has it, and its lines.

    difflib's own unified diff takes what is on many lines for junk, and shows lines that are equal as changed.
    """
    for group in difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(2):
        (_, old, _, new, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        lines: list[str] = []
        for tag, start, end, other, other_end in group:
            if tag == "equal":
                lines += (f" {line}" for line in before[start:end])
                continue
            lines += (f"-{line}" for line in before[start:end])
            lines += (f"+{line}" for line in after[other:other_end])
        # A part without lines has the number of the line before it.
        places = (f"{start + (end > start)},{end - start}" for start, end in ((old, old_end), (new, new_end)))
        yield "@@ -{} +{} @@".format(*places), tuple(lines)


async def _desired_scheduler(
    api: Requests, installer: Installer, live: Scheduler | None, variant: Variant | None, image: str, prometheus: str
) -> Scheduler:
    """The second scheduler by the options, and by what is installed where these say nothing."""
    for manifest in scheduler.objects(directory("manifests")):
        present = await installer.get(manifest)
        if present is not None and not scheduler.is_ours(present):
            # An uninstallation would delete what another tool has put there.
            fix = f"keep that scheduler and leave --with {_WITH} out, or delete it first"
            raise InputError("exists, but was not created by kubevirt-webhook", title(manifest), fix)
    variant = variant or (live.variant if live else "spread")
    # A URL belongs to the variant that it was given for.
    kept = live.prometheus if live and live.variant == variant else ""
    return Scheduler(variant, await scheduler.find_image(api, image, variant), prometheus or kept)


async def _with_permissions(installer: Installer, objects: tuple[Manifest, ...]) -> tuple[Manifest, ...]:
    """The objects of the second scheduler, with the rules that the API server has for the cluster's own scheduler."""
    rules: list[Any] = []
    for name in scheduler.UPSTREAM_ROLES:
        kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}}
        rules += (await installer.get(kind) or {}).get("rules") or ()
    objects, added = scheduler.with_permissions(objects, rules)
    if added:
        what = f"{', '.join(map(str, added))}, which the kube-scheduler of this cluster's version needs to start"
        write.line(f"scheduler {scheduler.PROFILE}: its ClusterRole also grants {what}", err=True)
    return objects


@click.command()
@_NAMESPACE
@_KUBECONFIG
@_DRY_RUN
@_YES
@_TIMEOUT
@_asynchronous
async def uninstall(
    *, kubeconfig: Kubeconfig | None, namespace: str | None, dry_run: bool, yes: bool, seconds: int
) -> None:
    """Remove kubevirt-webhook from a cluster: first the webhook configurations, last the namespace.

    Changes in VMs are kept; use `kubevirt-webhook cleanup` to remove them.
    """
    async with connected(kubeconfig) as api:
        installer = Installer(api, write.line, seconds=seconds)
        place = await _namespace(installer, namespace, "or leave the option out")
        if namespace is None and not await installer.namespace():
            place = await installer.ending_namespace() or place
        own = await _removable(installer, place)
        # What is first goes last: the scheduler, since until then what names it can still be placed, and the reports of
        # the background scan, which a replica may write until it has ended.
        objects = [*await _reports(api), *await _removable_scheduler(api, installer), *own]
        number = pluralize(len(objects), "object")
        write.line(f"cluster: {visible(api.cluster)}")
        for manifest in in_order_of_deletion(objects):
            write.line(f"- {title(manifest)}", color="red")
        if own:
            await _warn_of_pools(api)
        if not objects:
            write.line("kubevirt-webhook is not installed")
        elif not dry_run and confirm(f"Delete {number} from {visible(api.cluster)}?", yes=yes):
            await installer.uninstall(objects)
            write.line(_KEPT)
            for command in await _to_opt_out(api):
                write.line(f"  {command}")
            write.line("uninstalled")
            return
        # What is kept counts again after another installation, whatever tool removed this one.
        if (dry_run or not objects) and (commands := await _to_opt_out(api)):
            write.line(
                f"{'will be kept' if objects else 'kept'}: labels and annotations of namespaces; to remove them:"
            )
            for command in commands:
                write.line(f"  {command}")


async def _removable(installer: Installer, namespace: str) -> list[Manifest]:
    """The objects of the installation that exist, in the order in which they were created.

    A namespace without the label that an installation gives it was created by others, who may have more in it.
    """
    own = await installer.present(everything(directory("manifests"), namespace))
    for manifest in [one for one in own if one["kind"] == "Namespace"]:
        labels = (await installer.get(manifest) or manifest)["metadata"].get("labels") or {}
        if labels.get(_LABEL_KEY) != _LABEL_VALUE:
            own.remove(manifest)
            if own:
                todo = f"delete it if nothing else is in it: kubectl delete namespace {namespace}"
                why = f"lacks the label {_LABEL_KEY}={_LABEL_VALUE}, which an installation sets"
                write.line(f"{title(manifest)}: kept, since it {why}; {todo}", err=True)
    return own


async def _removable_scheduler(api: KubernetesTransport, installer: Installer) -> list[Manifest]:
    """The objects of the second scheduler that an installation has made, in the order in which they were created.

    None where pods name it, which would wait for it indefinitely.
    """
    objects = plan.in_order(scheduler.objects(directory("manifests")))
    own = [one for one in objects if (live := await installer.get(one)) and scheduler.is_ours(live)]
    if own and (users := await scheduler.count_users(api, scheduler.PROFILE)):
        todo = "run kubevirt-webhook cleanup, restart VMs that run, then run kubevirt-webhook uninstall again"
        write.line(f"scheduler {scheduler.PROFILE}: kept, since {users} name it; {todo}", err=True)
        return []
    return own


async def _reports(api: KubernetesTransport) -> list[Manifest]:
    """The PolicyReports of the background scan, which nobody would correct any more; none where they cannot be read."""
    query = {"labelSelector": "=".join(policy_reports.MANAGED_BY)}
    try:
        async with aclosing(all_of(api, POLICY_REPORTS, query=query)) as found:
            metas = [one.meta async for one in found if one.meta.name == policy_reports.NAME]
    except InputError as error:
        command = f"kubectl delete policyreports -A -l {query['labelSelector']}"
        write.line(f"PolicyReports: kept, since they cannot be listed: {error.what}; {command}", err=True)
        return []
    kind = {"apiVersion": POLICY_REPORTS.api_version, "kind": POLICY_REPORTS.kind}
    return [{**kind, "metadata": {"name": meta.name, "namespace": meta.namespace}} for meta in metas]


async def _to_opt_out(api: KubernetesTransport) -> list[str]:
    """What removes our labels and annotations from namespaces: commands, as many as a screen has; empty if unread."""
    namespaces = await Reader(api).all(NAMESPACES)
    commands: list[str] = []
    for one in () if isinstance(namespaces, Unavailable) else namespaces:
        for verb, written in (("label", one.meta.labels), ("annotate", one.meta.annotations)):
            own = [f"{key}-" for key in written or () if key.startswith(f"{names.DOMAIN}/")]
            # Those who may change a namespace may write any number.
            parts = (" ".join(own[at : at + _MOST_KEYS]) for at in range(0, len(own), _MOST_KEYS))
            commands += (f"kubectl {verb} namespace {one.meta.name} {part}" for part in parts)
    more = len(commands) - _MOST_COMMANDS
    return [*commands[:_MOST_COMMANDS], *([f"and {pluralize(more, 'command')} like these"] if more > 0 else [])]


async def _warn_of_pools(api: KubernetesTransport) -> None:
    """Name the pools whose VMs lose their size once kubevirt-webhook does not set it again."""
    pools = await pools_of_defaults(Reader(api))
    if isinstance(pools, Unavailable):
        write.line(f"warning: pools whose VMs depend on a default instancetype were not checked: {pools.why}", err=True)
        return
    for pool in pools:
        what = "its VMs have their size from a default instancetype, and lose it when the pool changes later"
        todo = "set an instancetype or a memory size in its spec.virtualMachineTemplate.spec first"
        write.line(f"warning: VirtualMachinePool {pool.title}: {what}; {todo}", err=True)


@click.command()
@namespace_option("Namespace of the VMs.  [default: all namespaces]")
@_KUBECONFIG
@click.option("--allow-restart-required", is_flag=True, help="Also change running VMs, which then require a restart.")
@click.option("--scheduler", "schedulers", multiple=True, metavar="NAME", help=_UNCHOSEN)
@_DRY_RUN
@_YES
@_asynchronous
async def cleanup(
    *,
    kubeconfig: Kubeconfig | None,
    namespace: str | None,
    allow_restart_required: bool,
    schedulers: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> int:
    """Remove the annotations, schedulers and topology spread constraints that kubevirt-webhook wrote into VMs.

    Run `kubevirt-webhook uninstall` first, and end trials; `--dry-run` also answers before. Exit status 1 if a VM could
    not be changed, or if what was removed has been put back.
    """
    async with connected(kubeconfig) as api:
        called = await _find_calls(api)
        if called and not dry_run:
            raise called
        place = namespace or ""
        tasks = await cleaning.tasks(api, place, schedulers, allow_restart_required=allow_restart_required)
        write.line(f"cluster: {visible(api.cluster)}")
        for task in tasks:
            for text in (*task.texts, *([task.left] if task.left else [])):
                write.line(f"{task.title}: {text}")
        todo = [task for task in tasks if task.operations]
        vms, failed = pluralize(len(todo), "VM"), 0
        if not todo:
            write.line("no VM to clean")
        elif not dry_run and confirm(f"Change {vms} in {visible(api.cluster)}?", yes=yes):
            problems = {task.title: await cleaning.clean(api, task) for task in todo}
            cleaned = [task for task in todo if not problems[task.title]]
            problems |= await cleaning.put_back(api, place, cleaned) if cleaned else {}
            for subject, problem in problems.items():
                if problem:
                    failed += 1
                    write.error(f"{subject}: {problem}")
            write.line(f"cleaned {len(todo) - failed}/{vms}")
        if left := sum(bool(task.left) for task in tasks):
            write.line(f"{pluralize(left, 'running VM')} {'keeps' if left == 1 else 'keep'} what is skipped above")
        vmis, pods = await cleaning.remaining(api, place)
        if vmis or pods:
            objects = f"{pluralize(vmis, 'VMI')} and {pluralize(pods, 'launcher pod')}"
            write.line(f"{objects} have annotations of kubevirt-webhook until their VMs stop")
        if called:
            write.line(f"nothing can be cleaned yet: {called}")
        return int(failed > 0)


async def _find_calls(api: KubernetesTransport) -> InputError | None:
    """What keeps VMs from being cleaned: webhooks of this server, under whatever name; None where there are none."""
    present = await own_configurations(api)
    if not present:
        return None
    titles = [(kind, one.meta.name or "") for kind, one in present]
    what = "the API server still calls kubevirt-webhook, which would put back what a cleanup removes"
    # Of an installation there is more to remove than its configurations.
    fix = 'run "kubevirt-webhook uninstall" first'
    if not {name for _, name in titles} & {names.FIRST_CONFIGURATION, names.LAST_CONFIGURATION}:
        fix = f"end the trial or the tool that made them, or delete them: {deletion_command(titles)}"
    return InputError(what, ", ".join(" ".join(each) for each in titles), fix)


@click.command("hand-over")
@_KUBECONFIG
@click.option("--from-manager", "source", default=FIELD_MANAGER, show_default=True, metavar="MANAGER", help=_FORMER)
@click.option("--to-manager", "target", required=True, metavar="MANAGER", help=_NEXT)
@_DRY_RUN
@_YES
@_asynchronous
async def hand_over(*, kubeconfig: Kubeconfig | None, source: str, target: str, dry_run: bool, yes: bool) -> None:
    """Pass the fields of an installation from one tool to another.

    The next tool then meets no conflict, and can also remove what a later version leaves out. The objects do not change
    otherwise.
    """
    if source == target:
        raise InputError("the tools have the same field manager", "--to-manager", "name the next tool's")
    async with connected(kubeconfig) as api:
        write.line(f"cluster: {visible(api.cluster)}")
        namespace = await Installer(api, write.line).namespace() or NAMESPACE
        transfers = await ownership.transfers(api, everything(directory("manifests"), namespace), source, target)
        objects = pluralize(len(transfers), "object")
        for one in transfers:
            write.line(f"{one.title}: from {source} to {target}")
        if not transfers:
            write.line(f"{source} owns no field of the installation")
        elif not dry_run and confirm(f"Hand over {objects} in {visible(api.cluster)}?", yes=yes):
            for one in transfers:
                await ownership.transfer(api, one)
            write.line(f"handed over {objects}")
