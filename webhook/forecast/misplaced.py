"""What the owner of a VM or VMI writes under our domain where nothing reads it, or with a value that nothing reads.

Without a warning, a mistyped opt-out, or one in the wrong place, would have no effect and nobody would say so.
ValidatingAdmissionPolicies warn in every namespace, also while no replica answers (manifests/base/validation.yaml, with
the rows from here), and `review` and `explain vm` do with `warnings`, in the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from webhook import names
from webhook.policies.registry import BY_NAME
from webhook.policy import METADATA, OF_TEMPLATE

_PREFIX: Final = f"{names.DOMAIN}/"
# How the keys begin that kubevirt-webhook itself writes.
_WRITTEN: Final = f"{_PREFIX}injected-"
# Unknown keys are looked for among so many: to go through a map costs the API server the square of its size.
_FEW: Final = 256
# By so many first letters an unknown key is taken for a known one.
_LETTERS: Final = 3

Owned: TypeAlias = Literal["VM", "VMI"]


class Keys(NamedTuple):
    """The keys that count in objects of a kind, by what follows the domain.

    Attributes:
        places: where labels and annotations are.
        counts: the places where each key counts; empty: it is no owner's, or another kind's.
        values: what may stand there, of keys with a list of values.
    """

    places: tuple[str, ...]
    counts: Mapping[str, tuple[str, ...]]
    values: Mapping[str, tuple[str, ...]]


_OF_NAMESPACES: Final[Mapping[str, str]] = {
    **dict.fromkeys(BY_NAME, "a label of namespaces alone"),
    "metrics": "a label of namespaces alone",
    **{
        key.removeprefix(_PREFIX): "an annotation of namespaces alone"
        for policy in BY_NAME.values()
        for key in policy.annotations
    },
}
# An owner cannot opt out of what has no place.
_NOWHERE: Final[Mapping[str, tuple[str, ...]]] = dict.fromkeys(_OF_NAMESPACES, ())
_OF_OWNERS: Final = tuple(key for policy in BY_NAME.values() for key in policy.owner_keys)
# Those that count in VMs; of these, some count in no VMI.
_OF_VMS: Final = frozenset(key.name for key in _OF_OWNERS if key.vm)
KEYS: Final[Mapping[Owned, Keys]] = {
    "VM": Keys(
        (*METADATA, *OF_TEMPLATE),
        {**_NOWHERE, **{key.name: key.vm for key in _OF_OWNERS}},
        {key.name: key.values for key in _OF_OWNERS if key.values and key.vm},
    ),
    "VMI": Keys(
        METADATA,
        {**_NOWHERE, **{key.name: key.vmi for key in _OF_OWNERS}},
        {key.name: key.values for key in _OF_OWNERS if key.values and key.vmi},
    ),
}
# The policy groups itself warns of its label on a VM whose template has none.
_TOLD: Final = ("group", METADATA[0])


def key_rows(kind: Owned) -> list[list[list[str]]]:
    """For CEL: each key with what is to be said where it does not count, and the places where it does."""
    keys = KEYS[kind]
    return [[[key, _todo(key, places)], [*places]] for key, places in keys.counts.items()]


def value_rows(kind: Owned) -> list[list[list[str]]]:
    """For CEL: each key that has a list of values with a place where it counts, and the values."""
    keys = KEYS[kind]
    return [[[key, place], [*values]] for key, values in keys.values.items() for place in keys.counts[key]]


def warnings(obj: Mapping[str, Any], kind: Owned, old: Mapping[str, Any] | None = None) -> list[str]:
    """What is to be said of an object, as plain JSON, that is created or, if there is an old one, updated.

    Only what is new or changed counts: the owner has read of the rest before.
    """
    keys = KEYS[kind]
    written = {place: _at(obj, place) for place in keys.places}
    if not any(key.startswith(_PREFIX) for found in written.values() for key in found):
        return []
    before = {place: _at(old, place) for place in keys.places}

    def is_news(place: str, key: str) -> bool:
        return key in written[place] and written[place][key] != before[place].get(key)

    def is_idle(place: str, key: str, places: Sequence[str]) -> bool:
        """Whether a key has no effect in a place, and its value not in another one either."""
        counting = [written[each][_PREFIX + key] for each in places if _PREFIX + key in written[each]]
        is_told = not counting and (kind, key, place) == ("VM", *_TOLD)
        return place not in places and written[place][_PREFIX + key] not in counting and not is_told

    found = []
    if invalid := list(_invalid(keys, written, is_news)):
        found.append(f"kubevirt-webhook: {', '.join(invalid)}")
    misplaced = [
        f"{_PREFIX}{key} ({_todo(key, places)})"
        for key, places in keys.counts.items()
        if any(is_news(place, _PREFIX + key) and is_idle(place, key, places) for place in keys.places)
    ]
    if misplaced:
        found.append(f"kubevirt-webhook: of no effect where it stands in the {kind}: {', '.join(misplaced)}")
    unknown = [
        f"{key} ({_suggestion(key, keys)})"
        for place in keys.places
        if len(written[place]) <= _FEW
        for key in written[place]
        if key.startswith(_PREFIX) and not key.startswith(_WRITTEN) and key.removeprefix(_PREFIX) not in keys.counts
        if is_news(place, key)
    ]
    if unknown:
        found.append(f"kubevirt-webhook: unknown in a {kind}: {', '.join(unknown)}")
    return found


def _invalid(
    keys: Keys, written: Mapping[str, Mapping[str, Any]], is_news: Callable[[str, str], bool]
) -> Iterator[str]:
    for key, values in keys.values.items():
        for place in keys.counts[key]:
            value = _text(written[place].get(_PREFIX + key))
            # The policy scheduling allows spaces around the value of this one alone.
            if is_news(place, _PREFIX + key) and (value.strip() if key == "spread" else value) not in values:
                # Without quotes, YAML makes a boolean of `off`, which a template may hold.
                valid = '", "'.join(values)
                yield f'{_PREFIX}{key} in {place} has the invalid value "{value}" (use "{valid}", in quotes)'


def _text(value: Any) -> str:
    """As `string` in CEL."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _todo(key: str, places: Sequence[str]) -> str:
    if places:
        return f"use {' or '.join(places)}"
    if key in _OF_VMS:
        return "it counts in VMs alone"
    return _OF_NAMESPACES.get(key, "an annotation of VMIs without a VM alone")


def _suggestion(key: str, keys: Keys) -> str:
    for known, places in keys.counts.items():
        if places and f"/{known[:_LETTERS]}" in key:
            return f"is it {known}? {_todo(known, places)}"
    return f"known are {', '.join(known for known, places in keys.counts.items() if places)}"


def _at(obj: Any, place: str) -> Mapping[str, Any]:
    for part in place.split("."):
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    return obj if isinstance(obj, Mapping) else {}
