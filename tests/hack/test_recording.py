"""The recording in the README: it is what the commands print, and everybody can see it."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from hack.recording import scenes
from hack.recording.__main__ import PICTURE, recorded
from hack.recording.drawing import draw
from hack.recording.scenes import COLUMNS, SCENES, Scene, output

SVG = "{http://www.w3.org/2000/svg}"
SCENE = Scene("A title", "review vm.yaml", 5)


def shown(picture: str) -> list[str]:
    """The rows of a picture as text."""
    return ["".join(row.itertext()) for row in ET.fromstring(picture).iter(f"{SVG}text")]


def test_it_shows_what_the_commands_print() -> None:
    assert PICTURE.read_text() == recorded(), "record it again: python -m hack.recording"


def test_a_command_that_ends_otherwise_is_not_recorded() -> None:
    with pytest.raises(RuntimeError, match="status 2"):
        output(Scene("A title", "explain reason no-such-code", 5))


def test_it_is_small_and_takes_a_minute() -> None:
    text = PICTURE.read_text()
    seconds = re.search(r"animation: bar ([0-9.]+)s", text)

    assert len(text) < 300_000
    assert seconds
    assert 45 <= float(seconds[1]) <= 60


def test_everybody_can_see_it() -> None:
    text = PICTURE.read_text()
    root = ET.fromstring(text)

    assert root.attrib["role"] == "img"
    named = {child.attrib.get("id"): child.text or "" for child in root}
    assert named["title"]
    assert all(scene.command in named["desc"] for scene in SCENES)
    assert "(prefers-color-scheme: dark)" in text
    # Where nothing may move, one scene stands, with its output.
    still, _, moving = text.partition("@media (prefers-reduced-motion: no-preference)")
    assert "animation" not in still
    assert "@keyframes" in moving
    assert text.count('class="scene still"') == 1


def test_it_loads_and_runs_nothing() -> None:
    names = {element.tag.removeprefix(SVG) for element in ET.fromstring(PICTURE.read_text()).iter()}

    assert names == {"svg", "title", "desc", "style", "clipPath", "rect", "g", "text", "tspan"}
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|@import|@font-face|url\((?!#)", PICTURE.read_text())


def test_rows_are_those_of_a_terminal() -> None:
    written = f"\x1b[1;31mdenied\x1b[0m  <b> & more\n\n{'x' * (COLUMNS + 5)}\n"
    picture = draw([SCENE, SCENE], [written, ""])

    assert shown(picture)[:5] == [
        "# A title",
        "$ kubevirt-webhook review vm.yaml",
        "denied  <b> & more",
        "x" * COLUMNS,
        "xxxxx",
    ]
    assert '<tspan class="r b">denied</tspan>' in picture


def test_what_does_not_fit_moves_up() -> None:
    assert "translateY" not in draw([SCENE, SCENE], ["a\n", "b\n"])
    assert "translateY(-54px)" in draw([SCENE, SCENE], ["a\n" * (scenes.ROWS + 1), "b\n"])
