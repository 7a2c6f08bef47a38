"""The base of all sections of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

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

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, which also copies what `cached_property` has computed of the fields before the update."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

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
