"""The part of `.ci/run` that runs guests: ``python -m hack.guests.gate``, one boot and one migration.

It runs where the machine can run guests and has their parts, and where these sources have not passed yet. A machine
that turns out to be unable to is no failure of a change: whatever is skipped is said in one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hack.controlplane import build, bundles
from hack.guests import parts
from hack.guests.__main__ import main as run_guests
from hack.guests.requirements import missing
from hack.node import gate as node_gate

# What these tests are about, and hardly any other test: what decides where a guest runs, and with what.
SOURCES: Final = (
    *("Dockerfile", "requirements-image.lock", "requirements-build.lock"),
    *("hack/controlplane/guests", "hack/controlplane/launcher", "hack/guests", "hack/node", "tests/guests"),
    *("manifests", "webhook/install", "webhook/kubevirt", "webhook/policies"),
)
TESTS: Final = (
    "tests/guests/test_boot.py::test_a_vm_boots_with_the_default_instancetype_inside",
    "tests/guests/test_migration.py::test_a_migration_ends_on_the_node_that_the_selector_chose",
)
SKIPPED: Final = node_gate.SKIPPED


def reason_to_skip(environ: Mapping[str, str], digest: str) -> str:
    """Why the tests are not run, for people; empty: they are.

    Args:
        environ: the environment variables.
        digest: of the sources.
    """
    if reason := missing(build.cache_root(environ)):
        return reason
    bundled = (bundles.CONTROL_PLANE, bundles.NODE, bundles.GUESTS)
    built = [build.location(environ, bundle=bundle).is_dir() for bundle in bundled]
    if not all(built) or not parts.images_in(environ, place(environ)).is_dir():
        return f"{SKIPPED}the parts of guests are not built on this machine; make guests builds them"
    if mark(environ).exists() and mark(environ).read_text() == digest:
        return f"{SKIPPED}it has passed here with the same sources"
    return ""


def place(environ: Mapping[str, str]) -> Path:
    """Where the parts of guests are."""
    return build.cache_root(environ) / "guests-parts"


def mark(environ: Mapping[str, str]) -> Path:
    """The file with the digest of the sources that passed last."""
    return place(environ) / "passed"


def main(tests: Sequence[str] = TESTS) -> int:
    """Run the tests, or say why not; returns the exit status, which is 0 also where they are skipped."""
    digest = node_gate.sources_digest(sources=SOURCES)
    reason = reason_to_skip(os.environ, digest)
    if not reason:
        status = run_guests([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *tests], neighbours=())
        if status != build.EX_UNAVAILABLE:
            if status == 0:
                mark(os.environ).write_text(digest)
            return status
        reason = f"{SKIPPED}this machine could not start KubeVirt; the line above says why"
    print(f"guests: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
