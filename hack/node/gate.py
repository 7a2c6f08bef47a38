"""The part of `.ci/run` that needs a real node: ``python -m hack.node.gate``.

It runs where the machine can run a node and has its parts, and where these sources have not passed yet. A machine that
turns out to be unable to is no failure of a change: whatever is skipped is said in one line.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hack.controlplane import build, bundles
from hack.node.__main__ import main as run_node
from hack.node.requirements import missing

ROOT: Final = Path(__file__).resolve().parents[2]
# What the tests on a node are about, and hardly any other test.
SOURCES: Final = (
    *("Dockerfile", ".dockerignore", "requirements-image.lock", "requirements-traces.lock", "requirements-build.lock"),
    *("hack/image", "hack/node", "manifests", "tests/node"),
    *("certs", "webhook/install", "webhook/k8s/client", "webhook/server/runtime"),
)
TESTS: Final = ("tests/node/test_image.py", "tests/node/test_smoke.py")
SKIPPED: Final = "skipped: "


def reason_to_skip(environ: Mapping[str, str], digest: str) -> str:
    """Why the tests are not run, for people; empty: they are.

    Args:
        environ: the environment variables.
        digest: of the sources.
    """
    if reason := missing():
        return reason
    built = [build.location(environ, bundle=bundle).is_dir() for bundle in (bundles.CONTROL_PLANE, bundles.NODE)]
    if not all(built) or not (place(environ) / "images" / "kubevirt-webhook.tar").exists():
        return f"{SKIPPED}the parts of a node are not built on this machine; make e2e-node builds them"
    if mark(environ).exists() and mark(environ).read_text() == digest:
        return f"{SKIPPED}it has passed here with the same image sources, manifests and tests"
    return ""


def place(environ: Mapping[str, str]) -> Path:
    """Where the parts of a node are."""
    return build.cache_root(environ) / "node-parts"


def mark(environ: Mapping[str, str]) -> Path:
    """The file with the digest of the sources that passed last."""
    return place(environ) / "passed"


def sources_digest(root: Path = ROOT, sources: Sequence[str] = SOURCES) -> str:
    """The digest of what the tests are about: names and contents of the files that git lists."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *sources]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    found = hashlib.sha256()
    for name in sorted(filter(None, listed.split("\0"))):
        if (root / name).is_file():
            found.update(f"{name}\0{hashlib.sha256((root / name).read_bytes()).hexdigest()}\0".encode())
    return found.hexdigest()


def main(tests: Sequence[str] = TESTS) -> int:
    """Run the tests, or say why not; returns the exit status, which is 0 also where they are skipped."""
    digest = sources_digest()
    reason = reason_to_skip(os.environ, digest)
    if not reason:
        status = run_node([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *tests], neighbours=())
        if status != build.EX_UNAVAILABLE:
            if status == 0:
                mark(os.environ).write_text(digest)
            return status
        reason = f"{SKIPPED}this machine could not start a node; the line above says why"
    print(f"node: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
