"""Each default as a value, and the decisions about several of them as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from webhook import names
from webhook.admission.decision import Decision, Reason, allow
from webhook.admission.step_budget import spend
from webhook.k8s.json_tree import ABSENT
from webhook.k8s.types.scheduling import PREFERRED, REQUIRED
from webhook.policies.common.affinity import add_expressions, add_missing
from webhook.policies.common.injected_defaults import InjectedDefault, Reasons
from webhook.policies.defaults import reasons
from webhook.policies.defaults.fields import Json
from webhook.policies.defaults.settings import DefaultsSettings

_AFFINITY: Final = ("spec", "affinity", "nodeAffinity")
Default = InjectedDefault[DefaultsSettings]
_PREFIX: Final = f"{names.DOMAIN}/injected-"
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def text_of(value: object) -> str:
    """What an annotation says of a value that is no text."""
    return _encode(value).decode()


def parse(text: str) -> Any:
    """The value that an annotation says; `ABSENT` where it is not one that `text_of` writes."""
    try:
        return msgspec.json.decode(text.encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        return ABSENT


def _seconds(text: str) -> Any:
    """The number that an annotation says; `ABSENT` where it is none: owners may write anything."""
    try:
        return int(text)
    except ValueError:
        return ABSENT


def _default(
    annotation: str,
    path: tuple[str, ...],
    value: Callable[[str], Any] = parse,
    merge: Callable[[Any, Any], Any] | None = None,
) -> Default:
    """A default that stands in VMIs or pods alone, where there is no update."""
    name = annotation.removeprefix(_PREFIX)

    def present(_: str) -> Reason:
        return reasons.present(_field(name))

    return InjectedDefault(
        name=f"default-{name}",
        path=path,
        annotation=annotation,
        value=value,
        is_value=lambda stands, text: isinstance(text, str) and stands == value(text),
        is_said=lambda text: isinstance(text, str),
        merge=merge,
        reasons=Reasons(
            present=present,
            chosen=lambda _: reasons.owner_chose(_field(name)),
            removed=present,
            replaced=None,
            restored=None,
            untouched=None,
        ),
    )


def field_of(default: Default) -> str:
    """What a default is called in the settings and in `explain vm`, for example ``priorityClassName``."""
    return _field(default.name.removeprefix("default-"))


def _field(name: str) -> str:
    first, *others = name.split("-")
    return first + "".join(map(str.capitalize, others))


def add_tolerations(present: list[Json], default: list[Json]) -> list[Json]:
    """The owner's tolerations, and those of other keys and effects."""
    return [*present, *other_tolerations(present, default)]


def other_tolerations(present: Sequence[Json], default: Sequence[Json]) -> list[Json]:
    """The default tolerations of keys and effects that the owner's have not."""
    spend(len(present) * len(default), "tolerations")
    there = [_key_and_effect(each) for each in present]
    return [each for each in default if _key_and_effect(each) not in there]


def _key_and_effect(toleration: Json) -> tuple[str, str]:
    return toleration.get("key") or "", toleration.get("effect") or ""


def add_labels(present: Json, default: Json) -> Json:
    """The owner's node selector, and the keys that it lacks."""
    return default | present


TOLERATIONS: Final = _default(names.INJECTED_TOLERATIONS_ANNOTATION, ("spec", "tolerations"), merge=add_tolerations)
NODE_SELECTOR: Final = _default(f"{names.DOMAIN}/injected-node-selector", ("spec", "nodeSelector"), merge=add_labels)
REQUIRED_AFFINITY: Final = _default(
    f"{names.DOMAIN}/injected-required-node-affinity",
    (*_AFFINITY, REQUIRED, "nodeSelectorTerms"),
    merge=add_expressions,
)
PREFERRED_AFFINITY: Final = _default(names.INJECTED_PREFERENCES_ANNOTATION, (*_AFFINITY, PREFERRED), merge=add_missing)
PRIORITY_CLASS: Final = _default(f"{names.DOMAIN}/injected-priority-class-name", ("spec", "priorityClassName"), str)
EVICTION_STRATEGY: Final = _default(f"{names.DOMAIN}/injected-eviction-strategy", ("spec", "evictionStrategy"), str)
GRACE_PERIOD: Final = _default(
    f"{names.DOMAIN}/injected-termination-grace-period-seconds", ("spec", "terminationGracePeriodSeconds"), _seconds
)
CPU_MODEL: Final = _default(f"{names.DOMAIN}/injected-cpu-model", ("spec", "domain", "cpu", "model"), str)
ALL: Final = (
    TOLERATIONS,
    NODE_SELECTOR,
    REQUIRED_AFFINITY,
    PREFERRED_AFFINITY,
    PRIORITY_CLASS,
    EVICTION_STRATEGY,
    GRACE_PERIOD,
    CPU_MODEL,
)


def join(decisions: Iterable[Decision], settings: DefaultsSettings) -> Decision:
    """One decision of those about each default, first what changes something; mistakes are warned of."""
    mistakes = [allow(reasons.invalid(each), warn=True) for each in settings.annotation_mistakes.values()]
    ordered = sorted([*decisions, *mistakes], key=lambda each: not each.changes)
    if not ordered:
        return allow(reasons.none)
    return Decision(
        tuple(reason for each in ordered for reason in each.reasons),
        tuple(change for each in ordered for change in each.changes),
        warnings=tuple(warning for each in ordered for warning in each.warnings),
        notes={key: note for each in ordered for key, note in each.notes.items()},
    )
