"""Draws scenes as an SVG that moves by CSS alone: no script, no font and no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from rich.style import Style
from rich.text import Text

from hack.recording.scenes import COLUMNS, ROWS, Scene

_CELL: Final = 8.4
_LINE: Final = 18
_MARGIN: Final = 14
_WIDTH: Final = round(COLUMNS * _CELL + 2 * _MARGIN)
_HEIGHT: Final = ROWS * _LINE + 2 * _MARGIN
_PROMPT: Final = "$ "
_PROGRAM: Final = "kubevirt-webhook "
_TYPED_A_SECOND: Final = 30
# Between a typed command and its output, and before an output that does not fit moves on.
_PAUSE_SECONDS: Final = 0.5
# Shown where nothing may move: the one that explains most.
_STILL: Final = 1
# By the numbers of the colors of terminals.
_COLORS: Final[dict[int | None, str]] = {1: "r", 2: "g", 3: "y", 6: "c"}
_STYLE: Final = f"""\
svg {{ --back: #ffffff; --text: #1f2328; --dim: #59636e; --r: #b3261e; --g: #116329; --y: #7d4e00; --c: #0a5c77;
  --edge: #d1d9e0; }}
@media (prefers-color-scheme: dark) {{ svg {{ --back: #0d1117; --text: #e6edf3; --dim: #9198a1; --r: #ff7b72;
  --g: #56d364; --y: #e3b341; --c: #76e3ea; --edge: #3d444d; }} }}
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: var(--text);
  white-space: pre; }}
.back {{ fill: var(--back); stroke: var(--edge); }} .cover {{ fill: var(--back); }}
.cursor, .bar {{ fill: var(--dim); }}
.b {{ font-weight: bold; }} .d {{ fill: var(--dim); }} .r {{ fill: var(--r); }} .g {{ fill: var(--g); }}
.y {{ fill: var(--y); }} .c {{ fill: var(--c); }}
.scene, .out {{ visibility: hidden; }} .still, .still .out {{ visibility: visible; }}
.cover {{ transform: translateX({_WIDTH}px); }}
"""


def draw(scenes: Sequence[Scene], outputs: Sequence[str]) -> str:
    """The picture.

    Args:
        scenes: what is shown, in order.
        outputs: what each command wrote, with its colors as escape sequences.
    """
    total = sum(_seconds(scene) for scene in scenes)
    groups, styles, begin = [], [], 0.0
    for number, (scene, written) in enumerate(zip(scenes, outputs, strict=True)):
        lines = list(_lines(written))
        groups.append(_group(number, scene, lines))
        styles.append(_animation(number, scene, len(lines), begin, total))
        begin += _seconds(scene)
    commands = "; ".join(f"{scene.title}: {_PROGRAM}{scene.command}" for scene in scenes)
    bar = "@keyframes bar { from { transform: scaleX(0); } } "
    bar += f".bar {{ transform-origin: {_MARGIN}px 0; animation: bar {total:g}s linear infinite; }}"
    moving = "\n".join(["@media (prefers-reduced-motion: no-preference) {", *styles, bar, "}"])
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="title desc">
<title id="title">kubevirt-webhook on the command line, in a minute</title>
<desc id="desc">{escape(commands)}.</desc>
<style>
{_STYLE}{moving}
</style>
<clipPath id="screen">
<rect x="{_MARGIN}" y="{_MARGIN}" width="{_WIDTH - 2 * _MARGIN}" height="{ROWS * _LINE}"/></clipPath>
<rect class="back" x=".5" y=".5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="6"/>
<rect class="bar" x="{_MARGIN}" y="{_HEIGHT - 5}" width="{_WIDTH - 2 * _MARGIN}" height="2"/>
<g clip-path="url(#screen)">
{"".join(groups)}</g>
</svg>
"""


def _typing(scene: Scene) -> float:
    return len(_PROGRAM + scene.command) / _TYPED_A_SECOND


def _seconds(scene: Scene) -> float:
    return round(_typing(scene) + _PAUSE_SECONDS + scene.seconds, 1)


def _lines(written: str) -> Iterator[Text]:
    """The lines as a terminal shows them: longer ones go on in the next row."""
    for line in Text.from_ansi(written.rstrip("\n")).split("\n", allow_blank=True):
        yield from line.divide(range(COLUMNS, len(line), COLUMNS)) if len(line) > COLUMNS else [line]


def _group(number: int, scene: Scene, lines: Sequence[Text]) -> str:
    still = " still" if number == _STILL else ""
    command = f"{_PROGRAM}{scene.command}"
    typed_to = _MARGIN + len(_PROMPT) * _CELL
    cover = (
        f'<g class="cover" id="t{number}"><rect class="cursor" x="{typed_to:g}" y="{_MARGIN + _LINE + 1}" width="8" '
    )
    cover += f'height="16"/><rect class="cover" style="transform:none" x="{typed_to + 8:g}" y="{_MARGIN + _LINE}" '
    cover += f'width="{_WIDTH}" height="{_LINE}"/></g>'
    head = _text(0, [(f"# {scene.title}", "d")]) + _text(1, [(_PROMPT, "g b"), (command, "b")])
    rest = "".join(_text(row, _spans(line)) for row, line in enumerate(lines, 2))
    return (
        f'<g class="scene{still}" id="s{number}"><g id="m{number}">\n{head}{cover}\n'
        f'<g class="out" id="o{number}">\n{rest}</g></g></g>\n'
    )


def _spans(line: Text) -> list[tuple[str, str]]:
    """Pieces of a line with their classes."""
    pieces: list[tuple[str, str]] = []
    for character, style in zip(line.plain, _styles(line), strict=True):
        if pieces and pieces[-1][1] == style:
            pieces[-1] = (pieces[-1][0] + character, style)
        else:
            pieces.append((character, style))
    return pieces


def _styles(line: Text) -> list[str]:
    found = [""] * len(line)
    for span in line.spans:
        style = span.style if isinstance(span.style, Style) else Style.parse(span.style)
        color = _COLORS.get(style.color.number, "") if style.color else ""
        classes = " ".join(part for part in (color, "b" if style.bold else "", "d" if style.dim else "") if part)
        found[span.start : span.end] = [classes] * (span.end - span.start)
    return found


def _text(row: int, pieces: Sequence[tuple[str, str]]) -> str:
    """A row. Its length is given, so that columns align in whatever font the viewer has."""
    length = sum(len(text) for text, _ in pieces)
    if not length:
        return ""
    inner = "".join(
        f'<tspan class="{style}">{escape(text)}</tspan>' if style else escape(text) for text, style in pieces
    )
    place = f'x="{_MARGIN}" y="{_MARGIN + row * _LINE + 14}" textLength="{length * _CELL:g}"'
    return f'<text {place} lengthAdjust="spacingAndGlyphs" xml:space="preserve">{inner}</text>\n'


def _animation(number: int, scene: Scene, lines: int, begin: float, total: float) -> str:
    """The rules that show a scene in its part of the whole."""

    def at(seconds: float) -> str:
        return f"{min(100, 100 * (begin + seconds) / total):.2f}%"

    typed, end = _typing(scene), _seconds(scene)
    width = len(_PROGRAM + scene.command) * _CELL
    steps = len(_PROGRAM + scene.command)
    # What does not fit moves up in the second half of its time.
    beyond = max(0, lines + 2 - ROWS) * _LINE
    shown = typed + _PAUSE_SECONDS
    half, last = shown + scene.seconds * 0.55, shown + scene.seconds * 0.7
    # The last one stays until the first one begins again.
    after = "hidden" if begin + end < total - 0.01 else "visible"
    rules = [
        _keyframes(f"s{number}", "0% { visibility: hidden; }" if begin else "", f"{at(0)} {{ visibility: visible; }}")
        + f" {at(end)} {{ visibility: {after}; }} }}",
        _keyframes(f"o{number}", "0% { visibility: hidden; }", f"{at(shown)} {{ visibility: visible; }}")
        + f" {at(end)} {{ visibility: hidden; }} }}",
        _keyframes(f"t{number}", f"0%, {at(0)} {{ transform: none; animation-timing-function: steps({steps}); }}")
        + f" {at(typed)}, 100% {{ transform: translateX({width:g}px); }} }}",
        f"#s{number} {{ animation: s{number} {total:g}s step-end infinite; }}",
        f"#o{number} {{ animation: o{number} {total:g}s step-end infinite; }}",
        f"#t{number} {{ animation: t{number} {total:g}s linear infinite; }}",
    ]
    if beyond:
        moved = f"{at(last)}, 100% {{ transform: translateY({-beyond}px); }} }}"
        rules.append(f"{_keyframes(f'm{number}', f'0%, {at(half)} {{ transform: none; }}')} {moved}")
        rules.append(f"#m{number} {{ animation: m{number} {total:g}s ease-in-out infinite; }}")
    return "\n".join(rules)


def _keyframes(name: str, *frames: str) -> str:
    """The beginning of a rule; what is empty is left out."""
    return f"@keyframes {name} {{ {' '.join(frame for frame in frames if frame)}"
