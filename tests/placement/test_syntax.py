from __future__ import annotations

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.errors import InputError
from webhook.k8s.types.selectors import find_malformed, is_name, key_problem, parse_selector, value_problem
from webhook.placement.nodes import reserved_keys


@pytest.mark.parametrize(
    "key",
    [
        *("zone", "A", "a.b_c-D", "1", "x" * 63),
        *("kubernetes.io/hostname", "a/b", "a-b.c/X", "1.2/3", "a" * 63 + "." + "b" * 80 + "/n", "a" * 253 + "/n"),
    ],
)
def test_keys(key: str) -> None:
    assert key_problem(key) is None


# Keys with the same mistake.
MISTAKEN: Final = {
    "no name": ("", "a/"),
    "more than one slash": ("a/b/c", "//"),
    "empty prefix": ("/a",),
    "long prefix": ("a" * 254 + "/n",),
    "odd prefix": tuple(f"{prefix}/n" for prefix in ("A", "a_b", "-a", "a-", "a..b", ".a", "ä")),
    "long name": ("x" * 64, "a/" + "x" * 64),
    "odd name": ("-a", "a-", "a b", "ä", "a\n", ".a", "a=b"),
}


def test_each_mistake_of_a_key_has_its_own_sentence() -> None:
    found = {mistake: {key_problem(key) for key in keys} for mistake, keys in MISTAKEN.items()}

    assert all(len(sentences) == 1 and None not in sentences for sentences in found.values()), found
    assert len({sentence for sentences in found.values() for sentence in sentences}) == len(MISTAKEN)


@pytest.mark.parametrize(("key", "length", "limit"), [("a" * 254 + "/n", 254, 253), ("x" * 64, 64, 63)])
def test_a_length_is_named_with_its_limit(key: str, length: int, limit: int) -> None:
    assert re.findall("[0-9]+", key_problem(key) or "") == [str(length), str(limit)]


@pytest.mark.parametrize("value", ["", "a", "A.b_c-1", "x" * 63])
def test_values(value: str) -> None:
    assert value_problem(value) is None


@pytest.mark.parametrize("value", ["-", "a-", "not a label!", "a/b", "a\n", "\n", "٣", "x" * 64])
def test_no_values(value: str) -> None:
    assert value_problem(value)


def test_a_selector_is_told_of_every_mistake() -> None:
    first, second = find_malformed({"zone": "not a label!", "a/b/c": "d", "disk": "ssd"}, "spec.addedNodeSelector")

    assert str(first).startswith("spec.addedNodeSelector: ")
    assert f'"a/b/c" {key_problem("a/b/c")}' in first.what
    assert '"not a label!"' in second.what
    assert '"zone"' in second.what
    assert second.what.endswith(str(value_problem("not a label!")))
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
    assert parse_selector(["zone=b", "a.b/disk=", "zone=b"], "--to") == {"zone": "b", "a.b/disk": ""}
    assert parse_selector([], "--to") == {}


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["zone"], ['"zone"', "KEY=VALUE", "zone=b"]),
        ([""], ['""', "KEY=VALUE"]),
        (["=b"], [f'"" {key_problem("")}']),
        (["zone==b"], ['"=b"', '"zone"', str(value_problem("=b"))]),
        (["zone=b,disk=ssd"], ['"b,disk=ssd"', '"zone"', str(value_problem("b,disk=ssd"))]),
        (["zone=a", "zone=b"], ['"zone"', '"a"', '"b"']),
    ],
)
def test_texts_that_are_not_a_selector(texts: list[str], said: list[str]) -> None:
    with pytest.raises(InputError) as invalid:
        parse_selector(texts, "--to")
    assert str(invalid.value).startswith("--to: ")
    assert all(part in str(invalid.value) for part in said)


@given(st.lists(st.text(max_size=12) | st.from_regex(r"[a-z]{1,3}=[a-z]?", fullmatch=True), max_size=4))
def test_whatever_is_written_is_a_selector_or_a_sentence(texts: list[str]) -> None:
    try:
        found = parse_selector(texts, "--to")
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert find_malformed(found, "") == ()
        assert {f"{key}={value}" for key, value in found.items()} == set(texts)


@pytest.mark.parametrize(("text", "good"), [("web", True), ("a.b-1", True), ("", False), ("A", False), ("a/b", False)])
def test_names(text: str, good: bool) -> None:
    assert is_name(text) is good
    assert not is_name(text + "x" * 254)
