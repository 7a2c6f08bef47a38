"""The reference of metrics, from those that a server registers."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final

from prometheus_client.metrics_core import Metric

from hack.reference.markdown import cell, code, table
from webhook.policies.registry import BY_PATH
from webhook.server.ops import Metrics, MetricsState
from webhook.server.runtime.certificates import Certificates
from webhook.server.runtime.layers import LayerScores
from webhook.server.runtime.serve import Background, metrics_state
from webhook.settings.file import default_settings

_HEADER: Final = """\
# Metrics

Every metric of a server, at `/metrics` on the listener for operations.
[Monitoring](../monitoring.md#health-and-metrics) lists the values of the labels and explains which metrics matter;
[runbooks](../runbooks.md) explains the alerts.

This page is made from the code by `make docs`.
"""


def page() -> str:
    """The whole page, as Markdown."""
    families = sorted(_families(), key=lambda family: family.name)
    rows = ((code(_name(each)), each.type, _labels(each), cell(each.documentation)) for each in families)
    return f"{_HEADER}\n{table(('metric', 'type', 'labels', 'meaning'), rows)}"


def _families() -> Iterable[Metric]:
    """What each part of a server registers; nothing of it runs, and no number is read."""
    absent: Any = SimpleNamespace(index=None, staleness=None)
    server = Metrics(BY_PATH, lambda *_: None)
    certificates = Certificates(default_settings().tls, "localhost", logging.getLogger())
    state = metrics_state(absent, absent, absent, absent, tuple)
    yield from server.registry.collect()
    yield from MetricsState([*state, *certificates.metrics(), *Background().metrics()]).describe()
    yield from LayerScores(absent, absent, None).metrics().describe()


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> str:
    names: Iterable[str] = getattr(family, "_labelnames")  # noqa: B009 - prometheus_client shows them on samples alone
    return ", ".join(code(name) for name in names)
