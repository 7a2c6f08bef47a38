"""The documentation's site: every page is in it, links hold there as in the repository, and versions stay."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.site import hooks
from hack.site.check import mistakes

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-docs"


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


def written(site: Path, **pages: str) -> list[str]:
    for name, body in pages.items():
        (site / f"{name}.html").write_text(f"<html><body>{body}</body></html>")
    return mistakes(site)


def test_the_check_finds_what_leads_nowhere(tmp_path: Path) -> None:
    assert (
        written(tmp_path, a='<h1 id="x"></h1><a href="b.html#y">b</a>', b='<a id="y"></a><a href="a.html">a</a>') == []
    )
    assert len(written(tmp_path, a='<a href="c.html">c</a>')) == 1
    assert len(written(tmp_path, a='<a href="b.html#nothing">b</a>')) == 1
    assert len(written(tmp_path, a='<img src="c.svg">')) == 1
    assert mistakes(tmp_path / "nothing")


@pytest.mark.parametrize(
    "body",
    [
        '<script src="https://example.com/a.js"></script>',
        '<link rel="stylesheet" href="//example.com/a.css">',
        '<link rel="preconnect" href="https://fonts.example.com">',
        '<img src="https://example.com/a.png">',
        '<pre class="mermaid">a</pre>',
    ],
)
def test_the_check_finds_what_is_loaded_from_elsewhere(body: str, tmp_path: Path) -> None:
    assert len(written(tmp_path, a=body)) == 1


def test_the_check_reads_style_sheets(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@font-face { src: url('https://example.com/a.woff2') }")

    assert len(written(tmp_path, a="")) == 1


def command(directory: Path, *words: str) -> str:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PATH": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}"}
    environment |= {
        f"GIT_{who}_{what}": "docs@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(
    not (ENVIRONMENT / ".ready").exists(), reason="there is no site's environment; `make site` makes it"
)
def test_versions_stand_side_by_side(tmp_path: Path) -> None:
    """What docs/releasing.md says of publishing the pages, with a repository of its own."""
    for name in command(ROOT, "git", "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tmp_path / name)
    command(tmp_path, "git", "init", "--quiet", "--initial-branch=main")
    command(tmp_path, "git", "add", "mkdocs.yml")
    command(tmp_path, "git", "commit", "--quiet", "--message=Pages")
    command(tmp_path, "mike", "deploy", "1.0", "latest")
    with (tmp_path / "docs" / "faq.md").open("a") as page:
        page.write("\nWritten for 1.1.\n")
    command(tmp_path, "mike", "deploy", "--update-aliases", "1.1", "latest")
    command(tmp_path, "mike", "set-default", "latest")

    versions = {each["version"]: each["aliases"] for each in json.loads(command(tmp_path, "mike", "list", "--json"))}
    assert versions == {"1.1": ["latest"], "1.0": []}
    command(tmp_path, "git", "checkout", "--quiet", "gh-pages")
    assert "Written for 1.1." in (tmp_path / "latest" / "faq" / "index.html").read_text()
    assert "Written for 1.1." not in (tmp_path / "1.0" / "faq" / "index.html").read_text()
    assert 'url=latest/"' in (tmp_path / "index.html").read_text()
    assert mistakes(tmp_path / "1.0") == []
