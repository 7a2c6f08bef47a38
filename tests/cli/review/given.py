"""Manifests to review, and the cluster of the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests import builders
from tests.cli.examples import EXAMPLES

CLUSTER: list[str | Path] = ["--cluster-from", EXAMPLES / "cluster", "--config", EXAMPLES / "settings.yaml"]
POOL = {
    "apiVersion": "pool.kubevirt.io/v1beta1",
    "kind": "VirtualMachinePool",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"replicas": 3, "virtualMachineTemplate": {"spec": builders.vm()["spec"]}},
}


def manifest(tmp_path: Path, obj: Any, name: str = "object.yaml") -> Path:
    path = tmp_path / name
    path.write_text(yaml.safe_dump_all(obj) if isinstance(obj, list) else yaml.safe_dump(obj))
    return path


def vm(**spec: Any) -> dict[str, Any]:
    result = builders.vm(**spec)
    result["metadata"]["namespace"] = "shop"
    return result
