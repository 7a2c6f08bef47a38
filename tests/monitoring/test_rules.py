"""The alerts and recording rules, by promtool; each alert fires, and each stays quiet."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.monitoring.cases import CASES, promtool_tests
from tests.monitoring.rules import ALERTS, GROUPS, RECORDS, ROOT, metrics
from tests.test_docs import anchors, unknown

RUNBOOKS = "docs/runbooks.md"
BASE = "https://kubevirt-webhook.github.io/runbooks"


def promtool(prometheus: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([prometheus / "promtool", *arguments], capture_output=True, text=True, timeout=120)


def rules_file(directory: Path, groups: Any) -> Path:
    """The rules as a file of Prometheus, not of its operator."""
    file = directory / "rules.json"
    file.write_text(json.dumps({"groups": groups}))
    return file


def verdict(prometheus: Path, directory: Path, groups: Any, alert: str) -> subprocess.CompletedProcess[str]:
    """The output of promtool for the cases of an alert; without a name, of all alerts."""
    severities = {name: rule["labels"]["severity"] for name, rule in ALERTS.items()}
    cases = [one for one in promtool_tests(severities) if one["name"].startswith(f"{alert} " if alert else "")]
    rules, file = rules_file(directory, groups), directory / "tests.json"
    file.write_text(json.dumps({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": cases}))
    return promtool(prometheus, "test", "rules", file)


def test_promtool_accepts_the_rules(prometheus: Path, tmp_path: Path) -> None:
    done = promtool(prometheus, "check", "rules", "--lint=all", "--lint-fatal", rules_file(tmp_path, GROUPS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS) + len(RECORDS)} rules found" in done.stdout


def test_every_alert_fires_and_stays_quiet(prometheus: Path, tmp_path: Path) -> None:
    assert CASES.keys() == ALERTS.keys()
    assert all(case.fires and case.quiet for case in CASES.values())
    done = verdict(prometheus, tmp_path, GROUPS, "")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", list(ALERTS))
def test_an_alert_that_never_fires_or_always_does_is_noticed(prometheus: Path, tmp_path: Path, alert: str) -> None:
    for expression in ("vector(1) < 0", "vector(1)"):
        rule = {**ALERTS[alert], "expr": expression}
        assert verdict(prometheus, tmp_path, [{"name": "changed", "rules": [rule]}], alert).returncode == 1


@pytest.mark.parametrize("alert", list(ALERTS))
def test_every_alert_says_what_to_do_and_its_runbook_has_impact_causes_and_command(alert: str) -> None:
    annotations = ALERTS[alert]["annotations"]
    assert annotations.keys() == {"summary", "description", "command", "runbook_url"}
    assert annotations["runbook_url"] == f"{BASE}#{alert.lower()}"
    assert alert.lower() in anchors(RUNBOOKS)
    assert ALERTS[alert]["labels"]["severity"] in ("critical", "warning", "info")
    words = shlex.split(annotations["command"])
    assert words[0] in ("kubectl", "kubevirt-webhook")
    assert words[0] == "kubectl" or unknown(words[1:]) == ""

    text = (ROOT / RUNBOOKS).read_text()
    (section,) = re.findall(rf"^## {alert}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    for part in ("**Impact.** ", "**Causes.** ", "**What to do.** "):
        assert part in section
    (block,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    assert f"$ {annotations['command']}" in block.splitlines()


def test_the_runbooks_are_of_alerts_that_exist() -> None:
    sections = re.findall(r"^## (.+)$", (ROOT / RUNBOOKS).read_text(), re.MULTILINE)
    assert [one for one in sections if one.startswith("Kubevirt")] == list(ALERTS)


def test_rules_hold_for_any_namespace_and_read_what_is_recorded_before() -> None:
    recorded: set[str] = set()
    for rule in (rule for group in GROUPS for rule in group["rules"]):
        assert 'namespace="' not in rule["expr"]
        assert {name for name in metrics(rule["expr"]) if ":" in name} <= recorded
        recorded |= {rule["record"]} if "record" in rule else set()
