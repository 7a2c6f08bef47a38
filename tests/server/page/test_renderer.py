"""Templates: whatever they put out is escaped, visible and bounded, and comes in slices."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from tests.server.page.conftest import HOSTILE
from tests.waiting import other_turns
from webhook.server.page.renderer import MAX_VALUE, SLICE, PageRenderer, asset

# The name of the namespace, which nothing fetches.
_SVG = "http://www.w3.org/2000/svg"
_ACTS = re.compile(r"https?:|//[a-z]|@import|url\(|<script|style=|\son[a-z]+=")
RENDERER = PageRenderer()
SITE = {"pages": (), "here": "", "version": "1", "replica": "r", "started": "s"}


async def rendered(title: str, sentence: str) -> str:
    return (await RENDERER.render("problem.html", {"title": title, "sentence": sentence, "site": SITE})).decode()


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


async def test_long_pages_come_in_slices() -> None:
    pages = [(f"/page/{number}", f"N{number}") for number in range(2000)]
    async with other_turns() as turns:
        await RENDERER.render("problem.html", {"title": "T", "sentence": "S", "site": SITE | {"pages": pages}})
    # At least two pieces for each: more than so many are never put together without a pause.
    assert turns[-1] >= 2 * len(pages) // SLICE


def test_nothing_refers_to_another_host_or_runs() -> None:
    for name in RENDERER._environment.list_templates():
        text = asset(name).decode()
        assert not _ACTS.search(text.replace(_SVG, "")), name
        assert "|safe" not in text
