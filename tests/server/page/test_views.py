"""What a request asks of the page, and the table of namespaces.

Templates: whatever they put out is escaped, visible and bounded, and comes in slices.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from tests import builders
from tests.builders import installed
from tests.review.memory import MemoryCluster
from tests.server.page.conftest import HOSTILE, labeled, record
from tests.waiting import other_turns
from webhook.errors import InputError, Unavailable
from webhook.facts import Key, KubeVirtKey, NamespaceKey
from webhook.policies.registry import BY_NAME, ENDPOINTS
from webhook.server.explanations.explainer import MAX_QUERY
from webhook.server.page.recorder import OTHERS, DayCounts
from webhook.server.page.renderer import MAX_VALUE, PageRenderer, asset
from webhook.server.page.renderer import SLICE as PIECES
from webhook.server.page.views import SLICE, PageQuery, namespace_table, pager

# The place of a policy's cell.
SCHEDULING = list(dict.fromkeys(endpoint.policy for endpoint in ENDPOINTS)).index("scheduling")
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


def cluster() -> MemoryCluster:
    known: dict[Key[Any], object] = {NamespaceKey(each.meta.name or ""): each for each in NAMESPACES}
    return MemoryCluster({KubeVirtKey(): installed(), **known}, listed=NAMESPACES)


async def test_modes_are_those_that_reviews_have() -> None:
    rows, _ = await namespace_table(cluster(), builders.settings(), DayCounts())
    modes = {name: {cell.policy: cell.mode for cell in cells} for name, cells in rows.items()}
    assert modes["shop"] == dict.fromkeys(BY_NAME, "off") | {"scheduling": "enforce", "migration": "warn"}
    assert (modes["lab"]["scheduling"], modes["odd"]["scheduling"]) == ("audit", "invalid label")
    assert "plain" not in modes


async def test_the_mode_of_a_namespace_that_cannot_be_read_is_unknown() -> None:
    shop = NAMESPACES[0]
    unreadable: dict[Key[Any], object] = {KubeVirtKey(): installed(), NamespaceKey("shop"): Unavailable("no answer")}
    rows, _ = await namespace_table(MemoryCluster(unreadable, listed=[shop]), builders.settings(), DayCounts())
    assert {cell.mode for cell in rows["shop"]} == {"unknown"}


async def test_where_a_policy_counts_everywhere_all_namespaces_are_shown() -> None:
    rows, _ = await namespace_table(cluster(), builders.settings(cluster_wide=True), DayCounts())
    modes = {name: cells[SCHEDULING].mode for name, cells in rows.items()}
    assert modes == {"lab": "audit", "odd": "invalid label", "plain": "enforce", "shop": "enforce"}


async def test_what_was_done_today_is_beside_the_mode() -> None:
    counts = DayCounts()
    for decision in ("patched", "denied", "skipped", "patched"):
        counts.add(record(namespace="gone", decision=decision))
    counts.add(record(namespace=OTHERS))
    rows, _ = await namespace_table(cluster(), builders.settings(), counts, prefix="g")
    ((name, cells),) = rows.items()
    cell = cells[SCHEDULING]
    assert (name, cell.mode, cell.counts) == ("gone", "unknown", (("patched", 2), ("denied", 1)))


@pytest.mark.control("page-takes-the-processor")
async def test_ten_thousand_namespaces_come_in_parts_and_reviews_come_between() -> None:
    many = [labeled(f"n{number:05}", scheduling="enforce") for number in range(10_000)]
    first: dict[Key[Any], object] = {NamespaceKey(f"n{number:05}"): many[number] for number in range(50)}
    big = MemoryCluster({KubeVirtKey(): installed()} | first, listed=many)
    async with other_turns() as turns:
        rows, every = await namespace_table(big, builders.settings(), DayCounts())
    assert (len(rows), every) == (50, 10_000)
    assert turns[-1] >= 10_000 // SLICE


# The name of the namespace, which nothing fetches.
_SVG = "http://www.w3.org/2000/svg"
_ACTS = re.compile(r"https?:|//[a-z]|@import|url\(|<script|style=|\son[a-z]+=")
RENDERER = PageRenderer()
SITE = {"pages": (), "here": "", "version": "1", "replica": "r", "started": "s"}


async def rendered(title: str, sentence: str) -> str:
    return (await RENDERER.render("problem.html", {"title": title, "sentence": sentence, "site": SITE})).decode()


@pytest.mark.control("markup-on-the-page")
@given(st.text(max_size=300))
async def test_any_text_stays_text(text: str) -> None:
    html = await rendered("T", text)
    shown = html[html.index("<bdi>", html.index('"lead"')) + 5 :].partition("</bdi>")[0]
    assert not set(shown) & set("<>\"'")
    assert re.fullmatch(r"(?:[^&]|&(?:amp|lt|gt|#34|#39);)*", shown)
    assert not re.search("[\x00-\x08\x1b\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]", html)


async def test_hostile_text() -> None:
    html = await rendered(HOSTILE, HOSTILE)
    assert "<script" not in html
    assert "\u202e" not in html
    assert r"\u202e\x1b[31m" in html


async def test_megabytes_are_cut() -> None:
    assert len(await rendered("T", "<" * 5_000_000)) < 5 * MAX_VALUE + 5000


async def test_a_value_that_is_missing_is_a_bug_and_not_a_gap() -> None:
    with pytest.raises(UndefinedError):
        await RENDERER.render("problem.html", {"site": SITE})


@pytest.mark.control("page-takes-the-processor")
async def test_long_pages_come_in_slices() -> None:
    pages = [(f"/page/{number}", f"N{number}") for number in range(2000)]
    async with other_turns() as turns:
        await RENDERER.render("problem.html", {"title": "T", "sentence": "S", "site": SITE | {"pages": pages}})
    # At least two pieces for each: more than so many are never put together without a pause.
    assert turns[-1] >= 2 * len(pages) // PIECES


@pytest.mark.control("markup-on-the-page")
def test_nothing_refers_to_another_host_or_runs() -> None:
    for name in RENDERER._environment.list_templates():
        text = asset(name).decode()
        assert not _ACTS.search(text.replace(_SVG, "")), name
        assert "|safe" not in text
