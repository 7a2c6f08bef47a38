"""`kubevirt-webhook hand-over`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import click

from webhook.cli import write
from webhook.cli.confirmation import cluster_of, confirm, name_cluster
from webhook.cli.options import kubeconfig_option
from webhook.text import pluralize

_OWN: Final = "kubevirt-webhook-install"


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
def hand_over(*, kubeconfig: Path | None, source: str, target: str, dry_run: bool, yes: bool) -> None:
    """Pass the fields of an installation from one tool to another.

    The next tool then meets no conflict, and can also remove what a later version leaves out. The objects do not change
    otherwise.
    """
    asyncio.run(_hand_over(kubeconfig, source, target, dry_run=dry_run, yes=yes))


async def _hand_over(kubeconfig: Path | None, source: str, target: str, *, dry_run: bool, yes: bool) -> None:
    from webhook.cli.data import directory
    from webhook.errors import InputError
    from webhook.install.ownership import HandOver
    from webhook.install.plan import everything
    from webhook.k8s.client.transport import connect

    if source == target:
        raise InputError("the tools have the same field manager", "--to-manager", "name the next tool's")
    api = await connect(str(kubeconfig) if kubeconfig else None)
    try:
        name_cluster(api)
        work = HandOver(api, source, target)
        transfers = await work.transfers(everything(directory("manifests")))
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
