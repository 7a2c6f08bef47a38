"""Takes what the page shows from the audit records of a running server."""

from __future__ import annotations

from typing import Final

from webhook.admission.audit import Record, Sink
from webhook.server.page.counts import DayCounts
from webhook.server.page.decisions import DecisionLog


class DecisionRecorder:
    """A sink of audit records that also keeps them for the page.

    Args:
        inner: gets every record first.

    Attributes:
        log: the latest decisions, without those about namespaces that have not opted in.
        counts: all decisions of today.
    """

    def __init__(self, inner: Sink) -> None:
        self._inner: Final = inner
        self.log: Final = DecisionLog()
        self.counts: Final = DayCounts()

    def write(self, record: Record) -> None:
        """Pass a record on, and keep it."""
        self._inner.write(record)
        self.counts.add(record)
        if record.decision != "skipped":
            self.log.add(record)
