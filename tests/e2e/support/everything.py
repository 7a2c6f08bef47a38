"""Instancetypes and preferences that set everything there is to set."""

from __future__ import annotations

from pathlib import Path

import yaml

from .kube import Json

_SPECS: dict[str, list[Json]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
INSTANCETYPE_SPECS = _SPECS["instancetypes"]
PREFERENCE_SPECS = _SPECS["preferences"]
