"""What people do on the page, in a real browser; without JavaScript, since the page has none.

For everybody: axe-core without serious findings, the keyboard alone, and both color schemes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.builders import launcher_pod, review
from tests.page.conftest import Site

PLAIN: Any = {"java_script_enabled": False}


def test_from_the_overview_to_the_reason_of_a_denial(site: Site) -> None:
    page = site.open(**PLAIN)
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    row = page.get_by_role("region", name="Latest denials and errors").get_by_role("row").nth(1)
    expect(row).to_contain_text("selector-conflict")
    row.get_by_role("link", name=re.compile("decision")).click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("shop/db-to-b")
    expect(page.locator("blockquote")).to_contain_text("[selector-conflict]")
    page.get_by_role("link", name="selector-conflict").first.click()

    expect(page.get_by_role("heading", level=1)).to_have_text("selector-conflict")
    expect(page.get_by_role("heading", name="What to do")).to_be_visible()
    page.get_by_role("navigation", name="Where this is").get_by_role("link", name="Reasons").click()
    expect(page.get_by_role("row").filter(has_text="selector-conflict").first).to_be_visible()


def test_a_change_is_shown_as_a_difference(site: Site) -> None:
    page = site.open("/decisions?decision=patched&name=mail", **PLAIN)
    page.get_by_role("link", name=re.compile("decision")).first.click()

    change = page.locator(".diff li").filter(has_text="spec.template.spec.schedulerName")
    expect(change.locator(".new")).to_contain_text("kubevirt")
    page.get_by_role("link", name="All decisions about this object").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("mail")


def test_decisions_are_filtered_by_a_form(site: Site) -> None:
    page = site.open("/decisions", **PLAIN)
    rows = page.locator("tbody tr")
    everything = rows.count()
    page.get_by_label("Policy").select_option("migration")
    page.get_by_label("Decision", exact=True).select_option("denied")
    page.get_by_role("button", name="Show").click()
    expect(rows.first).to_contain_text("selector-conflict")

    # A click returns before the page that it leads to has come as a whole.
    page.wait_for_url(re.compile("policy=migration"))
    assert 0 < rows.count() < everything
    page.get_by_role("link", name="Show all").click()
    expect(rows).to_have_count(everything)


def test_the_matrix_of_a_vm(site: Site) -> None:
    page = site.open("/placement", **PLAIN)
    page.get_by_label("Namespace").fill("shop")
    page.get_by_label("VM", exact=True).fill("web")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".answer")).to_contain_text("node-2, node-3")

    page.get_by_role("link", name=re.compile("zone=b")).click()
    expect(page.get_by_label("Selector of the migration")).to_have_value("zone=b")
    expect(page.locator(".answer")).to_contain_text(re.compile("^1 of 6 .*node-3$"))
    cell = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="node-2")).get_by_role("cell").nth(1)
    expect(cell).to_contain_text("has zone=a")
    expect(page.locator("section", has=page.get_by_role("heading", name="What opens most nodes"))).to_contain_text(
        "Remove the taint dedicated=database:NoSchedule"
    )

    page.get_by_label("Node", exact=True).fill("node-4")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="node-4 is not eligible")).to_be_visible()
    page.get_by_label("VM", exact=True).fill("nobody")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert")).to_contain_text("nobody")
    # The browser notes the status of the answer itself.
    site.problems.clear()


def test_health_over_time(site: Site) -> None:
    page = site.open("/health", **PLAIN)

    batch = page.get_by_role("article", name="Scheduler batch")
    expect(batch).to_contain_text("unavailable since")
    expect(batch.get_by_role("img")).to_have_accessible_name(re.compile("unavailable now"))
    expect(page.get_by_role("article", name="Certificate serving")).to_contain_text("Expires")


@pytest.mark.control("markup-on-the-page")
def test_what_a_tenant_names_its_objects_stays_text(site: Site) -> None:
    name = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202e\x1b[31m"
    pod = launcher_pod()
    pod["metadata"] |= {"namespace": "shop", "name": name}
    site.review(review(pod, namespace="shop", name=name))

    for path in ("", "/decisions"):
        page = site.open(path)
        assert page.evaluate("document.scripts.length + document.querySelectorAll('main img').length") == 0
        assert not re.search("[\u202a-\u202e\x1b]", page.content())
    expect(page.locator("tbody tr").first).to_contain_text(r"<script>alert(2)</script>\u202e")


# Words that two lines share, and cells beside the screen or behind an edge.
BROKEN = """() => {
  const broken = [];
  const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    for (const word of text.data.matchAll(/[A-Za-z0-9]+/g)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(rect => Math.round(rect.top))).size > 1) broken.push(word[0]);
    }
  }
  const cells = [...document.querySelectorAll('tbody td, tbody th')];
  const isCut = cell => cell.getBoundingClientRect().right > innerWidth || cell.scrollWidth > cell.clientWidth;
  const beside = cells.filter(isCut);
  return [...broken, ...beside.map(cell => cell.innerText)];
}"""


@pytest.mark.parametrize("path", ["", "/decisions", "/health", "/placement?namespace=shop&name=web", "/reasons"])
def test_small_screens_show_all_of_a_row_and_break_no_word(site: Site, path: str) -> None:
    page = site.open(path, viewport={"width": 390, "height": 700})

    assert page.evaluate(BROKEN) == []
    assert page.locator("tbody tr").count() == page.get_by_role("table").locator("tbody").get_by_role("row").count()
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("width", [390, 1280])
def test_the_logo_has_a_margin_on_all_sides(site: Site, width: int) -> None:
    page = site.open(viewport={"width": width, "height": 700})
    logo, bar = page.locator(".brand img").bounding_box(), page.locator("header").bounding_box()
    assert logo
    assert bar
    assert min(logo["x"], logo["y"], bar["y"] + bar["height"] - logo["y"] - logo["height"]) >= 8


def test_a_vm_of_a_recent_decision_is_one_click_away(site: Site) -> None:
    page = site.open("/placement", **PLAIN)
    recent = page.locator("section", has=page.get_by_role("heading", name="VMs of the latest decisions"))
    recent.get_by_role("link", name="shop/mail").click()
    expect(page.get_by_label("VM", exact=True)).to_have_value("mail")
    # It need not run.
    site.problems.clear()


def test_on_a_small_screen_a_decision_has_its_five_cells(site: Site) -> None:
    page = site.open("/decisions?code=selector-conflict", viewport={"width": 390, "height": 700}, **PLAIN)
    row = page.get_by_role("row").filter(has_text="selector-conflict").first

    expect(row.get_by_role("cell")).to_have_count(5)
    row.scroll_into_view_if_needed()
    expect(row.get_by_role("link", name="selector-conflict")).to_be_in_viewport(ratio=1)


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
    expect(page.locator("#content")).to_be_focused()

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
