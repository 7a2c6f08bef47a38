"""A part of a server: something optional that comes and goes by one line of `webhook.server.runtime.serve.PARTS`.

A part holds all of its own but its roles (`webhook.install.components`): its code, its metrics with their help, and the
value, in a module that imports the rest only once it runs.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from webhook.admission.audit import AnyRecord, Sink
from webhook.cluster.source import Cluster, NodeReports, Reader
from webhook.facts import Key
from webhook.install.components import Component
from webhook.k8s.client.api import Transport
from webhook.review.reviewer import Observer
from webhook.server.ops import Metrics, StateMetric
from webhook.settings.model import Settings

# Opens a connection to the API server that lasts until the end of a stack; an `InputError` where that is impossible.
Connect = Callable[[AsyncExitStack], Awaitable[Transport]]


class ServingCertificates(Protocol):
    """What parts need of `webhook.server.runtime.certificates.Certificates`."""

    async def listener_for(self, client_ca: Path, setting: str) -> ssl.SSLContext:
        """The TLS context of another listener, with the same pair and other clients."""

    def expiry(self) -> dict[str, float]:
        """The Unix times at which the certificates expire, by name."""

    def matches(self) -> dict[str, float]:
        """By webhook configuration, 1 if its caBundles verify the serving certificate, otherwise 0."""


class ApiServer(msgspec.Struct, frozen=True):
    """What a server offers to its parts where facts come from an API server.

    Attributes:
        connect: opens a connection of the part's own.
        report_nodes: gives a part more of each node than reviews need, from the first node on.
        answer: has a part answer a fact's key, at once and from memory.
        answer_later: has a part answer all keys of a kind, which takes its time.
    """

    connect: Connect
    report_nodes: Callable[[NodeReports], None]
    answer: Callable[[Key[Any], Callable[[], object]], None]
    answer_later: Callable[[type[Key[Any]], Reader], None]


class ServerHandle(msgspec.Struct, frozen=True):
    """All that a part may use of its server, as a plugin of kube-scheduler has a ``Handle``.

    Attributes:
        at_start: the settings at the start, with the options of the command line.
        settings: returns the settings in force.
        cluster: the source of facts.
        api_server: None: facts come from files.
        audit: takes an audit record; neither waits nor raises.
        log: the logger for events.
        certificates: of the server's listeners.
        metrics: counts requests and exceptions; its registry has all metrics.
        waiting_for: what keeps the server from being ready, in words; empty when ready.
    """

    at_start: Settings
    settings: Callable[[], Settings]
    cluster: Cluster
    api_server: ApiServer | None
    audit: Callable[[AnyRecord], None]
    log: Any
    certificates: ServingCertificates
    metrics: Metrics
    waiting_for: Callable[[], tuple[str, ...]]


class Contribution(msgspec.Struct, frozen=True):
    """What a part gives to the server for as long as it runs.

    Attributes:
        metrics: gauges and counters that are read at each scrape.
        observers: get every evaluated review.
        sinks: get the audit record of every review, after the audit log.
        middlewares: of aiohttp, around every review.
        applications: make what the admin listener serves, by path; called once reviews are served.
        listeners: the part's own, each open for as long as its context lasts; opened after that for reviews.
    """

    metrics: tuple[StateMetric, ...] = ()
    observers: tuple[Observer, ...] = ()
    sinks: tuple[Sink, ...] = ()
    middlewares: tuple[Middleware, ...] = ()
    applications: Mapping[str, Callable[[], web.Application]] = {}
    listeners: tuple[Callable[[], AbstractAsyncContextManager[None]], ...] = ()

    @staticmethod
    def joined(contributions: Iterable[Contribution]) -> Contribution:
        """All of them as one, in their order."""
        several = tuple(contributions)
        every = chain.from_iterable
        return Contribution(
            metrics=tuple(every(each.metrics for each in several)),
            observers=tuple(every(each.observers for each in several)),
            sinks=tuple(every(each.sinks for each in several)),
            middlewares=tuple(every(each.middlewares for each in several)),
            applications=dict(every(each.applications.items() for each in several)),
            listeners=tuple(every(each.listeners for each in several)),
        )


class Part(msgspec.Struct, frozen=True):
    """Something optional that a server runs.

    Attributes:
        name: what it is called.
        is_on: whether it runs in this server. A part whose switch takes effect without a restart is always on where it
            can work, and follows the switch itself.
        running: runs it for as long as the context lasts; an `InputError` where its settings cannot be used.
        metrics: those that a server has without numbers where the part is not on.
        components: what it may do beyond the roles of every installation.
    """

    name: str
    is_on: Callable[[ServerHandle], bool]
    running: Callable[[ServerHandle], AbstractAsyncContextManager[Contribution]]
    metrics: tuple[StateMetric, ...] = ()
    components: tuple[Component, ...] = ()

    async def begin(self, server: ServerHandle, ends: AsyncExitStack) -> Contribution:
        """Run it until the end of the stack, if it is on; raises as `running`."""
        if self.is_on(server):
            return await ends.enter_async_context(self.running(server))
        return Contribution(metrics=self.metrics)


def has_api_server(server: ServerHandle) -> bool:
    """Whether a part can work that needs an API server and nothing else."""
    return server.api_server is not None
