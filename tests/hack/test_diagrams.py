"""The pictures of the architecture: drawn from the code, and readable in the dark."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hack.diagrams import packages, review
from hack.diagrams.__main__ import PICTURES
from webhook.review.endpoints import ENDPOINTS

ROOT = Path(__file__).parents[2]


def test_the_layers_are_those_that_import_linter_holds() -> None:
    rows = packages.layers(ROOT)

    assert rows[0] == ["cli"]
    assert ["policies", "cluster"] in rows


def test_the_page_names_the_layers_as_they_are() -> None:
    page = " ".join((ROOT / "docs" / "architecture.md").read_text().split())

    assert " > ".join(" | ".join(row) for row in packages.layers(ROOT)) in page


def test_what_no_layer_names_is_above_what_it_imports() -> None:
    depth = {"a": 0, "b": 3}

    assert packages._place("x", {"a": {"x"}, "x": {"b"}, "b": set()}, depth) == 2
    assert packages._place("x", {"a": {"x"}, "x": set(), "b": set()}, depth) == 1


def test_every_package_of_the_code_is_a_box() -> None:
    drawn = packages.draw(ROOT)
    names = {file.parent.name for file in (ROOT / "webhook").glob("*/__init__.py")}

    assert names <= packages.imports(ROOT).keys()
    assert all(f">{name}</text>" in drawn for name in names | {"certs"})


def test_imports_are_those_of_the_modules() -> None:
    graph = packages.imports(ROOT)

    assert "k8s" in graph["kubevirt"]
    assert graph["certs"] == set()
    assert "policies" not in graph["facts"]


def test_arrows_that_follow_from_others_are_left_out() -> None:
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set()}

    assert packages.without_implied(graph) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_a_review_passes_every_stage_of_the_picture() -> None:
    assert review.missing(ROOT) == []
    drawn = review.draw(ROOT)
    assert all(f">{stage.title}</text>" in drawn for stage in (*review.SERVER, *review.REVIEWER, review.READ))


def test_a_stage_that_the_code_no_longer_has_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = review.DiagramStage("ponder", "", "webhook/review/reviewer.py", "ponder")
    monkeypatch.setattr(review, "REVIEWER", (*review.REVIEWER, gone))

    with pytest.raises(LookupError, match="does not call ponder"):
        review.draw(ROOT)


def test_every_endpoint_is_in_the_picture() -> None:
    drawn = review.draw(ROOT)

    assert {f"{one.verb} {one.policy}" for one in ENDPOINTS} == {
        f"{one.verb} {one.policy}" for one in ENDPOINTS if f">{one.verb} {one.policy}</text>" in drawn
    }
    assert all(one.resource in drawn for one in ENDPOINTS)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_colors_for_light_and_dark_pages(name: str) -> None:
    drawn = (ROOT / "docs" / "images" / name).read_text()

    assert "prefers-color-scheme: dark" in drawn
    assert 'class="panel"' in drawn
    assert "<title>" in drawn


def test_nothing_in_a_picture_is_fetched() -> None:
    for name in PICTURES:
        text = (ROOT / "docs" / "images" / name).read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert "http" not in text


def test_calls_are_read_from_the_source() -> None:
    source = "async def f():\n    return await self._cluster.read(key)\n"

    assert ast.parse(source)
    assert review._calls(source) == {"self._cluster.read"}
