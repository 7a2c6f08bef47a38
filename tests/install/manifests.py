"""The manifests, as an installation plans them."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

from webhook.install import plan
from webhook.install.plan import Overlay, Plan

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
HEALTH_CHECK = "schedulers: {kubevirt: {healthCheck: pods}}\n"


def planned(text: str = HEALTH_CHECK, overlay: Overlay = "kubernetes", image: str = "here") -> Plan:
    """Which a test may change: it is a copy of the one that was made of the same settings."""
    made: Plan = pickle.loads(_pickled(text, overlay, image))
    return made


@cache
def _pickled(text: str, overlay: Overlay, image: str) -> bytes:
    return pickle.dumps(plan.of(MANIFESTS, overlay, text, "settings.yaml", image))
