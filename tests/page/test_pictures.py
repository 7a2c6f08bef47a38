"""Pictures of the page, for docs/page.md: ``make page-pictures`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.page.conftest import Site

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SHOWN = {
    "overview": "",
    "decision": "/decisions?decision=patched&name=mail",
    "placement": "/placement?namespace=shop&name=web&to=zone%3Db",
    "health": "/health",
}


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        *((name, scheme) for name in ("overview", "placement") for scheme in ("light", "dark")),
        ("decision", "dark"),
        ("health", "light"),
    ],
)
def test_a_picture(site: Site, tmp_path: Path, name: str, scheme: Any) -> None:
    page = site.open(SHOWN[name], color_scheme=scheme)
    if name == "decision":
        page.locator("tbody a").first.click()
    rewrite = os.environ.get("REWRITE_PICTURES")
    file = (IMAGES if rewrite else tmp_path) / f"page-{name}-{scheme}.png"
    page.screenshot(path=file, full_page=True)

    picture = file.read_bytes()
    assert picture.startswith(b"\x89PNG")
    # Not an empty page, nor one that is too large for a repository.
    assert 20_000 < len(picture) < 400_000
