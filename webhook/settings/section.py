"""The base of all sections of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    model_validator,
)
from pydantic.alias_generators import to_camel

from webhook.settings.fields import mistake


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        validate_default=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        aliases = {field.validation_alias for field in cls.model_fields.values()}
        return {key: part for key, part in value.items() if part is not None or key not in aliases}


def check_counterpart(section: str, key: str, value: object, counterpart: str, other: object) -> None:
    """Both settings of a section, or neither; the first one's value is None if it is not valid."""
    if value is not None and bool(value) != bool(other):
        present, missing = (key, counterpart) if value else (counterpart, key)
        raise mistake("counterpart-missing", f"{section}.{present} requires {section}.{missing}", "set both or neither")
