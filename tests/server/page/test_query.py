"""Parameters of the page: a closed set, bounded, and kept by its links."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.errors import InputError
from webhook.server.page.paging import pager
from webhook.server.page.query import MAX_QUERY, PageQuery

KNOWN = ("namespace", "to", "first", "policy")


def test_what_a_form_sends() -> None:
    query = PageQuery("namespace=+demo+&to=a%3Db%2C+c%3Dd&to=e%3Df&first=50&policy=", KNOWN)

    assert query.text("namespace") == "demo"
    assert query.texts("to") == ["a=b", "c=d", "e=f"]
    assert query.number("first") == 50
    assert query.one_of("policy", ("migration",)) == ""


@pytest.mark.parametrize(
    "query",
    ["x=1", "namespace=" + "a" * MAX_QUERY, "&".join(["to=a"] * 100)],
)
def test_what_no_form_sends(query: str) -> None:
    with pytest.raises(InputError):
        PageQuery(query, KNOWN)


@pytest.mark.parametrize("first", ["-1", "1e9", "٣", "9" * 13, "x"])
def test_numbers(first: str) -> None:
    with pytest.raises(InputError):
        PageQuery(f"first={first}", KNOWN).number("first")


def test_values_of_a_closed_set() -> None:
    with pytest.raises(InputError):
        PageQuery("policy=x", KNOWN).one_of("policy", ("migration",))


@given(st.text(max_size=50))
def test_any_query_is_answered_or_refused(text: str) -> None:
    try:
        query = PageQuery(text, KNOWN)
        query.number("first")
    except InputError:
        return
    again = PageQuery(query.link("/page").partition("?")[2], KNOWN)
    assert (again.text("namespace"), again.texts("to")) == (query.text("namespace"), query.texts("to"))


def test_links_change_what_they_name_and_keep_the_rest() -> None:
    query = PageQuery("namespace=a%26b&first=50", KNOWN)

    assert query.link("/page", first=100) == "/page?namespace=a%26b&first=100"
    assert query.link("/page", first=0, namespace="") == "/page"


def test_pages() -> None:
    query = PageQuery("namespace=demo", KNOWN)

    assert pager(query, "/page", 0, 50, 120) == {
        "previous": "",
        "next": "/page?namespace=demo&first=50",
        "text": "1 to 50 of 120",
    }
    assert pager(query, "/page", 100, 20, 120)["next"] == ""
    assert pager(query, "/page", 50, 50, 120)["previous"] == "/page?namespace=demo"
