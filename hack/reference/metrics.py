"""The reference of metrics, from those that a server registers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, Final, cast

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from hack.reference.markdown import cell, code, table
from webhook.cluster.directory import KINDS
from webhook.cluster.files import FilesCluster
from webhook.k8s.client.api import Transport
from webhook.policies.registry import BY_PATH
from webhook.server.ops import Metrics, MetricsState, StateMetric
from webhook.server.part import ApiServer, Contribution, ServerHandle
from webhook.server.runtime.certificates import Certificates
from webhook.server.runtime.serve import PARTS
from webhook.server.runtime.state_metrics import metrics_state
from webhook.settings_file import default_settings

_HEADER: Final = """\
# Metrics

Every metric of a server, at `/metrics` on the listener for operations.
[Monitoring](../monitoring.md#health-and-metrics) lists the values of the labels and explains which metrics matter;
[runbooks](../runbooks.md) explains the alerts.

This page is made from the code by `make docs`.
"""


def page() -> str:
    """The whole page, as Markdown."""
    families = sorted(_families(), key=lambda pair: pair[0].name)
    rows = ((code(_name(each)), each.type, _labels(owner), cell(each.documentation)) for each, owner in families)
    return f"{_HEADER}\n{table(('metric', 'type', 'labels', 'meaning'), rows)}"


def _families() -> Iterable[tuple[Metric, object]]:
    """What a server registers with all of its parts, each with what knows its labels.

    Nothing of it runs, and no number is read.
    """
    absent: Any = SimpleNamespace(index=None, staleness=None)
    server = Metrics(BY_PATH, lambda *_: None)
    certificates = Certificates(default_settings().tls, "localhost", logging.getLogger())
    state = metrics_state(absent, absent, absent, absent, tuple)
    counted = (each for each in vars(server).values() if isinstance(each, MetricWrapperBase))
    yield from ((family, each) for each in counted for family in each.describe())
    parts = asyncio.run(_contributed(certificates, server))
    yield from ((each, each) for each in MetricsState([*state, *certificates.metrics(), *parts]).describe())


class _Silent:
    """An API server that never answers, for parts that ask before they end."""

    async def get(self, *_: object, **__: object) -> None:
        await asyncio.Event().wait()


async def _contributed(certificates: Certificates, metrics: Metrics) -> Sequence[StateMetric]:
    """The metrics of all parts, each of which ends before its tasks have got an answer."""
    settings, absent = default_settings(), cast("Any", SimpleNamespace())

    async def connect(_: AsyncExitStack) -> Transport:
        return cast("Transport", _Silent())

    offered = ApiServer(connect, lambda _: None, lambda _key, _peek: None, lambda _kind, _read: None)
    handle = ServerHandle(
        at_start=settings,
        settings=default_settings,
        cluster=FilesCluster({name: {} for name in KINDS}, settings),
        api_server=offered,
        audit=absent,
        log=absent,
        certificates=certificates,
        metrics=metrics,
        waiting_for=tuple,
    )
    async with AsyncExitStack() as ends:
        return Contribution.joined([await ends.enter_async_context(part.running(handle)) for part in PARTS]).metrics


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(owner: object) -> str:
    names: Iterable[str] = getattr(owner, "_labelnames")  # noqa: B009 - prometheus_client shows them on samples alone
    return ", ".join(code(name) for name in names)
