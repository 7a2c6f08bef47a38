"""Kubernetes Events: which requests were denied and why, where the users of a namespace look for it.

No review waits for them. They are queued, written one by one by a task of their own, and dropped, and counted, when
they cannot be written. Repetitions within some minutes are one Event, whose series counts: that is the purpose of
events.k8s.io/v1 (KEP-383), in contrast to core/v1, whose counters every client keeps in its own way.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from webhook import names
from webhook.admission import wire
from webhook.admission.audit import timestamp
from webhook.admission.credentials import sanitize
from webhook.admission.decision import compose
from webhook.k8s.client.api import ApiConnectionError, Requests, explain
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.resources import EVENTS
from webhook.k8s.types.meta import Object
from webhook.policy import Endpoint
from webhook.review.reviewer import Evaluation, Observer

RESULTS: Final = ("written", "repeated", "dropped", "failed")
REPORTER: Final = f"{names.DOMAIN}/admission"

# Within this time, counted from the first, the same happening is a repeat.
WINDOW_SECONDS: Final = 300.0
# Of series that wait, and of written ones. A namespace has a quarter of those that wait: a tenant whose requests are
# denied in a loop must not silence the Events of others.
CAPACITY: Final = 1000

_TICK_SECONDS: Final = 0.5
_PER_TICK: Final = 10
_WRITE_SECONDS: Final = 5.0
# The API server's limits (k8s.io/kubernetes, pkg/apis/core/validation/events.go).
MAX_NOTE: Final = 1024
_MAX_INSTANCE: Final = 128

logger = logging.getLogger(__name__)


class Event(msgspec.Struct, frozen=True):
    """What a Kubernetes Event is about. Those that are equal in all but the note are repeats.

    Attributes:
        namespace: where users see it, and where the object is.
        api_version, kind, name, uid: of the object; the uid may be empty, where there is none yet.
        reason: a word in CamelCase.
        code: what led to it, one of `webhook.policies.meanings`.
        note: a text for people; cut where it is too long.
        type: ``Warning`` or ``Normal``.
    """

    namespace: str
    api_version: str
    kind: str
    name: str
    uid: str
    reason: str
    code: str
    note: str
    type: str = "Warning"

    def __post_init__(self) -> None:
        # Names are checked only after admission, and an owner reference's kind hardly at all.
        for field in ("api_version", "kind", "name", "uid", "note"):
            msgspec.structs.force_setattr(self, field, sanitize(getattr(self, field)))


def restore_event(namespace: str, why: str) -> Event:
    """The Event of an etcd that was restored from an older copy, in the server's own namespace; ``why`` is a clause."""
    note = f"etcd has been restored from an older copy; kubevirt-webhook has read everything again: {why}"
    return Event(namespace, "v1", "Namespace", namespace, "", "EtcdRestored", "etcd-restored", note)


class _Series(msgspec.Struct):
    """One Event in the cluster, or about to be there."""

    event: Event
    name: str
    began: float
    count: int = 1
    last: float = 0.0


class EventWriter(Observer):
    """Writes Kubernetes Events of decisions that users should see.

    Args:
        api: the connection to the API server; the caller closes it.
        instance: distinguishes this process from others, for example the name of its pod.
        is_on: whether Events are switched on at present.
        clock: the source of time, and of sleep.

    Attributes:
        results: Events by what became of them, one of `RESULTS`.
    """

    def __init__(self, api: Requests, instance: str, is_on: Callable[[], bool], *, clock: Clock = REAL_TIME) -> None:
        self._api: Final = api
        self._is_on: Final = is_on
        self._instance: Final = instance[:_MAX_INSTANCE] or "unknown"
        self._clock: Final = clock
        self._waiting: Final[dict[tuple[str, ...], _Series]] = {}
        self._written: Final[dict[tuple[str, ...], _Series]] = {}
        self._trouble = ""
        self.results: Final = Counter(dict.fromkeys(RESULTS, 0))

    def on_evaluated(self, endpoint: Endpoint, evaluation: Evaluation, seconds: float) -> None:
        """Announce an evaluation if users should know of it."""
        if not self._is_on():
            return
        if event := event_of(endpoint, evaluation):
            self.add(event)
        for announcement in announced_by(evaluation):
            self.add(announcement)

    def add(self, event: Event) -> None:
        """Queue an Event; neither waits nor raises."""
        key = (event.namespace, event.kind, event.name, event.reason, event.code)
        series = self._waiting.get(key) or self._written.get(key)
        if series is not None:
            series.count += 1
            series.last = self._clock.wall()
            self.results["repeated"] += 1
        elif len(self._waiting) >= CAPACITY or sum(key[0] == each[0] for each in self._waiting) >= CAPACITY // 4:
            self.results["dropped"] += 1
        else:
            name = f"kubevirt-webhook.{secrets.token_hex(8)}"
            self._waiting[key] = _Series(event, name, self._clock.now(), last=self._clock.wall())

    async def run(self) -> None:
        """Write Events indefinitely; ends when it is cancelled."""
        while True:
            await self._clock.sleep(_TICK_SECONDS)
            try:
                await self.write()
            except Exception:
                logger.exception("Events: internal error")

    async def write(self) -> None:
        """Write some of what is new, and the counts of what has had its time."""
        for key, series in list(self._waiting.items())[:_PER_TICK]:
            try:
                if await self._send("create", series):
                    self._written[key] = series
            finally:
                # The next one of its kind is a new try; what cannot be sent must not hold up the others.
                del self._waiting[key]
        for key, series in list(self._written.items())[:_PER_TICK]:
            # The oldest ones come first.
            if len(self._written) <= CAPACITY and self._clock.now() - series.began < WINDOW_SECONDS:
                break
            del self._written[key]
            if series.count > 1:
                await self._send("patch", series)

    async def _send(self, verb: str, series: _Series) -> bool:
        namespace = series.event.namespace
        try:
            if verb == "create":
                request: tuple[Any, ...] = ("POST", EVENTS.path(namespace), {}, self._event(series), "application/json")
            else:
                seen = {"count": series.count, "lastObservedTime": timestamp(series.last)}
                path = EVENTS.path(namespace, series.name)
                request = ("PATCH", path, {}, {"series": seen}, "application/merge-patch+json")
            status, body = await self._api.request(*request, seconds=_WRITE_SECONDS)
        except ApiConnectionError as error:
            return self._log_failure(error.why)
        if status not in (200, 201):
            return self._log_failure(explain(verb, EVENTS, "", status, body).why)
        self._trouble = ""
        if verb == "create":
            self.results["written"] += 1
        return True

    def _log_failure(self, why: str) -> bool:
        self.results["failed"] += 1
        if why != self._trouble:
            logger.warning("Events cannot be written: %s", why)
        self._trouble = why
        return False

    def _event(self, series: _Series) -> dict[str, Any]:
        event = series.event
        note = event.note
        if len(note.encode()) > MAX_NOTE:
            note = note.encode()[: MAX_NOTE - 3].decode(errors="ignore") + "…"
        # Events on cluster-wide objects would have to be in the namespace default, which the owners do not look at.
        regarding = {"namespace": event.namespace, "name": event.name, **({"uid": event.uid} if event.uid else {})}
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": event.namespace},
            "eventTime": timestamp(series.last),
            "type": event.type,
            "reason": event.reason,
            "action": "Admission",
            "note": note,
            "regarding": {"apiVersion": event.api_version, "kind": event.kind, **regarding},
            "reportingController": REPORTER,
            "reportingInstance": self._instance,
        }


def event_of(endpoint: Endpoint, evaluation: Evaluation) -> Event | None:
    """What to announce of an evaluation; None for nothing: dry runs, mode ``audit``, and what went as it should.

    The text is that of the reason, not the user's message: that may name what only he may see.
    """
    request, decision = evaluation.request, evaluation.decision
    if wire.is_dry_run(request) or not request.namespace or evaluation.mode not in (names.ENFORCE, names.WARN):
        return None
    enforced, code = evaluation.mode == names.ENFORCE, decision.code
    if decision.denial:
        reason, outcome = ("Denied", "was denied") if enforced else ("WouldDeny", "would be denied in mode enforce")
        text = decision.reasons[0].text
    elif evaluation.label == "error":
        reason, outcome, text = "NotEvaluated", "was allowed without changes", decision.reasons[0].text
    elif decision.warnings:
        reason, outcome, text = "Warned", "was allowed", "; ".join(warning.text for warning in decision.warnings)
        # A warning can be of something beside the decision.
        code = decision.warnings[0].code
    else:
        return None
    name = wire.object_name(request)
    sentence = f"{request.operation} of {endpoint.kind} {name} {outcome}: {text}"
    note = compose(endpoint.policy, sentence, code, evaluation.mode, most=MAX_NOTE)
    is_absent = not name or (request.operation == "CREATE" and decision.denial is not None and enforced)
    # Where users look: a pod's VMI, and the namespace for what is not there.
    regarded_object = request.object or request.old_object
    meta = regarded_object.meta if isinstance(regarded_object, Object) else None
    owner = meta.controller_owner() if meta and endpoint.kind == "Pod" else None
    if endpoint.sub_resource:
        # Of a pod, which is there, whatever becomes of its eviction.
        regarded = ("v1", "Pod", name, "")
    elif owner and owner.name:
        regarded = (owner.api_version or "", owner.kind or "", owner.name, owner.uid or "")
    elif is_absent:
        regarded = ("v1", "Namespace", request.namespace, "")
    else:
        regarded = (endpoint.api_version, endpoint.kind, name, (meta.uid if meta else None) or "")
    return Event(request.namespace, *regarded, reason, code, note)


def announced_by(evaluation: Evaluation) -> Iterator[Event]:
    """What to tell of other objects: nothing where the decision is not carried out, as by a dry run."""
    if wire.is_dry_run(evaluation.request) or evaluation.mode != names.ENFORCE:
        return
    for each in evaluation.decision.announcements:
        regarded = (each.api_version, each.kind, each.name, each.uid)
        yield Event(each.namespace, *regarded, each.reason, each.code, each.text, "Normal")
