"""The documentation's site: every page is in it, and links hold there as in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from hack.site import hooks

ROOT = Path(__file__).resolve().parents[2]


def pages_of(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in pages_of(part)]


def test_every_page_is_in_the_navigation_once_and_every_decision_in_the_list() -> None:
    nav = yaml.safe_load(re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text()))["nav"]
    config: Any = type("Config", (), {"nav": nav})()
    files = [file.relative_to(ROOT / "docs").as_posix() for file in (ROOT / "docs").rglob("*.md")]

    named = pages_of(hooks.on_config(config).nav)
    assert sorted(named) == sorted([*files, *hooks.OUTSIDE.values()]), "add the page to nav in mkdocs.yml"
    page = (ROOT / "docs" / "adr" / "README.md").read_text()
    listed = {title: f"adr/{file}" for title, file in re.findall(r"^\* \[(.+)\]\((.+)\)$", page, re.MULTILINE)}

    titles = {(ROOT / "docs" / each).read_text().split("\n", 1)[0]: each for each in hooks.decisions()}
    assert {f"# {title}": file for title, file in listed.items()} == titles


def test_links_lead_to_the_same_page_in_the_site() -> None:
    rest = "[c](https://kubevirt.io) [d](#e)\n```\n[f](docs/faq.md)\n```\n"
    text = f"[a](docs/faq.md#x) ![b](docs/images/decision.svg) {rest}"

    assert hooks.rewritten("README.md", text) == f"[a](faq.md#x) ![b](images/decision.svg) {rest}"
    assert hooks.rewritten("docs/faq.md", "[a](../README.md) [b](spread.md)") == "[a](index.md) [b](spread.md)"
    assert hooks.rewritten("docs/adr/0001-facts-by-replay.md", "[a](../../SECURITY.md)") == "[a](../security.md)"
    assert hooks.rewritten("README.md", "[a](docs/adr)") == "[a](adr/README.md)"
    # Files of the repository become pages that show them.
    file = "manifests/base/rbac.yaml"
    assert file in hooks.sources()
    assert hooks.rewritten("docs/faq.md", f"[a](../{file})") == f"[a](source/{file}.md)"
    assert (ROOT / file).read_text().rstrip() in hooks.shown(file)
