"""Whether CI runs the tests on a node for a change: ``python -m hack.node.gate`` prints why not, with exit status 1.

They take minutes, so they are for machines that can run a node and have its parts, and for changes of what they touch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from hack.controlplane import build
from hack.node.requirements import missing

ROOT = Path(__file__).resolve().parents[2]
# What the tests on a node are about, and hardly any other test.
TOUCHED = (
    *("Dockerfile", ".dockerignore", "README.md", "requirements-image.lock", "requirements-build.lock"),
    *("charts/", "hack/image/", "hack/node/", "manifests/", "tests/node/", "webhook/install/"),
)
BUNDLES = (build.CONTROL_PLANE, build.NODE, build.HELM, build.CERT_MANAGER, build.METRICS_SERVER)


def reason_to_skip(environ: Mapping[str, str]) -> str:
    """Why the tests are not run, for people; empty: they are."""
    if reason := missing():
        return reason
    cache = build.cache_root(environ)
    if (
        any(not build.location(environ, bundle=bundle).is_dir() for bundle in BUNDLES)
        or not (cache / "node-parts" / "images" / "kubevirt-webhook.tar").exists()
    ):
        return "skipped: its parts are not built yet on this machine; make e2e-node builds them"
    base = environ.get("CI_BASE") or merged_before()
    if not base:
        return "skipped: it is not known what changed; name a commit with CI_BASE"
    changed = _git("diff", "--name-only", base, "HEAD")
    if changed is None:
        return f"skipped: there is no commit {base}"
    if not any(name.startswith(TOUCHED) for name in changed.splitlines()):
        return f"skipped: nothing that it is about has changed since {base[:12]}"
    return ""


def merged_before() -> str:
    """The commit that the change is compared with: of the main branch, else the one before; empty: there is none."""
    head, main = _git("rev-parse", "HEAD"), _git("merge-base", "HEAD", "origin/main")
    return main if main and main != head else _git("rev-parse", "--verify", "--quiet", "HEAD^") or ""


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout.strip()


def main() -> int:
    """Print the reason; returns 0 where the tests are to be run."""
    reason = reason_to_skip(os.environ)
    print(reason or "run")
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
