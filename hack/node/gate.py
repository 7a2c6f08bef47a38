"""The part of `.ci/run` that needs a real node: ``python -m hack.node.gate``."""

from __future__ import annotations

import sys
from typing import Final

from hack.controlplane import bundles
from hack.gate import Gate
from hack.node.__main__ import main as run_node
from hack.node.requirements import missing

GATE: Final = Gate(
    name="node",
    subject="a node",
    parts="the parts of a node",
    target="make e2e-node",
    bundles=(bundles.CONTROL_PLANE, bundles.NODE),
    sources=(
        *("Dockerfile", ".dockerignore"),
        *("requirements-image.lock", "requirements-traces.lock", "requirements-build.lock"),
        *("hack/image", "hack/node", "manifests", "tests/node"),
        *("certs", "webhook/install", "webhook/k8s/client", "webhook/server/runtime"),
    ),
    tests=("tests/node/test_image.py", "tests/node/test_smoke.py"),
    directory="node-parts",
    image=lambda _, place: place / "images" / "kubevirt-webhook.tar",
    missing=lambda _: missing(),
    run=lambda command: run_node(command, neighbours=()),
)


if __name__ == "__main__":
    sys.exit(GATE.main())
