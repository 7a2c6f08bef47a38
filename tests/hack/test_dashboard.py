from __future__ import annotations

import json
from html import unescape

from hack import dashboard

PANELS = json.loads(dashboard.DASHBOARD.read_text())["panels"]


def test_the_picture_has_every_panel_of_the_dashboard() -> None:
    shown = unescape(dashboard.PICTURE.read_text())

    assert [panel["title"] for panel in PANELS if f">{panel['title']}<" not in shown] == []
    assert shown.count("<polyline") > 5
