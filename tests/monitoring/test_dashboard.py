"""The dashboard: its queries read metrics that exist, and hold for any namespace."""

from __future__ import annotations

import json
import re
from itertools import product

import pytest

from tests.monitoring.rules import ALERTS, DASHBOARD, DASHBOARD_FILE, RECORDS, ROOT, metrics, queries
from tests.monitoring.test_scrape import TARGET_LABELS

# Metrics of the API server, which tests/e2e/test_migrations.py reads.
APISERVER = {
    "apiserver_admission_webhook_admission_duration_seconds_bucket",
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_rejection_count",
}
EXPRESSIONS = {
    **{name: rule["expr"] for name, rule in (*ALERTS.items(), *RECORDS.items())},
    **{f"{title} {number}": query for title, found in queries().items() for number, query in enumerate(found)},
}

# The table of the operations page, which another test holds to the code: metrics with their labels.
DOCUMENTED: dict[str, str] = dict(
    re.findall(
        r"^\| `(kubevirt_webhook_[a-z_]+)` \| ([a-z_, ]*?) ?\|",
        (ROOT / "docs" / "monitoring.md").read_text(),
        re.MULTILINE,
    )
)


@pytest.mark.parametrize("place", list(EXPRESSIONS))
def test_what_is_read_exists(place: str) -> None:
    read = {name for name in metrics(EXPRESSIONS[place]) if ":" not in name}
    recorded = {name for name in metrics(EXPRESSIONS[place]) if ":" in name}

    assert {name.removesuffix("_bucket") for name in read - APISERVER} <= DOCUMENTED.keys()
    assert recorded <= RECORDS.keys()
    assert read | recorded


def test_the_namespace_is_a_variable() -> None:
    assert [one["name"] for one in DASHBOARD["templating"]["list"]] == ["datasource", "namespace"]
    for found in queries().values():
        for query in found:
            assert 'namespace="kubevirt-webhook"' not in query
            assert query.startswith("name:") or 'namespace="$namespace"' in query


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        cell for at in places for cell in product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"]))
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)
    assert all(panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for panel in DASHBOARD["panels"])
    assert json.dumps(DASHBOARD, indent=2) + "\n" == DASHBOARD_FILE.read_text()


def test_no_metric_has_a_label_that_prometheus_writes() -> None:
    labels = {label for cell in DOCUMENTED.values() for label in cell.split(", ") if label}
    assert {"policy", "webhook", "watch"} <= labels
    assert labels & TARGET_LABELS == set()
