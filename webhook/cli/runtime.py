"""A running server: its parts, in the order in which they start and end."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from aiohttp import web

from webhook import __version__
from webhook.admission.lines import LineWriter
from webhook.admission.output import Descriptor, Output, RotatedFile
from webhook.cli import logs
from webhook.cli.background import LABELS, Background, background
from webhook.cli.certificates import LABELS as CERTIFICATE_LABELS
from webhook.cli.certificates import Certificates, cancelled, host_of, kept_fresh
from webhook.cli.sources import one_of
from webhook.cluster.source import Cluster
from webhook.errors import InputError, Unavailable
from webhook.facts import ConfigurationKey, SchedulerHealth, SchedulerKey
from webhook.install.registration import Registration, Target, check_url, configurations
from webhook.policies.table import BY_PATH
from webhook.reviewer import Reviewer
from webhook.server.app import App
from webhook.server.explain import explaining
from webhook.server.lifecycle import drain, finish, listen
from webhook.server.ops import Metrics, Ops, State
from webhook.server.rendering import Rendering
from webhook.server.scraping import scraping
from webhook.settings.address import is_address, is_loopback
from webhook.settings.file import SettingsFile, default_settings
from webhook.settings.snapshot import AuditSettings, Settings, TlsMode

if TYPE_CHECKING:
    from webhook.cluster.parity import ParityWatch
    from webhook.kubevirt.configuration import Configuration

# The collector finds little in a server whose requests make trees without cycles; rare runs keep its pauses rare.
_GC_THRESHOLD: Final = (50_000, 20, 20)
_SHUTDOWN_SECONDS: Final = 10.0
_READY_POLL_SECONDS: Final = 0.5
_RESTART_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Options:
    """The command line of `serve`."""

    cluster_from: Path | None = None
    kubeconfig: Path | None = None
    config_file: Path | None = None
    listen: str | None = None
    ops_listen: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_mode: TlsMode | None = None
    client_ca: Path | None = None
    client_names: tuple[str, ...] = ()
    url: str | None = None
    register: bool = False
    register_as: str = "local"

    def check(self) -> None:
        """Refuse combinations that make no sense.

        Raises:
            InputError: there is one.
        """
        one_of(self.cluster_from, self.kubeconfig)
        for option, address in (("--listen", self.listen), ("--ops-listen", self.ops_listen)):
            if address and not is_address(address):
                raise InputError(f"{address} is no HOST:PORT", option, "write for example 127.0.0.1:8443")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InputError("a certificate and its key go together", "--tls-cert, --tls-key", "give both or neither")
        if self.tls_cert and self.tls_mode not in (None, "mounted"):
            raise InputError(f"{self.tls_mode} has no use for --tls-cert", "--tls", "use mounted")
        if bool(self.client_ca) != bool(self.client_names):
            # A cluster's CA signs for many others than the API server.
            raise InputError("a CA and names go together", "--client-ca, --client-name", "give both or neither")
        if self.register and not self.url:
            raise InputError("the API server must be told where we are", "--register", "add --url https://HOST:PORT")
        if self.register and self.cluster_from:
            raise InputError("files have no API server to register at", "--register", "use --kubeconfig")
        if self.url:
            check_url(self.url)
        if not re.fullmatch("[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?", self.register_as):
            raise InputError(f"{self.register_as} is no name", "--register-as", "use lower-case letters, digits and -")

    def applied(self, settings: Settings) -> Settings:
        """The settings with what the command line says.

        Raises:
            InputError: they don't go together.
        """
        server = settings.server
        mode = self.tls_mode or ("mounted" if self.tls_cert else server.tls_mode)
        files = (self.tls_cert or server.cert_file, self.tls_key or server.key_file) if mode == "mounted" else ("", "")
        if mode == "mounted" and not all(files):
            raise InputError("there are no files to serve with", "--tls mounted", "add --tls-cert and --tls-key")
        if mode == "managed" and (self.cluster_from or self.register):
            with_ = "--cluster-from" if self.cluster_from else "--register"
            fix = "give --kubeconfig" if self.cluster_from else "install the configurations, or leave --tls away"
            raise InputError(f"managed certificates don't go with {with_}", "--tls", fix)
        for key, address in (("explain.listen", server.explain_listen), ("metrics.listen", server.metrics_listen)):
            if self.cluster_from and address and not is_loopback(address):
                fix = "listen on 127.0.0.1, or use --kubeconfig"
                raise InputError("files have no API server to ask who the bearer of a token is", key, fix)
        changed = {
            "tls_mode": mode,
            "cert_file": str(files[0]),
            "key_file": str(files[1]),
            "client_ca_file": str(self.client_ca or server.client_ca_file),
            "client_names": self.client_names or server.client_names,
        }
        return msgspec.structs.replace(settings, server=msgspec.structs.replace(server, **changed))


class _Follower:
    """The settings in force, and what happens when they change."""

    def __init__(self, path: Path | None, log: Any) -> None:
        self._log: Final = log
        self._fixed: Final = None if path else default_settings()
        self.file: Final = (
            SettingsFile(
                path, on_refused=self._refused, on_reloaded=self._reloaded, on_restart_needed=self._restart_needed
            )
            if path
            else None
        )
        self.reloads = {"accepted": 0, "refused": 0}
        self.subscribers: list[Callable[[Settings], None]] = []

    def current(self) -> Settings:
        if self.file:
            return self.file.current
        assert self._fixed
        return self._fixed

    def _refused(self, error: InputError) -> None:
        self.reloads["refused"] += 1
        self._log.error("settings refused, the last good ones stay", mistakes=str(error).splitlines())

    async def follow(self) -> None:
        """Follow the file until cancelled; a bug of ours must not leave settings that silently grow old."""
        while self.file:
            try:
                await self.file.watch()
            except Exception as error:  # noqa: BLE001 - logged, and begun again
                self._log.error("following the settings failed; beginning again", exc_info=error)
                await asyncio.sleep(_RESTART_SECONDS)

    def _reloaded(self, old: Settings, new: Settings) -> None:
        self.reloads["accepted"] += 1
        self._log.info("settings reloaded", digest=new.digest[:12])
        if configurations(old) != configurations(new):
            self._log.warning("the webhook configurations have changed: apply `manifests webhooks`, or register again")
        for subscriber in self.subscribers:
            subscriber(new)

    def _restart_needed(self, keys: list[str]) -> None:
        self._log.warning("restart needed for changed settings", keys=keys)


async def run(options: Options) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        InputError: something that the user gave can't be used.
    """
    options.check()
    log = logs.configure()
    _many_connections()
    stop = _Stop()
    with suppress(_Stopped):
        await stop.guarded(_serve(options, stop, log))


async def _serve(options: Options, stop: _Stop, log: Any) -> None:
    async with AsyncExitStack() as ends:
        settings = _Follower(options.config_file, log)
        at_start = options.applied(settings.current())
        server = at_start.server
        certificates = Certificates(server, host_of(options.url, at_start), log)
        cluster = await ends.enter_async_context(_cluster(options, settings, log))
        metrics = Metrics(BY_PATH, lambda event, path, error: log.error(event, webhook=path, exc_info=error))
        audit = LineWriter(_output(server.audit))
        ends.callback(audit.close)
        beside = Background()
        if not options.cluster_from:
            beside = await ends.enter_async_context(background(options.kubeconfig, settings.current, cluster, audit))
        reviewer = Reviewer(cluster, settings.current, audit, beside.announcing(metrics, settings.current))
        app = App(reviewer, BY_PATH, metrics, server.max_in_flight, server.client_names)
        parity = await ends.enter_async_context(_parity(options, settings, cluster, audit))

        def waiting_for() -> tuple[str, ...]:
            ending = ("our end: we were told to stop",) if stop.event.is_set() else ()
            return (*ending, *cluster.waiting_for(), *certificates.waiting_for())

        metrics.registry.register(_state(app, audit, settings, cluster, parity, beside, certificates, waiting_for))

        rendering = Rendering(metrics.registry)
        ops = web.ServerRunner(Ops(None if server.metrics_listen else rendering, waiting_for).server())
        ops_address = await listen(ops, options.ops_listen or server.ops_listen, None, "--ops-listen")
        ends.push_async_callback(ops.cleanup)
        connections = app.server()
        certificates.on_clients = connections.recycle
        web_server = web.ServerRunner(connections, shutdown_timeout=_SHUTDOWN_SECONDS)
        address = await listen(web_server, options.listen or server.listen, certificates.listener, "--listen")
        ends.push_async_callback(finish, web_server, lambda: app.in_flight, _SHUTDOWN_SECONDS)
        # Else there is no Service that must take us out first: our configurations, if any, go before we do.
        live = not options.cluster_from and not options.register
        await ends.enter_async_context(
            kept_fresh(certificates, at_start, options.kubeconfig, options.url or "", address, live=live)
        )
        if server.explain_listen:
            place = explaining(server.explain_listen, cluster, metrics, certificates.listener, _SHUTDOWN_SECONDS)
            log.info("explaining", address=await ends.enter_async_context(place))
        if server.metrics_listen:
            alone = scraping(
                server.metrics_listen, rendering, cluster, metrics, certificates.listener, _SHUTDOWN_SECONDS
            )
            log.info("metrics", address=await ends.enter_async_context(alone))
        if settings.file:
            ends.push_async_callback(cancelled, asyncio.create_task(settings.follow(), name="settings"))
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLD)
        log.info("serving", version=__version__, address=f"https://{address}", ops=f"http://{ops_address}")
        stop.started()
        if options.register and await _ready(cluster, stop.event, log):
            await ends.enter_async_context(_registered(options, settings.current(), certificates.authority, log))
        await stop.event.wait()
        log.info("stopping")
        await drain(connections, server.drain_seconds if live else 0)


def _many_connections() -> None:
    """Let us have as many open files as we may: the usual 1024 are soon taken by connections that just lie there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Stopped(Exception):  # noqa: N818 - nothing went wrong
    """We were told to end before we had started, or a second time."""


class _Stop:
    """SIGTERM, SIGINT and SIGHUP: the first asks us to end, a second ends us at once.

    While we start there is nothing to end in order: the first one is enough then.
    """

    def __init__(self) -> None:
        self.event: Final = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._at_once = True
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._signalled)

    async def guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` so that a signal can end it.

        Raises:
            _Stopped: one has.
        """
        self._running = asyncio.create_task(work)
        try:
            await self._running
        except asyncio.CancelledError:
            raise _Stopped from None

    def started(self) -> None:
        """From now on the first signal is for `event`."""
        self._at_once = self.event.is_set()

    def _signalled(self) -> None:
        if (self._at_once or self.event.is_set()) and self._running:
            self._running.cancel()
        self.event.set()


def _output(settings: AuditSettings) -> Output:
    if settings.output:
        return RotatedFile(settings.output, settings.max_bytes, settings.keep)
    return Descriptor(sys.stdout.fileno())


@asynccontextmanager
async def _cluster(options: Options, settings: _Follower, log: Any) -> AsyncIterator[Cluster]:
    """The source of facts, following the settings; not necessarily ready."""
    if options.cluster_from:
        from webhook.cluster.files import FilesCluster

        files = FilesCluster.load(options.cluster_from, settings.current())
        settings.subscribers.append(files.use)
        log.info("cluster read from files", summary=files.summary())
        yield files
        return
    from webhook.cluster.live import LiveCluster
    from webhook.cluster.transport import connect

    def changed(name: str, old: SchedulerHealth, new: SchedulerHealth) -> None:
        level = log.info if new.state == "alive" else log.warning
        level("scheduler's health changed", scheduler=name, was=old.state, now=new.state, why=new.why)

    if not options.kubeconfig and not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise InputError("we run in no pod", "serve", "say where facts come from: --kubeconfig or --cluster-from")
    transport = await connect(str(options.kubeconfig) if options.kubeconfig else None)
    log.info("facts come from a cluster", server=transport.server)
    live = LiveCluster(transport, settings.current(), on_health=changed)
    settings.subscribers.append(live.use)
    live.start()
    try:
        yield live
    finally:
        await live.close()


@asynccontextmanager
async def _parity(
    options: Options, settings: _Follower, cluster: Cluster, audit: LineWriter
) -> AsyncIterator[ParityWatch | None]:
    """The watch beside admission, with a connection of its own; files have nothing to be watched."""
    if options.cluster_from:
        yield None
        return
    from webhook.cluster.parity import ParityWatch
    from webhook.cluster.transport import connect

    def configuration() -> Configuration | Unavailable | None:
        # Always in memory: the KubeVirt objects are watched.
        return cast("Configuration | Unavailable | None", cluster.peek(ConfigurationKey()))

    transport = await connect(str(options.kubeconfig) if options.kubeconfig else None)
    watch = ParityWatch(transport, configuration, lambda: settings.current().instancetypes.parity, audit.write)
    task = asyncio.create_task(watch.run(), name="parity")
    try:
        yield watch
    finally:
        await cancelled(task)
        await transport.close()


async def _ready(cluster: Cluster, stopped: asyncio.Event, log: Any) -> bool:
    """Wait until the cluster's answers can be trusted; False if we are to end before.

    Configurations that came earlier would only cost the API server time.
    """
    told: tuple[str, ...] = ()
    while missing := cluster.waiting_for():
        if missing != told:
            log.info("not registered yet", waiting_for=missing)
            told = missing
        with suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), _READY_POLL_SECONDS)
            return False
    return True


@asynccontextmanager
async def _registered(options: Options, settings: Settings, authority: bytes, log: Any) -> AsyncIterator[None]:
    """Webhook configurations for as long as we run."""
    from webhook.cluster.transport import connect

    target = Target(
        url=options.url or "",
        ca_bundle=authority,
        suffix=f"-{options.register_as}",
        only_ignore=True,
    )
    transport = await connect(str(options.kubeconfig) if options.kubeconfig else None)
    try:
        registration = Registration(transport)
        manifests = configurations(settings, target)
        await registration.register(manifests)
        log.info("registered", configurations=[f"{m['kind']}/{m['metadata']['name']}" for m in manifests])
        try:
            yield
        finally:
            for problem in await registration.unregister():
                log.error("not unregistered", problem=problem)
    finally:
        await transport.close()


def _state(
    app: App,
    audit: LineWriter,
    settings: _Follower,
    cluster: Cluster,
    parity: ParityWatch | None,
    beside: Background,
    certificates: Certificates,
    waiting_for: Callable[[], tuple[str, ...]],
) -> State:
    def alive() -> dict[str, float]:
        result = {}
        for name in settings.current().scheduling.schedulers:
            health = cluster.peek(SchedulerKey(name))
            result[name] = float(isinstance(health, SchedulerHealth) and health.state == "alive")
        return result

    return State(
        gauges={
            **certificates.gauges(),
            **beside.gauges(),
            "kubevirt_webhook_requests_in_flight": ("Requests being answered.", lambda: {"": app.in_flight}),
            "kubevirt_webhook_request_bytes": ("Memory that their bodies have taken.", lambda: {"": app.bodies.taken}),
            "kubevirt_webhook_ready": (
                "1 once all watches are synced and the certificate can be verified.",
                lambda: {"": float(not waiting_for())},
            ),
            "kubevirt_webhook_scheduler_alive": ("1 while a scheduler's guard knows that it serves.", alive),
            "kubevirt_webhook_staleness_seconds": ("Since a watch last heard from the API server.", cluster.staleness),
        },
        counters={
            **certificates.counters(),
            **beside.counters(),
            "kubevirt_webhook_audit_dropped_total": ("Audit lines not written.", lambda: {"": audit.dropped}),
            "kubevirt_webhook_settings_reloads_total": (
                "Changes of the settings file.",
                lambda: dict(settings.reloads),
            ),
            "kubevirt_webhook_parity_checked_total": (
                "Running VMs compared with what they should be.",
                lambda: dict(parity.checked) if parity else {},
            ),
            "kubevirt_webhook_parity_differences_total": (
                "Fields that were found different.",
                lambda: {"": parity.differing} if parity else {},
            ),
            "kubevirt_webhook_parity_rounds_failed_total": (
                "Rounds that were given up.",
                lambda: {"": parity.failed} if parity else {},
            ),
        },
        label={
            **CERTIFICATE_LABELS,
            **LABELS,
            "kubevirt_webhook_scheduler_alive": "scheduler",
            "kubevirt_webhook_staleness_seconds": "watch",
            "kubevirt_webhook_settings_reloads_total": "result",
            "kubevirt_webhook_parity_checked_total": "result",
        },
    )
