"""Audit lines held to their documented schema."""

from __future__ import annotations

from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from webhook.admission.audit import (
    schema,
)


def closed(node: Any) -> Any:
    """The schema as it binds a writer: readers ignore unknown fields, but the webhook may not write any."""
    if isinstance(node, list):
        return [closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    extra = {"additionalProperties": False} if "properties" in node else {}
    return {**{key: closed(item) for key, item in node.items()}, **extra}


STRICT = Draft202012Validator(closed(schema()))


def valid(record: object) -> dict[str, Any]:
    """The record as it is written, if the schema describes all of it."""
    line: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record))
    STRICT.validate(line)
    return line
