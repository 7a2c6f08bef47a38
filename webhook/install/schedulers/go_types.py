"""What kube-scheduler decodes: the Go types of its configuration and of its plugins' arguments, as schemas.

``python -m hack.scheduler_types`` writes them into ``go_types.json``: those of k8s.io/kube-scheduler, and of
sigs.k8s.io/scheduler-plugins, which a kube-scheduler decodes that is built with it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

Schema = dict[str, Any]

FILE: Final = Path(__file__).with_suffix(".json")
_OPEN: Final[Schema] = {"x-kubernetes-preserve-unknown-fields": True}
_LEAVES: Final[dict[str, Schema]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float32": {"type": "number"},
    "float64": {"type": "number"},
    # Bytes, in base64.
    "[]uint8": {"type": "string"},
    "k8s.io/apimachinery/pkg/apis/meta/v1.Duration": {"type": "string"},
    # A text or a number.
    "k8s.io/apimachinery/pkg/api/resource.Quantity": _OPEN,
    # The arguments of plugins, which have kinds of their own.
    "k8s.io/apimachinery/pkg/runtime.RawExtension": _OPEN,
}


@cache
def schemas() -> dict[str, Schema]:
    """The structural schemas of the kinds of kubescheduler.config.k8s.io/v1."""
    types = json.loads(FILE.read_bytes())
    return {kind: _schema(name, types["structs"]) for kind, name in types["kinds"].items()}


def _schema(name: str, structs: dict[str, Any]) -> Schema:
    name = name.removeprefix("*")
    if name in _LEAVES:
        schema = _LEAVES[name]
    elif name.startswith("[]"):
        schema = {"type": "array", "items": _schema(name.removeprefix("[]"), structs)}
    elif name.startswith("map[string]"):
        schema = {"type": "object", "additionalProperties": _schema(name.removeprefix("map[string]"), structs)}
    else:
        properties = {field["name"]: _schema(field["type"], structs) for field in structs[name]}
        schema = {"type": "object", "properties": properties}
    # Go takes null for every type.
    return {**schema, "nullable": True}
