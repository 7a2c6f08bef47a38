"""The documentation's site: every page is in it, links hold there as in the repository, and versions stay."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from hack.site import hooks

ROOT = Path(__file__).resolve().parents[2]


class SiteLoader(yaml.SafeLoader):
    """Reads the configuration without the function that it names."""


SiteLoader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *parts: parts[1])


def configuration() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), SiteLoader)
    return loaded


def pages_of(nav: Any) -> list[str]:
    if isinstance(nav, dict):
        return [page for part in nav.values() for page in pages_of(part)]
    return [page for part in nav for page in pages_of(part)] if isinstance(nav, list) else [nav]


def test_every_page_is_in_the_navigation_once() -> None:
    config: Any = type("Config", (), {"nav": configuration()["nav"]})()
    named = pages_of(hooks.on_config(config).nav)
    files = [file.relative_to(ROOT / "docs").as_posix() for file in (ROOT / "docs").rglob("*.md")]

    assert sorted(named) == sorted([*files, *hooks.OUTSIDE.values()]), "add the page to nav in mkdocs.yml"


def test_the_list_of_decisions_has_all() -> None:
    page = (ROOT / "docs" / "adr" / "README.md").read_text()
    listed = dict(re.findall(r"^\* \[(.+)\]\((.+)\)$", page, re.MULTILINE))

    titles = {
        (ROOT / "docs" / each).read_text().split("\n", 1)[0].removeprefix("# "): each for each in hooks.decisions()
    }
    assert {title: f"adr/{file}" for title, file in listed.items()} == titles


def test_links_lead_to_the_same_page_in_the_site() -> None:
    rest = "[c](https://kubevirt.io) [d](#e)\n```\n[f](docs/faq.md)\n```\n"
    text = f"[a](docs/faq.md#x) ![b](docs/images/decision.svg) {rest}"
    there = f"[a](faq.md#x) ![b](images/decision.svg) {rest}"

    assert hooks.rewritten("README.md", text) == there
    assert hooks.rewritten("docs/faq.md", "[a](../README.md) [b](spread.md)") == "[a](index.md) [b](spread.md)"
    assert hooks.rewritten("docs/adr/0001-facts-by-replay.md", "[a](../../SECURITY.md)") == "[a](../security.md)"
    assert hooks.rewritten("README.md", "[a](docs/adr)") == "[a](adr/README.md)"


def test_files_of_the_repository_become_pages_that_show_them() -> None:
    file = "manifests/base/rbac.yaml"

    assert file in hooks.sources()
    assert hooks.rewritten("docs/faq.md", f"[a](../{file})") == f"[a](source/{file}.md)"
    assert (ROOT / file).read_text().rstrip() in hooks.shown(file)
