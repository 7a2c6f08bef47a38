"""What a release of KubeVirt ships, of those that have been built."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from hack.controlplane import build, bundles

BINARY = "virt-operator-objects"


def definitions(release: str, bundle: Path) -> Path:
    """The definitions of a release of KubeVirt, where it has been built."""
    binary = build.location({}, build.cache_root(os.environ), bundles.kubevirt_releases()[release]) / BINARY
    if not binary.exists():
        pytest.skip(f"KubeVirt {release} is not built: python -m hack.controlplane.build --kubevirt {release}")
    shown = subprocess.run([binary, "kubevirt"], check=True, capture_output=True)
    bundle.write_text(json.dumps({"items": json.loads(shown.stdout)["customresourcedefinitions"]}))
    return bundle
