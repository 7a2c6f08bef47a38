"""The cluster that a command reads: YAML files, or a running cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from webhook.cluster.source import Cluster
from webhook.errors import InputError
from webhook.k8s.client.identity import Kubeconfig
from webhook.settings.file import default_settings
from webhook.settings.model import Settings

_READY_SECONDS: Final = 15.0


class NoAnswerError(InputError):
    """The cluster does not answer what a command needs."""


def require_single_source(cluster_from: Path | None, kubeconfig: Kubeconfig | None) -> None:
    """Check that at most one source is selected, or raise an `InputError`."""
    if cluster_from and kubeconfig:
        raise InputError("the options exclude each other", "--cluster-from, --kubeconfig", "remove one of them")


@asynccontextmanager
async def open_cluster(
    cluster_from: Path | None, kubeconfig: Kubeconfig | None, settings: Settings | None = None
) -> AsyncIterator[Cluster]:
    """A source that is ready to answer, closed at the end; by default the cluster that kubectl uses.

    Without settings it is for a few reads, without watches and the permissions for them.

    Raises:
        InputError: the files or the kubeconfig cannot be used.
        NoAnswerError: the cluster does not answer.
    """
    require_single_source(cluster_from, kubeconfig)
    if cluster_from:
        from webhook.cluster.files import FilesCluster

        yield FilesCluster.load(cluster_from, settings or default_settings())
        return
    from webhook.k8s.client.transport import connect

    with suggest_files(kubeconfig):
        transport = await connect(kubeconfig)
    if settings is None:
        from webhook.cluster.reader import OnceCluster

        try:
            yield OnceCluster(transport)
        finally:
            await transport.close()
        return
    from webhook.cluster.live import LiveCluster

    cluster = LiveCluster(transport, settings)
    cluster.start()
    try:
        with suggest_files(kubeconfig):
            for _ in range(int(_READY_SECONDS / 0.1)):
                if not cluster.waiting_for():
                    break
                await asyncio.sleep(0.1)
            else:
                what = f"the cluster did not answer within {_READY_SECONDS:.0f}s"
                missing = "; ".join(cluster.waiting_for())
                raise NoAnswerError(what, missing, "check the kubeconfig and its permissions")
        yield cluster
    finally:
        await cluster.close()


@contextmanager
def suggest_files(kubeconfig: Kubeconfig | None) -> Iterator[None]:
    """Add ``--cluster-from`` to the errors of a command that names no cluster."""
    try:
        yield
    except InputError as error:
        if kubeconfig:
            raise
        fix = f"{error.fix}, or read cluster objects from files with --cluster-from DIR"
        kind = NoAnswerError if isinstance(error, NoAnswerError) else InputError
        raise kind(error.what, error.where, fix) from error
