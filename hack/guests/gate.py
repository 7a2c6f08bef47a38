"""The part of `.ci/run` that runs guests: ``python -m hack.guests.gate``, one boot and one migration."""

from __future__ import annotations

import sys
from typing import Final

from hack.controlplane import build, bundles
from hack.gate import Gate
from hack.guests import parts
from hack.guests.__main__ import main as run_guests
from hack.guests.requirements import missing

GATE: Final = Gate(
    name="guests",
    subject="KubeVirt",
    parts="the parts of guests",
    target="make guests",
    bundles=(bundles.CONTROL_PLANE, bundles.NODE, bundles.GUESTS),
    # What decides where a guest runs, and with what.
    sources=(
        *("Dockerfile", "requirements-image.lock", "requirements-build.lock"),
        *("hack/controlplane/guests", "hack/controlplane/launcher", "hack/guests", "hack/node", "tests/guests"),
        *("manifests", "webhook/install", "webhook/kubevirt", "webhook/policies"),
    ),
    tests=(
        "tests/guests/test_boot.py::test_a_vm_boots_with_the_default_instancetype_inside",
        "tests/guests/test_migration.py::test_a_migration_ends_on_the_node_that_the_selector_chose",
    ),
    directory="guests-parts",
    image=parts.images_in,
    missing=lambda environ: missing(build.cache_root(environ)),
    run=lambda command: run_guests(command, neighbours=()),
)


if __name__ == "__main__":
    sys.exit(GATE.main())
