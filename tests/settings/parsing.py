"""Settings and their mistakes from a text."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from webhook.settings.model import Settings
from webhook.settings.validation import OWN_ERROR, model_of, read


def snapshot(value: dict[str, Any]) -> Settings:
    settings = read(model_of(Settings).model_validate(value))
    assert isinstance(settings, Settings)
    return settings.completed("digest")


def mistakes(value: dict[str, Any]) -> list[tuple[str, tuple[int | str, ...]]]:
    with pytest.raises(ValidationError) as refused:
        model_of(Settings).model_validate(value)
    found = refused.value.errors(include_url=False)
    return [
        (details["ctx"]["code"] if details["type"] == OWN_ERROR else details["type"], details["loc"])
        for details in found
    ]
