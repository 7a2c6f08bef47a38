"""Finds Prometheus and its promtool, by which the alerts are tested: those of the machine, else Debian's package.

The package is downloaded and unpacked into the project's cache; nothing is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hack.controlplane.build import cache_root

PROGRAMS: Final = ("prometheus", "promtool")


class MissingError(Exception):
    """There is no Prometheus, and no way to get one: one sentence."""


def ensure(environ: Mapping[str, str]) -> Path:
    """The directory with both programs.

    Args:
        environ: the environment variables.

    Raises:
        MissingError: they are neither on this machine nor to be had from Debian.
    """
    found = [shutil.which(program, path=environ.get("PATH")) for program in PROGRAMS]
    if found[0] and found[1]:
        return Path(found[1]).parent
    directory = cache_root(environ).resolve() / "prometheus"
    binaries = directory / "usr" / "bin"
    if not (binaries / PROGRAMS[1]).exists():
        _unpack(directory)
    return binaries


def _unpack(directory: Path) -> None:
    why = "no promtool to test the alerts with: install Prometheus"
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise MissingError(why)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as name:
        download = ["apt-get", "download", "prometheus"]
        done = subprocess.run(download, cwd=name, capture_output=True, text=True, check=False)
        packages = list(Path(name).glob("*.deb"))
        if not packages:
            last = (done.stderr.strip().splitlines() or ["apt-get download failed"])[-1]
            raise MissingError(f"{why} ({last})")
        unpacked = Path(name) / "unpacked"
        subprocess.run(["dpkg", "-x", packages[0], unpacked], check=True)
        if not directory.exists():  # else another process was faster
            unpacked.rename(directory)


def main() -> int:
    """Print the directory; exit status 69 if there is none."""
    try:
        print(ensure(os.environ))
    except MissingError as reason:
        print(reason, file=sys.stderr)
        return 69
    return 0


if __name__ == "__main__":
    sys.exit(main())
