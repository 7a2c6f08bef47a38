"""The base of all sections of the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        known = {field.alias for field in cls.model_fields.values()}
        return {key: part for key, part in value.items() if part is not None or key not in known}
