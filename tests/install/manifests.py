"""The manifests, as an installation plans them."""

from __future__ import annotations

from pathlib import Path

from webhook.install import plan
from webhook.install.plan import Overlay, Plan

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
HEALTH_CHECK = "schedulers: {kubevirt: {healthCheck: pods}}\n"


def planned(text: str = HEALTH_CHECK, overlay: Overlay = "kubernetes", image: str = "here") -> Plan:
    return plan.of(MANIFESTS, overlay, text, "settings.yaml", image)
