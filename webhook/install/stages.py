"""Intermediate webhook configurations: the API server never calls an entry that is not served or cannot be verified.

During a rollout, entries of both versions do not change, removed entries are removed first, and new entries match no
request, so that their caBundles can be set before they are switched on.
"""

from __future__ import annotations

from typing import Any, Final

from webhook.install.registration import Manifest

NOT_YET: Final = {"name": "not-yet-served", "expression": "false"}


def stage(wanted: Manifest, live: Manifest | None) -> Manifest:
    """The configuration during the rollout.

    Args:
        wanted: the configuration as planned.
        live: the configuration as it is; None: there is none.
    """
    present = {entry["name"]: entry for entry in (live or {}).get("webhooks") or ()}
    entries = [
        _without_bundle(present[entry["name"]]) if entry["name"] in present else _inert(entry)
        for entry in wanted.get("webhooks", ())
    ]
    return {**wanted, "webhooks": entries} if entries else wanted


def uncallable(wanted: Manifest, live: Manifest | None) -> list[str]:
    """The entries that do not exist yet, or have no caBundle by which the API server could verify the replicas."""
    bundles = {entry["name"]: entry["clientConfig"].get("caBundle") for entry in (live or {}).get("webhooks") or ()}
    return [entry["name"] for entry in wanted.get("webhooks", ()) if not bundles.get(entry["name"])]


def _inert(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "matchConditions": [NOT_YET]}


def _without_bundle(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry as the installer writes it: caBundles belong to another field manager."""
    config = {key: value for key, value in entry["clientConfig"].items() if key != "caBundle"}
    return {**entry, "clientConfig": config}
