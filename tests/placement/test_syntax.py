from __future__ import annotations

import pytest

from webhook.placement.syntax import key_problem, malformed, reserved, value_problem


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
    first, second = malformed({"zone": "not a label!", "a/b/c": "d", "disk": "ssd"}, "spec.addedNodeSelector")

    assert str(first) == (
        "spec.addedNodeSelector: the key \"a/b/c\" has more than one '/'; no node can have such a label"
    )
    assert second.what.startswith('the value "not a label!" of "zone" has other characters than letters')
    assert malformed({}, "x") == malformed({"zone": "b"}, "x") == ()


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

    assert reserved(mine) == ()
    assert reserved({**mine, **dict.fromkeys(keys, "true")}) == tuple(sorted(keys))
