"""A running server: its parts, in the order in which they start and end; its signals, metrics, and traces.

What is switched off is not imported: the admin listener, the layer scores, and OpenTelemetry. Its standard environment
variables say where spans go, and how many are kept, for example ``OTEL_EXPORTER_OTLP_ENDPOINT`` and
``OTEL_TRACES_SAMPLER``.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from webhook import __version__
from webhook.admission import wire
from webhook.admission.credentials import scrub_prose
from webhook.admission.lines import LineWriter
from webhook.admission.output import Descriptor, Output, RotatedFile
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable
from webhook.facts import NOT_READ, KubeVirtKey, SchedulerHealth, SchedulerKey
from webhook.install.registration import Registration, RegistrationTarget, configurations
from webhook.kubevirt.config import ClusterConfig, KubeVirtInstall
from webhook.policies.registry import BY_PATH
from webhook.policy import Endpoint
from webhook.review.reviewer import Evaluation, Observer, Reviewer
from webhook.server.app import ReviewApp
from webhook.server.guard import Limits
from webhook.server.listener import Listener, serving
from webhook.server.ops import (
    METRICS_PATH,
    Health,
    Metrics,
    MetricsState,
    Rendering,
    StateMetric,
    metrics_application,
)
from webhook.server.runtime import logs
from webhook.server.runtime.certificates import Certificates, host_of
from webhook.server.runtime.options import Options, SettingsFollower
from webhook.server.runtime.tasks import connected, keep_until
from webhook.server.senders import SenderVerifier
from webhook.settings.model import STDOUT, AdminSettings, AuditSettings, LayersSettings, Settings, is_loopback
from webhook.text import shorten

if TYPE_CHECKING:
    from webhook.images.registry.node_layers import NodeLayers
    from webhook.server.background.drift import DriftScanner
    from webhook.server.background.events import EventWriter
    from webhook.server.background.fidelity import FidelityCheck
    from webhook.server.page.recorder import DecisionRecorder
    from webhook.server.page.views import PageViews
    from webhook.server.runtime.layers import LayerScores


_SHUTDOWN_SECONDS: Final = 10.0
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
        layers = await layer_scores(options, at_start.layers, ends)
        cluster = await cluster_source(options, settings, log, ends, layers.nodes if layers else None)
        metrics = Metrics(BY_PATH, lambda event, path, error: log.error(event, webhook=path, exc_info=error))
        audit = LineWriter(_output(at_start.audit))
        ends.callback(audit.close)
        beside = await background(options, settings.current, cluster, audit, ends)
        spans = await enter(with_tracing()) if at_start.traces else None
        recorder = _recorder(audit) if at_start.admin.serves_page else None
        observers = filter(None, (metrics, beside.events, spans))
        reviewer = Reviewer(cluster, settings.current, recorder or audit, *observers)
        around = [remember_request] if spans else []
        app = ReviewApp(reviewer, BY_PATH, metrics, server.max_in_flight, at_start.tls.client_names, around)
        app.senders = await senders(options, at_start, log, ends)

        def waiting_for() -> tuple[str, ...]:
            ending = ("the server: it is stopping",) if stop.event.is_set() else ()
            return (*ending, *cluster.waiting_for(), *certificates.waiting_for())

        state = metrics_state(app, audit, settings, cluster, waiting_for)
        metrics.registry.register(MetricsState([*state, *certificates.metrics(), *beside.metrics()]))
        rendering = Rendering(metrics.registry)
        health = Health(waiting_for, None if at_start.admin.serves_metrics else rendering, metrics)
        ops, ops_listen = Listener(health.application(), Limits()), options.ops_listen or server.ops_listen
        ops_address = await enter(serving(ops, ops_listen, None, "--ops-listen", 0.0))
        reviews = app.listener
        certificates.on_clients = reviews.recycle
        listen, tls = options.listen or server.listen, certificates.listener
        address = await enter(serving(reviews, listen, tls, "--listen", _SHUTDOWN_SECONDS))
        # Else no Service has to remove this replica first: its configurations, if any, are removed before it ends.
        live = not options.cluster_from and not options.register
        await certificates.keep_fresh(options, at_start, address, ends, live=live)
        if at_start.admin.listen:
            views = _page_views(recorder, cluster, settings.current, certificates, waiting_for, ends)
            parts = _admin_parts(at_start.admin, cluster, metrics, rendering, views)
            from webhook.server.admin import admin_application

            admins = admin_application(parts, metrics, guarded=not is_loopback(at_start.admin.listen))
            place = admin_listener(admins, at_start.admin.listen, certificates.listener)
            log.info("serving admins", address=await enter(place), paths=sorted(parts))
        if layers:
            await _serve_layers(layers, at_start.layers, certificates, metrics, log, ends)
        if settings.file:
            keep_until(ends, settings.file.watch, "internal error while following the settings file; retrying")
        log.info("serving", version=__version__, address=f"https://{address}", ops=f"http://{ops_address}")
        _end_start(stop)
        if options.register and await _ready(cluster, stop.event, log):
            await _register(options, settings.current(), certificates.authority, log, ends)
        await stop.event.wait()
        log.info("stopping")
        await reviews.begin_shutdown(server.shutdown_seconds if live else 0)


def _end_start(stop: Stop) -> None:
    stop.end_start()
    # What is here now stays. A full collection that looks at it takes 35 ms, in which no review is answered.
    gc.freeze()


def _recorder(audit: LineWriter) -> DecisionRecorder:
    from webhook.server.page.recorder import DecisionRecorder

    return DecisionRecorder(audit)


def _admin_parts(
    settings: AdminSettings, cluster: Cluster, metrics: Metrics, rendering: Rendering, views: PageViews | None
) -> dict[str, web.Application]:
    """What the admin listener serves, by path; without views, no page."""
    from webhook.server import explain
    from webhook.server.admin import PAGE_PATH
    from webhook.server.authorizer import Authorizer

    guarded, parts = not is_loopback(settings.listen), dict[str, web.Application]()
    if settings.explain:
        parts[explain.PATH] = explain.Explainer(cluster, metrics, guarded=guarded).application()
    if settings.metrics:
        authorizer = Authorizer(cluster, METRICS_PATH) if guarded else None
        parts[METRICS_PATH] = metrics_application(rendering, authorizer, metrics)
    if views:
        from webhook.server.page.listener import PageHandler

        parts[PAGE_PATH] = PageHandler(cluster, views, metrics, guarded=guarded).application()
    return parts


@asynccontextmanager
async def admin_listener(application: web.Application, address: str, tls: ssl.SSLContext) -> AsyncIterator[str]:
    """The admin listener for as long as the context lasts; gives its URL.

    On a loopback address it is plain HTTP, else it has TLS.
    """
    guarded = not is_loopback(address)
    listener = Listener(application, Limits())
    async with serving(listener, address, tls if guarded else None, "admin.listen", _SHUTDOWN_SECONDS) as bound:
        yield f"{'https' if guarded else 'http'}://{bound}"


async def _serve_layers(
    layers: LayerScores,
    settings: LayersSettings,
    certificates: Certificates,
    metrics: Metrics,
    log: Any,
    ends: AsyncExitStack,
) -> None:
    """Serve layer scores until the end."""
    place = layers.listening(settings, certificates, metrics, _SHUTDOWN_SECONDS)
    log.info("serving layer scores", address=await ends.enter_async_context(place))
    metrics.registry.register(layers.metrics())


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


def _page_views(
    recorder: DecisionRecorder | None,
    cluster: Cluster,
    settings: Callable[[], Settings],
    certificates: Certificates,
    waiting_for: Callable[[], tuple[str, ...]],
    ends: AsyncExitStack,
) -> PageViews | None:
    """What the page shows, with a history of health until the end; nothing without a recorder."""
    if recorder is None:
        return None
    from webhook.server.page import health
    from webhook.server.page.views import PageViews

    def conditions() -> dict[health.HealthSubject, health.HealthCondition]:
        pairs = health.certificates(certificates.expiry(), certificates.matches(), time.time())
        return health.schedulers(cluster, settings()) | pairs

    history = health.HealthHistory(conditions)
    keep_until(ends, history.run, "internal error while the health on the page is sampled; retrying")
    return PageViews(cluster, settings, recorder, history, waiting_for)


async def layer_scores(options: Options, settings: LayersSettings, ends: AsyncExitStack) -> LayerScores | None:
    """The scores of layers until the end, None where they are off; an `InputError` where the settings are no use."""
    if not settings.listen:
        return None
    if options.cluster_from:
        raise InputError("layers are scored for the nodes of a cluster", "layers.listen", "use --kubeconfig FILE")
    from webhook.server.runtime.layers import open_layer_scores

    return await ends.enter_async_context(open_layer_scores(options.kubeconfig, settings))


async def cluster_source(
    options: Options, settings: SettingsFollower, log: Any, ends: AsyncExitStack, reports: NodeLayers | None
) -> Cluster:
    """The source of facts until the end, following the settings; not necessarily ready.

    ``reports`` gets more of each node than reviews need, if it is given; an `InputError` where the source is unusable.
    """
    if options.cluster_from:
        from webhook.cluster.files import FilesCluster

        files = FilesCluster.load(options.cluster_from, settings.current())
        settings.subscribers.append(files.use)
        log.info("cluster objects read from files", summary=files.summary())
        return files
    from webhook.cluster.live import LiveCluster
    from webhook.k8s.client.transport import connect

    def changed(name: str, old: SchedulerHealth, new: SchedulerHealth) -> None:
        level = log.info if new.state == "available" else log.warning
        level("scheduler's health changed", scheduler=name, was=old.state, now=new.state, why=new.why)

    transport = await connect(options.kubeconfig)
    log.info("cluster objects read from the API server", server=transport.server)
    live = LiveCluster(transport, settings.current(), on_health=changed, reports=reports)
    settings.subscribers.append(live.use)
    live.on_restore(lambda why: log.warning("etcd restored from an older copy; reading everything again", why=why))
    live.start()
    ends.push_async_callback(live.close)
    return live


async def senders(options: Options, settings: Settings, log: Any, ends: AsyncExitStack) -> SenderVerifier | None:
    """What verifies the tokens of API servers, until the end; None where facts come from files.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    if options.cluster_from:
        return None
    service = settings.webhooks.service
    url = options.url or f"https://{service.name}.{service.namespace}.svc:{service.port}"
    target = RegistrationTarget(url=url, suffix=f"-{options.register_as}" if options.register else "")
    own = [(each["kind"], each["metadata"]["name"]) for each in configurations(settings, target)]
    verifier = SenderVerifier(url, own)
    event = "the keys of service account tokens cannot be read; keeping the previous ones"
    transport = await connected(options.kubeconfig, ends)
    follow = partial(verifier.follow, transport, lambda why: log.warning(event, why=why))
    keep_until(ends, follow, "internal error while reading the keys of service account tokens; retrying")
    return verifier


class Background(msgspec.Struct, frozen=True):
    """What runs beside reviews; nothing of it where facts come from files."""

    events: EventWriter | None = None
    drift_scan: DriftScanner | None = None
    fidelity: FidelityCheck | None = None

    def metrics(self) -> list[StateMetric]:
        """The gauges and counters of what runs."""
        events, drift, check = self.events, self.drift_scan, self.fidelity
        by_result, by_resource = ("result",), ("policy", "resource")
        objects = "Objects that are not as enforce would make them, at the last scan."
        written = "Kubernetes Events by result."
        scans = "Scans for objects that are not as enforce would make them, by result."
        compared = "Running VMs compared by the fidelity check, by result."
        differed, failed = "Fields that differed in the fidelity check.", "Rounds of the fidelity check that failed."
        return [
            StateMetric("kubevirt_webhook_drift_objects", objects, lambda: drift.counts if drift else {}, by_resource),
            StateMetric("kubevirt_webhook_events_total", written, lambda: events.results if events else {}, by_result),
            StateMetric("kubevirt_webhook_drift_scans_total", scans, lambda: drift.rounds if drift else {}, by_result),
            StateMetric(
                "kubevirt_webhook_fidelity_checked_total", compared, lambda: check.checked if check else {}, by_result
            ),
            StateMetric(
                "kubevirt_webhook_fidelity_differences_total", differed, lambda: check.differing if check else {}
            ),
            StateMetric("kubevirt_webhook_fidelity_checks_failed_total", failed, lambda: check.failed if check else {}),
        ]


async def background(
    options: Options, settings: Callable[[], Settings], cluster: Cluster, audit: LineWriter, ends: AsyncExitStack
) -> Background:
    """Events, drift scan and fidelity check until the end; the fidelity check has a connection of its own.

    Raises:
        InputError: the kubeconfig cannot be used.
    """
    if options.cluster_from:
        return Background()
    from webhook.server.background.drift import DriftScanner
    from webhook.server.background.events import EventWriter, restore_event
    from webhook.server.background.fidelity import FidelityCheck
    from webhook.server.background.policy_reports import Reports

    def configuration() -> ClusterConfig | Unavailable | None:
        answer = cluster.peek(KubeVirtKey())
        if answer is NOT_READ:
            return Unavailable("the watch of kubevirts is too old")
        install = cast("KubeVirtInstall | Unavailable | None", answer)
        return install if install is None or isinstance(install, Unavailable) else install.configuration

    transport = await connected(options.kubeconfig, ends)
    other = await connected(options.kubeconfig, ends)
    instance = os.environ.get("HOSTNAME") or socket.gethostname()
    events = EventWriter(transport, instance, lambda: settings().events)
    if place := settings().webhooks.service.namespace:
        cluster.on_restore(lambda why: events.add(restore_event(place, why)) if settings().events else None)
    drift_scan = DriftScanner(transport, cluster, settings, audit.write, Reports(transport))
    fidelity = FidelityCheck(other, configuration, lambda: settings().instancetypes.fidelity_check, audit.write)
    for work in (events, drift_scan, fidelity):
        keep_until(ends, work.run, f"{type(work).__name__}: internal error; retrying")
    return Background(events, drift_scan, fidelity)


class Stop:
    """SIGTERM, SIGINT and SIGHUP: the first ends the server in order, a second ends it at once.

    During the start there is nothing to end in order: the first one ends it at once.
    """

    def __init__(self) -> None:
        self.event: Final = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._at_once = True
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` so that a signal can end it at once."""
        self._running = asyncio.create_task(work)
        with suppress(asyncio.CancelledError):
            await self._running

    def end_start(self) -> None:
        """From now on the first signal is for `event`."""
        self._at_once = self.event.is_set()

    def _on_signal(self) -> None:
        if (self._at_once or self.event.is_set()) and self._running:
            self._running.cancel()
        self.event.set()


def metrics_state(
    app: ReviewApp,
    audit: LineWriter,
    settings: SettingsFollower,
    cluster: Cluster,
    waiting_for: Callable[[], Sequence[str]],
) -> list[StateMetric]:
    """What the metrics say of a server's parts at the time of a scrape."""

    def available() -> dict[str, float]:
        states = {name: cluster.peek(SchedulerKey(name)) for name in settings.current().scheduling.schedulers}
        return {name: float(isinstance(it, SchedulerHealth) and it.state == "available") for name, it in states.items()}

    def release() -> Mapping[tuple[str, ...], float]:
        install = cluster.peek(KubeVirtKey())
        configuration = install.configuration if isinstance(install, KubeVirtInstall) else None
        if not isinstance(configuration, ClusterConfig):
            return {}
        running = configuration.rules.release
        rules = "assumed" if configuration.is_release_assumed else running.support
        return {(str(running), rules, "definitions" if running.definitions else "tables"): 1.0}

    def sender_tokens() -> dict[Any, float]:
        return {**app.senders.results} if app.senders else {}

    version, changes = "1, with the version as a label.", "Changes of the settings file by result."
    age = "Time since what is kept of a watch was last known to be up to date."
    taken = "Memory that the bodies of requests in progress take, in bytes."
    synced = "1 while the replica is ready, as at /readyz."
    rules = "1, with the version of KubeVirt whose rules apply, and where its known fields come from."
    health = "1 while a scheduler's health check finds it available."
    lost = "Audit lines that could not be written, or that were not read in time."
    tokens = "Verifications of bearer tokens of senders by result."
    restored = "Times that etcd was found to have been restored from an older copy."
    tasks = "Tasks of the event loop that have not ended; steady while the load is."
    return [
        StateMetric("kubevirt_webhook_build_info", version, lambda: {__version__: 1.0}, ("version",)),
        StateMetric("kubevirt_webhook_requests_in_flight", "Requests in progress.", lambda: app.in_flight),
        StateMetric("kubevirt_webhook_request_bytes", taken, lambda: app.taken_bytes),
        StateMetric("kubevirt_webhook_event_loop_tasks", tasks, lambda: len(asyncio.all_tasks())),
        StateMetric("kubevirt_webhook_ready", synced, lambda: float(not waiting_for())),
        StateMetric("kubevirt_webhook_kubevirt_release", rules, release, ("version", "rules", "fields")),
        StateMetric("kubevirt_webhook_scheduler_available", health, available, ("scheduler",)),
        StateMetric("kubevirt_webhook_staleness_seconds", age, cluster.staleness, ("watch",)),
        StateMetric("kubevirt_webhook_audit_dropped_total", lost, lambda: audit.dropped_count),
        StateMetric("kubevirt_webhook_etcd_restores_total", restored, lambda: cluster.restores),
        StateMetric("kubevirt_webhook_sender_tokens_total", tokens, sender_tokens, ("result",)),
        StateMetric("kubevirt_webhook_settings_reloads_total", changes, lambda: dict(settings.reloads), ("result",)),
    ]


_NAME: Final = "kubevirt-webhook"
_HEADERS: Final = ("traceparent", "tracestate")
# Of an attribute that a tenant chose.
_MAX_LENGTH: Final = 256
_NANOSECONDS: Final = 1_000_000_000

# The request that is being answered: the observer of its review does not get it.
_request: ContextVar[web.Request | None] = ContextVar("request", default=None)


@web.middleware
async def remember_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A middleware by which the span of a review knows the request that it belongs to."""
    token = _request.set(request)
    try:
        return await handler(request)
    finally:
        _request.reset(token)


class SpanObserver(Observer):
    """Makes a span of every evaluated review.

    Args:
        tracer: an OpenTelemetry ``Tracer``.
    """

    def __init__(self, tracer: Any) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer: Final = tracer
        self._propagator: Final = TraceContextTextMapPropagator()
        self._kind: Final = SpanKind.SERVER
        self._failed: Final = Status(StatusCode.ERROR)

    def on_evaluated(self, endpoint: Endpoint, evaluation: Evaluation, seconds: float) -> None:
        """Make the span, with the times that the review took."""
        end = time.time_ns()
        span = self._tracer.start_span(
            f"{endpoint.verb} {endpoint.policy} {endpoint.resource}",
            context=self._parent(),
            kind=self._kind,
            attributes=attributes_of(endpoint, evaluation),
            start_time=end - int(seconds * _NANOSECONDS),
        )
        if evaluation.label == "error":
            span.set_status(self._failed)
        span.end(end)

    def _parent(self) -> Any:
        """The context that the sender's headers name; None: the review is a trace of its own."""
        request = _request.get()
        if request is None:
            return None
        headers = request.headers
        carrier = {name: headers[name] for name in _HEADERS if name in headers}
        return self._propagator.extract(carrier) if carrier else None


def attributes_of(endpoint: Endpoint, evaluation: Evaluation) -> dict[str, str | bool | int | list[str]]:
    """What a span says about a decision: the fields of the audit line, without the changes."""
    request = evaluation.request
    return {
        "url.path": endpoint.path,
        "k8s.namespace.name": _bound_text(request.namespace or ""),
        "kubevirt_webhook.policy": endpoint.policy,
        "kubevirt_webhook.mode": evaluation.mode,
        "kubevirt_webhook.decision": evaluation.label,
        "kubevirt_webhook.reasons": [reason.code for reason in evaluation.decision.reasons],
        "kubevirt_webhook.changes": len(evaluation.decision.changes),
        "kubevirt_webhook.operation": request.operation,
        "kubevirt_webhook.object.kind": endpoint.kind,
        "kubevirt_webhook.object.name": _bound_text(wire.object_name(request)),
        "kubevirt_webhook.request.uid": _bound_text(request.uid),
        "kubevirt_webhook.dry_run": wire.is_dry_run(request),
    }


def _bound_text(text: str) -> str:
    return scrub_prose(shorten(text, _MAX_LENGTH))


@asynccontextmanager
async def with_tracing(exporter: Any = None) -> AsyncIterator[Observer]:
    """The observer that makes spans; at the end, spans that wait are sent.

    It needs the middleware `remember_request`.

    Without an exporter they go to OTLP over HTTP; an `InputError` where OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
    except ImportError as error:
        what = f"OpenTelemetry is not installed: {error}"
        raise InputError(what, "traces", "install kubevirt-webhook[otel], or set traces: off") from None
    resource = Resource.create({"service.name": _NAME, "service.version": __version__})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield SpanObserver(provider.get_tracer(_NAME, __version__))
    finally:
        # It waits for the last spans to be sent.
        await asyncio.to_thread(provider.shutdown)
