"""SVG that is readable on a light and on a dark page: a panel of its own, and colors for both."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

_STYLE: Final = """
  .panel { fill: #ffffff; stroke: #d0d7de; }
  .box { fill: #f6f8fa; stroke: #59636e; }
  text { fill: #1f2328; font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
  .quiet { fill: #59636e; }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #0d1117; stroke: #3d444d; }
    .box { fill: #212830; stroke: #9198a1; }
    text { fill: #f0f6fc; }
    .quiet { fill: #9198a1; }
  }
"""


def document(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """A whole SVG file.

    Args:
        width: in pixels.
        height: in pixels.
        title: what the picture shows, for readers who cannot see it.
        parts: drawn in this order, later ones on top.
    """
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="panel" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def rectangle(x: float, y: float, width: float, height: float, css: str = "box") -> str:
    """A box with round corners; ``x`` and ``y`` are its upper left corner."""
    return f'<rect class="{css}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'


def text(x: float, y: float, words: str, *, size: int = 13, anchor: str = "start", css: str = "") -> str:
    """One line of text with its baseline at ``y``."""
    quiet = f' class="{css}"' if css else ""
    return f'<text{quiet} x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'
