"""Checks a built site, ``python -m hack.site.check DIR``: links lead somewhere, nothing is loaded from elsewhere."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

# What a browser loads by itself, by element and attribute. Of links, only those with these relations.
_LOADED: Final = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data")}
_LOADED_RELATIONS: Final = {"stylesheet", "icon", "preload", "preconnect", "manifest", "modulepreload", "dns-prefetch"}
_URL: Final = re.compile(r"url\(\s*['\"]?([^'\")]+)")
# Material for MkDocs loads a program for diagrams from elsewhere if a page has an element of this class.
_LOADS_A_PROGRAM: Final = "mermaid"


class SitePage(HTMLParser):
    """What a page has and names.

    Attributes:
        anchors: the names that a link to the page can end in.
        links: where its links lead.
        loaded: the addresses of what a browser loads with it.
        classes: all classes of elements.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: Final[set[str]] = set()
        self.links: Final[list[str]] = []
        self.loaded: Final[list[str]] = []
        self.classes: Final[set[str]] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element names."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        self.classes.update(values.get("class", "").split())
        self.loaded.extend(value for name, value in values.items() if (tag, name) in _LOADED)
        if tag == "link" and _LOADED_RELATIONS & set(values.get("rel", "").split()):
            self.loaded.append(values.get("href", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])


def mistakes(site: Path) -> list[str]:
    """What is wrong with a site, in sentences; empty: nothing.

    Args:
        site: the directory that was built.
    """
    pages = {file: SitePage(file.read_text()) for file in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site} has no pages"]
    for file, page in pages.items():
        name = file.relative_to(site).as_posix()
        # The page for a missing path is shown at any depth, so its links begin at the root of the server.
        if name != "404.html":
            found += [f"{name}: {why}" for link in page.links if (why := _broken(file, link, pages))]
            found += [f"{name}: {why}" for address in page.loaded if (why := _not_here(file, address))]
        if _LOADS_A_PROGRAM in page.classes:
            found.append(f"{name}: the class {_LOADS_A_PROGRAM} loads a program from elsewhere")
    for file in sorted(site.rglob("*.css")):
        addresses = _URL.findall(file.read_text())
        found += [f"{file.relative_to(site)}: {why}" for each in addresses if (why := _not_here(file, each))]
    return found


def _broken(file: Path, link: str, pages: dict[Path, SitePage]) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = _file(file, parts.path)
    if not target.is_file():
        return f"{link} leads nowhere"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return f"{link} names a heading that {target.name} does not have"
    return ""


def _not_here(file: Path, address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme == "data":
        return ""
    if parts.scheme or parts.netloc:
        return f"{address} is loaded from elsewhere"
    return "" if _file(file, parts.path).is_file() else f"{address} is missing"


def _file(page: Path, path: str) -> Path:
    target = (page.parent / unquote(path)).resolve() if path else page
    return target / "index.html" if target.is_dir() else target


def main() -> None:
    """Check the site that is named, and end with status 1 if anything is wrong."""
    site = Path(sys.argv[1]).resolve()
    found = mistakes(site)
    for each in found:
        print(each, file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"{len(list(site.rglob('*.html')))} pages, all links lead somewhere, nothing is loaded from elsewhere")


if __name__ == "__main__":
    main()
