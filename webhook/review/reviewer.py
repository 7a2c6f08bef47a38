"""From a review's bytes to its answer's bytes: the one way that server, command line and tests share.

    decode ─▶ scope ─▶ policy(view, request, facts, settings) ─▶ Decision            (awaits facts: `driver` reads)
                            decision.under(mode) ─▶ patch ─▶ encode
                                      └▶ audit, metrics

A policy says what mode ``enforce`` would do; only here are modes known. A fault of the server, a bug included,
is answered as the endpoint's ``on_error`` and the policy's failurePolicy say: an exception never decides. An object
that cannot be read is its sender's mistake: validating endpoints deny it, or it would be the way around the rules.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from webhook import names
from webhook.admission import patch, wire
from webhook.admission.audit import SCHEMA, AuditedObject, Label, Record, Sink, timestamp
from webhook.admission.credentials import SHORT, scrub_prose, scrub_short
from webhook.admission.decision import Decision, Denial, Outcome, Reason, redact_changes
from webhook.admission.reasons import common
from webhook.admission.reasons.catalog import is_failure
from webhook.admission.step_budget import TooComplex
from webhook.admission.wire import Received, Request
from webhook.cluster.source import Cluster
from webhook.errors import Unavailable
from webhook.facts import Facts, FindAdditions, NotInMemory, Unreadable, find_none, from_memory
from webhook.names import Mode
from webhook.policy import Endpoint
from webhook.review.driver import confirmed, drive
from webhook.review.scope import Scope, Scopes
from webhook.settings.model import Settings


class Evaluation(msgspec.Struct, frozen=True):
    """An evaluated request, before it is encoded.

    Attributes:
        api_version: ``apiVersion`` of the review, which the answer repeats.
        mode: the mode of the policy in the request's namespace.
        decision: what mode ``enforce`` would do; where the mode is ``off`` or on an error, only the reason.
        outcome: the answer to the API server in this mode.
        patch: the JSON patch, encoded; None: there is none.
        label: the decision in a word, as in audit lines.
    """

    api_version: str
    request: Request[Any]
    mode: Mode
    decision: Decision
    outcome: Outcome
    patch: bytes | None
    label: Label


class _Review(msgspec.Struct, frozen=True):
    """One review, and what it is evaluated by.

    Attributes:
        start: when it started, on the clock of `time.perf_counter`.
    """

    endpoint: Endpoint
    received: Received[Any]
    facts: Facts
    settings: Settings
    start: float


class Observer:
    """Gets every evaluated request."""

    def on_evaluated(self, endpoint: Endpoint, evaluation: Evaluation, seconds: float) -> None:
        """A request was evaluated within ``seconds``."""

    def on_failure(self, endpoint: Endpoint, error: BaseException) -> None:
        """A bug or a fault of the server kept the request from being evaluated."""


class Reviewer:
    """Evaluates admission requests.

    Args:
        cluster: the source of facts.
        settings: returns those in force; called once a review.
        audit: gets a record of every evaluation.
        observers: get every evaluation, one after the other.
        wall: returns Unix time in seconds.
        additions: returns, for the settings in force, what finds what policies add to launcher pods.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Callable[[], Settings],
        audit: Sink,
        *observers: Observer,
        wall: Callable[[], float] = time.time,
        additions: Callable[[Settings], FindAdditions] = lambda _: find_none,
    ) -> None:
        self.cluster: Final = cluster
        self._settings: Final = settings
        self._audit: Final = audit
        self._observers: Final = observers
        self._wall: Final = wall
        self._additions: Final = additions
        self._scopes: Final = Scopes()

    async def evaluate(self, endpoint: Endpoint, body: bytes, deadline: float, *, verified: bool = True) -> Evaluation:
        """The evaluation of an AdmissionReview, not encoded.

        Args:
            endpoint: that received the review.
            body: the review, encoded.
            deadline: on the running loop's clock, in seconds; look-ups end by then. Where all facts are in memory,
                nothing is waited for.
            verified: whether the sender has proved that it is the API server, as `Facts` needs it.

        Raises:
            InputError: the body is not a review that this endpoint can answer.
        """
        start = time.perf_counter()
        received = endpoint.codec.decode(body)
        settings = self._settings()
        facts = Facts(self._wall(), self.cluster.peek, verified=verified, additions=self._additions(settings))
        review = _Review(endpoint, received, facts, settings, start)
        try:
            evaluation = await drive(_decide(review, self._scopes), self.cluster, facts, deadline, endpoint.path)
        except Exception as error:  # noqa: BLE001 - a bug must not decide: on_error does
            evaluation = self._evaluate_failure(review, error)
        return self._report(review, evaluation)

    async def review(self, endpoint: Endpoint, body: bytes, deadline: float, *, verified: bool = True) -> bytes:
        """The answer to an AdmissionReview, with arguments and errors of `evaluate`."""
        return encode(await self.evaluate(endpoint, body, deadline, verified=verified))

    def overloaded(self, endpoint: Endpoint, prefix: bytes, why: str, denial_code: int) -> bytes | None:
        """The answer to a review that is not evaluated, since there is no memory or time for it.

        Where the endpoint's policy denies, the request is denied whatever its failurePolicy says: overload can be made
        by any client, and must not be a way around the policy. Otherwise it is allowed without changes.

        Args:
            endpoint: the endpoint that received the review.
            prefix: the first bytes of the body, or all.
            why: what there was not, as a clause.
            denial_code: HTTP's, of a denial.

        Returns:
            The answer; None: the review's uid is not in the prefix, and there is no answer without it.
        """
        head = wire.begun_request(prefix)
        if head is None:
            return None
        facts = Facts(self._wall(), self.cluster.peek, verified=False)
        review = _Review(endpoint, Received(*head), facts, self._settings(), time.perf_counter())
        mode, request = _assumed_mode(endpoint), review.received.request
        if request.namespace:
            # In doubt, what the API server says by calling this endpoint counts.
            with suppress(NotInMemory):
                where, _ = from_memory(
                    self._scopes.resolve(endpoint.policy, endpoint.stage, request, facts, review.settings)
                )
                if isinstance(where, Scope):
                    mode = where.mode
        code = denial_code if endpoint.denies else None
        return encode(self._report(review, _undecided(review, mode, common.overloaded(why), code)))

    def _evaluate_failure(self, review: _Review, error: BaseException) -> Evaluation:
        """The answer where the policy came to no decision: a fact could not be read, or there is a bug."""
        if isinstance(error, Unreadable):
            return _unknown(review, common.lookup_failed("the request was not evaluated", error.why))
        for observer in self._observers:
            observer.on_failure(review.endpoint, error)
        return _unknown(review, common.internal_error(review.received.request.uid))

    def _report(self, review: _Review, evaluation: Evaluation) -> Evaluation:
        """Pass an evaluation on to metrics and audit."""
        seconds = time.perf_counter() - review.start
        endpoint, request, decision = review.endpoint, evaluation.request, evaluation.decision
        for observer in self._observers:
            observer.on_evaluated(endpoint, evaluation, seconds)
        ages = self.cluster.ages(review.facts.remembered)
        namespace, object_name, user = request.namespace or "", wire.object_name(request), request.user_info.username
        record = Record(
            SCHEMA,
            timestamp(self._wall()),
            request.uid,
            endpoint.path,
            request.operation,
            # Names are checked only after admission: until then they may be anything.
            AuditedObject(
                endpoint.kind,
                scrub_short(namespace) if len(namespace) <= SHORT else scrub_prose(namespace),
                scrub_short(object_name) if len(object_name) <= SHORT else scrub_prose(object_name),
            ),
            scrub_short(user) if len(user) <= SHORT else scrub_prose(user),
            wire.is_dry_run(request),
            evaluation.mode,
            evaluation.label,
            decision.reasons,
            redact_changes(decision.changes) if decision.changes else (),
            decision.denial.message if decision.denial else None,
            round(seconds * 1000, 3),
            # JSON has no infinity.
            {watch: round(age, 3) if age < math.inf else None for watch, age in ages.items()} if ages else {},
            decision.details or msgspec.UNSET,
        )
        self._audit.write(record)
        return evaluation


def encode(evaluation: Evaluation) -> bytes:
    """The encoded answer. Its audit annotations repeat the audit line in short in the API server's own audit log.

    That log has no UID of a review, so one of them is the UID, by which its entries and audit lines can be joined.
    """
    request, reasons = evaluation.request, evaluation.decision.reasons
    notes = {"uid": request.uid, "mode": evaluation.mode, "decision": evaluation.label, "reason": reasons[0].code}
    if len(reasons) > 1:
        notes["other-reasons"] = ",".join(dict.fromkeys(reason.code for reason in reasons[1:]))
    notes |= evaluation.outcome.notes
    return wire.encode(evaluation.api_version, request, evaluation.outcome, evaluation.patch, notes)


async def _decide(review: _Review, scopes: Scopes) -> Evaluation:
    """Everything from the scope to the patch, from facts alone: the coroutine that is driven for a review.

    The scope, the policy, and `confirmed` around the policy await facts within it.
    """
    endpoint, received, facts = review.endpoint, review.received, review.facts
    request = received.request
    where, section = await scopes.resolve(endpoint.policy, endpoint.stage, request, facts, review.settings)
    if isinstance(where, Unavailable):
        return _unknown(review, common.namespace_unreadable(request.namespace or "", where.why))
    mode = where.mode
    if mode == names.OFF:
        return _evaluation(review, mode, Decision((where.reason or common.out_of_scope,)), "skipped")
    if received.malformed:
        return _not_evaluable(review, mode, received.malformed)
    view = endpoint.object_of(request)
    is_other = (request.sub_resource or "") != endpoint.sub_resource
    if is_other or view is None:
        reason = common.other_subresource(request.sub_resource) if is_other else common.no_object(request.operation)
        return _evaluation(review, mode, Decision((reason,)), "skipped")
    try:
        decision = await confirmed(lambda facts: endpoint.handler(view, request, facts, section), facts)
        outcome = decision.under(mode, endpoint.policy)
        rendered = patch.render(view, outcome.changes) if outcome.changes else None
    except RecursionError:
        # Depth comes with data, never with code: here with what was read beside the object.
        return _not_evaluable(review, mode, common.too_deep)
    except TooComplex as error:
        # To ask again would not help, so a denial is about the object and not about the server.
        return _not_evaluable(review, mode, str(error), common.TOO_COMPLEX)
    return Evaluation(received.api_version, request, mode, decision, outcome, rendered, _label(decision, mode))


def _label(decision: Decision, mode: Mode) -> Label:
    # What a policy itself says it could not evaluate is as much an error as what it raises. An object that cannot be
    # read and is denied for that has been evaluated.
    is_denied_for_itself = decision.denial is not None and decision.code == common.INVALID_OBJECT
    if is_failure(decision.code) and not decision.changes and not is_denied_for_itself:
        return "error"
    enforced = mode == names.ENFORCE
    if decision.denial:
        return "denied" if enforced else "would-deny"
    if decision.changes:
        return "patched" if enforced else "would-patch"
    return "allowed"


def _assumed_mode(endpoint: Endpoint) -> Mode:
    """The mode where the namespace's own is not known: the strongest that the endpoint allows."""
    return names.ENFORCE if endpoint.stage == "enforce" else names.AUDIT


def _evaluation(review: _Review, mode: Mode, decision: Decision, label: Label) -> Evaluation:
    """An evaluation in which the policy decided nothing, so that there is no patch."""
    received, outcome = review.received, decision.under(mode, review.endpoint.policy)
    return Evaluation(received.api_version, received.request, mode, decision, outcome, None, label)


def _unknown(review: _Review, reason: Reason) -> Evaluation:
    """The answer where kubevirt-webhook fails, as the endpoint's ``on_error`` and its policy's failurePolicy say."""
    denial_code = 503 if review.endpoint.fails_closed(review.settings) else None
    return _undecided(review, _assumed_mode(review.endpoint), reason, denial_code)


def _undecided(review: _Review, mode: Mode, reason: Reason, denial_code: int | None) -> Evaluation:
    """The answer to a request that is not evaluated now: in mode ``enforce`` a denial of this code; None: none."""
    denial = None
    if denial_code is not None and mode == names.ENFORCE:
        denial = Denial(denial_code, common.not_evaluated_now(reason))
    warnings = () if denial else (common.allowed_unchanged(review.endpoint.kind, reason),)
    decision = Decision((reason,), denial=denial, warnings=warnings)
    return _evaluation(review, mode, decision, _label(decision, mode))


def _not_evaluable(review: _Review, mode: Mode, why: str, code: str = common.INVALID_OBJECT) -> Evaluation:
    """The answer to an object that cannot be evaluated: what mutates leaves it alone, what validates denies it.

    What has another reason to deny than the object leaves it alone, too.
    """
    endpoint = review.endpoint
    reason = common.not_evaluable(endpoint.kind, why, code)
    if endpoint.verb == "mutate" or not endpoint.denies:
        decision = Decision((reason,), warnings=(common.allowed_unchanged(endpoint.kind, reason),))
    else:
        decision = Decision((reason,), denial=Denial(422, common.correct_the_object(reason)))
    return _evaluation(review, mode, decision, _label(decision, mode))
