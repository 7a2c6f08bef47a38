"""Which defaults a VM has, would get at its next start, and which its owner keeps away by a value of his own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from webhook.errors import Unavailable
from webhook.facts import Facts, Key, NodesKey, ObjectKey
from webhook.k8s.json_tree import ABSENT, lookup
from webhook.k8s.types.meta import View
from webhook.policies.defaults import rows
from webhook.policies.defaults.fields import Json
from webhook.policies.defaults.pods import affinity_keys
from webhook.policies.defaults.rows import Default
from webhook.policies.defaults.settings import DefaultsSettings
from webhook.policies.defaults.virtualmachineinstances import PRIORITY_CLASSES

Path = tuple[str, ...]

# Each default with what it is for, and whether a section has it.
_FIELDS: Final[tuple[tuple[Default, str, Callable[[DefaultsSettings], object]], ...]] = (
    (rows.TOLERATIONS, "tolerations", lambda section: section.tolerations),
    (rows.NODE_SELECTOR, "nodeSelector", lambda section: section.node_selector),
    (rows.REQUIRED_AFFINITY, "required nodeAffinity", lambda section: section.node_affinity.required),
    (rows.PREFERRED_AFFINITY, "preferred nodeAffinity", lambda section: section.node_affinity.preferred),
    (rows.PRIORITY_CLASS, "priorityClassName", lambda section: section.priority_class_name),
    (rows.EVICTION_STRATEGY, "evictionStrategy", lambda section: section.eviction_strategy),
    (
        rows.GRACE_PERIOD,
        "terminationGracePeriodSeconds",
        lambda section: section.termination_grace_period_seconds is not None,
    ),
    (rows.CPU_MODEL, "CPU model", lambda section: section.cpu_model),
)


class DefaultReport(View, frozen=True):
    """One default of a VM; null: there is no such value.

    Attributes:
        field: what it is for.
        owner: what the owner, the instancetype or the preference says.
        given: what it got at its start, or its present pod did.
        next: what it would get at its next start.
        unread: why that is not known, a clause; empty: it is known.
    """

    field: str
    owner: Any = None
    given: Any = None
    next: Any = None
    unread: str = ""


async def unread_of(settings: DefaultsSettings, facts: Facts) -> dict[Path, str]:
    """Why it is not known whether a default would be given, by its path: what it depends on cannot be read."""
    keys: dict[Path, Key[Any]] = {}
    if settings.priority_class_name:
        keys[rows.PRIORITY_CLASS.path] = ObjectKey(PRIORITY_CLASSES, "", settings.priority_class_name)
    if settings.cpu_model:
        keys[rows.CPU_MODEL.path] = NodesKey()
    answers = {path: await facts.get(key) for path, key in keys.items()}
    return {path: answer.why for path, answer in answers.items() if isinstance(answer, Unavailable)}


def defaults_of(
    vmi: Json,
    given: Mapping[str, str],
    following: Mapping[str, str],
    settings: DefaultsSettings,
    unread: Mapping[Path, str],
) -> Iterator[DefaultReport]:
    """The defaults of a VM, those that neither exist nor would be given left out.

    Args:
        vmi: as its owner has it, plain JSON.
        given: the annotations of the VMI that runs, and of its pod.
        following: those of the VMI that would be created next, and of its pod.
        settings: the section for the namespace.
        unread: by path, the answer of `unread_of`.
    """
    for default, field, is_offered in _FIELDS:
        owner = lookup(vmi, default.path)
        own = None if owner in (ABSENT, "", [], {}) else owner
        now, then = (_beside(vmi, own, _said(annotations, default), default) for annotations in (given, following))
        report = DefaultReport(field, own, now, then, unread.get(default.path, "") if own is None else "")
        known = report.given is not None or report.next is not None
        if known or report.unread or (own is not None and is_offered(settings)):
            yield report


def _beside(vmi: Json, owner: Any, said: Any, default: Default) -> Any:
    """What of a default stands beside the owner's value, for those that are merged; None: nothing."""
    if default is rows.NODE_SELECTOR and isinstance(said, dict):
        chosen = (owner or {}).keys() | affinity_keys(vmi)
        return {key: value for key, value in said.items() if key not in chosen} or None
    if default is rows.TOLERATIONS and isinstance(said, list):
        return rows.other_tolerations(owner or [], [each for each in said if isinstance(each, dict)]) or None
    return said


def _said(annotations: Mapping[str, str], default: Default) -> Any:
    text = annotations.get(default.annotation)
    value = None if text is None else default.value(text)
    # Whoever may change annotations wrote what is no value.
    return None if value is ABSENT else value
