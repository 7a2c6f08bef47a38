"""Programs for tests that are no Go module: those of the machine, else of Debian packages in the project's cache.

Packages are downloaded and unpacked; nothing is installed, so it takes no root. Standard library only.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hack.controlplane.build import cache_root, locked


class MissingError(Exception):
    """A program is neither on this machine nor to be had from Debian: one sentence."""


def ensure(package: str, programs: Sequence[str], environ: Mapping[str, str]) -> Path:
    """The directory that holds some programs.

    Args:
        package: the Debian package that has them.
        programs: their names, at least one.
        environ: the environment variables.

    Raises:
        MissingError: one is neither on this machine nor to be had.
    """
    found = [shutil.which(program, path=environ.get("PATH")) for program in programs]
    directories = {Path(path).parent for path in found if path}
    if all(found) and len(directories) == 1:
        return directories.pop()
    home = cache_root(environ).resolve() / package
    binaries = home / "usr" / "bin"
    home.parent.mkdir(parents=True, exist_ok=True)
    with locked(home.with_suffix(".lock")):
        if not all((binaries / program).exists() for program in programs):
            unpack([package], home)
    return binaries


def unpack(packages: Sequence[str], home: Path) -> None:
    """Download packages, and put what they hold into a directory, which appears complete or not at all.

    Args:
        packages: their names; releases that name one differently have it after ``|``.
        home: the directory; one that is there is replaced.

    Raises:
        MissingError: they are not to be had.
    """
    names = ", ".join(packages)
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise MissingError(f"not installed: {names}")
    with tempfile.TemporaryDirectory(dir=home.parent) as name:
        directory = Path(name)
        archives = _download(packages, directory)
        unpacked = directory / "unpacked"
        for archive in archives:
            done = subprocess.run(["dpkg", "-x", archive, unpacked], capture_output=True, text=True, check=False)
            if done.returncode:
                raise MissingError(f"dpkg cannot unpack {archive.name} ({done.stderr.strip()})")
        shutil.rmtree(home, ignore_errors=True)
        unpacked.rename(home)


def _download(packages: Sequence[str], directory: Path) -> list[Path]:
    """The packages' files; by lists of packages of its own where the machine has none, or old ones."""
    for part in ("lists/partial", "cache/archives/partial"):
        (directory / part).mkdir(parents=True)
    own = [f"Dir::State::lists={directory / 'lists'}", f"Dir::Cache={directory / 'cache'}", "APT::Sandbox::User=root"]
    options = [argument for option in own for argument in ("-o", option)]
    last = ""

    def run(*arguments: str) -> None:
        nonlocal last
        done = subprocess.run(["apt-get", "-q", *arguments], cwd=directory, capture_output=True, text=True, check=False)
        last = (done.stderr.strip().splitlines() or [last])[-1]

    for lists in ([], options):
        if lists:
            run(*lists, "update")
        names = [_name(package, lists) for package in packages]
        run(*lists, "download", *names)
        found = [sorted(directory.glob(f"{name}_*.deb")) for name in names]
        if all(found):
            return [archives[-1] for archives in found]
    raise MissingError(f"not installed: {', '.join(packages)}, and apt-get cannot download all of them ({last})")


def _name(package: str, options: Sequence[str]) -> str:
    """The name that a package has in this release, of the alternatives; the first one if none is known."""
    alternatives = package.split("|")
    for name in alternatives if len(alternatives) > 1 else ():
        command = ["apt-cache", *options, "policy", name]
        known = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        if re.search(r"Candidate: (?!\(none\))", known):
            return name
    return alternatives[0]
