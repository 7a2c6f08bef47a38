"""For everybody: axe-core without serious findings, the keyboard alone, and both color schemes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.conftest import Site

PATHS = {
    "overview": "",
    "decisions": "/decisions",
    "none": "/decisions?name=nobody",
    "decision": "/decisions/1",
    "health": "/health",
    "form": "/placement",
    "placement": "/placement?namespace=shop&name=web&to=zone%3Db&node=node-4",
    "problem": "/placement?namespace=shop&name=nobody",
    "reasons": "/reasons",
    "reason": "/reasons/instancetype-denied",
    "missing": "/nothing",
}
_FOCUSED = "() => document.activeElement.textContent.trim() || document.activeElement.id"
_OUTLINE = "() => getComputedStyle(document.activeElement).outlineStyle"


@pytest.mark.parametrize("name", PATHS)
def test_nothing_keeps_people_out(site: Site, axe: Callable[..., list[str]], name: str) -> None:
    page = site.open(PATHS[name], color_scheme="light")
    for details in page.locator("summary").all():
        details.click()

    assert axe(page) == []
    for role in ("banner", "main", "contentinfo"):
        expect(page.get_by_role(role)).to_have_count(1)
    levels = page.evaluate("() => [...document.querySelectorAll('h1,h2,h3')].map(each => Number(each.tagName[1]))")
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    for table in page.locator("table").all():
        assert (table.locator("caption").count(), table.locator("th:not([scope])").count()) == (1, 0)
    page.emulate_media(color_scheme="dark")  # changes colors alone, see test_the_color_scheme_is_the_readers
    assert axe(page, "color-contrast") == []
    if name in ("problem", "missing"):
        # The browser notes the status of the answer itself.
        site.problems.clear()


def test_axe_finds_what_is_wrong(site: Site, axe: Callable[..., list[str]]) -> None:
    page = site.open()
    page.evaluate("document.documentElement.removeAttribute('lang')")

    assert [finding.partition(" ")[0] for finding in axe(page)] == ["html-has-lang"]


def test_the_keyboard_is_enough(site: Site) -> None:
    page = site.open(java_script_enabled=True)
    page.keyboard.press("Tab")
    assert page.evaluate(_FOCUSED) == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "content"

    page = site.open()
    order = []
    for _ in range(7):
        page.keyboard.press("Tab")
        order.append(page.evaluate(_FOCUSED))
        assert page.evaluate(_OUTLINE) == "solid" or order[-1] == "Skip to content"
    assert order == ["Skip to content", "kubevirt-webhook", "Overview", "Decisions", "Placement", "Health", "Reasons"]

    page = site.open("/placement")
    while page.evaluate("() => document.activeElement.id") != "namespace":
        page.keyboard.press("Tab")
    page.keyboard.type("shop")
    page.keyboard.press("Tab")
    page.keyboard.type("web")
    page.keyboard.press("Enter")
    expect(page.locator(".answer")).to_contain_text("node-2, node-3")


def test_the_color_scheme_is_the_readers(site: Site) -> None:
    def brightness(scheme: Any) -> int:
        page = site.open(color_scheme=scheme)
        color: str = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(","))

    assert brightness("light") > 600
    assert brightness("dark") < 150
