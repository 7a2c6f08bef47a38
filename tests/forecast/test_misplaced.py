"""What an owner writes where nothing reads it; tests/e2e/test_validation.py holds the API server to the same words."""

from __future__ import annotations

import pytest

from tests.builders import Json, vm
from webhook.forecast.misplaced import KEYS, Owned, key_rows, value_rows, warnings
from webhook.names import DOMAIN
from webhook.policies.registry import BY_NAME, POLICIES

CASES = [(kind, key) for kind, keys in KEYS.items() for key in keys.counts]
PLACED: list[tuple[Owned, str, str]] = [(kind, key, place) for kind, key in CASES for place in KEYS[kind].places]


# Where a key that counts somewhere does not.
IDLE = [each for each in PLACED if (counts := KEYS[each[0]].counts[each[1]]) and each[2] not in counts]


def written(*places: str, key: str, value: str | bool = "off", made: Json | None = None) -> Json:
    made = made or vm()
    for place in places:
        holder = made["spec"]["template"] if place.startswith("spec.") else made
        metadata = holder.setdefault("metadata", {})
        metadata.setdefault(place.rpartition(".")[2], {})[f"{DOMAIN}/{key}"] = value
    return made


@pytest.mark.parametrize(("kind", "key", "place"), PLACED)
def test_each_key_counts_in_its_places_alone(kind: Owned, key: str, place: str) -> None:
    said = warnings(written(place, key=key), kind)
    counts = KEYS[kind].counts[key]
    # The policy groups warns of its label on the VM.
    is_told = place in counts or (kind, key, place) == ("VM", "group", "metadata.labels")
    assert [f"{DOMAIN}/{key} (" in each for each in said] == ([] if is_told else [True])
    assert is_told or all(each in said[0] for each in counts)


@pytest.mark.parametrize("kind", KEYS)
def test_the_same_value_where_it_counts_is_no_mistake(kind: Owned) -> None:
    places = KEYS[kind].places
    assert not any(warnings(written(*places, key=key), kind) for key, counts in KEYS[kind].counts.items() if counts)
    assert not warnings(vm(), kind)
    assert not warnings({"metadata": None, "spec": {"template": []}}, kind)


@pytest.mark.parametrize(("kind", "key", "place"), IDLE)
def test_another_value_where_it_counts_is_a_mistake(kind: Owned, key: str, place: str) -> None:
    """Whoever corrects the one that has no effect would wait for it in vain."""
    counts = KEYS[kind].counts[key]
    (said,) = warnings(written(place, key=key, value="zone", made=written(*counts, key=key)), kind)
    assert f"{DOMAIN}/{key} ({' or '.join(('use ' + counts[0], *counts[1:]))}" in said


@pytest.mark.parametrize(
    ("kind", "key", "place", "said"),
    [
        ("VM", "default", "spec.template.metadata.labels", "is it defaults? use spec.template.metadata.labels or"),
        ("VM", "spred", "spec.template.metadata.annotations", "is it spread? use spec.template.metadata.annotations"),
        ("VM", "instance-types", "metadata.labels", "is it instancetypes? use metadata.labels"),
        ("VM", "nonsense", "metadata.annotations", "known are "),
        ("VMI", "defualts", "metadata.labels", "is it defaults? use metadata.labels or metadata.annotations"),
    ],
)
def test_an_unknown_key_leads_to_the_nearest_one(kind: Owned, key: str, place: str, said: str) -> None:
    (warning,) = warnings(written(place, key=key), kind)
    assert f"unknown in a {kind}: {DOMAIN}/{key} ({said}" in warning


@pytest.mark.parametrize(
    ("kind", "key", "place", "value"),
    [
        ("VM", "instancetypes", "metadata.labels", "no"),
        ("VM", "defaults", "spec.template.metadata.annotations", " off"),
        # What YAML makes of `off` without quotes.
        ("VM", "defaults", "spec.template.metadata.labels", False),
        ("VM", "spread", "spec.template.metadata.annotations", False),
        ("VM", "spread", "spec.template.metadata.annotations", "none"),
        ("VMI", "defaults", "metadata.labels", "no"),
        ("VMI", "spread", "metadata.annotations", "none"),
    ],
)
def test_a_value_that_nothing_reads_is_named_with_those_that_count(
    kind: Owned, key: str, place: str, value: str | bool
) -> None:
    (warning,) = warnings(written(place, key=key, value=value), kind)
    wanted = '"off", "hostname", "zone", "both"' if key == "spread" else '"off"'
    shown = "false" if value is False else value
    assert warning.endswith(f'{DOMAIN}/{key} in {place} has the invalid value "{shown}" (use {wanted}, in quotes)')
    assert not warnings(written("spec.template.metadata.annotations", key="spread", value=" zone "), "VM")


def test_only_what_changes_is_said_again() -> None:
    for made in (
        written("metadata.labels", key="defaults"),
        written("metadata.annotations", key="nonsense"),
        written("metadata.labels", key="instancetypes", value="no"),
    ):
        assert warnings(made, "VM", vm())
        assert not warnings(made, "VM", made)
    again = written("metadata.labels", key="instancetypes", value="never")
    assert warnings(again, "VM", written("metadata.labels", key="instancetypes", value="no"))


def test_what_kubevirt_webhook_writes_is_not_unknown() -> None:
    marks = [mark for policy in POLICIES for mark in policy.marks]
    assert marks
    assert all(mark.startswith(f"{DOMAIN}/injected-") for mark in marks)
    for kind in KEYS:
        for mark in marks:
            made = vm()
            made["metadata"]["annotations"] = {mark: "x"}
            assert not warnings(made, kind)


def test_every_policy_and_every_annotation_of_namespaces_is_in_the_tables() -> None:
    for kind, keys in KEYS.items():
        assert BY_NAME.keys() <= keys.counts.keys()
        parameters = {key.removeprefix(f"{DOMAIN}/") for policy in POLICIES for key in policy.annotations}
        assert parameters <= keys.counts.keys()
        assert [row[0][0] for row in key_rows(kind)] == list(keys.counts)
        assert {row[0][0] for row in value_rows(kind)} == keys.values.keys()
