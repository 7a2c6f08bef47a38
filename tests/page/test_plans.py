"""Plans as pages, in the same browser as the page for admins, which has their look."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.test_plan_page import BALANCE, LOSS
from tests.page.test_flows import BROKEN
from tests.page.test_pictures import IMAGES

COMMANDS = {"balance": BALANCE, "loss": LOSS}


@pytest.fixture(scope="module", params=COMMANDS)
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan, in a file; of a process of its own, since Playwright has a running event loop in this one."""
    file = tmp_path_factory.mktemp("plan") / f"{request.param}.html"
    with file.open("wb") as out:
        subprocess.run([sys.executable, "-m", "webhook", *COMMANDS[request.param]], stdout=out, check=False)
    return file


@pytest.fixture
def opened(plan: Path, window: Browser) -> Iterator[Any]:
    """A plan in the browser; afterwards nothing else may have been loaded, and nothing complained of."""
    page = window.new_context(viewport={"width": 1280, "height": 900}).new_page()
    loaded: list[str] = []
    problems: list[str] = []
    page.on("request", lambda asked: loaded.append(asked.url))
    page.on("console", lambda message: problems.append(message.text))
    page.goto(plan.as_uri())
    yield page
    page.context.close()
    assert (loaded, problems) == ([plan.as_uri()], [])


def test_nothing_keeps_people_out_of_a_plan(opened: Any, axe: Callable[..., list[str]]) -> None:
    assert axe(opened) == []
    for role in ("banner", "main", "contentinfo"):
        expect(opened.get_by_role(role)).to_have_count(1)
    levels = opened.evaluate("() => [...document.querySelectorAll('h1,h2,h3')].map(each => Number(each.tagName[1]))")
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    for table in opened.locator("table").all():
        assert (table.locator("caption").count(), table.locator("th:not([scope])").count()) == (1, 0)
    opened.emulate_media(color_scheme="dark")
    assert axe(opened, "color-contrast") == []


def test_the_bars_are_as_long_as_the_words_beside_them_say(opened: Any) -> None:
    """And are seen: a style that the page's own policy forbids would leave them without a color."""
    colors = opened.locator("rect.b-now").evaluate_all("all => all.map(each => getComputedStyle(each).fill)")
    assert len(set(colors)) == 1
    assert colors[0] != "rgb(0, 0, 0)"
    widths = opened.locator("rect.b-none").evaluate_all("all => all.map(each => each.getBoundingClientRect().width)")
    assert min(widths) > 100


def test_small_screens_show_all_of_a_plan(opened: Any) -> None:
    opened.set_viewport_size({"width": 390, "height": 700})
    assert opened.evaluate(BROKEN) == []
    opened.set_viewport_size({"width": 360, "height": 700})
    assert opened.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_picture_of_a_plan(opened: Any, plan: Path, tmp_path: Path) -> None:
    folder = IMAGES if os.environ.get("REWRITE_PICTURES") else tmp_path
    file = folder / f"page-{plan.stem}-light.png"
    opened.screenshot(path=file, full_page=True)
    assert 20_000 < len(file.read_bytes()) < 400_000
