"""The fields of audit lines, the last section of docs/audit.md, from their JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hack.reference.markdown import cell, code, table
from webhook.admission.audit import schema

_PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "audit.md"
_HEADING: Final = "## Every field\n"
_INTRODUCTION: Final = """
One table for each record, and for each object within one. This section is made from the code by `make docs`.
"""


def page() -> str:
    """The whole page, as Markdown: the section is its last one."""
    before, heading, _ = _PAGE.read_text().partition(_HEADING)
    sections = (_section(name, value) for name, value in schema()["$defs"].items())
    return before + heading + "\n".join([_INTRODUCTION, *sections])


def _section(name: str, value: dict[str, Any]) -> str:
    required = set(value.get("required", ()))
    rows = (
        (code(key), _type(field), "" if key in required else "yes", cell(field.get("description", "")))
        for key, field in value.get("properties", {}).items()
    )
    text = cell(value.get("description", ""))
    return f"### {name}\n\n{text}\n\n{table(('field', 'type', 'may be absent', 'meaning'), rows)}"


def _type(field: dict[str, Any]) -> str:
    return " or ".join(_types(field))


def _types(field: dict[str, Any]) -> Iterator[str]:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        yield f"[{name}](#{name.lower()})"
    elif "anyOf" in field:
        for each in field["anyOf"]:
            yield from _types(each)
    elif "enum" in field:
        yield from (code(str(each)) for each in field["enum"])
    elif field.get("type") == "array":
        items = field.get("items")
        yield f"list of {_type(items)}" if items else "list"
    elif field.get("type") == "object" and isinstance(field.get("additionalProperties"), dict):
        yield f"object of {_type(field['additionalProperties'])}"
    else:
        yield str(field.get("type", "any JSON"))
