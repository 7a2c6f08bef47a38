"""Types of Go, as JSON shows them: ``print.go`` prints them, and the files beside it say which.

``kubevirt-1.9.json`` and its like are what it has printed of KubeVirt's releases, for `hack.kubevirt_types`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from hack.controlplane.bundles import HERE as MODULES
from hack.controlplane.bundles import ToolModule

GO_TYPES: Final = Path(__file__).resolve().parent


def printed(module: ToolModule, *programs: str) -> bytes:
    """The types that programs print, of the versions that a module of hack/controlplane requires."""
    files = [str(GO_TYPES / f"{name}.go") for name in ("print", *programs)]
    command = ["go", "run", "-mod=readonly", "-trimpath", *files]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, cwd=MODULES / module.module, env=environment
    ).stdout
