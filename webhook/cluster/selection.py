"""The cluster that a command reads: YAML files, or a running cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable
from webhook.k8s.client.identity import Kubeconfig
from webhook.settings.model import Settings

if TYPE_CHECKING:
    from webhook.cluster.live import LiveCluster

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

        yield FilesCluster.load(cluster_from, settings or Settings())
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

    cluster = LiveCluster(transport, settings, is_brief=True)
    with _unlogged():
        try:
            with suggest_files(kubeconfig):
                # A server would try again where there is no connection; a command's user knows more after the first.
                if isinstance(date := await transport.date(), Unavailable):
                    raise NoAnswerError(f"the cluster did not answer: {date.why}", fix="check the kubeconfig")
                cluster.start()
                await _until_answered(cluster)
            yield cluster
        finally:
            await cluster.close()


async def _until_answered(cluster: LiveCluster) -> None:
    """Wait until a cluster has listed what it may list; a `NoAnswerError` after some seconds.

    Of a scheduler whose Lease is old this waits to see whether it is renewed; where that takes longer, its health stays
    unknown.
    """
    for _ in range(int(_READY_SECONDS / 0.1)):
        if not cluster.unanswered() and not cluster.undecided():
            return
        await asyncio.sleep(0.1)
    if not cluster.unanswered():
        return
    what = f"the cluster did not answer within {_READY_SECONDS:.0f}s"
    raise NoAnswerError(what, "; ".join(cluster.unanswered()), "check the kubeconfig and its permissions")


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep what a server would log from standard error: a command says it in its answer, once."""
    handler, log = logging.NullHandler(), logging.getLogger("webhook")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def gaps_of(cluster: Cluster) -> tuple[str, ...]:
    """What a command does not evaluate, because its user may not read it or only time shows it, as clauses."""
    from webhook.cluster.live import LiveCluster

    return (*cluster.gaps(), *cluster.undecided()) if isinstance(cluster, LiveCluster) else ()


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
