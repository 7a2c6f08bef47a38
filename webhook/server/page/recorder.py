"""Decisions for the page: the latest ones and the counts of the day, from the audit records of a running server."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from webhook.admission.audit import AuditedObject, Label, Record
from webhook.admission.decision import Change, Reason
from webhook.k8s.types.meta import unix_time
from webhook.names import PolicyName
from webhook.policies.registry import BY_PATH
from webhook.text import shorten

CAPACITY: Final = 400
# So many of them may be of one namespace while others need the room: a tenant who creates objects in a loop must not
# push out what other tenants ask about.
NAMESPACE_CAPACITY: Final = CAPACITY // 4
# Of all texts of one decision together: all decisions take a few MB at most.
MAX_CHARACTERS: Final = 16 * 1024
MAX_NAME: Final = 253
_MAX_TEXT: Final = 4096
_MAX_REASONS: Final = 20
_MAX_CHANGES: Final = 40

_encode: Final = msgspec.json.Encoder().encode


class ShownDecision(msgspec.Struct, frozen=True):
    """One decision, bounded in size.

    Attributes:
        number: its place in the order of this server's decisions, from 1.
        policy: the policy of the endpoint.
        record: its audit record with shorter texts. The path of a change is one name, joined by dots; its values are
            JSON, or as they are where they are texts.
        left_out: changes that are not kept, since they are too many.
    """

    number: int
    policy: PolicyName
    record: Record
    left_out: int


class DecisionLog:
    """The latest decisions; the oldest go first.

    Args:
        capacity: how many are kept.
        namespace_capacity: how many are kept of one namespace.
    """

    def __init__(self, capacity: int = CAPACITY, namespace_capacity: int = NAMESPACE_CAPACITY) -> None:
        self._capacity: Final = capacity
        self._namespace_capacity: Final = namespace_capacity
        self._kept: Final[OrderedDict[int, ShownDecision]] = OrderedDict()
        self._by_namespace: Final[dict[str, deque[int]]] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, record: Record) -> None:
        """Keep a decision; the cost is bounded, whatever the object is."""
        self._last += 1
        shown = shown_decision(self._last, record)
        namespace = shown.record.object.namespace
        numbers = self._by_namespace.setdefault(namespace, deque())
        if len(numbers) >= self._namespace_capacity:
            self._drop(numbers[0])
        elif len(self._kept) >= self._capacity:
            self._drop(next(iter(self._kept)))
        # It may have been the last of its namespace that was dropped.
        self._by_namespace.setdefault(namespace, numbers).append(shown.number)
        self._kept[shown.number] = shown

    def get(self, number: int) -> ShownDecision | None:
        """The decision of a number; None: it is not kept, or not any more."""
        return self._kept.get(number)

    def latest(self, is_wanted: Callable[[ShownDecision], bool] = lambda _: True) -> Iterator[ShownDecision]:
        """The decisions that are wanted, the latest first."""
        return (each for each in reversed(list(self._kept.values())) if is_wanted(each))

    def _drop(self, number: int) -> None:
        namespace = self._kept.pop(number).record.object.namespace
        numbers = self._by_namespace[namespace]
        # The oldest of all is the oldest of its namespace, too.
        numbers.popleft()
        if not numbers:
            del self._by_namespace[namespace]


def shown_decision(number: int, record: Record) -> ShownDecision:
    """A decision as the page shows it, from its audit record, in which secrets are redacted."""
    about, left = record.object, MAX_CHARACTERS

    def cut(text: str, most: int = _MAX_TEXT) -> str:
        """The text, or the start of it with an ellipsis: what is left of the characters is for all texts together."""
        nonlocal left
        shown = shorten(text, max(1, min(most, left)))
        left -= len(shown)
        return shown

    def shown_value(value: Any) -> str | None:
        return None if value is None else cut(value if isinstance(value, str) else _encode(value).decode())

    shown = msgspec.structs.replace(
        record,
        operation=cut(record.operation, MAX_NAME),
        object=AuditedObject(about.kind, cut(about.namespace, MAX_NAME), cut(about.name, MAX_NAME)),
        user=cut(record.user, MAX_NAME),
        uid=cut(record.uid, MAX_NAME),
        message=cut(record.message or ""),
        reasons=tuple(Reason(each.code, cut(each.text)) for each in record.reasons[:_MAX_REASONS]),
        changes=tuple(
            Change((cut(".".join(each.path)),), shown_value(each.old), shown_value(each.new), each.reason)
            for each in record.changes[:_MAX_CHANGES]
        ),
        freshness={},
        details=msgspec.UNSET,
    )
    return ShownDecision(number, BY_PATH[record.endpoint].policy, shown, max(0, len(record.changes) - _MAX_CHANGES))


# A client that is not the API server can make names up, so there is an end to them.
MAX_NAMESPACES: Final = 5000
# Where the decisions of all further namespaces are counted. It is not a valid name, so no namespace has it.
OTHERS: Final = "(other namespaces)"

_NONE: Final[Counter[Label]] = Counter()
# Within so many seconds the API server calls the webhooks of one request, each of which has a uid of its own.
_REQUEST_SECONDS: Final = 10.0
_MAX_REQUESTS: Final = 2000
# What an object is counted as by whose webhooks decided differently: the first of these.
_WEIGHT: Final[tuple[Label, ...]] = ("denied", "error", "would-deny", "patched", "would-patch", "allowed", "skipped")


class _CountedRequest(msgspec.Struct):
    """A request as it counts so far."""

    time: float
    decision: Label
    endpoints: set[str]


class DayCounts:
    """The decisions of one day by policy, namespace and what was decided; dry runs are not counted.

    Attributes:
        day: the day, as ``YYYY-MM-DD`` in UTC; empty: nothing was counted yet.
        total: requests by what was decided; one that several policies evaluate counts once, as denied if one denied it.
    """

    def __init__(self) -> None:
        self.day = ""
        self.total: Counter[Label] = Counter()
        self._requests: Final[OrderedDict[tuple[str, ...], _CountedRequest]] = OrderedDict()
        self._counts: dict[str, dict[PolicyName, Counter[Label]]] = {}

    def add(self, record: Record) -> None:
        """Count a decision."""
        day = record.time[:10]
        if day != self.day:
            self.day, self.total, self._counts = day, Counter(), {}
            self._requests.clear()
        if record.dry_run:
            return
        namespace = shorten(record.object.namespace, MAX_NAME)
        if namespace not in self._counts and len(self._counts) >= MAX_NAMESPACES:
            namespace = OTHERS
        policies = self._counts.setdefault(namespace, {})
        policies.setdefault(BY_PATH[record.endpoint].policy, Counter())[record.decision] += 1
        self._count_request(record)

    def _count_request(self, record: Record) -> None:
        about, now = record.object, unix_time(record.time) or 0.0
        key = (record.operation, about.kind, about.namespace, about.name)
        counted = self._requests.get(key) if about.name else None
        # The same endpoint is called once for a request, so this is the next one for the object.
        is_next = counted is None or now - counted.time > _REQUEST_SECONDS or record.endpoint in counted.endpoints
        if counted is None or is_next:
            self.total[record.decision] += 1
            if about.name and len(key[2]) <= MAX_NAME and len(key[3]) <= MAX_NAME:
                self._requests[key] = _CountedRequest(now, record.decision, {record.endpoint})
                self._requests.move_to_end(key)
                if len(self._requests) > _MAX_REQUESTS:
                    self._requests.popitem(last=False)
            return
        counted.endpoints.add(record.endpoint)
        decision = min(counted.decision, record.decision, key=_WEIGHT.index)
        if decision != counted.decision:
            self.total[counted.decision] -= 1
            self.total[decision] += 1
            counted.decision = decision

    def of(self, namespace: str, policy: PolicyName) -> Counter[Label]:
        """The decisions of a policy in a namespace by what was decided."""
        return self._counts.get(namespace, {}).get(policy, _NONE)

    def namespaces(self) -> Iterable[str]:
        """The namespaces that have decisions other than ``skipped``."""
        return [
            name
            for name, policies in self._counts.items()
            if any(label != "skipped" for counts in policies.values() for label in counts)
        ]


logger = logging.getLogger(__name__)


class DecisionRecorder:
    """A sink that keeps audit records for the page.

    Attributes:
        log: the latest decisions, without those about namespaces that have not opted in.
        counts: all decisions of today.
        failed: records that could not be kept, because of a bug.
    """

    def __init__(self) -> None:
        self.log: Final = DecisionLog()
        self.counts: Final = DayCounts()
        self.failed = 0

    def write(self, record: Record) -> None:
        """Keep a record. What goes wrong here is no reason to answer a review otherwise."""
        try:
            self.counts.add(record)
            if record.decision != "skipped":
                self.log.add(record)
        except Exception:
            if not self.failed:
                logger.exception("internal error: a decision is not on the page")
            self.failed += 1
