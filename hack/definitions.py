"""``python -m hack.definitions RELEASE PROGRAM``: what the package holds of KubeVirt's CustomResourceDefinitions.

The program is virt-operator-objects of that release (hack/controlplane), such as ``1.9 .../virt-operator-objects``.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from webhook.errors import InputError
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.schemas import file_of

Json = dict[str, Any]
# What people read of a schema, and what is not evaluated.
_LEFT_OUT = ("description", "x-kubernetes-validations")


def encoded(definitions: list[Json]) -> bytes:
    """The content of a file of the package, the same for the same definitions."""
    kinds = sorted((each for one in definitions for each in _kinds(one["spec"])), key=lambda each: str(each["kind"]))
    return gzip.compress(json.dumps(kinds, separators=(",", ":"), sort_keys=True).encode(), mtime=0)


def _kinds(spec: Json) -> list[Json]:
    """One entry for each schema of a kind, which nearly always is the same in all versions."""
    kinds: list[Json] = []
    for version in spec["versions"]:
        if not version["served"]:
            continue
        schema = _without_prose(version["schema"]["openAPIV3Schema"])
        same = next((each for each in kinds if each["schema"] == schema), None)
        if same:
            same["versions"].append(version["name"])
            continue
        scope = {"group": spec["group"], "kind": spec["names"]["kind"], "namespaced": spec["scope"] != "Cluster"}
        kinds.append({**scope, "versions": [version["name"]], "schema": schema})
    return kinds


def _without_prose(schema: Json) -> Json:
    kept = {key: value for key, value in schema.items() if key not in _LEFT_OUT}
    if "properties" in kept:
        kept["properties"] = {name: _without_prose(each) for name, each in kept["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _without_prose(kept[key])
    return kept


def definitions_of(program: str) -> list[Json]:
    """The definitions that virt-operator would install, by the program that prints them."""
    shown = subprocess.run([program, "kubevirt"], check=True, capture_output=True)
    definitions: list[Json] = json.loads(shown.stdout)["customresourcedefinitions"]
    return definitions


def main(release: str, program: str) -> None:
    """Write the file of one release."""
    version = parse_version(f"v{release}.0")
    if version is None:
        raise InputError(f"{release} is not a release", "RELEASE", "use for example 1.9")
    file: Path = file_of(version)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(encoded(definitions_of(program)))


if __name__ == "__main__":
    main(*sys.argv[1:])
