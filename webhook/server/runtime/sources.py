"""Where a running server's facts come from, and what is compared with them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from webhook.admission.lines import LineWriter
from webhook.cluster.source import BrowsableCluster, Cluster
from webhook.errors import InputError, Unavailable
from webhook.facts import NOT_READ, KubeVirtKey, SchedulerHealth
from webhook.server.runtime.certificates import cancel
from webhook.server.runtime.events import ServerEvent
from webhook.server.runtime.options import Options
from webhook.server.runtime.settings_follower import SettingsFollower

if TYPE_CHECKING:
    from webhook.cluster.nodes import NodeReports
    from webhook.kubevirt.config import ClusterConfig, KubeVirtInstall
    from webhook.server.background.fidelity import FidelityCheck


@asynccontextmanager
async def cluster_source(
    options: Options, settings: SettingsFollower, log: Any, reports: NodeReports | None = None
) -> AsyncIterator[BrowsableCluster]:
    """The source of facts, following the settings; not necessarily ready.

    Args:
        options: the command line.
        settings: the settings.
        log: the logger for events.
        reports: gets more of each node than reviews need; None: no more is read.

    Raises:
        InputError: the cluster or the files cannot be used.
    """
    if options.cluster_from:
        from webhook.cluster.files import FilesCluster

        files = FilesCluster.load(options.cluster_from, settings.current())
        settings.subscribers.append(files.use)
        log.info(ServerEvent.FILES_READ, summary=files.summary())
        yield files
        return
    from webhook.cluster.live import LiveCluster
    from webhook.k8s.client.transport import connect

    def changed(name: str, old: SchedulerHealth, new: SchedulerHealth) -> None:
        level = log.info if new.state == "available" else log.warning
        level("scheduler's health changed", scheduler=name, was=old.state, now=new.state, why=new.why)

    if not options.kubeconfig and not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise InputError(
            "no cluster to read from: this process does not run in a pod",
            "serve",
            "use --kubeconfig FILE or --cluster-from DIR",
        )
    transport = await connect(options.kubeconfig)
    log.info(ServerEvent.API_SERVER_READ, server=transport.server)
    live = LiveCluster(transport, settings.current(), on_health=changed, reports=reports)
    settings.subscribers.append(live.use)
    live.on_restore(lambda why: log.warning(ServerEvent.ETCD_RESTORED, why=why))
    live.start()
    try:
        yield live
    finally:
        await live.close()


@asynccontextmanager
async def fidelity_check(
    options: Options, settings: SettingsFollower, cluster: Cluster, audit: LineWriter
) -> AsyncIterator[FidelityCheck | None]:
    """The watch beside admission, with a connection of its own; files have nothing to be watched."""
    if options.cluster_from:
        yield None
        return
    from webhook.k8s.client.transport import connect
    from webhook.server.background.fidelity import FidelityCheck

    def configuration() -> ClusterConfig | Unavailable | None:
        install = cluster.peek(KubeVirtKey())
        if install is NOT_READ:
            return Unavailable("the watch of kubevirts is too old")
        known = cast("KubeVirtInstall | Unavailable | None", install)
        return known if known is None or isinstance(known, Unavailable) else known.configuration

    transport = await connect(options.kubeconfig)
    watch = FidelityCheck(transport, configuration, lambda: settings.current().instancetypes.parity, audit.write)
    task = asyncio.create_task(watch.run(), name="parity")
    try:
        yield watch
    finally:
        await cancel(task)
        await transport.close()
