"""Resolves the dependencies again into the lock files, with hashes and without any index's address.

`requirements.lock` is what runs, `requirements-dev.lock` adds what tests, checks and builds. Needs `uv`. Three more are
parts of these, for the image: `requirements-image.lock` is what the program needs there, `requirements-traces.lock` is
what it needs to send traces, and `requirements-build.lock` is what builds the wheel. ``--parts`` writes only these
three, without `uv`. At the end, `uv` resolves those of the image again for each platform that it is built for: a
package without a wheel there is an error.
`requirements-docs.lock` is what builds the documentation's site, which shares nothing with the others; ``--docs``
writes only this one.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
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
    # Metadata of a source distribution is what its build says: to resolve would run code of packages.
    "--no-build",
]
# The project and its own dependencies; a group alone is what the documentation needs.
PROJECT_FILE = "pyproject.toml"
DOCS = ["--group=docs", "-o", "requirements-docs.lock"]
PROJECT = "kubevirt-webhook (pyproject.toml"
# Rich needs them, 9 MB, for source code and Markdown on terminals, which no command prints.
NOT_IN_IMAGE = ("markdown-it-py", "pygments")
# Where the image runs, as uv names it, with the libc of its base.
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
IN_IMAGE = ("requirements-image.lock", "requirements-traces.lock")
_ENTRY = re.compile(r"^(?P<name>[a-z0-9-]+)==(?:.*\n)(?:[ ]+.*\n)*", re.MULTILINE)


def part(lock: str, wanted: Callable[[str, str], bool], without: Sequence[str] = ()) -> str:
    """The part of a lock file that some of its direct dependencies need.

    Args:
        lock: the content of the lock file, with comments that name what requires an entry.
        wanted: whether a direct dependency is wanted, by its name and what requires it in ``pyproject.toml``.
        without: what is left out whatever requires it.
    """
    entries = {match["name"]: match[0] for match in _ENTRY.finditer(lock)}
    requirers = {name: re.findall(r"^ +#(?: via)? +(\S.*)$", entry, re.MULTILINE) for name, entry in entries.items()}
    kept: set[str] = set()
    while True:
        more = {
            name
            for name, by in requirers.items()
            if name not in without and any(one in kept or (one.startswith(PROJECT) and wanted(name, one)) for one in by)
        }
        if more == kept:
            return "".join(entry for name, entry in entries.items() if name in kept)
        kept = more


def image_part(lock: str) -> str:
    """The part of `requirements.lock` that the image has."""
    return part(lock, lambda _name, _by: True, NOT_IN_IMAGE)


def build_part(lock: str) -> str:
    """The part of `requirements-dev.lock` that builds the wheel."""
    return part(lock, lambda _, by: by.endswith(":build)"))


def traces_part(lock: str) -> str:
    """The part of `requirements-dev.lock` that sends traces."""
    return part(lock, lambda name, _: name.startswith("opentelemetry-"))


def check_platforms(uv: str) -> None:
    """Resolve the packages of the image for each of its platforms, wheels only.

    Raises:
        CalledProcessError: one has no wheel there, which uv names.
    """
    python = re.search(r"^ARG BASE=python:(3\.\d+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert python, "the Dockerfile names no interpreter"
    for platform in PLATFORMS:
        for file in IN_IMAGE:
            options = ["--quiet", "--no-deps", "--no-build", f"--python-platform={platform}"]
            command = [uv, "pip", "compile", *options, f"--python-version={python[1]}", file]
            subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def write_parts() -> None:
    """Write the lock files of the image."""
    (ROOT / "requirements-traces.lock").write_text(traces_part((ROOT / "requirements-dev.lock").read_text()))
    (ROOT / "requirements-image.lock").write_text(image_part((ROOT / "requirements.lock").read_text()))
    (ROOT / "requirements-build.lock").write_text(build_part((ROOT / "requirements-dev.lock").read_text()))


def main() -> int:
    """Write all files; returns the exit status."""
    parser = argparse.ArgumentParser(prog="lock.py", description="Write the lock files.")
    parser.add_argument("--parts", action="store_true", help="resolve nothing, only write the parts for the image")
    parser.add_argument("--docs", action="store_true", help="only resolve what builds the documentation's site")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions, not those already locked")
    options = parser.parse_args()
    if options.parts:
        write_parts()
        return 0
    uv = shutil.which("uv")
    if uv is None:
        print("lock: uv is missing; install it with `pipx install uv`", file=sys.stderr)
        return 2
    common = [*COMMON, "--upgrade"] if options.upgrade else COMMON
    subprocess.run([uv, *common, *DOCS], cwd=ROOT, check=True)
    if options.docs:
        return 0
    subprocess.run([uv, *common, PROJECT_FILE, "-o", "requirements.lock"], cwd=ROOT, check=True)
    groups = ["--group=dev", "--group=build", "--group=release", "--extra=otel"]
    dev = [*groups, "-c", "requirements.lock", "-o", "requirements-dev.lock"]
    subprocess.run([uv, *common, PROJECT_FILE, *dev], cwd=ROOT, check=True)
    write_parts()
    check_platforms(uv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
