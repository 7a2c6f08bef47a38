"""Audit lines held to their documented schema."""

from __future__ import annotations

from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from webhook.admission.audit import SCHEMA, AuditedObject, Record, schema
from webhook.admission.decision import Change, Reason


def closed(node: Any) -> Any:
    """The schema as it binds a writer: readers ignore unknown fields, but the webhook may not write any."""
    if isinstance(node, list):
        return [closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    extra = {"additionalProperties": False} if "properties" in node else {}
    return {**{key: closed(item) for key, item in node.items()}, **extra}


_CLOSED = closed(schema())
STRICT = Draft202012Validator(_CLOSED)

# What is another in every line of a decision. The rest is that of many lines, so that it is held to the schema once.
_DECISION = _CLOSED["$defs"]["Record"]["properties"]
_OF_EACH = {name: Draft202012Validator(_DECISION[name]) for name in ("time", "uid", "durationMs")}
_described: set[bytes] = set()


def valid(record: object) -> dict[str, Any]:
    """The record as it is written, if the schema describes all of it."""
    line: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(record))
    describe(line)
    return line


def describe(line: dict[str, Any]) -> None:
    """Raise an error if the schema does not describe all of a line."""
    rest = msgspec.json.encode({name: value for name, value in line.items() if name not in _OF_EACH})
    if line.get("kind") == "decision" and rest in _described:
        own = all(name in line and validator.is_valid(line[name]) for name, validator in _OF_EACH.items())
        if own:
            return
    STRICT.validate(line)
    _described.add(rest)


def record(uid: str = "u") -> Record:
    return Record(
        SCHEMA,
        "2026-01-01T00:00:00.000000Z",
        uid,
        "/mutate/scheduling/pods/enforce",
        "CREATE",
        AuditedObject("Pod", "demo", "virt-launcher-web01-"),
        "system:serviceaccount:kubevirt:kubevirt-controller",
        False,
        "enforce",
        "patched",
        (Reason("scheduler-injected", "the VM chose none"),),
        (Change(("spec", "schedulerName"), "default-scheduler", "kubevirt", "scheduler-injected"),),
        None,
        0.125,
        {"namespaces": 12.5},
    )
