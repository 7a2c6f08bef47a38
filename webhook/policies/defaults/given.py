"""Which defaults a VM has, would get at its next start, and which its owner keeps away by a value of his own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from webhook import names
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, NodesKey, ObjectKey
from webhook.k8s.json_tree import ABSENT, lookup
from webhook.k8s.types.meta import View
from webhook.policies.defaults import rows
from webhook.policies.defaults.fields import Json
from webhook.policies.defaults.pods import affinity_keys, expressions_of
from webhook.policies.defaults.rows import Default, text_of
from webhook.policies.defaults.settings import DefaultsSettings
from webhook.policies.defaults.virtualmachineinstances import PRIORITY_CLASSES

Path = tuple[str, ...]


class _Field(NamedTuple):
    """A default: what it is for, the attribute of the settings that has it, and whether a section does."""

    default: Default
    name: str
    row: str
    is_offered: Callable[[DefaultsSettings], object]


_FIELDS: Final = (
    _Field(rows.TOLERATIONS, "tolerations", "tolerations", lambda section: section.tolerations),
    _Field(rows.NODE_SELECTOR, "nodeSelector", "node_selector", lambda section: section.node_selector),
    _Field(
        rows.REQUIRED_AFFINITY,
        "required nodeAffinity",
        "node_affinity",
        lambda section: section.node_affinity.required,
    ),
    _Field(
        rows.PREFERRED_AFFINITY,
        "preferred nodeAffinity",
        "node_affinity",
        lambda section: section.node_affinity.preferred,
    ),
    _Field(
        rows.PRIORITY_CLASS,
        "priorityClassName",
        "priority_class_name",
        lambda section: section.priority_class_name,
    ),
    _Field(rows.EVICTION_STRATEGY, "evictionStrategy", "eviction_strategy", lambda section: section.eviction_strategy),
    _Field(
        rows.GRACE_PERIOD,
        "terminationGracePeriodSeconds",
        "termination_grace_period_seconds",
        lambda section: section.termination_grace_period_seconds is not None,
    ),
    _Field(rows.CPU_MODEL, "CPU model", "cpu_model", lambda section: section.cpu_model),
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


def of_settings(settings: DefaultsSettings, mode: str | None) -> list[Path]:
    """The paths of the defaults that the settings decide, and not the namespace.

    Args:
        settings: the section for the namespace.
        mode: what its label says; None: it has none, so that settings decide whether its annotations count.
    """
    if mode not in (None, names.ENFORCE):
        return []
    own = settings.of_namespace if mode else frozenset()
    return [each.default.path for each in _FIELDS if each.row not in own]


def still_in_force(annotations: Mapping[str, str], pod: Json) -> dict[str, str]:
    """The annotations of a VMI that runs without what of its records its pod, plain JSON, does not have.

    The record stays for as long as the VMI does; after a migration its pod has what was still the default then.
    """
    labels, terms = _said(annotations, rows.NODE_SELECTOR), _said(annotations, rows.REQUIRED_AFFINITY)
    changed: dict[str, Any] = {}
    if isinstance(labels, dict):
        present = lookup(pod, rows.NODE_SELECTOR.in_objects.field)
        held = present.items() if isinstance(present, dict) else ()
        changed[rows.NODE_SELECTOR.annotation] = dict(each for each in labels.items() if each in held)
    match terms:
        case [{"matchExpressions": [*recorded]}]:
            # A decoded pod has null for what is absent. As texts they are looked up, however many a tenant writes.
            present = {
                _sorted_text({key: value for key, value in each.items() if value is not None})
                for each in expressions_of(pod)
            }
            expressions = [each for each in recorded if _sorted_text(each) in present]
            changed[rows.REQUIRED_AFFINITY.annotation] = [{"matchExpressions": expressions}] if expressions else []
    kept = {key: text for key, text in annotations.items() if key not in changed}
    return kept | {key: text_of(value) for key, value in changed.items() if value}


def _sorted_text(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")


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
        unread: by path, why it is not known whether a default would be given, clauses.
    """
    for default, field, _, is_offered in _FIELDS:
        owner = lookup(vmi, default.path)
        own = None if owner in (ABSENT, "", [], {}) else owner
        now, then = (_beside(vmi, own, _said(annotations, default), default) for annotations in (given, following))
        # An owner's value keeps a default away, unless that is merged with it.
        is_open = own is None or default.merge is not None
        report = DefaultReport(field, own, now, then, unread.get(default.path, "") if is_open else "")
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
