from __future__ import annotations

import json
from html import unescape

from hack import dashboard

PANELS = json.loads(dashboard.DASHBOARD.read_text())["panels"]


def test_the_picture_has_every_panel_of_the_dashboard() -> None:
    shown = unescape(dashboard.PICTURE.read_text())

    assert [panel["title"] for panel in PANELS if f">{panel['title']}<" not in shown] == []
    assert shown.count("<polyline") > 5


def test_a_line_for_each_series_a_number_for_a_state_and_nothing_for_nothing() -> None:
    answers: dict[str, dashboard.Series] = {
        "Decisions": {"a allowed": [(0.0, 1.0), (1.0, 3.0)], "b denied": [(0.0, 0.0), (1.0, 0.0)]},
        "Ready replicas": {"ready": [(0.0, 1.0), (1.0, 2.0)]},
    }
    drawn = dashboard.draw(PANELS, answers)

    assert drawn.count("<polyline") == 2
    assert ">2  ready<" in drawn
    assert drawn.count(">no data<") == len(PANELS) - 2


def test_series_have_the_names_that_the_panel_writes() -> None:
    result = [
        {"metric": {"policy": "eviction", "decision": "denied"}, "values": [[0, "1"], [1, "NaN"]]},
        {"metric": {"policy": "migration", "decision": "allowed"}, "values": [[0, "NaN"]]},
    ]
    found = dashboard.series_of({"result": result}, "{{policy}}: {{ decision }}")

    assert found == {"eviction: denied": [(0.0, 1.0)]}
