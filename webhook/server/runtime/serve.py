"""A running server: the kernel, and the parts that are on.

A part that needs a restart to be switched on imports its libraries only where it is on.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from webhook import __version__
from webhook.admission.audit import Sinks
from webhook.admission.lines import LineWriter
from webhook.admission.output import Descriptor, Output, RotatedFile
from webhook.cluster.source import Cluster
from webhook.forecast.additions import additions_by
from webhook.install.registration import Registration, RegistrationTarget, configurations
from webhook.policies.registry import BY_PATH
from webhook.review.reviewer import Reviewer
from webhook.server.admin import ADMIN_METRICS, serve_admins
from webhook.server.app import ReviewApp
from webhook.server.drift_scan.part import DRIFT_SCAN
from webhook.server.events.part import EVENTS
from webhook.server.explanations.part import EXPLANATIONS
from webhook.server.fidelity_check.part import FIDELITY_CHECK
from webhook.server.guard import Limits
from webhook.server.headroom.part import HEADROOM
from webhook.server.layer_scores.part import LAYER_SCORES
from webhook.server.listener import SHUTDOWN_SECONDS, Listener, serving
from webhook.server.ops import METRICS_PATH, Health, Metrics, MetricsState, Rendering
from webhook.server.page.part import PAGE
from webhook.server.part import Contribution, Part, ServerHandle
from webhook.server.requested_migrations.part import REQUESTED_MIGRATIONS
from webhook.server.runtime import logs
from webhook.server.runtime.certificates import Certificates, host_of
from webhook.server.runtime.connections import connected
from webhook.server.runtime.options import Options, SettingsFollower
from webhook.server.runtime.sources import open_source, senders
from webhook.server.runtime.state_metrics import metrics_state
from webhook.server.runtime.stop import Stop
from webhook.server.tasks import keep_until
from webhook.server.tracing import TRACING
from webhook.settings.fields import STDOUT
from webhook.settings.model import AuditSettings, Settings

# They start in this order, and end in the reverse one.
PARTS: Final[tuple[Part, ...]] = (
    LAYER_SCORES,
    EVENTS,
    REQUESTED_MIGRATIONS,
    HEADROOM,
    DRIFT_SCAN,
    FIDELITY_CHECK,
    TRACING,
    PAGE,
    EXPLANATIONS,
    ADMIN_METRICS,
)

_READY_POLL_SECONDS: Final = 0.5
# Of malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


async def run(options: Options) -> None:
    """Serve until SIGTERM or SIGINT; an `InputError` where something that the user gave cannot be used."""
    options.check()
    log = logs.follow_loop()
    _many_connections()
    _return_large_blocks()
    stop = Stop()
    await stop.run(_serve(options, stop, log))


async def _serve(options: Options, stop: Stop, log: Any) -> None:
    async with AsyncExitStack() as ends:
        settings = SettingsFollower(options.config_file, log)
        at_start = options.apply_to(settings.current())
        server, enter = at_start.server, ends.enter_async_context
        certificates = Certificates(at_start.tls, host_of(options.url, at_start), log)
        source = await open_source(options, settings, log, ends)
        cluster = source.cluster
        metrics = Metrics(BY_PATH, lambda event, path, error: log.error(event, webhook=path, exc_info=error))
        audit = LineWriter(_output(at_start.audit))
        ends.callback(audit.close)

        def waiting_for() -> tuple[str, ...]:
            ending = ("the server: it is stopping",) if stop.event.is_set() else ()
            return (*ending, *cluster.waiting_for(), *certificates.waiting_for())

        handle = ServerHandle(
            at_start=at_start,
            settings=settings.current,
            cluster=cluster,
            api_server=source.api_server,
            audit=audit.write,
            log=log,
            certificates=certificates,
            metrics=metrics,
            waiting_for=waiting_for,
        )
        parts = Contribution.joined([await part.begin(handle, ends) for part in PARTS])
        source.start()
        sink = Sinks(audit, *parts.sinks) if parts.sinks else audit
        reviewer = Reviewer(cluster, settings.current, sink, metrics, *parts.observers, additions=additions_by)
        clients, around = at_start.tls.client_names, parts.middlewares
        app = ReviewApp(reviewer, BY_PATH, metrics, server.max_in_flight, clients, around)
        app.senders = await senders(options, at_start, log, ends)
        state = metrics_state(app, audit, settings, cluster, waiting_for)
        metrics.registry.register(MetricsState([*state, *certificates.metrics(), *parts.metrics]))
        rendering = None if METRICS_PATH in parts.applications else Rendering(metrics.registry)
        ops = Listener(Health(waiting_for, rendering, metrics).application(), Limits())
        ops_address = await enter(serving(ops, options.ops_listen or server.ops_listen, None, "--ops-listen", 0.0))
        reviews = app.listener
        certificates.on_clients = reviews.recycle
        listen, tls = options.listen or server.listen, certificates.listener
        address = await enter(serving(reviews, listen, tls, "--listen", SHUTDOWN_SECONDS))
        # Else no Service has to remove this replica first: its configurations, if any, are removed before it ends.
        live = not options.cluster_from and not options.register
        end_rotation = await certificates.keep_fresh(options, at_start, address, ends, live=live)
        if parts.applications:
            await enter(serve_admins(handle, parts.applications, tls))
        for open_listener in parts.listeners:
            await enter(open_listener())
        if settings.file:
            keep_until(ends, settings.file.watch, "internal error while following the settings file; retrying")
        log.info("serving", version=__version__, address=f"https://{address}", ops=f"http://{ops_address}")
        _end_start(stop)
        if options.register and await _ready(cluster, stop.event, log):
            await _register(options, settings.current(), certificates.authority, log, ends)
        await stop.event.wait()
        # Other replicas renew certificates meanwhile, and an uninstall may have removed what this one would read.
        await end_rotation()
        log.info("stopping")
        await reviews.begin_shutdown(server.shutdown_seconds if live else 0)


def _end_start(stop: Stop) -> None:
    stop.end_start()
    # What is here now stays. A full collection that looks at it takes 35 ms, in which no review is answered.
    gc.freeze()


def _many_connections() -> None:
    """Raise the limit of open files as far as permitted: idle connections soon use up the usual 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _return_large_blocks() -> None:
    """Let the C library return the memory of large bodies and of connections as soon as they are free.

    glibc raises its threshold whenever a block that was mapped is freed; later ones then come from the heap, and small
    ones behind them keep it from shrinking (mallopt(3), M_MMAP_THRESHOLD). A threshold that is set stays.
    """
    import ctypes

    # Another C library may have no such function.
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 128 * 1024)
        mallopt(_M_TRIM_THRESHOLD, 256 * 1024)


def _output(settings: AuditSettings) -> Output:
    if settings.output == STDOUT:
        return Descriptor(sys.stdout.fileno())
    return RotatedFile(settings.output, settings.max_bytes, settings.keep)


async def _ready(cluster: Cluster, stopped: asyncio.Event, log: Any) -> bool:
    """Wait until the cluster's answers can be trusted; False if a signal came before.

    Configurations that were registered earlier would only cost the API server time.
    """
    last: tuple[str, ...] = ()
    while missing := cluster.waiting_for():
        if missing != last:
            log.info("waiting before registration", waiting_for=missing)
            last = missing
        with suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), _READY_POLL_SECONDS)
            return False
    return True


async def _register(options: Options, settings: Settings, authority: bytes, log: Any, ends: AsyncExitStack) -> None:
    """Create webhook configurations, which are deleted at the end."""
    suffix = f"-{options.register_as}"
    target = RegistrationTarget(url=options.url or "", ca_bundle=authority, suffix=suffix, only_ignore=True)
    registration = Registration(await connected(options.kubeconfig, ends))
    manifests = configurations(settings, target)

    async def unregister() -> None:
        for problem in await registration.unregister():
            log.error("configuration not deleted", problem=problem)

    await registration.register(manifests)
    ends.push_async_callback(unregister)
    if registration.replaced:
        what = "webhook configurations replaced that an earlier server at this URL left behind"
        log.warning(what, configurations=registration.replaced)
    log.info(
        "this trial differs from an installation: every failure policy is Ignore, and no admission policy denies"
        " labels of namespaces with invalid values"
    )
    created = [f"{each['kind']}/{each['metadata']['name']}" for each in manifests]
    log.info("webhook configurations created", configurations=created)
