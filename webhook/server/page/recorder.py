"""Takes what the page shows from the audit records of a running server."""

from __future__ import annotations

import logging
from typing import Final

from webhook.admission.audit import Record, Sink
from webhook.server.page.counts import DayCounts
from webhook.server.page.decisions import DecisionLog

logger = logging.getLogger(__name__)


class DecisionRecorder:
    """A sink of audit records that also keeps them for the page.

    Args:
        inner: gets every record first.

    Attributes:
        log: the latest decisions, without those about namespaces that have not opted in.
        counts: all decisions of today.
        failed: records that could not be kept, because of a bug.
    """

    def __init__(self, inner: Sink) -> None:
        self._inner: Final = inner
        self.log: Final = DecisionLog()
        self.counts: Final = DayCounts()
        self.failed = 0

    def write(self, record: Record) -> None:
        """Pass a record on, and keep it. What goes wrong here is no reason to answer a review otherwise."""
        self._inner.write(record)
        try:
            self.counts.add(record)
            if record.decision != "skipped":
                self.log.add(record)
        except Exception:
            if not self.failed:
                logger.exception("internal error: a decision is not on the page")
            self.failed += 1
