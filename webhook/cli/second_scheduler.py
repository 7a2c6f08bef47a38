"""The second scheduler in `kubevirt-webhook install` and `kubevirt-webhook uninstall`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from webhook.cli import write
from webhook.install.schedulers.variants import VARIANTS, Variant

if TYPE_CHECKING:
    from webhook.install.apply import Installer
    from webhook.install.registration import Manifest
    from webhook.install.scheduler import Wanted
    from webhook.k8s.client.transport import KubernetesTransport

WITH: Final = "scheduler"


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


async def plan_objects(
    api: KubernetesTransport, installer: Installer, options: SchedulerOptions, *, is_openshift: bool
) -> tuple[Manifest, ...]:
    """The objects of the second scheduler; empty where there is none and none is wanted.

    Raises:
        InputError: something of another origin is in its place, or the image cannot be found out.
    """
    from webhook.cli.data import directory
    from webhook.install import scheduler

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
    from webhook.install.schedulers.permissions import UPSTREAM_ROLES

    rules: list[Any] = []
    for name in UPSTREAM_ROLES:
        kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}}
        rules += (await installer.get(kind) or {}).get("rules") or ()
    return rules


async def present(installer: Installer) -> list[Manifest]:
    """The objects of the second scheduler that an installation has made, in the order in which they were created."""
    from webhook.cli.data import directory
    from webhook.install import plan, scheduler

    found = []
    for manifest in plan.in_order(scheduler.objects(directory("manifests"))):
        live = await installer.get(manifest)
        if live is not None and scheduler.is_ours(live):
            found.append(manifest)
    return found


async def removable(api: KubernetesTransport, installer: Installer) -> list[Manifest]:
    """The objects of the second scheduler, unless pods name it, which would wait for it indefinitely."""
    from webhook.install.scheduler import PROFILE
    from webhook.install.scheduler_users import count_users

    found = await present(installer)
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
    from webhook.install import scheduler

    by_kind = {one["kind"]: one for one in scheduler.objects(directory("manifests"))}
    deployment = await installer.get(by_kind["Deployment"])
    config_map = await installer.get(by_kind["ConfigMap"]) if deployment else None
    return scheduler.of_live(deployment, config_map)


async def _check_origin(installer: Installer) -> None:
    """Keep what another tool has put there, which an uninstallation would delete."""
    from webhook.cli.data import directory
    from webhook.errors import InputError
    from webhook.install import plan, scheduler

    for manifest in scheduler.objects(directory("manifests")):
        live = await installer.get(manifest)
        if live is not None and not scheduler.is_ours(live):
            what = "exists, but was not created by kubevirt-webhook"
            fix = f"keep that scheduler and leave --with {WITH} out, or delete it first"
            raise InputError(what, plan.title(manifest), fix)
