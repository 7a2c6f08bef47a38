"""Container runtime, network plugins and image builder, from Debian packages that are unpacked into the cache."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from hack import debian

# Programs, and the libraries of theirs that a minimal installation lacks.
PACKAGES = (
    *("containerd", "runc", "containernetworking-plugins", "nftables", "buildah", "mmdebstrap"),
    *("golang-github-containers-common", "libassuan0|libassuan9", "libdevmapper1.02.1"),
    *("libgpgme11|libgpgme11t64", "libjansson4", "libmnl0", "libnftables1", "libnftnl11", "libseccomp2"),
)


class PreparationError(Exception):
    """A part of the node could not be prepared on this machine.

    Args:
        sentence: for people.
        output: all that the program printed which failed; empty: none did.
    """

    def __init__(self, sentence: str, output: str = "") -> None:
        super().__init__(sentence)
        self.output = output


def ensure(cache: Path) -> Path:
    """The directory that lies over ``/usr`` inside; the packages are downloaded where they are missing.

    Raises:
        PreparationError: they are not to be had.
    """
    digest = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:12]
    place = cache / f"packages-{digest}"
    if not place.is_dir():
        try:
            debian.unpack(PACKAGES, place)
        except debian.MissingError as error:
            raise PreparationError(str(error)) from error
    return place / "usr"


def run(*command: str, cwd: Path | None = None) -> str:
    """What a program prints.

    Raises:
        PreparationError: it fails.
    """
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        tail = (done.stderr or done.stdout).strip().splitlines()[-5:]
        output = f"{done.stdout}\n{done.stderr}"
        raise PreparationError(f"{' '.join(command[:2])} failed:\n  " + "\n  ".join(tail), output)
    return done.stdout
