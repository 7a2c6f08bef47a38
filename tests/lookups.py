"""Lookups of KubeVirt's rules in plain objects, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.rejection import Get


def among(objects: Iterable[Any]) -> Get:
    """Look-ups in a collection of plain objects; among several with one name, the last counts.

    Args:
        objects: plain JSON, each with its ``kind``.
    """
    known = {}
    for item in objects:
        metadata = item.get("metadata") or {}
        known[item.get("kind"), metadata.get("namespace") or "", metadata.get("name")] = item

    def get(kind: str, namespace: str, name: str) -> Json | None:
        return known.get((kind, namespace, name))

    return get
