"""The cluster that a command takes its facts from: YAML files, or a running one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from webhook.cluster.objects import FileObjects, LiveObjects, Objects
from webhook.cluster.source import Cluster
from webhook.errors import InputError
from webhook.settings.file import default_settings
from webhook.settings.snapshot import Settings

_PATIENCE = 15.0


def require_single_source(cluster_from: Path | None, kubeconfig: Path | None) -> None:
    """Check that not both sources are asked for.

    Raises:
        InputError: they are.
    """
    if cluster_from and kubeconfig:
        raise InputError(
            "facts come from files or from a cluster, not from both", "--cluster-from, --kubeconfig", "drop one"
        )


@asynccontextmanager
async def open_cluster(
    cluster_from: Path | None, kubeconfig: Path | None, settings: Settings
) -> AsyncIterator[Cluster]:
    """A source that is ready to answer, closed at the end. Without a choice: the cluster that kubectl would ask.

    Raises:
        InputError: the files or the kubeconfig can't be used, or the cluster gives no answer.
    """
    require_single_source(cluster_from, kubeconfig)
    if cluster_from:
        from webhook.cluster.files import FilesCluster

        yield FilesCluster.load(cluster_from, settings)
        return
    from webhook.cluster.live import LiveCluster
    from webhook.k8s.client.transport import connect

    cluster = LiveCluster(await connect(str(kubeconfig) if kubeconfig else None), settings)
    cluster.start()
    try:
        await _ready(cluster)
        yield cluster
    finally:
        await cluster.close()


@asynccontextmanager
async def once(cluster_from: Path | None, kubeconfig: Path | None) -> AsyncIterator[Cluster]:
    """The same for a few questions, which don't wait for watches and need no rights but their own.

    Raises:
        InputError: the files or the kubeconfig can't be used.
    """
    require_single_source(cluster_from, kubeconfig)
    if cluster_from:
        from webhook.cluster.files import FilesCluster

        yield FilesCluster.load(cluster_from, default_settings())
        return
    from webhook.cluster.once import OnceCluster
    from webhook.k8s.client.transport import connect

    transport = await connect(str(kubeconfig) if kubeconfig else None)
    try:
        yield OnceCluster(transport)
    finally:
        await transport.close()


@asynccontextmanager
async def objects(cluster_from: Path | None, kubeconfig: Path | None) -> AsyncIterator[Objects | None]:
    """The same choice for those who ask for whole objects. Without one there is no source: nobody is asked.

    Raises:
        InputError: the files or the kubeconfig can't be used.
    """
    require_single_source(cluster_from, kubeconfig)
    if cluster_from:
        from webhook.cluster.files import FilesCluster

        yield FileObjects(FilesCluster.load(cluster_from, default_settings()))
    elif kubeconfig:
        from webhook.k8s.client.transport import connect

        transport = await connect(str(kubeconfig))
        try:
            yield LiveObjects(transport)
        finally:
            await transport.close()
    else:
        yield None


async def _ready(cluster: Cluster) -> None:
    for _ in range(int(_PATIENCE / 0.1)):
        if not cluster.waiting_for():
            return
        await asyncio.sleep(0.1)
    missing = "; ".join(cluster.waiting_for())
    raise InputError(
        f"the cluster gave no answer within {_PATIENCE:.0f} s", missing, "check the kubeconfig and its rights"
    )
