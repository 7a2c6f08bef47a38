"""Resolves the dependencies anew into the two lock files, with hashes and without any index's address.

`requirements.lock` is what runs, `requirements-dev.lock` adds what tests, checks and builds. Needs `uv`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMON = [
    "pip",
    "compile",
    "--quiet",
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-header",
    "pyproject.toml",
]


def main() -> int:
    """Write both files; returns the exit status."""
    uv = shutil.which("uv")
    if uv is None:
        print("lock: uv is missing; install it with `pipx install uv`", file=sys.stderr)
        return 2
    subprocess.run([uv, *COMMON, "-o", "requirements.lock"], cwd=ROOT, check=True)
    dev = ["--group=dev", "--group=build", "-c", "requirements.lock", "-o", "requirements-dev.lock"]
    subprocess.run([uv, *COMMON, *dev], cwd=ROOT, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
