"""Templates to HTML, in slices between which reviews have their turn.

Whatever a template puts out is made visible, shortened and escaped here, once, so that no template can forget it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from webhook.text import pluralize, shorten, visible

_FOLDER: Final = Path(__file__).parent / "html"
# Pieces of text that are put together without a pause: a fraction of a millisecond.
SLICE: Final = 200
_PIECES: Final = re.compile(r"(?<=\w[./=])(?=\w)")
# Of one value; those of decisions are shorter by themselves.
MAX_VALUE: Final = 4096
_BRIEF: Final = 160


def _finalized(value: Any) -> Any:
    """A value as it may stand on the page; templates' own markup stays as it is."""
    return value if isinstance(value, Markup) else visible(shorten(str(value), MAX_VALUE))


def _sentence(clause: str) -> str:
    """A clause that begins with a capital letter, unless its first word is a name, such as that of a field."""
    first = clause.partition(" ")[0]
    return clause[:1].upper() + clause[1:] if first.isalpha() and first.islower() else clause


def _brief(text: str) -> Markup:
    """The beginning of a text, for a row of a table; a narrow screen breaks long names after their dots and slashes."""
    return Markup("<wbr>").join(_PIECES.split(visible(shorten(text, _BRIEF))))


class PageRenderer:
    """The templates of the page."""

    def __init__(self) -> None:
        self._environment: Final = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=True,
            finalize=_finalized,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters["pluralize"] = pluralize
        self._environment.filters["sentence"] = _sentence
        self._environment.filters["brief"] = _brief
        # Of pages that are files, and have nothing beside them.
        self._environment.globals["style"] = Markup(asset("style.css").decode())  # noqa: S704 - a file of this package
        for name in self._environment.list_templates(extensions=["html"]):
            # Compiled now, not while reviews wait.
            self._environment.get_template(name)

    async def render(self, template: str, values: Mapping[str, Any]) -> bytes:
        """A page."""
        pieces: list[str] = []
        for piece in self._environment.get_template(template).generate(values):
            pieces.append(piece)
            if len(pieces) % SLICE == 0:
                await asyncio.sleep(0)
        return "".join(pieces).encode()


def asset(name: str) -> bytes:
    """A file that pages refer to."""
    return (_FOLDER / name).read_bytes()
