"""Which decisions become Kubernetes Events, and on which object users find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from webhook import names
from webhook.admission import messages, wire
from webhook.admission.wire import Request
from webhook.k8s.views import Object
from webhook.review.endpoints import Endpoint
from webhook.review.reviewer import Evaluation, Observer
from webhook.server.background.event_recorder import MAX_NOTE, Event


class EventObserver(Observer):
    """An observer that also makes Kubernetes Events of decisions that users should see.

    Args:
        inner: gets everything first.
        add: gets each Event.
        wanted: whether Events are switched on at present.
    """

    def __init__(self, inner: Observer, add: Callable[[Event], None], wanted: Callable[[], bool]) -> None:
        self._inner: Final = inner
        self._add: Final = add
        self._wanted: Final = wanted

    def on_evaluated(self, endpoint: Endpoint, verdict: Evaluation, seconds: float) -> None:
        """Pass it on, and announce it if users should know."""
        self._inner.on_evaluated(endpoint, verdict, seconds)
        if self._wanted():
            event = event_of(endpoint, verdict)
            if event:
                self._add(event)

    def on_error(self, endpoint: Endpoint, error: BaseException) -> None:
        """Pass the error on; an error is not an Event."""
        self._inner.on_error(endpoint, error)


def event_of(endpoint: Endpoint, verdict: Evaluation) -> Event | None:
    """What to announce of a verdict; None for nothing: dry runs, mode ``audit``, and what went as it should.

    The text is that of the reason, not the user's message: that may name what only he may see.
    """
    request, decision = verdict.request, verdict.decision
    if wire.is_dry_run(request) or not request.namespace or verdict.mode not in (names.ENFORCE, names.WARN):
        return None
    enforced = verdict.mode == names.ENFORCE
    if decision.denial:
        reason, said = ("Denied", "was denied") if enforced else ("WouldDeny", "would be denied in mode enforce")
        text = decision.reasons[0].text
    elif verdict.label == "error":
        reason, said, text = "NotEvaluated", "was allowed without changes", decision.reasons[0].text
    elif decision.warnings:
        reason, said, text = "Warned", "was allowed", "; ".join(warning.text for warning in decision.warnings)
    else:
        return None
    name = wire.object_name(request)
    sentence = f"{request.operation} of {endpoint.kind} {name} {said}: {text}"
    note = messages.compose(endpoint.policy, sentence, decision.code, verdict.mode, most=MAX_NOTE)
    absent = not name or (request.operation == "CREATE" and decision.denial is not None and enforced)
    api_version, kind, regarded, uid = _involved_object(endpoint, request, name, absent=absent)
    return Event(request.namespace, api_version, kind, regarded, uid, reason, decision.code, note)


def _involved_object(
    endpoint: Endpoint, request: Request[Any], name: str, *, absent: bool
) -> tuple[str, str, str, str]:
    """API version, kind, name and uid of where users look: a pod's VMI, and the namespace for what is not there."""
    if endpoint.sub_resource:
        # Of a pod, which is there, whatever becomes of its eviction.
        return "v1", "Pod", name, ""
    view = request.object
    meta = view.meta if isinstance(view, Object) else None
    owner = meta.controller_owner() if meta and endpoint.kind == "Pod" else None
    if owner and owner.name:
        return owner.api_version or "", owner.kind or "", owner.name, owner.uid or ""
    if absent:
        return "v1", "Namespace", request.namespace or "", ""
    api_version = f"{endpoint.group}/{endpoint.version}" if endpoint.group else endpoint.version
    return api_version, endpoint.kind, name, (meta.uid if meta else None) or ""
