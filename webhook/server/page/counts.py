"""What the policies did today, by namespace: counts that begin anew at midnight (UTC)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from webhook.admission.audit import Label, Record
from webhook.names import Policy
from webhook.review.endpoints import BY_PATH
from webhook.server.page.decisions import MAX_NAME
from webhook.text import shorten

# A client that is not the API server can make names up, so there is an end to them.
MAX_NAMESPACES: Final = 5000
# Where the decisions of all further namespaces are counted. It is not a valid name, so no namespace has it.
OTHERS: Final = "(other namespaces)"

_NONE: Final[Counter[Label]] = Counter()


class DayCounts:
    """The decisions of one day by policy, namespace and what was decided; dry runs are not counted.

    Attributes:
        day: the day, as ``YYYY-MM-DD`` in UTC; empty: nothing was counted yet.
        total: decisions by what was decided.
    """

    def __init__(self) -> None:
        self.day = ""
        self.total: Counter[Label] = Counter()
        self._counts: dict[str, dict[Policy, Counter[Label]]] = {}

    def add(self, record: Record) -> None:
        """Count a decision."""
        day = record.time[:10]
        if day != self.day:
            self.day, self.total, self._counts = day, Counter(), {}
        if record.dry_run:
            return
        namespace = shorten(record.object.namespace, MAX_NAME)
        if namespace not in self._counts and len(self._counts) >= MAX_NAMESPACES:
            namespace = OTHERS
        policies = self._counts.setdefault(namespace, {})
        policies.setdefault(BY_PATH[record.endpoint].policy, Counter())[record.decision] += 1
        self.total[record.decision] += 1

    def of(self, namespace: str, policy: Policy) -> Counter[Label]:
        """The decisions of a policy in a namespace by what was decided."""
        return self._counts.get(namespace, {}).get(policy, _NONE)

    def namespaces(self) -> Iterable[str]:
        """The namespaces that have decisions other than ``skipped``."""
        return [
            name
            for name, policies in self._counts.items()
            if any(label != "skipped" for counts in policies.values() for label in counts)
        ]
