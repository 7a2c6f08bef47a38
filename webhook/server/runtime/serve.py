"""A running server: its parts, in the order in which they start and end."""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from webhook import __version__
from webhook.admission.lines import LineWriter
from webhook.admission.output import Descriptor, Output, RotatedFile
from webhook.cluster.source import Cluster
from webhook.install.registration import Registration, RegistrationTarget, configurations
from webhook.review.endpoints import BY_PATH
from webhook.review.reviewer import Reviewer
from webhook.server.edge import serving
from webhook.server.explain import explaining
from webhook.server.ops import Metrics, Ops, Rendering, serving_metrics
from webhook.server.runtime import logs
from webhook.server.runtime.background import Background, background
from webhook.server.runtime.certificates import Certificates, cancel, host_of, keep_fresh
from webhook.server.runtime.events import ServerEvent
from webhook.server.runtime.gauges import metrics_state
from webhook.server.runtime.layer_switch import layer_scores
from webhook.server.runtime.options import Options
from webhook.server.runtime.page_switch import page_parts
from webhook.server.runtime.settings_follower import SettingsFollower
from webhook.server.runtime.signals import Stop, Stopped
from webhook.server.runtime.sources import cluster_source, fidelity_check
from webhook.server.runtime.tracing import with_tracing, without_tracing
from webhook.settings.snapshot import AuditSettings, ServerSettings, Settings

if TYPE_CHECKING:
    from webhook.server.runtime.layers import LayerScores

# The collector finds little in a server whose requests make trees without cycles; rare runs keep its pauses rare.
_GC_THRESHOLD: Final = (50_000, 20, 20)
_SHUTDOWN_SECONDS: Final = 10.0
_READY_POLL_SECONDS: Final = 0.5


async def run(options: Options) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        InputError: something that the user gave cannot be used.
    """
    options.check()
    log = logs.configure()
    _many_connections()
    stop = Stop()
    with suppress(Stopped):
        await stop.run(_serve(options, stop, log))


async def _serve(options: Options, stop: Stop, log: Any) -> None:
    async with AsyncExitStack() as ends:
        settings = SettingsFollower(options.config_file, log)
        at_start = options.apply_to(settings.current())
        server = at_start.server
        certificates = Certificates(server, host_of(options.url, at_start), log)
        layers = await ends.enter_async_context(layer_scores(options, server.layers))
        cluster = await ends.enter_async_context(
            cluster_source(options, settings, log, layers.nodes if layers else None)
        )
        metrics = Metrics(BY_PATH, lambda event, path, error: log.error(event, webhook=path, exc_info=error))
        audit = LineWriter(_output(server.audit))
        ends.callback(audit.close)
        beside = Background()
        if not options.cluster_from:
            beside = await ends.enter_async_context(background(options.kubeconfig, settings.current, cluster, audit))
        observer = beside.announcing(metrics, settings.current)
        observer, kind = await ends.enter_async_context(
            with_tracing(observer) if server.traces else without_tracing(observer)
        )
        page = page_parts(server, audit, cluster, settings.current, certificates)
        reviewer = Reviewer(cluster, settings.current, page.recorder if page else audit, observer)
        app = kind(reviewer, BY_PATH, metrics, server.max_in_flight, server.client_names)
        parity = await ends.enter_async_context(fidelity_check(options, settings, cluster, audit))

        def waiting_for() -> tuple[str, ...]:
            ending = ("the server: it is stopping",) if stop.event.is_set() else ()
            return (*ending, *cluster.waiting_for(), *certificates.waiting_for())

        metrics.registry.register(
            metrics_state(app, audit, settings, cluster, parity, beside, certificates, waiting_for)
        )

        rendering = Rendering(metrics.registry)
        ops = Ops(None if server.metrics_listen else rendering, waiting_for, metrics).server()
        ops_address = await ends.enter_async_context(
            serving(ops, options.ops_listen or server.ops_listen, None, "--ops-listen", 0.0)
        )
        reviews = app.server()
        certificates.on_clients = reviews.recycle
        listener = certificates.listener
        address = await ends.enter_async_context(
            serving(reviews, options.listen or server.listen, listener, "--listen", _SHUTDOWN_SECONDS)
        )
        # Else no Service has to remove this replica first: its configurations, if any, are removed before it ends.
        live = not options.cluster_from and not options.register
        await ends.enter_async_context(
            keep_fresh(certificates, at_start, options.kubeconfig, options.url or "", address, live=live)
        )
        await _serve_others(ends, server, cluster, metrics, certificates, rendering, layers, log)
        if page:
            place = page.listening(server.page_listen, metrics, waiting_for, _SHUTDOWN_SECONDS)
            log.info("serving the page", address=await ends.enter_async_context(place))
        if settings.file:
            ends.push_async_callback(cancel, asyncio.create_task(settings.follow(), name="settings"))
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLD)
        log.info("serving", version=__version__, address=f"https://{address}", ops=f"http://{ops_address}")
        stop.end_start()
        if options.register and await _ready(cluster, stop.event, log):
            await ends.enter_async_context(_register(options, settings.current(), certificates.authority, log))
        await stop.event.wait()
        log.info("stopping")
        await reviews.begin_shutdown(server.drain_seconds if live else 0)


async def _serve_others(  # noqa: PLR0913 - one for each part of the server
    ends: AsyncExitStack,
    server: ServerSettings,
    cluster: Cluster,
    metrics: Metrics,
    certificates: Certificates,
    rendering: Rendering,
    layers: LayerScores | None,
    log: Any,
) -> None:
    """Start the listeners that the settings ask for: they never take a review's turn or connection."""
    if server.explain_listen:
        place = explaining(server.explain_listen, cluster, metrics, certificates.listener, _SHUTDOWN_SECONDS)
        log.info("serving explanations", address=await ends.enter_async_context(place))
    if server.metrics_listen:
        alone = serving_metrics(
            server.metrics_listen, rendering, cluster, metrics, certificates.listener, _SHUTDOWN_SECONDS
        )
        log.info("serving metrics", address=await ends.enter_async_context(alone))
    if layers:
        place = layers.listening(server.layers, certificates, metrics, _SHUTDOWN_SECONDS)
        log.info("serving layer scores", address=await ends.enter_async_context(place))
        metrics.registry.register(layers.metrics())


def _many_connections() -> None:
    """Raise the limit of open files as far as permitted: idle connections soon use up the usual 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _output(settings: AuditSettings) -> Output:
    if settings.output:
        return RotatedFile(settings.output, settings.max_bytes, settings.keep)
    return Descriptor(sys.stdout.fileno())


async def _ready(cluster: Cluster, stopped: asyncio.Event, log: Any) -> bool:
    """Wait until the cluster's answers can be trusted; False if a signal came before.

    Configurations that were registered earlier would only cost the API server time.
    """
    told: tuple[str, ...] = ()
    while missing := cluster.waiting_for():
        if missing != told:
            log.info("waiting before registration", waiting_for=missing)
            told = missing
        with suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), _READY_POLL_SECONDS)
            return False
    return True


@asynccontextmanager
async def _register(options: Options, settings: Settings, authority: bytes, log: Any) -> AsyncIterator[None]:
    """Webhook configurations for as long as the process runs."""
    from webhook.k8s.client.transport import connect

    target = RegistrationTarget(
        url=options.url or "",
        ca_bundle=authority,
        suffix=f"-{options.register_as}",
        only_ignore=True,
    )
    transport = await connect(options.kubeconfig)
    try:
        registration = Registration(transport)
        manifests = configurations(settings, target)
        await registration.register(manifests)
        log.info(
            "this trial differs from an installation: every failure policy is Ignore, and no admission policy denies"
            " labels of namespaces with invalid values"
        )
        log.info(
            "webhook configurations created", configurations=[f"{m['kind']}/{m['metadata']['name']}" for m in manifests]
        )
        try:
            yield
        finally:
            for problem in await registration.unregister():
                log.error(ServerEvent.NOT_DELETED, problem=problem)
    finally:
        await transport.close()
