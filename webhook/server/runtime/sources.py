"""Where a running server's facts come from, and what runs beside its reviews: Events, drift scan, fidelity check."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from webhook.admission.lines import LineWriter
from webhook.cluster.source import BrowsableCluster, Cluster
from webhook.errors import InputError, Unavailable
from webhook.facts import NOT_READ, KubeVirtKey, SchedulerHealth
from webhook.k8s.client.identity import Kubeconfig
from webhook.review.reviewer import Observer
from webhook.server.background.events import EventObserver
from webhook.server.ops import Read
from webhook.server.runtime.certificates import cancel
from webhook.server.runtime.logs import ServerEvent
from webhook.server.runtime.options import Options, SettingsFollower
from webhook.settings.model import Settings

if TYPE_CHECKING:
    from webhook.cluster.nodes import NodeReports
    from webhook.kubevirt.config import ClusterConfig, KubeVirtInstall
    from webhook.server.background.drift import DriftScanner
    from webhook.server.background.events import EventWriter
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
    watch = FidelityCheck(
        transport, configuration, lambda: settings.current().instancetypes.fidelity_check, audit.write
    )
    task = asyncio.create_task(watch.run(), name="fidelity")
    try:
        yield watch
    finally:
        await cancel(task)
        await transport.close()


LABELS: Final[Mapping[str, str | tuple[str, ...]]] = {
    "kubevirt_webhook_events_total": "result",
    "kubevirt_webhook_drift_objects": ("policy", "resource"),
    "kubevirt_webhook_drift_scans_total": "result",
}


class Background(msgspec.Struct, frozen=True):
    """What runs; nothing of it where facts come from files."""

    events: EventWriter | None = None
    drift_scan: DriftScanner | None = None

    def announcing(self, observer: Observer, settings: Callable[[], Settings]) -> Observer:
        """An observer that also makes Kubernetes Events, where there is an API server to write them to."""
        return EventObserver(observer, self.events.add, lambda: settings().events) if self.events else observer

    def gauges(self) -> dict[str, Read]:
        """The gauges of the background tasks: help text and a function that reads the values, by name."""
        drift_scan = self.drift_scan
        return {
            "kubevirt_webhook_drift_objects": (
                "Objects that are not as enforce would make them, at the last scan.",
                lambda: drift_scan.found if drift_scan else {},
            )
        }

    def counters(self) -> dict[str, Read]:
        """The counters of the background tasks: help text and a function that reads the values, by name."""
        events, drift_scan = self.events, self.drift_scan
        return {
            "kubevirt_webhook_events_total": (
                "Kubernetes Events by result.",
                lambda: dict(events.results) if events else {},
            ),
            "kubevirt_webhook_drift_scans_total": (
                "Scans for objects that are not as enforce would make them, by result.",
                lambda: dict(drift_scan.rounds) if drift_scan else {},
            ),
        }


@asynccontextmanager
async def background(
    kubeconfig: Kubeconfig | None, settings: Callable[[], Settings], cluster: Cluster, audit: LineWriter
) -> AsyncIterator[Background]:
    """Both, with a connection of their own, until the end.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    from webhook.k8s.client.transport import connect
    from webhook.server.background.drift import DriftScanner, Reports
    from webhook.server.background.events import EventWriter, restore_event

    transport = await connect(kubeconfig)
    events = EventWriter(transport, os.environ.get("HOSTNAME") or socket.gethostname())
    if place := settings().webhooks.service.namespace:
        cluster.on_restore(lambda why: events.add(restore_event(place, why)) if settings().events else None)
    drift_scan = DriftScanner(transport, cluster, settings, audit.write, Reports(transport))
    tasks = [asyncio.create_task(work.run(), name=type(work).__name__) for work in (events, drift_scan)]
    try:
        yield Background(events, drift_scan)
    finally:
        for task in tasks:
            await cancel(task)
        await transport.close()
