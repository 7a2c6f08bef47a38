"""The alerts and recording rules, by promtool; each alert fires, and each stays quiet."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.test_docs import anchors, unknown

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = ROOT / "manifests" / "components"
MANIFEST = COMPONENTS / "monitoring" / "alerts.yaml"
GROUPS: list[dict[str, Any]] = yaml.safe_load(MANIFEST.read_text())["spec"]["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDS = {rule["record"]: rule for rule in RULES if "record" in rule}

NAME = 'name="pods.scheduling.enforce.kubevirt-webhook.github.io",type="admit"'
OTHER = 'name="pods.example.com",type="admit"'
FAIL_OPEN = "apiserver_admission_webhook_fail_open_count"
REJECTIONS = "apiserver_admission_webhook_rejection_count"
DURATIONS = "apiserver_admission_webhook_admission_duration_seconds_bucket"
OURS = 'namespace="kubevirt-webhook",pod="a"'
CALLED = {"name": "pods.scheduling.enforce.kubevirt-webhook.github.io", "type": "admit"}
IN = {"namespace": "kubevirt-webhook"}
Series = dict[str, str]


def metrics(expression: str) -> set[str]:
    """The metrics that an expression reads, those of recording rules among them."""
    return set(
        re.findall(r"\b(?:[a-z_]+:)?(?:kubevirt_webhook|apiserver_admission)_[a-z_]+(?::[a-z0-9_]+)?", expression)
    )


class AlertCase(NamedTuple):
    """The series under which an alert fires, its labels then, and the series under which it does not, at a time.

    An alert about either of two things fires under ``also_fires`` alone, too.
    """

    fires: Series
    labels: dict[str, str]
    quiet: list[Series]
    at: str = "30m"
    also_fires: Series | None = None


def _ours(metric: str, values: str, **labels: str) -> Series:
    text = "".join(f',{label}="{value}"' for label, value in labels.items())
    return {f"kubevirt_webhook_{metric}{{{OURS}{text}}}": values}


def _of_label(metric: str, fires: str, quiet: str, **labels: str) -> AlertCase:
    """The case of an alert for each value of a label, which the alert carries."""
    return AlertCase(_ours(metric, fires, **labels), {**IN, **labels}, [_ours(metric, quiet, **labels)])


def _of_value(metric: str, label: str, bad: str, good: str, fires: str = "0+1x40") -> AlertCase:
    """The case of an alert about one value of a label, which does not care about another."""
    return AlertCase(_ours(metric, fires, **{label: bad}), IN, [_ours(metric, "0+1x40", **{label: good})])


def _refused(code: str) -> Series:
    return _ours("requests_total", "0+1x40", code=code)


def _scans(failed: str, finished: str) -> Series:
    return _ours("drift_scans_total", failed, result="failed") | _ours("drift_scans_total", finished, result="finished")


def _scheduler(values: str) -> Series:
    return _ours("scheduler_available", values, scheduler="kubevirt")


def _opted_in(policy: str) -> Series:
    return _ours("namespaces", "2x40", policy=policy, mode="warn")


def _slow(**buckets: str) -> Series:
    return {f'{DURATIONS}{{{NAME},le="{le}"}}': values for le, values in buckets.items()}


CASES: dict[str, AlertCase] = {
    "KubevirtWebhookFailsOpen": AlertCase(
        {f"{FAIL_OPEN}{{{NAME}}}": "0+1x40"},
        CALLED,
        [
            {f"{FAIL_OPEN}{{{NAME}}}": "7x40"},
            {f"{FAIL_OPEN}{{{OTHER}}}": "0+1x40"},
            {f"{FAIL_OPEN}{{{NAME}}}": "0x27 1x13"},
        ],
    ),
    "KubevirtWebhookCallsFail": AlertCase(
        {f'{REJECTIONS}{{{NAME},error_type="calling_webhook_error"}}': "0+1x40"},
        {**CALLED, "error_type": "calling_webhook_error"},
        # Denials by a policy are what it is for.
        [{f'{REJECTIONS}{{{NAME},error_type="no_error"}}': "0+9x40"}],
    ),
    "KubevirtWebhookSlow": AlertCase(
        _slow(**{"1": "0+1x40", "2.5": "0+9x40", "+Inf": "0+9x40"}),
        CALLED,
        [_slow(**{"0.1": "0+9x40", "+Inf": "0+9x40"})],
    ),
    "KubevirtWebhookDown": AlertCase(
        _ours("ready", "0x40"), IN, [_ours("ready", values) for values in ("1x40", "1x27 0x13")]
    ),
    "KubevirtWebhookCertificateExpires": _of_label(
        "certificate_expiry_timestamp_seconds", "3600x40", "600000x40", certificate="serving"
    ),
    "KubevirtWebhookBundleMismatch": _of_label("ca_bundle_match", "0x40", "1x40", configuration="a"),
    "KubevirtWebhookStale": _of_label("staleness_seconds", "0+60x40", "60x40", watch="nodes"),
    # Without a namespace that opted in to scheduling, none is missed.
    "KubevirtWebhookSchedulerDown": AlertCase(
        _scheduler("0x40") | _opted_in("scheduling"),
        {**IN, "scheduler": "kubevirt"},
        [_scheduler("1x40") | _opted_in("scheduling"), _scheduler("0x40"), _scheduler("0x40") | _opted_in("sizes")],
    ),
    # The series of a reason is there only once there was one.
    "KubevirtWebhookPreemptorUnknown": AlertCase(
        _ours("decisions_total", "_x70 1x70", policy="preemption", reason="user-not-known"),
        IN,
        [
            _ours("decisions_total", "5x140", policy="preemption", reason="user-not-known"),
            _ours("decisions_total", "0+1x140", policy="preemption", reason="migration-requested"),
        ],
        at="90m",
    ),
    "KubevirtWebhookErrors": _of_value("decisions_total", "decision", "error", "denied")._replace(
        also_fires=_ours("panics_total", "0+1x40")
    ),
    # An overloaded replica answers with HTTP 200 wherever it knows whose request it was.
    "KubevirtWebhookOverloaded": AlertCase(
        _ours("decisions_total", "0+1x40", reason="overloaded") | _refused("200"),
        IN,
        [_ours("decisions_total", "0+1x40", reason="too-complex") | _refused("200") | _refused("400")],
        also_fires=_refused("429"),
    ),
    "KubevirtWebhookAuditDropped": AlertCase(
        _ours("audit_dropped_total", "0+1x40"), IN, [_ours("audit_dropped_total", "5x40")]
    ),
    "KubevirtWebhookSettingsInvalid": _of_value(
        "settings_reloads_total", "result", "rejected", "applied", fires="0x25 1x15"
    ),
    "KubevirtWebhookDrift": _of_label(
        "drift_objects", "3x90", "3x30 0x60", policy="scheduling", resource="pods"
    )._replace(at="80m"),
    # One that failed among others that did not is quiet.
    "KubevirtWebhookScanFails": AlertCase(_scans("0+1x90", "0x90"), IN, [_scans("0x10 1x80", "0+1x90")], "80m"),
    "KubevirtWebhookFidelity": AlertCase(
        _ours("fidelity_differences_total", "0x20 2x20"), IN, [_ours("fidelity_differences_total", "0x40")]
    ),
    "KubevirtWebhookEventsLost": _of_value("events_total", "result", "failed", "written"),
}


def promtool_tests() -> list[dict[str, Any]]:
    """The cases as promtool's unit tests, with the severity of each alert."""
    made = []
    for alert, case in CASES.items():
        severity = ALERTS[alert]["labels"]["severity"]
        labels = {"alertname": alert, "alertstate": "firing", "severity": severity, **case.labels}
        text = ", ".join(f'{key}="{value}"' for key, value in labels.items())
        fires = [case.fires, *([case.also_fires] if case.also_fires else [])]
        firing = [{"labels": f"ALERTS{{{text}}}", "value": 1}]
        made += [_test(f"{alert} fires {number}", alert, each, case.at, firing) for number, each in enumerate(fires)]
        for number, series in enumerate(case.quiet):
            made.append(_test(f"{alert} stays quiet {number}", alert, series, case.at, []))
    return made


def _test(name: str, alert: str, series: Series, at: str, expected: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": [
            {"expr": f'ALERTS{{alertname="{alert}",alertstate="firing"}}', "eval_time": at, "exp_samples": expected}
        ],
    }


RUNBOOKS = "docs/runbooks.md"
BASE = "https://kubevirt-webhook.github.io/latest/runbooks"


def promtool(prometheus: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([prometheus / "promtool", *arguments], capture_output=True, text=True)


def rules_file(directory: Path, groups: Any) -> Path:
    """The rules as a file of Prometheus, not of its operator."""
    file = directory / "rules.json"
    file.write_text(json.dumps({"groups": groups}))
    return file


def verdict(prometheus: Path, directory: Path, groups: Any, interval: str = "1m") -> subprocess.CompletedProcess[str]:
    """The output of promtool for the cases of all alerts."""
    names, file = [rules_file(directory, groups).name], directory / "tests.json"
    file.write_text(json.dumps({"rule_files": names, "evaluation_interval": interval, "tests": promtool_tests()}))
    return promtool(prometheus, "test", "rules", file)


def test_promtool_accepts_the_rules(prometheus: Path, tmp_path: Path) -> None:
    done = promtool(prometheus, "check", "rules", "--lint=all", "--lint-fatal", rules_file(tmp_path, GROUPS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS) + len(RECORDS)} rules found" in done.stdout


@pytest.mark.control("unreachable-replicas")
def test_every_alert_fires_and_stays_quiet(prometheus: Path, tmp_path: Path) -> None:
    assert CASES.keys() == ALERTS.keys()
    assert all(case.fires and case.quiet for case in CASES.values())
    done = verdict(prometheus, tmp_path, GROUPS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("expression", "answer"), [("vector(1) < 0", "got: nil"), ("vector(1)", "exp: nil")])
def test_an_alert_that_never_fires_or_always_does_is_noticed(
    prometheus: Path, tmp_path: Path, expression: str, answer: str
) -> None:
    rules = [rule | {"expr": expression} for rule in ALERTS.values()]
    failures = verdict(prometheus, tmp_path, [{"name": "changed", "rules": rules}], "10m").stderr.split("expr: ")[1:]
    # Each failed case names its alert first.
    assert {case.split('\\"')[1] for case in failures if answer in case} == ALERTS.keys()


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
    # `kubectl logs` of a Deployment reads one of its pods.
    assert "logs" not in words or words[words.index("logs") + 1 :][:2] == [
        "-l",
        "app.kubernetes.io/name=kubevirt-webhook",
    ]

    text = (ROOT / RUNBOOKS).read_text()
    (section,) = re.findall(rf"^## {alert}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    rule = ALERTS[alert]
    when = f"once this has held for {rule['for']}" if "for" in rule else "as soon as this holds"
    stated = f"Severity: {rule['labels']['severity']}. It fires {when}:\n\n```promql\n{rule['expr'].strip()}\n```\n"
    assert section.startswith(f"\n{stated}")
    for part in ("**Impact.** ", "**Causes.** ", "**What to do.** "):
        assert part in section
    (block,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    assert f"$ {annotations['command']}" in block.splitlines()


def test_the_runbooks_are_of_alerts_that_exist() -> None:
    sections = re.findall(r"^## (.+)$", (ROOT / RUNBOOKS).read_text(), re.MULTILINE)
    assert [one for one in sections if one.startswith("Kubevirt")] == list(ALERTS)


def test_rules_hold_for_any_namespace_and_read_what_is_recorded_before() -> None:
    recorded: set[str] = set()
    for rule in RULES:
        assert 'namespace="' not in rule["expr"]
        assert {name for name in metrics(rule["expr"]) if ":" in name} <= recorded
        recorded |= {rule["record"]} if "record" in rule else set()
