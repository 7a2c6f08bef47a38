from __future__ import annotations

from collections.abc import Callable

import pytest

from webhook.k8s.types.selectors import Expression, Term, integer, key_problem, value_problem


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
    assert integer(text) == number


@pytest.mark.parametrize(
    ("operator", "values", "accepted", "refused"),
    [
        ("In", ["a", "b"], ["a", "b"], ["c", "", None]),
        ("In", [""], [""], ["a", None]),
        ("NotIn", ["a", "b"], ["c", "", None], ["a", "b"]),
        ("Exists", [], ["a", ""], [None]),
        ("DoesNotExist", [], [None], ["a", ""]),
        ("Gt", ["5"], ["6", "007", "+6"], ["5", "-6", "x", "", "6.5", None]),
        ("Lt", ["5"], ["4", "-4", "004"], ["5", "6", "x", "", None]),
        ("Gt", ["x"], [], ["6", None]),
    ],
)
def test_operators(operator: str, values: list[str], accepted: list[str | None], refused: list[str | None]) -> None:
    expression = Expression("key", operator, tuple(values))

    assert all(expression.accepts(value) for value in accepted)
    assert not any(expression.accepts(value) for value in refused)


@pytest.mark.parametrize(
    ("expression", "problems"),
    [
        (Expression("zone", "In", ("a", "")), []),
        (Expression("zone", "Gt", ("007",)), []),
        (Expression("not a key", "Exists"), [f'"not a key" {key_problem("not a key")}']),
        (Expression("zone", ""), ['operator ""']),
        (Expression("zone", "in", ("a",)), ['operator "in"']),
        (Expression("zone", "In"), ["In "]),
        (Expression("zone", "NotIn"), ["NotIn "]),
        (Expression("zone", "Exists", ("a",)), ["Exists "]),
        (Expression("zone", "DoesNotExist", ("a",)), ["DoesNotExist "]),
        (Expression("zone", "Gt"), ["not 0"]),
        (Expression("zone", "Lt", ("1", "2")), ["not 2"]),
        (Expression("zone", "Lt", ("x",)), ['"x"']),
        # A label value cannot start with a sign, so a bound cannot either.
        (Expression("zone", "Gt", ("-5",)), [f'"-5" {value_problem("-5")}']),
        (Expression("zone", "NotIn", ("a b",)), [f'"a b" {value_problem("a b")}']),
    ],
)
def test_problems(expression: Expression, problems: list[str]) -> None:
    found = expression.problems()

    assert len(found) == len(problems)
    assert all(part in text for text, part in zip(found, problems, strict=True))


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (Expression("metadata.name", "In", ("n1",)), None),
        (Expression("any key at all", "NotIn", ("not a label!",)), None),
        (Expression("metadata.name", "Exists"), '"Exists"'),
        (Expression("metadata.name", "In"), "not 0"),
        (Expression("metadata.name", "NotIn", ("a", "b")), "not 2"),
    ],
)
def test_problems_of_fields(expression: Expression, problem: str | None) -> None:
    found = expression.field_problems()

    assert len(found) == (0 if problem is None else 1)
    assert all(str(problem) in text for text in found)


def term(*expressions: Expression, fields: tuple[Expression, ...] = ()) -> Term:
    return Term.of(expressions, fields, "terms[0]")


ZONE_A = Expression.equals("zone", "a")
DISK = Expression("disk", "Exists")


def test_expressions_are_anded() -> None:
    assert term(ZONE_A, DISK).matches({"zone": "a", "disk": ""}, "n")
    assert not term(ZONE_A, DISK).matches({"zone": "a"}, "n")


def test_an_empty_term_matches_nothing() -> None:
    assert term().hopeless
    assert not term().matches({"zone": "a"}, "n")


def test_a_malformed_expression_spoils_its_term() -> None:
    spoiled = term(ZONE_A, Expression("disk", "Is"), fields=(Expression("metadata.name", "Gt", ("1",)),))

    assert not spoiled.matches({"zone": "a"}, "n")
    assert [problem.partition(": ")[0] for problem in spoiled.problems] == [
        "terms[0].matchExpressions[1]",
        "terms[0].matchFields[0]",
    ]


@pytest.mark.parametrize(
    ("field", "matches"),
    [
        (Expression("metadata.name", "In", ("n1",)), True),
        (Expression("metadata.name", "In", ("n2",)), False),
        (Expression("metadata.name", "NotIn", ("n1",)), False),
        (Expression("metadata.name", "NotIn", ("n2",)), True),
        # All other fields count as empty.
        (Expression("metadata.uid", "In", ("",)), True),
        (Expression("metadata.uid", "In", ("n1",)), False),
        (Expression("metadata.uid", "NotIn", ("",)), False),
        (Expression("metadata.uid", "NotIn", ("n1",)), True),
    ],
)
def test_fields(field: Expression, matches: bool) -> None:
    assert term(fields=(field,)).matches({}, "n1") is matches
    assert term(ZONE_A, fields=(field,)).matches({"zone": "b"}, "n1") is False


@pytest.mark.parametrize(
    "expression",
    [
        ZONE_A,
        Expression("zone", "In", ("a", "b")),
        Expression("zone", "NotIn", ("a",)),
        Expression("zone", "NotIn", ("a", "b")),
        DISK,
        Expression("disk", "DoesNotExist"),
        Expression("rank", "Gt", ("5",)),
        Expression("rank", "Lt", ("5",)),
        Expression("rank", "Is", ("5",)),
    ],
    ids=str,
)
def test_words(expression: Expression, golden: Callable[[str], None]) -> None:
    golden(f"{expression}; {expression.lacking}")


def test_words_of_terms() -> None:
    assert str(term(ZONE_A, DISK, fields=(Expression("metadata.name", "In", ("n",)),))) == (
        "zone=a and disk and metadata.name=n"
    )
    assert str(term()) == "an empty term"
    invalid = term(Expression("zone", "In"))
    assert "; ".join(invalid.problems) in str(invalid)
