"""A real Prometheus that scrapes a running server, evaluates the rules, and answers the dashboard's queries.

Below, the dashboard itself: its queries read metrics that exist, and hold for any namespace.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import EXAMPLES
from tests.cli.test_serve import FILES, serving
from tests.e2e.support.kube import PATIENCE, eventually
from tests.e2e.support.processes import free_port
from tests.monitoring.test_rules import ALERTS, COMPONENTS, GROUPS, RECORDS, ROOT, metrics, rules_file

# Labels that Prometheus and its operator write themselves: a metric with such a label loses it to `exported_...`.
TARGET_LABELS = {"job", "instance", "namespace", "pod", "service", "container", "endpoint", "node"}

DASHBOARD_FILE = COMPONENTS / "dashboard" / "kubevirt-webhook.json"
DASHBOARD: dict[str, Any] = json.loads(DASHBOARD_FILE.read_text())


def queries() -> dict[str, list[str]]:
    return {
        panel["title"]: [one["expr"] for one in panel["targets"]] for panel in DASHBOARD["panels"] if "targets" in panel
    }


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server over the example cluster; yields the address of its metrics."""
    with serving(*FILES, "--config", str(EXAMPLES / "settings.yaml")) as running:
        yield running.ops.removeprefix("http://")


@pytest.fixture(scope="module")
def api(prometheus: Path, server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that has scraped the server, as the ServiceMonitor has it; yields the URL of its API."""
    directory = tmp_path_factory.mktemp("prometheus")
    labels = {"namespace": "kubevirt-webhook", "pod": "a", "service": "kubevirt-webhook"}
    target = {"targets": [server], "labels": labels}
    content = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [rules_file(directory, GROUPS).name],
        "scrape_configs": [{"job_name": "kubevirt-webhook", "static_configs": [target]}],
    }
    (directory / "prometheus.yml").write_text(json.dumps(content))
    port = free_port()
    command = [str(prometheus / "prometheus"), f"--config.file={directory / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (directory / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
        try:
            url = f"http://127.0.0.1:{port}/api/v1"
            eventually(lambda: len(values(url, "up == 1")) == 1, what="the server to be scraped")
            yield url
        finally:
            running.terminate()


def ask(api: str, path: str, **parameters: str) -> Any:
    answer = json.loads(fetch(f"{api}/{path}?{urllib.parse.urlencode(parameters)}"))
    assert answer["status"] == "success"
    return answer["data"]


def values(api: str, query: str) -> list[Any]:
    found: list[Any] = ask(api, "query", query=query)["result"]
    return found


def test_all_rules_are_evaluated_without_errors(api: str) -> None:
    def rules() -> list[dict[str, Any]]:
        found = [rule for group in ask(api, "rules")["groups"] for rule in group["rules"]]
        return found if all(rule["health"] != "unknown" for rule in found) else []

    found = eventually(rules, what="the rules to be evaluated")

    assert len(found) == len(ALERTS) + len(RECORDS)
    assert {rule["name"]: rule.get("lastError") for rule in found if rule["health"] != "ok"} == {}


def test_a_healthy_server_raises_no_alert_but_the_schedulers(api: str) -> None:
    def is_quiet() -> bool:
        # Before the first scrape there is no replica.
        alerts = {one["labels"]["alertname"] for one in ask(api, "alerts")["alerts"]}
        return alerts <= {"KubevirtWebhookSchedulerDown"}

    eventually(is_quiet, what="no other alert")


@pytest.mark.parametrize("title", list(queries()))
def test_the_dashboards_queries_are_answered(api: str, title: str) -> None:
    for query in queries()[title]:
        found = values(api, query.replace("$namespace", "kubevirt-webhook"))
        # Panels of the state show it.
        assert found or title not in ("Ready replicas", "Available schedulers", "Certificates end in")


def test_no_metric_has_a_label_that_prometheus_writes(api: str, server: str) -> None:
    labels = set(re.findall(r'[{,]([a-z_]+)="', fetch(f"http://{server}/metrics")))

    assert labels & TARGET_LABELS == set()
    assert {"webhook", "scheduler", "certificate"} <= labels
    assert values(api, '{__name__=~"kubevirt_webhook_.+",exported_job!=""}') == []
    assert {one["metric"]["job"] for one in values(api, "kubevirt_webhook_ready")} == {"kubevirt-webhook"}


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


def test_no_documented_metric_has_a_label_that_prometheus_writes() -> None:
    labels = {label for cell in DOCUMENTED.values() for label in cell.split(", ") if label}
    assert {"policy", "webhook", "watch"} <= labels
    assert labels & TARGET_LABELS == set()
