"""The reference of the settings file, from its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hack.reference.markdown import as_json, cell, code, table
from webhook.settings.validation import schema
from webhook.settings_file import MODEL

_HEADER: Final = """\
# Settings

Every key of the settings file, `serve --config FILE`. A key that is absent or null has its default; an unknown key is
an error. `kubevirt-webhook config schema` prints the same as JSON Schema, `config check FILE` lists every mistake in a
file, and `config show --config FILE` prints a file's settings with all defaults.
[Operations](../operations.md#settings) explains how changes take effect.

This page is made from the code by `make docs`.
"""
_LIMITS: Final = {
    "minimum": "from {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "to {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}


def page() -> str:
    """The whole page, as Markdown."""
    whole = schema(MODEL)
    sections = [_HEADER]
    rows: list[tuple[str, dict[str, Any]]] = []
    for path, value in _keys(whole, whole["properties"], ""):
        fields = _fields(whole, value)
        if fields and "." not in path:
            if rows:
                sections.append(_table(rows))
            default = "" if "properties" in value else f" Default: {as_json(value.get('default'))}"
            sections.append(f"## {path}\n\n{value.get('description', '').strip()}{default}\n")
            rows = []
        elif "." not in path:
            sections += [_table(rows)] if rows else []
            sections.append(f"## {path}\n")
            rows = [(path, value)]
        else:
            rows.append((path, value))
    return "\n".join([*sections, _table(rows)])


def _table(rows: list[tuple[str, dict[str, Any]]]) -> str:
    head = ("key", "type", "default", "meaning")
    return table(head, ((code(path), cell(_type(value)), _default(value), _meaning(value)) for path, value in rows))


def _keys(whole: Any, properties: Any, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key with its schema, each section before what is in it."""
    for name, value in properties.items():
        resolved = _resolved(whole, value)
        path = f"{prefix}{name}"
        yield path, resolved
        inner = _fields(whole, resolved)
        if inner:
            yield from _keys(whole, inner[1], f"{path}{inner[0]}.")


def _fields(whole: Any, value: Any) -> tuple[str, Any] | None:
    """What a section holds: how its path goes on (``[]`` in a list, ``.NAME`` where users name it), and its keys."""
    if "properties" in value:
        return "", value["properties"]
    named = next(iter(value.get("patternProperties", {}).values()), None)
    optional = next((each for each in value.get("anyOf", ()) if "$ref" in each), None)
    for inner, suffix in ((value.get("items"), "[]"), (named, ".NAME"), (optional, "")):
        resolved = _resolved(whole, inner) if inner else {}
        if "properties" in resolved:
            return suffix, resolved["properties"]
    return None


def _resolved(whole: Any, value: Any) -> dict[str, Any]:
    """A schema without references; what stands beside one wins."""
    reference = value.get("$ref") or next((each.get("$ref") for each in value.get("allOf", ())), None)
    if not reference:
        return dict(value)
    return {**whole["$defs"][reference.rpartition("/")[2]], **value}


def _type(value: Any) -> str:
    if "enum" in value:
        return " or ".join(code(str(each) or '""') for each in value["enum"])
    if "const" in value:
        return code(str(value["const"]))
    if "anyOf" in value:
        return " or ".join(_type(each) for each in value["anyOf"])
    name = value.get("type") or ("section" if "$ref" in value else "any")
    if name == "object" and "properties" in value:
        name = "section"
    elif name == "array":
        name = f"list of {_type(value['items'])}" if value.get("items") and "$ref" not in value["items"] else "list"
    limits = [text.format(f"{value[key]:,}") for key, text in _LIMITS.items() if key in value]
    return f"{name}, {' '.join(limits)}" if limits else str(name)


def _default(value: Any) -> str:
    default = value.get("default")
    # What the keys within a section have by default stands beside each of them.
    return "" if isinstance(default, dict) and "properties" in value else as_json(default)


def _meaning(value: Any) -> str:
    text = cell(value.get("description", ""))
    examples = ", ".join(as_json(each) for each in value.get("examples", ()))
    return f"{text} Example: {examples}" if examples else text
