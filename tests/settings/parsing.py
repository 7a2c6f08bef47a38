"""Settings and their mistakes from a text."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from webhook.settings.model import SettingsModel
from webhook.settings.snapshot import (
    Settings,
)
from webhook.settings.syntax import OWN_ERROR


def snapshot(value: dict[str, Any]) -> Settings:
    return SettingsModel.model_validate(value).snapshot("digest")


def mistakes(value: dict[str, Any]) -> list[tuple[str, tuple[int | str, ...]]]:
    with pytest.raises(ValidationError) as refused:
        SettingsModel.model_validate(value)
    found = refused.value.errors(include_url=False)
    return [
        (details["ctx"]["code"] if details["type"] == OWN_ERROR else details["type"], details["loc"])
        for details in found
    ]
