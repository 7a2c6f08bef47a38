"""Makes a site of the repository, as a hook of MkDocs: pages outside of `docs`, and links that lead out of it.

The pages are written for readers of the repository, where `../README.md` and `../manifests/base/rbac.yaml` lead
somewhere. The site has those pages too; any other file that a page links to becomes a page that shows it.
"""

from __future__ import annotations

import importlib
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
# Pages outside of `docs`, and where the site has them.
OUTSIDE: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "THREAT_MODEL.md": "threat-model.md",
}
# Where the site has any other file that a page links to.
SOURCES: Final = "source"
DECISIONS: Final = "adr/*.md"
_FENCE: Final = re.compile(r"^ *(```+).*?^ *\1 *$", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"(?P<before>\]\()(?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")
_LANGUAGES: Final = {".yaml": "yaml", ".py": "python", ".json": "json", ".go": "go", ".sh": "bash"}


def place(file: str) -> str:
    """Where the site has a file of the repository.

    Args:
        file: its path in the repository; a directory stands for the list of what is in it.
    """
    if file in OUTSIDE:
        return OUTSIDE[file]
    if file.startswith("docs/"):
        inside = file.removeprefix("docs/")
        return f"{inside}/README.md" if (ROOT / file).is_dir() else inside
    return f"{SOURCES}/{file}.md"


def origin(page: str) -> str:
    """The path in the repository of a page of the site."""
    for file, target in OUTSIDE.items():
        if target == page:
            return file
    return f"docs/{page}"


def rewritten(file: str, markdown: str) -> str:
    """The text of a page, with links as the site needs them.

    Args:
        file: the page's path in the repository.
        markdown: its text.
    """
    page = place(file)

    def lead(found: re.Match[str]) -> str:
        target = _target(file, found["path"])
        if target is None:
            return found[0]
        path = posixpath.relpath(place(target), posixpath.dirname(page) or ".")
        return f"{found['before']}{path}{found['anchor'] or ''}"

    return _outside_of_code(markdown, lambda text: _LINK.sub(lead, text))


def sources() -> Iterator[str]:
    """The files that become pages because a page links to them."""
    found = set()
    for file in [*OUTSIDE, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]:
        prose = _outside_of_code((ROOT / file).read_text(), lambda text: text, code="")
        targets = (_target(file, link["path"]) for link in _LINK.finditer(prose))
        found |= {target for target in targets if target and place(target).startswith(f"{SOURCES}/")}
        for target in found:
            if not (ROOT / target).is_file():
                raise SystemExit(f"{file} links {target}, which is no file: link one, or write the name as code")
    yield from sorted(found)


def shown(file: str) -> str:
    """The page that shows a file of the repository."""
    language = _LANGUAGES.get(Path(file).suffix, "text")
    return f"# `{file}`\n\n````{language}\n{(ROOT / file).read_text().rstrip()}\n````\n"


def _target(file: str, link: str) -> str | None:
    """What a link leads to, as a path in the repository; None if it is not a file of it."""
    if ":" in link or link.startswith("/"):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(file), link))


def _outside_of_code(markdown: str, change: Callable[[str], str], code: str | None = None) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0] if code is None else code]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])


def decisions() -> list[str]:
    """The architecture decision records, in their order."""
    return [f"adr/{file.name}" for file in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))]


def _expanded(nav: Any) -> Any:
    """The navigation with the records in the place of their pattern."""
    if isinstance(nav, Mapping):
        return {title: _expanded(part) for title, part in nav.items()}
    if isinstance(nav, list):
        return [each for part in nav for each in (decisions() if part == DECISIONS else [_expanded(part)])]
    return nav


def on_config(config: Any) -> Any:
    """Complete the navigation; MkDocs calls it once the configuration has been read."""
    config.nav = _expanded(config.nav)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in `docs`; MkDocs calls it with those that are."""
    # Only the site's own environment has it.
    file_of: Any = importlib.import_module("mkdocs.structure.files").File

    for file, target in OUTSIDE.items():
        files.append(file_of.generated(config, target, content=(ROOT / file).read_text()))
    for file in sources():
        files.append(file_of.generated(config, place(file), content=shown(file)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page; MkDocs calls it before it renders one."""
    source = page.file.src_uri
    return markdown if source.startswith(f"{SOURCES}/") else rewritten(origin(source), markdown)
