from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.errors import InputError
from webhook.placement.syntax import find_malformed, is_name, key_problem, reserved_keys, selector, value_problem


@pytest.mark.parametrize(
    "key",
    [
        *("zone", "A", "a.b_c-D", "1", "x" * 63),
        *("kubernetes.io/hostname", "a/b", "a-b.c/X", "1.2/3", "a" * 63 + "." + "b" * 80 + "/n", "a" * 253 + "/n"),
    ],
)
def test_keys(key: str) -> None:
    assert key_problem(key) is None


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("", "has no name"),
        ("a/", "has no name"),
        ("a/b/c", "has more than one '/'"),
        ("/a", "has nothing in front of its '/'"),
        ("a" * 254 + "/n", "has a prefix of 254 characters, of which 253 are allowed"),
        *(
            (f"{prefix}/n", "has a prefix that is no DNS name")
            for prefix in ("A", "a_b", "-a", "a-", "a..b", ".a", "ä")
        ),
        ("x" * 64, "has a name of 64 characters, of which 63 are allowed"),
        *((name, "has a name of other characters") for name in ("-a", "a-", "a b", "ä", "a\n", ".a", "a=b")),
    ],
)
def test_no_keys(key: str, sentence: str) -> None:
    assert (key_problem(key) or "").startswith(sentence)


@pytest.mark.parametrize("value", ["", "a", "A.b_c-1", "x" * 63])
def test_values(value: str) -> None:
    assert value_problem(value) is None


@pytest.mark.parametrize("value", ["-", "a-", "not a label!", "a/b", "a\n", "\n", "٣", "x" * 64])
def test_no_values(value: str) -> None:
    assert value_problem(value)


def test_a_selector_is_told_of_every_mistake() -> None:
    first, second = find_malformed({"zone": "not a label!", "a/b/c": "d", "disk": "ssd"}, "spec.addedNodeSelector")

    assert str(first) == (
        "spec.addedNodeSelector: the key \"a/b/c\" has more than one '/'; no node can have such a label"
    )
    assert second.what.startswith('the value "not a label!" of "zone" has other characters than letters')
    assert find_malformed({}, "x") == find_malformed({"zone": "b"}, "x") == ()


def test_reserved_keys() -> None:
    mine = {"zone": "a", "kubevirt.io/other": "x", "cpu-vendor.example.com/a": "b", "cpu-vendor.node.kubevirt.io": "x"}
    theirs = [
        *("cpu-vendor", "cpu-feature", "cpu-model", "cpu-model-migration", "host-model-cpu"),
        *("host-model-required-features", "machine-type", "hyperv"),
    ]
    keys = [
        *(f"{family}.node.kubevirt.io/x" for family in theirs),
        *("node-labeller.kubevirt.io/obsolete-host-model", "kubevirt.io/schedulable"),
    ]

    assert reserved_keys(mine) == ()
    assert reserved_keys({**mine, **dict.fromkeys(keys, "true")}) == tuple(sorted(keys))


def test_a_selector_as_people_write_it() -> None:
    assert selector(["zone=b", "a.b/disk=", "zone=b"], "--to") == {"zone": "b", "a.b/disk": ""}
    assert selector([], "--to") == {}


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["zone"], '--to: "zone" is no KEY=VALUE; write for example zone=b'),
        ([""], '"" is no KEY=VALUE'),
        (["=b"], 'the key "" has no name'),
        (["zone==b"], 'the value "=b" of "zone" has other characters'),
        (["zone=b,disk=ssd"], 'the value "b,disk=ssd" of "zone" has other characters'),
        (["zone=a", "zone=b"], '"zone" can\'t be both "a" and "b"; a node has one value of a label; keep one'),
    ],
)
def test_texts_that_are_no_selector(texts: list[str], said: str) -> None:
    with pytest.raises(InputError) as refused:
        selector(texts, "--to")
    assert said in str(refused.value)


@given(st.lists(st.text(max_size=12) | st.from_regex(r"[a-z]{1,3}=[a-z]?", fullmatch=True), max_size=4))
def test_whatever_is_written_is_a_selector_or_a_sentence(texts: list[str]) -> None:
    try:
        found = selector(texts, "--to")
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert find_malformed(found, "") == ()
        assert {f"{key}={value}" for key, value in found.items()} == set(texts)


@pytest.mark.parametrize(("text", "good"), [("web", True), ("a.b-1", True), ("", False), ("A", False), ("a/b", False)])
def test_names(text: str, good: bool) -> None:
    assert is_name(text) is good
    assert not is_name(text + "x" * 254)
