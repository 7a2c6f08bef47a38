"""SVG that is readable on a light and on a dark page: a panel of its own, and colors for both."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

FONT_WIDTH: Final = 0.62
_STYLE: Final = """
  .panel { fill: #ffffff; stroke: #d0d7de; }
  .box { fill: #f6f8fa; stroke: #59636e; }
  .accent { fill: #ddf4ff; stroke: #0969da; }
  .band { fill: #f6f8fa; stroke: none; }
  .line { fill: none; stroke: #818b98; stroke-width: 1.3; }
  .again { fill: none; stroke: #9a6700; stroke-width: 1.3; stroke-dasharray: 5 3; }
  .head { fill: #818b98; }
  text { fill: #1f2328; font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
  .quiet { fill: #59636e; }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #0d1117; stroke: #3d444d; }
    .box { fill: #212830; stroke: #9198a1; }
    .accent { fill: #0c2d6b; stroke: #4493f8; }
    .band { fill: #151b23; }
    .line { stroke: #656c76; }
    .again { stroke: #d29922; }
    .head { fill: #656c76; }
    text { fill: #f0f6fc; }
    .quiet { fill: #9198a1; }
  }
"""
_ARROW: Final = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="head" d="M0 0L8 4L0 8z"/></marker>'
)


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
        f"<defs>{_ARROW}</defs>",
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


def path(points: str, css: str = "line") -> str:
    """A line that ends in an arrowhead; ``points`` is SVG path data."""
    return f'<path class="{css}" d="{points}" marker-end="url(#arrow)"/>'


def width_of(words: str, size: int = 13) -> float:
    """About how many pixels a line of text takes."""
    return len(words) * size * FONT_WIDTH
