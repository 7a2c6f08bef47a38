"""What policies do with a request, also for a user who may not read the installed settings.

By the built-in settings, which stand in for those then, a policy says what the server may not say. So it is evaluated
without any settings first: what it says without missing one is certain. Else, of policies that say so
(`Policy.annotations_decide`), it is certain what follows from the annotations of the namespace, which replace settings:
the changes and the denial that it does not come to without them. All else is not evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from webhook import names
from webhook.admission import patch
from webhook.admission.audit import NoAudit
from webhook.admission.decision import Decision, Reason
from webhook.admission.reasons import common
from webhook.cluster.source import Cluster
from webhook.errors import Unavailable
from webhook.facts import Key
from webhook.forecast.additions import additions_by
from webhook.k8s.types.meta import Namespace
from webhook.names import PolicyName
from webhook.policies.instancetypes import reasons as instancetypes
from webhook.policies.registry import BY_NAME
from webhook.policy import Endpoint
from webhook.review.reviewer import Evaluation, Reviewer
from webhook.settings.model import Settings

T = TypeVar("T")

# Of a policy's section, what does not come from the settings, or what the cluster says as well: the namespace's label
# decides the first, unless it has none (`_of_scope`), and the KubeVirt object the second.
_KNOWN: Final = frozenset({"cluster_wide", "kubevirt_namespace", "annotation_mistakes"})


class CertainReviewer:
    """Evaluates requests as a `Reviewer`, and says only what is certain where the installed settings are not known.

    Args:
        cluster: the source of facts.
        settings: those in force, or those that stand in for them (`Settings.gap`).
    """

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._are_known: Final = not settings.gap
        self._reviewer: Final = _reviewer(cluster, settings)
        self._without_settings: Final = _reviewer(cluster, settings if self._are_known else _blank(settings))
        self._without_annotations: Final = _reviewer(_WithoutAnnotations(cluster), settings)

    async def evaluate(self, endpoint: Endpoint, body: bytes, deadline: float) -> Evaluation:
        """The evaluation; `common.SETTINGS_UNREADABLE` is its code where none is certain. As `Reviewer.evaluate`."""
        if self._are_known:
            return await self._reviewer.evaluate(endpoint, body, deadline)
        try:
            blank = await self._without_settings.evaluate(endpoint, body, deadline)
        except AttributeError:
            # What a failure comes to depends on a setting, too.
            blank = None
        # To read a setting that is not there is a bug to the reviewer.
        if blank and blank.decision.code != common.BUG:
            return _of_scope(endpoint, blank)
        evaluation = await self._reviewer.evaluate(endpoint, body, deadline)
        if evaluation.decision.code == common.BUG or _is_kubevirts_denial(evaluation):
            return evaluation
        if not BY_NAME[endpoint.policy].annotations_decide:
            return _unknown(endpoint, evaluation, common.by_settings)
        return _beyond(endpoint, evaluation, await self._without_annotations.evaluate(endpoint, body, deadline))


def is_uncertain(reasons: Iterable[Reason]) -> bool:
    """Whether something was not evaluated, because it depends on settings that are not known."""
    return any(each.code == common.SETTINGS_UNREADABLE for each in reasons)


def _reviewer(cluster: Cluster, settings: Settings) -> Reviewer:
    return Reviewer(cluster, lambda: settings, NoAudit(), additions=additions_by)


def _blank(settings: Settings) -> Settings:
    """Settings whose policies have none: to read one is an `AttributeError`."""
    sections = {}
    for name, section in settings.policies.items():
        sections[name] = blank = section.model_copy()
        for field in [*vars(blank)]:
            if field not in _KNOWN:
                del vars(blank)[field]
    return settings.model_copy(update=sections)


def _of_scope(endpoint: Endpoint, evaluation: Evaluation) -> Evaluation:
    """The evaluation; none where it is a setting that keeps the policy off."""
    reason = by_settings(endpoint.policy, evaluation.decision.reasons[0])
    return _unknown(endpoint, evaluation, reason) if reason else evaluation


def by_settings(policy: PolicyName, off: Reason | None) -> Reason | None:
    """What is said instead of why a policy is off in a namespace; None: that does not depend on the settings."""
    if off == common.not_opted_in(policy):
        return common.scope_by_settings
    return common.by_settings if off and off.code == common.EXCLUDED_NAMESPACE else None


def _unknown(endpoint: Endpoint, evaluation: Evaluation, reason: Reason) -> Evaluation:
    decision = Decision((reason,))
    outcome = decision.under(evaluation.mode, endpoint.policy)
    return replace(evaluation, decision=decision, outcome=outcome, patch=None, label="error")


def _is_kubevirts_denial(evaluation: Evaluation) -> bool:
    """Whether KubeVirt denies the VM, whatever policies do: no default instancetype goes beside one that it names."""
    spec = getattr(evaluation.request.object, "spec", None)
    names_one = isinstance(spec, Mapping) and bool(spec.get("instancetype"))
    return names_one and evaluation.decision.denial is not None and evaluation.decision.code == instancetypes.DENIED


def _beyond(endpoint: Endpoint, evaluation: Evaluation, without: Evaluation) -> Evaluation:
    """What an evaluation changes or denies that another one does not, which is without the namespace's annotations."""
    own, other = evaluation.decision, without.decision
    if own.denial and own.denial != other.denial:
        return evaluation
    changes = tuple(each for each in own.changes if each not in other.changes)
    if own.denial or not changes:
        return _unknown(endpoint, evaluation, common.by_settings)
    reasons = tuple(each for each in own.reasons if each not in other.reasons)
    warnings = tuple(each for each in own.warnings if each not in other.warnings)
    decision = Decision((*reasons, common.more_by_settings), changes, warnings=warnings)
    outcome = decision.under(evaluation.mode, endpoint.policy)
    made = patch.render(endpoint.object_of(evaluation.request), outcome.changes) if outcome.changes else None
    return replace(evaluation, decision=decision, outcome=outcome, patch=made)


class _WithoutAnnotations(Cluster):
    """A cluster whose namespaces have none of the annotations by which they set policies up."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster: Final = cluster

    def peek(self, key: Key[Any]) -> object:
        return _stripped(self._cluster.peek(key))

    async def read(self, key: Key[T], deadline: float) -> T | None | Unavailable:
        answer = await self._cluster.read(key, deadline)
        return cast("T | None | Unavailable", _stripped(answer))

    def ages(self, keys: Iterable[Key[Any]]) -> Mapping[str, float]:
        return self._cluster.ages(keys)


def _stripped(answer: object) -> object:
    if not isinstance(answer, Namespace):
        return answer
    present = answer.meta.annotations or {}
    kept = {key: value for key, value in present.items() if not key.startswith(f"{names.DOMAIN}/")}
    return replace(answer, metadata=replace(answer.meta, annotations=kept))
