from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.errors import InputError
from webhook.kubevirt.instancetype.find import (
    INSTANCETYPE_MATCHER,
    PREFERENCE_MATCHER,
    SpecReference,
    is_allowed,
    of_matcher,
    parse,
)

CLUSTER, NAMESPACED = "VirtualMachineClusterInstancetype", "VirtualMachineInstancetype"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("u1", CLUSTER),
        ("VirtualMachineClusterInstancetype/u1", CLUSTER),
        ("virtualmachineinstancetypes/u1", NAMESPACED),
        ("VirtualMachineInstancetype/u1", NAMESPACED),
    ],
)
def test_texts(text: str, kind: str) -> None:
    found = parse(INSTANCETYPE_MATCHER, text, "here")

    assert found == SpecReference(kind, "u1")
    assert found.matcher() == ({"name": "u1"} if kind == CLUSTER else {"kind": kind, "name": "u1"})
    assert parse(INSTANCETYPE_MATCHER, str(found), "here") == found


@pytest.mark.parametrize("text", ["", "/", "/u1", "a/", "u 1", "u1\n", "VirtualMachinePreference/u1", "x" * 254])
def test_texts_that_are_none(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(INSTANCETYPE_MATCHER, text, "here")

    assert str(refused.value).startswith("here: ")


@given(st.text())
def test_any_text_is_one_or_a_sentence(text: str) -> None:
    try:
        assert parse(PREFERENCE_MATCHER, text, "here").name
    except InputError as error:
        assert "\n" not in str(error).replace(text[:60], "")


def test_matchers() -> None:
    assert of_matcher(INSTANCETYPE_MATCHER, {"name": "u1"}) == SpecReference(CLUSTER, "u1")


@pytest.mark.parametrize("given", [{"kind": None, "name": "u1"}, {"kind": "", "name": "u1", "revisionName": None}])
def test_null_says_nothing_as_in_kubevirt(given: dict[str, str | None]) -> None:
    assert of_matcher(INSTANCETYPE_MATCHER, given) == SpecReference(CLUSTER, "u1")
    assert of_matcher(INSTANCETYPE_MATCHER, {**given, "name": None}) == SpecReference(CLUSTER, "")


def test_patterns() -> None:
    small = SpecReference(CLUSTER, "u1.small")

    assert is_allowed(["x", "u1.*"], INSTANCETYPE_MATCHER, small)
    assert is_allowed(["*"], INSTANCETYPE_MATCHER, small)
    assert not is_allowed(["*"], INSTANCETYPE_MATCHER, SpecReference(NAMESPACED, "u1.small"))
    assert not is_allowed(["u1"], INSTANCETYPE_MATCHER, small)
    assert not is_allowed(["Foo/*", "u1.smal?"], INSTANCETYPE_MATCHER, small)


@given(st.text("ab*"), st.text("ab", min_size=1))
def test_patterns_are_a_shells(pattern: str, name: str) -> None:
    found = is_allowed([pattern], INSTANCETYPE_MATCHER, SpecReference(CLUSTER, name))

    assert found == fnmatchcase(name, pattern)


def test_patterns_of_any_length_end() -> None:
    named = SpecReference(CLUSTER, "a" * 253)

    assert is_allowed(["a*" * 253], INSTANCETYPE_MATCHER, named)
    assert not is_allowed(["a*" * 100_000, "*a" * 100_000 + "b"], INSTANCETYPE_MATCHER, named)


def test_a_name_longer_than_any_is_on_no_list() -> None:
    assert is_allowed(["*"], INSTANCETYPE_MATCHER, SpecReference(CLUSTER, "u" * 253))
    assert not is_allowed(["*"], INSTANCETYPE_MATCHER, SpecReference(CLUSTER, "u" * 254))
