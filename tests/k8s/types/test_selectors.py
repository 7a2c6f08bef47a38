"""Selectors as people write them, and their mistakes; kube-scheduler's own answers say what matches (tests/vectors)."""

from __future__ import annotations

import re
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.errors import InputError
from webhook.k8s.types import selectors
from webhook.k8s.types.selectors import Expression, LabelSelector, Term, find_malformed, key_problem, value_problem
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


def test_values() -> None:
    assert [value for value in ("", "a", "A.b_c-1", "x" * 63) if value_problem(value)] == []
    invalid = ("-", "a-", "not a label!", "a/b", "a\n", "\n", "٣", "x" * 64)
    assert [value for value in invalid if not value_problem(value)] == []


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
    theirs = "cpu-vendor cpu-feature cpu-model cpu-model-migration host-model-cpu host-model-required-features"
    keys = [f"{family}.node.kubevirt.io/x" for family in (*theirs.split(), "machine-type", "hyperv")]
    keys += ["node-labeller.kubevirt.io/obsolete-host-model", "kubevirt.io/schedulable"]
    assert reserved_keys(mine) == ()
    assert reserved_keys({**mine, **dict.fromkeys(keys, "true")}) == tuple(sorted(keys))


def test_a_selector_as_people_write_it() -> None:
    assert selectors.parse_selector(["zone=b", "a.b/disk=", "zone=b"], "--to") == {"zone": "b", "a.b/disk": ""}
    assert selectors.parse_selector([], "--to") == {}


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
        selectors.parse_selector(texts, "--to")
    assert str(invalid.value).startswith("--to: ")
    assert all(part in str(invalid.value) for part in said)


@given(st.lists(st.text(max_size=12) | st.from_regex(r"[a-z]{1,3}=[a-z]?", fullmatch=True), max_size=4))
def test_whatever_is_written_is_a_selector_or_a_sentence(texts: list[str]) -> None:
    try:
        found = selectors.parse_selector(texts, "--to")
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert find_malformed(found, "") == ()
        assert {f"{key}={value}" for key, value in found.items()} == set(texts)


@pytest.mark.parametrize(("text", "good"), [("web", True), ("a.b-1", True), ("", False), ("A", False), ("a/b", False)])
def test_names(text: str, good: bool) -> None:
    assert selectors.is_name(text) is good
    assert not selectors.is_name(text + "x" * 254)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("0", 0), ("007", 7), ("-3", -3), ("+3", 3), ("-0", 0), ("0" * 5000 + "1", 1)),
        *(("9223372036854775807", 2**63 - 1), ("9223372036854775808", None)),
        *(("-9223372036854775808", -(2**63)), ("-9223372036854775809", None)),
        *((text, None) for text in ("", "x", "1.0", " 1", "1 ", "1_0", "٣", "+", "--1", "1\n", "9" * 5000)),
    ],
)
def test_integers_are_read_as_go_does(text: str, number: int | None) -> None:
    assert selectors.integer(text) == number


@pytest.mark.parametrize(
    ("operator", "values", "problem"),
    [
        *(("In", ("a", ""), None), ("Gt", ("007",), None), ("", (), 'operator ""'), ("in", ("a",), 'operator "in"')),
        *(("In", (), "In "), ("NotIn", (), "NotIn "), ("Exists", ("a",), "Exists ")),
        *(("DoesNotExist", ("a",), "DoesNotExist "), ("Gt", (), "not 0"), ("Lt", ("1", "2"), "not 2")),
        # A label value cannot start with a sign, so a bound cannot either.
        *(("Lt", ("x",), '"x"'), ("Gt", ("-5",), f'"-5" {value_problem("-5")}')),
        ("NotIn", ("a b",), f'"a b" {value_problem("a b")}'),
    ],
)
def test_problems(operator: str, values: tuple[str, ...], problem: str | None) -> None:
    of_key = f'key "not a key" {key_problem("not a key")}'
    expected = [] if problem is None else [problem]
    for key, problems in (("zone", expected), ("not a key", [of_key, *expected])):
        found = Expression(key, operator, values).problems()
        assert len(found) == len(problems)
        assert all(part in text for text, part in zip(found, problems, strict=True))


@pytest.mark.parametrize(
    ("operator", "values", "problem"),
    [
        *(("In", ("n1",), None), ("NotIn", ("not a label!",), None), ("Exists", (), '"Exists"')),
        *(("In", (), "not 0"), ("NotIn", ("a", "b"), "not 2")),
    ],
)
def test_problems_of_fields(operator: str, values: tuple[str, ...], problem: str | None) -> None:
    found = Expression("any key at all", operator, values).field_problems()
    assert len(found) == (0 if problem is None else 1)
    assert all(str(problem) in text for text in found)


def term(*expressions: Expression, fields: tuple[Expression, ...] = ()) -> Term:
    return Term.of(expressions, fields, "terms[0]")


ZONE_A = Expression.equals("zone", "a")
DISK = Expression("disk", "Exists")


@pytest.mark.parametrize("malformed", [True, False])
def test_what_a_malformed_label_selector_means_is_the_callers_choice(malformed: bool) -> None:
    near, null, of_nodes = {"key": "a", "operator": "Near"}, None, {"key": "a", "operator": "Gt", "values": ["1"]}
    for expression in (near, null, of_nodes):
        selector = msgspec.convert({"matchExpressions": [expression]}, LabelSelector)
        assert selector.matches({"a": "2"}, malformed=malformed) is malformed
    assert LabelSelector({"a": "2"}).matches({"a": "2"}, malformed=malformed)
    assert not LabelSelector({"a": "2"}).matches({"a": "1"}, malformed=malformed)


def test_a_malformed_expression_spoils_its_term() -> None:
    spoiled = term(ZONE_A, Expression("disk", "Is"), fields=(Expression("metadata.name", "Gt", ("1",)),))
    assert not spoiled.matches({"zone": "a"}, "n")
    places = [problem.partition(": ")[0] for problem in spoiled.problems]
    assert places == ["terms[0].matchExpressions[1]", "terms[0].matchFields[0]"]
    # Words of terms.
    named = Expression("metadata.name", "In", ("n",))
    assert str(term(ZONE_A, DISK, fields=(named,))) == "zone=a and disk and metadata.name=n"
    assert str(term()) == "an empty term"
    invalid = term(Expression("zone", "In"))
    assert "; ".join(invalid.problems) in str(invalid)


@pytest.mark.parametrize(("field", "name"), [("metadata.name", "n1"), ("metadata.uid", "")])
@pytest.mark.parametrize("matches", [True, False])
def test_fields(field: str, name: str, matches: bool) -> None:
    """All other fields than the name count as empty."""
    value = name if matches else "n2"
    for operator, expected in (("In", matches), ("NotIn", not matches)):
        fields = (Expression(field, operator, (value,)),)
        assert term(fields=fields).matches({}, "n1") is expected
        assert term(ZONE_A, fields=fields).matches({"zone": "b"}, "n1") is False
