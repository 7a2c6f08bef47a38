"""`kubevirt-webhook install`, `uninstall` and `cleanup`: into a cluster, out of it, and our marks out of VMs."""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from webhook import __version__
from webhook.cli import write

if TYPE_CHECKING:
    from webhook.install.apply import Installer, PlannedChange
    from webhook.install.plan import Overlay, Plan
    from webhook.install.registration import Manifest
    from webhook.k8s.client.transport import KubernetesTransport

T = TypeVar("T")

_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
_KUBECONFIG: Final = click.option(
    "--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="The cluster; default: as kubectl."
)
_DRY_RUN: Final = click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
_YES: Final = click.option("--yes", is_flag=True, help="Don't ask on a terminal.")
_TIMEOUT: Final = click.option(
    "--timeout", default=180, show_default=True, type=click.IntRange(1), metavar="SECONDS", help="How long to wait."
)


@click.command()
@_KUBECONFIG
@click.option(
    "--overlay",
    type=click.Choice(["kubernetes", "openshift"]),
    help="Which manifests; default: openshift where the cluster is one.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The settings; default: those that the cluster has, else the overlay's.",
)
@click.option("--image", metavar="IMAGE", help="What the replicas run; default: what they run already.")
@click.option(
    "--callers",
    metavar="auto|any|CIDR,...",
    help="From where the API server calls, for the NetworkPolicy; default: as it is, at first the overlay's.",
)
@_DRY_RUN
@_YES
@click.option("--wait/--no-wait", default=True, help="Have the replicas ready before they are called for anything new.")
@_TIMEOUT
@click.option("--force-conflicts", is_flag=True, help="Take over fields that another tool set to something else.")
def install(**options: Any) -> None:
    """Install into a cluster, or upgrade there, after showing every difference.

    Applied server-side: RBAC and settings, then the replicas, then what has them called.
    """
    config_file = options.pop("config_file")
    _run(_install(given=(_read(config_file), str(config_file)) if config_file else None, **options))


@click.command()
@_KUBECONFIG
@_DRY_RUN
@_YES
@_TIMEOUT
def uninstall(**options: Any) -> None:
    """Take everything out of a cluster again: the webhook configurations first, our namespace last.

    What was written into VMs stays: see `cleanup`.
    """
    _run(_uninstall(**options))


@click.command()
@_KUBECONFIG
@click.option("-n", "--namespace", default="", metavar="NAMESPACE", help="Only there; default: everywhere.")
@click.option("--allow-restart-required", is_flag=True, help="Change running VMs too, which then ask for a restart.")
@click.option(
    "--scheduler",
    "schedulers",
    multiple=True,
    metavar="NAME",
    help="A scheduler that no VM owner ever chose: take it out of VMs that have lost our annotation too.",
)
@_DRY_RUN
@_YES
def cleanup(**options: Any) -> None:
    """Take our marks, and the schedulers and topology spread constraints that we chose, out of VMs.

    For after `uninstall`.

    Exit status 1: some VM could not be changed.
    """
    if _run(_cleanup(**options)):
        sys.exit(1)


async def _install(
    *,
    kubeconfig: Path | None,
    overlay: Overlay | None,
    given: tuple[str, str] | None,
    image: str | None,
    callers: str | None,
    dry_run: bool,
    yes: bool,
    wait: bool,
    timeout: int,  # noqa: ASYNC109 - of the whole, not of one await
    force_conflicts: bool,
) -> None:
    from webhook.install.apply import Installer

    async with _connect(kubeconfig) as api:
        installer = Installer(api, write.line, force=force_conflicts, seconds=timeout)
        chosen: Overlay = overlay or ("openshift" if await installer.serves("config.openshift.io") else "kubernetes")
        narrow = await _narrowing(api, installer, chosen, callers)
        plan = await _plan(installer, chosen, given, image, narrow)
        changes = await installer.changes(plan)
        for change in changes:
            _show(change)
        if not changes:
            write.line("nothing to change")
        elif not dry_run and _confirm(f"Make these {len(changes)} changes?", yes=yes):
            await installer.install(plan, wait=wait)
            write.line("installed")


async def _narrowing(
    api: KubernetesTransport, installer: Installer, overlay: Overlay, callers: str | None
) -> Callable[[Manifest], Manifest]:
    """What is made of the overlay's NetworkPolicy: as told, else as the cluster's was made before."""
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
        blocks = blocks_of(await installer.get(plan.network_policy(directory("manifests"), overlay)))
    return lambda policy: restrict_callers(policy, blocks) if blocks else policy


async def _plan(
    installer: Installer,
    overlay: Overlay,
    given: tuple[str, str] | None,
    image: str | None,
    narrow: Callable[[Manifest], Manifest],
) -> Plan:
    """With settings and image of the cluster, where none are given.

    Args:
        given: a settings file and its name.
    """
    from webhook.cli.data import directory
    from webhook.install import plan

    manifests = directory("manifests")
    own = plan.config_map(manifests, overlay)
    if given:
        text, where = given
    else:
        live = await installer.get(own)
        text = ((live or own).get("data") or {}).get(plan.SETTINGS_KEY) or ""
        where = plan.title(own)
    result = plan.of(manifests, overlay, text, where, image or "", narrow)
    if image:
        return result
    running = await installer.get(result.deployment)
    if running:
        image = running["spec"]["template"]["spec"]["containers"][0]["image"]
    return plan.of(manifests, overlay, text, where, image or f"kubevirt-webhook:{__version__}", narrow)


async def _uninstall(*, kubeconfig: Path | None, dry_run: bool, yes: bool, timeout: int) -> None:  # noqa: ASYNC109
    from webhook.cli.data import directory
    from webhook.install.apply import Installer
    from webhook.install.plan import everything, title

    async with _connect(kubeconfig) as api:
        installer = Installer(api, write.line, seconds=timeout)
        objects = await installer.present(everything(directory("manifests")))
        for manifest in objects:
            write.line(f"- {title(manifest)}", color="red")
        if objects:
            await _warn_of_pools(api)
        if not objects:
            write.line("nothing is installed")
        elif not dry_run and _confirm(f"Delete these {len(objects)} objects?", yes=yes):
            await installer.uninstall(objects)
            write.line("uninstalled")


async def _warn_of_pools(api: KubernetesTransport) -> None:
    """Name the pools whose VMs lose their size once nobody puts it back."""
    from webhook.doctor.checks import pools
    from webhook.doctor.support.reader import Reader
    from webhook.errors import Unavailable

    found = await pools.depending_on_defaults(Reader(api))
    if isinstance(found, Unavailable):
        write.line(f"warning: pools that live by defaults were not looked for: {found.why}", err=True)
        return
    for pool in found:
        what = "its VMs have their size by default alone, and lose it when the pool changes after this"
        write.line(f"warning: VirtualMachinePool {pool.title}: {what}; {pools.FIX} first", err=True)


async def _cleanup(
    *,
    kubeconfig: Path | None,
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
        ours = [one for one in everything(directory("manifests")) if one["kind"] in CONFIGURATIONS]
        present = await Installer(api, write.line).present(ours)
        if present:
            what = "we would put back what is taken out: we are still called"
            raise InputError(what, title(present[0]), "run kubevirt-webhook uninstall first")
        work = Cleanup(api, namespace, schedulers)
        tasks = await work.tasks(allow_restart_required=allow_restart_required)
        for task in tasks:
            for text in task.texts:
                write.line(f"{task.title}: {text}")
            if task.left:
                write.line(f"{task.title}: {task.left}")
        todo = [task for task in tasks if task.operations]
        failed = 0
        if todo and not dry_run and _confirm(f"Change these {len(todo)} VMs?", yes=yes):
            for task in todo:
                problem = await work.clean(task)
                if problem:
                    failed += 1
                    write.error(f"{task.title}: {problem}")
            write.line(f"{len(todo) - failed} of {len(todo)} VMs cleaned")
        elif not todo:
            write.line("nothing to clean")
        vmis, pods = await work.remaining()
        if vmis or pods:
            write.line(f"{vmis} VMIs and {pods} launcher pods carry marks, which end with them")
        return failed


@asynccontextmanager
async def _connect(kubeconfig: Path | None) -> AsyncIterator[KubernetesTransport]:
    from webhook.k8s.client.transport import connect

    transport = await connect(str(kubeconfig) if kubeconfig else None)
    try:
        yield transport
    finally:
        await transport.close()


def _read(file: Path) -> str:
    from webhook.errors import InputError
    from webhook.inputs import read_file
    from webhook.settings.file import MAX_BYTES

    try:
        return read_file(file, MAX_BYTES).decode()
    except UnicodeDecodeError:
        raise InputError("it is not UTF-8", str(file), "save it as UTF-8") from None


def _confirm(question: str, *, yes: bool) -> bool:
    return yes or not _on_terminal() or click.confirm(question)


def _on_terminal() -> bool:
    return sys.stdin.isatty()


def _show(change: PlannedChange) -> None:
    from webhook.cli.show import safe
    from webhook.cli.yamltext import dump

    if change.before is None:
        write.line(f"+ {change.title}", color="green")
        return
    if change.after is None:
        write.line(f"- {change.title}", color="red")
        return
    write.line(f"~ {change.title}")
    before, after = (dump([one]).splitlines() for one in (change.before, change.after))
    for line in list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]:
        write.line(f"  {safe(line)}", color=_STYLES.get(line[0]))


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)
