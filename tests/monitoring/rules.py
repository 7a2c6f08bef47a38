"""The rules and the dashboard, as the tests read them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = ROOT / "manifests" / "components"
MANIFEST: dict[str, Any] = yaml.safe_load((COMPONENTS / "monitoring" / "alerts.yaml").read_text())
GROUPS: list[dict[str, Any]] = MANIFEST["spec"]["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDS = {rule["record"]: rule for rule in RULES if "record" in rule}
DASHBOARD_FILE = COMPONENTS / "dashboard" / "kubevirt-webhook.json"
DASHBOARD: dict[str, Any] = json.loads(DASHBOARD_FILE.read_text())


def queries() -> dict[str, list[str]]:
    return {
        panel["title"]: [one["expr"] for one in panel["targets"]] for panel in DASHBOARD["panels"] if "targets" in panel
    }


def metrics(expression: str) -> set[str]:
    """The metrics that an expression reads, those of recording rules among them."""
    return set(
        re.findall(r"\b(?:[a-z_]+:)?(?:kubevirt_webhook|apiserver_admission)_[a-z_]+(?::[a-z0-9_]+)?", expression)
    )
