from __future__ import annotations

from typing import Any

from tests import builders
from tests.builders import Json, changed
from webhook import names
from webhook.settings.model import DriftSettings, Settings

NAMESPACE_LABELS = {names.policy_label(names.SCHEDULING): "enforce", names.policy_label(names.INSTANCETYPES): "enforce"}


def stored(obj: Json, name: str = "web01", **more: Any) -> Json:
    """An object with what the API server writes into its metadata; keywords go there too."""
    metadata = {**obj["metadata"], "name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-11-21T15:00:00Z"}
    metadata.pop("generateName", None)
    return {**obj, "metadata": metadata | more}


def settings(**changes: Any) -> Settings:
    looked = DriftSettings(every_minutes=10)
    return changed(builders.settings(), drift_scan=looked, **changes)
