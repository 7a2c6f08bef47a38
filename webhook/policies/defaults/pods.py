"""Launcher pods: what virt-controller would take out of a VMI again.

Tolerations and preferences admit nodes or order them, so every new launcher pod gets them, that of a migration of an
older VM too. What limits nodes a pod gets only as far as it was recorded when its VMI was created, and is still the
default: an old VM is never held to a new rule, nor to one that has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webhook.admission.decision import Decision, allow
from webhook.admission.step_budget import spend
from webhook.admission.wire import Request
from webhook.facts import Facts
from webhook.k8s.json_tree import ABSENT, lookup
from webhook.k8s.types.meta import Object
from webhook.placement.machines import JOB_UID
from webhook.policies.common.injected_defaults import Choice
from webhook.policies.common.launcher_pods import owner_of_new
from webhook.policies.defaults import reasons, rows
from webhook.policies.defaults.fields import Json
from webhook.policies.defaults.rows import Default, parse, text_of
from webhook.policies.defaults.settings import DefaultsSettings
from webhook.policies.defaults.views import DefaultedPod, has_opted_out
from webhook.policies.defaults.virtualmachineinstances import records_of


async def default_pod(
    pod: DefaultedPod, request: Request[DefaultedPod], facts: Facts, settings: DefaultsSettings
) -> Decision:
    """Write the defaults into a new launcher pod."""
    return await _decide(pod, request, facts, settings, recorded_in)


async def observe_pod(
    pod: DefaultedPod, request: Request[DefaultedPod], facts: Facts, settings: DefaultsSettings
) -> Decision:
    """What `default_pod` would write if the policy were in force, in a mode that records nothing in VMIs.

    In force, it would have recorded the defaults of now in a VMI that has just been created. A VMI that migrates would
    stay without a record.
    """
    now = {default.annotation: value for default, value in records_of(settings)}
    is_first = pod.meta.label(JOB_UID) is None

    def read(whole: Object, default: Default) -> Any:
        recorded = recorded_in(whole, default)
        return now[default.annotation] if recorded is None and is_first else recorded

    return await _decide(pod, request, facts, settings, read)


async def _decide(
    pod: DefaultedPod,
    request: Request[DefaultedPod],
    facts: Facts,
    settings: DefaultsSettings,
    recorded: Callable[[Object, Default], Any],
) -> Decision:
    node_name = pod.spec.node_name if pod.spec else None
    owner = await owner_of_new(pod, node_name, request, facts, settings, "no default is set")
    if isinstance(owner, Decision):
        return owner
    if has_opted_out(pod):
        return allow(reasons.opted_out)
    decisions = []
    for default, value in (
        (rows.TOLERATIONS, settings.plain_tolerations),
        (rows.PREFERRED_AFFINITY, settings.plain_preferences),
    ):
        if value:
            decisions.append(_write(pod, default, value))
    for default, limit in (
        (rows.NODE_SELECTOR, default_labels(pod, settings, recorded)),
        (rows.REQUIRED_AFFINITY, default_term(pod, settings, recorded)),
    ):
        if limit is None:
            decisions.append(allow(reasons.not_recorded(rows.field_of(default))))
        elif limit:
            decisions.append(_write(pod, default, limit))
    return rows.join(decisions, settings)


def _write(pod: DefaultedPod, default: Default, value: Any) -> Decision:
    place, name = default.in_objects, rows.field_of(default)
    present = lookup(pod, place.field)
    spend(len(present) if isinstance(present, list | dict) else 0, f"entries of {name}")
    reason = reasons.injected(name) if present is ABSENT else reasons.merged(name)
    return default.write(pod, Choice(text_of(value), reason), place)


def recorded_in(whole: Object, default: Default) -> Any:
    """What an annotation of a VMI or pod says of a default; None: there is no such annotation."""
    text = whole.meta.annotation(default.annotation)
    return None if text is None else parse(text)


def default_labels(
    pod: DefaultedPod, settings: DefaultsSettings, recorded: Callable[[Object, Default], Any] = recorded_in
) -> Json | None:
    """The default node selector for a pod, without the keys of its required affinity; None: its VMI has no record."""
    wanted = settings.node_selector
    if not wanted:
        return {}
    labels = recorded(pod, rows.NODE_SELECTOR)
    if not isinstance(labels, dict):
        return None
    chosen = affinity_keys(pod)
    return {key: value for key, value in wanted.items() if labels.get(key) == value and key not in chosen}


def default_term(
    pod: DefaultedPod, settings: DefaultsSettings, recorded: Callable[[Object, Default], Any] = recorded_in
) -> list[Json] | None:
    """The term of the default required affinity for a pod; None: its VMI has no record."""
    wanted = settings.node_affinity.expressions
    if not wanted:
        return []
    match recorded(pod, rows.REQUIRED_AFFINITY):
        case [{"matchExpressions": [*listed]}]:
            spend(len(wanted) * len(listed), "expressions of the recorded node affinity")
            expressions = [each for each in wanted if each in listed]
            return [{"matchExpressions": expressions}] if expressions else []
    return None


def affinity_keys(whole: object) -> set[str]:
    """The keys that the terms of a VMI's or a pod's required node affinity name."""
    keys = (each.get("key") for each in expressions_of(whole))
    return {key for key in keys if isinstance(key, str)}


def expressions_of(whole: object) -> list[Json]:
    """The expressions of all terms of a VMI's or a pod's required node affinity."""
    terms = lookup(whole, rows.REQUIRED_AFFINITY.in_objects.field)
    if not isinstance(terms, list):
        return []
    spend(len(terms), "nodeSelectorTerms")
    listed = [present for term in terms if isinstance(present := term.get("matchExpressions"), list)]
    spend(sum(map(len, listed)), "expressions of the node affinity")
    return [each for present in listed for each in present if isinstance(each, dict)]
