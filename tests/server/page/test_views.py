"""What a request asks of the page, and the table of namespaces."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.builders import installed
from tests.server.page.conftest import PageCluster, labeled, record
from webhook.errors import InputError
from webhook.facts import Key, KubeVirtKey, NamespaceKey
from webhook.server.explain import MAX_QUERY
from webhook.server.page.recorder import OTHERS, DayCounts
from webhook.server.page.views import POLICIES, SLICE, PageQuery, namespace_table, pager

KNOWN = ("namespace", "to", "first", "policy")


def test_what_a_form_sends() -> None:
    query = PageQuery("namespace=+demo+&to=a%3Db%2C+c%3Dd&to=e%3Df&first=50&policy=", KNOWN)
    assert (query.text("namespace"), query.texts("to")) == ("demo", ["a=b", "c=d", "e=f"])
    assert (query.number("first"), query.one_of("policy", ("migration",))) == (50, "")


@pytest.mark.parametrize("query", ["x=1", "namespace=" + "a" * MAX_QUERY, "&".join(["to=a"] * 100)])
def test_what_no_form_sends(query: str) -> None:
    with pytest.raises(InputError):
        PageQuery(query, KNOWN)


@pytest.mark.parametrize("first", ["-1", "1e9", "٣", "9" * 13, "x"])
def test_values_that_are_none(first: str) -> None:
    query = PageQuery(f"first={first}&policy=x", KNOWN)
    with pytest.raises(InputError):
        query.number("first")
    with pytest.raises(InputError):
        query.one_of("policy", ("migration",))


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
    links = {"previous": "", "next": "/page?namespace=demo&first=50", "text": "1 to 50 of 120"}
    assert (pager(query, "/page", 0, 50, 120), pager(query, "/page", 100, 20, 120)["next"]) == (links, "")
    assert pager(query, "/page", 50, 50, 120)["previous"] == "/page?namespace=demo"


NAMESPACES = [
    labeled("shop", scheduling="enforce", migration="warn"),
    labeled("lab", scheduling="audit"),
    labeled("odd", scheduling="nonsense"),
    labeled("plain"),
]


def cluster() -> PageCluster:
    known: dict[Key[Any], object] = {NamespaceKey(each.meta.name or ""): each for each in NAMESPACES}
    return PageCluster({KubeVirtKey(): installed(), **known}, NAMESPACES)


async def test_modes_are_those_that_reviews_have() -> None:
    rows, _ = await namespace_table(cluster(), builders.settings(), DayCounts())
    modes = {name: {cell.policy: cell.mode for cell in cells} for name, cells in rows.items()}
    assert modes["shop"] == {"scheduling": "enforce", "migration": "warn", "instancetypes": "off", "eviction": "off"}
    assert (modes["lab"]["scheduling"], modes["odd"]["scheduling"]) == ("audit", "off")
    assert "plain" not in modes


async def test_where_a_policy_counts_everywhere_all_namespaces_are_shown() -> None:
    rows, _ = await namespace_table(cluster(), builders.settings(cluster_wide=True), DayCounts())
    modes = {name: cells[POLICIES.index("scheduling")].mode for name, cells in rows.items()}
    assert modes == {"lab": "audit", "odd": "off", "plain": "enforce", "shop": "enforce"}


async def test_what_was_done_today_is_beside_the_mode() -> None:
    counts = DayCounts()
    for decision in ("patched", "denied", "skipped", "patched"):
        counts.add(record(namespace="gone", decision=decision))
    counts.add(record(namespace=OTHERS))
    rows, _ = await namespace_table(cluster(), builders.settings(), counts, prefix="g")
    ((name, cells),) = rows.items()
    cell = cells[POLICIES.index("scheduling")]
    assert (name, cell.mode, cell.counts) == ("gone", "unknown", (("patched", 2), ("denied", 1)))


async def test_ten_thousand_namespaces_come_in_parts_and_reviews_come_between() -> None:
    many = [labeled(f"n{number:05}", scheduling="enforce") for number in range(10_000)]
    big = PageCluster({KubeVirtKey(): installed()} | {NamespaceKey(f"n{n:05}"): many[n] for n in range(50)}, many)
    turns = 0
    ended = asyncio.Event()

    async def review() -> None:
        nonlocal turns
        while not ended.is_set():
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(review())
    rows, every = await namespace_table(big, builders.settings(), DayCounts())
    ended.set()
    await beside

    assert (len(rows), every) == (50, 10_000)
    assert turns >= 10_000 // SLICE
