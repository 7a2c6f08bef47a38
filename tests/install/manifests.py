"""The manifests, as an installation plans them."""

from __future__ import annotations

from pathlib import Path

from webhook.install import plan
from webhook.install.plan import Overlay, Plan

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
GUARD = "schedulers: {kubevirt: {guard: pods}}\n"


def planned(text: str = GUARD, overlay: Overlay = "kubernetes", image: str = "here") -> Plan:
    return plan.of(MANIFESTS, overlay, text, "settings.yaml", image)
