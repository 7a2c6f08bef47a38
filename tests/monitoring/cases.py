"""For every alert the series under which it fires, and those under which it stays quiet, as promtool reads them."""

from __future__ import annotations

from typing import Any, NamedTuple

NAME = 'name="pods.scheduling.enforce.kubevirt-webhook.github.io",type="admit"'
OTHER = 'name="pods.example.com",type="admit"'
FAIL_OPEN = "apiserver_admission_webhook_fail_open_count"
REJECTIONS = "apiserver_admission_webhook_rejection_count"
DURATIONS = "apiserver_admission_webhook_admission_duration_seconds_bucket"
OURS = 'namespace="kubevirt-webhook",pod="a"'
CALLED = {"name": "pods.scheduling.enforce.kubevirt-webhook.github.io", "type": "admit"}
IN = {"namespace": "kubevirt-webhook"}
Series = dict[str, str]


class AlertCase(NamedTuple):
    """An alert's cases.

    Attributes:
        fires: series under which it fires.
        labels: the alert's labels then, but its name and severity.
        quiet: series under which it does not; each is one case.
        at: when both are looked at.
    """

    fires: Series
    labels: dict[str, str]
    quiet: list[Series]
    at: str = "30m"


def _ready(values: str) -> Series:
    return {f"kubevirt_webhook_ready{{{OURS}}}": values}


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
        {f'{DURATIONS}{{{NAME},le="1"}}': "0+1x40", f'{DURATIONS}{{{NAME},le="2.5"}}': "0+9x40",
         f'{DURATIONS}{{{NAME},le="+Inf"}}': "0+9x40"},
        CALLED,
        [{f'{DURATIONS}{{{NAME},le="0.1"}}': "0+9x40", f'{DURATIONS}{{{NAME},le="+Inf"}}': "0+9x40"}],
    ),
    "KubevirtWebhookDown": AlertCase(_ready("0x40"), IN, [_ready("1x40"), _ready("1x27 0x13")]),
    "KubevirtWebhookCertificateExpires": AlertCase(
        {f'kubevirt_webhook_certificate_expiry_timestamp_seconds{{{OURS},certificate="serving"}}': "3600x40"},
        {**IN, "certificate": "serving"},
        [{f'kubevirt_webhook_certificate_expiry_timestamp_seconds{{{OURS},certificate="serving"}}': "600000x40"}],
    ),
    "KubevirtWebhookBundleMismatch": AlertCase(
        {f'kubevirt_webhook_ca_bundle_match{{{OURS},configuration="a"}}': "0x40"},
        {**IN, "configuration": "a"},
        [{f'kubevirt_webhook_ca_bundle_match{{{OURS},configuration="a"}}': "1x40"}],
    ),
    "KubevirtWebhookStale": AlertCase(
        {f'kubevirt_webhook_staleness_seconds{{{OURS},watch="nodes"}}': "0+60x40"},
        {**IN, "watch": "nodes"},
        [{f'kubevirt_webhook_staleness_seconds{{{OURS},watch="nodes"}}': "60x40"}],
    ),
    "KubevirtWebhookSchedulerDown": AlertCase(
        {f'kubevirt_webhook_scheduler_available{{{OURS},scheduler="kubevirt"}}': "0x40"},
        {**IN, "scheduler": "kubevirt"},
        [{f'kubevirt_webhook_scheduler_available{{{OURS},scheduler="kubevirt"}}': "1x40"}],
    ),
    "KubevirtWebhookErrors": AlertCase(
        {f'kubevirt_webhook_decisions_total{{{OURS},decision="error"}}': "0+1x40"},
        IN,
        [{f'kubevirt_webhook_decisions_total{{{OURS},decision="denied"}}': "0+1x40"}],
    ),
    "KubevirtWebhookOverloaded": AlertCase(
        {f'kubevirt_webhook_requests_total{{{OURS},code="429"}}': "0+1x40"},
        IN,
        [{f'kubevirt_webhook_requests_total{{{OURS},code="200"}}': "0+1x40"}],
    ),
    "KubevirtWebhookAuditDropped": AlertCase(
        {f"kubevirt_webhook_audit_dropped_total{{{OURS}}}": "0+1x40"},
        IN,
        [{f"kubevirt_webhook_audit_dropped_total{{{OURS}}}": "5x40"}],
    ),
    "KubevirtWebhookSettingsInvalid": AlertCase(
        {f'kubevirt_webhook_settings_reloads_total{{{OURS},result="rejected"}}': "0x25 1x15"},
        IN,
        [{f'kubevirt_webhook_settings_reloads_total{{{OURS},result="applied"}}': "0+1x40"}],
    ),
    "KubevirtWebhookDrift": AlertCase(
        {f'kubevirt_webhook_drift_objects{{{OURS},policy="scheduling",resource="pods"}}': "3x90"},
        {**IN, "policy": "scheduling", "resource": "pods"},
        [{f'kubevirt_webhook_drift_objects{{{OURS},policy="scheduling",resource="pods"}}': "3x30 0x60"}],
        "80m",
    ),
    "KubevirtWebhookScanFails": AlertCase(
        {f'kubevirt_webhook_drift_scans_total{{{OURS},result="failed"}}': "0+1x90",
         f'kubevirt_webhook_drift_scans_total{{{OURS},result="finished"}}': "0x90"},
        IN,
        # One that failed among others that did not.
        [{f'kubevirt_webhook_drift_scans_total{{{OURS},result="failed"}}': "0x10 1x80",
          f'kubevirt_webhook_drift_scans_total{{{OURS},result="finished"}}': "0+1x90"}],
        "80m",
    ),
    "KubevirtWebhookFidelity": AlertCase(
        {f"kubevirt_webhook_fidelity_differences_total{{{OURS}}}": "0x20 2x20"},
        IN,
        [{f"kubevirt_webhook_fidelity_differences_total{{{OURS}}}": "0x40"}],
    ),
    "KubevirtWebhookEventsLost": AlertCase(
        {f'kubevirt_webhook_events_total{{{OURS},result="failed"}}': "0+1x40"},
        IN,
        [{f'kubevirt_webhook_events_total{{{OURS},result="written"}}': "0+1x40"}],
    ),
}  # fmt: skip


def promtool_tests(severities: dict[str, str]) -> list[dict[str, Any]]:
    """The cases as promtool's unit tests.

    Args:
        severities: the label of each alert.
    """
    made = []
    for alert, case in CASES.items():
        labels = {"alertname": alert, "alertstate": "firing", "severity": severities[alert], **case.labels}
        text = ", ".join(f'{key}="{value}"' for key, value in labels.items())
        made.append(_test(f"{alert} fires", alert, case.fires, case.at, [{"labels": f"ALERTS{{{text}}}", "value": 1}]))
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
