"""`make base-image`: pins the base image of the Dockerfile by the digest that its tag has now.

A digest always names the same bytes, so it has to be renewed for fixes: run this regularly, look at the diff, and
let CI test it. The tag stays beside it for people. Needs crane, skopeo, or docker with buildx, and a registry.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

DOCKERFILE = Path(__file__).resolve().parents[2] / "Dockerfile"
_BASE = re.compile(r"^ARG BASE=(?P<name>[^@\s]+)(?:@(?P<digest>\S+))?$", re.MULTILINE)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Each prints the digest of the image index, which is the same for all platforms.
TOOLS: dict[str, Callable[[str], list[str]]] = {
    "crane": lambda name: ["digest", name],
    "skopeo": lambda name: ["inspect", "--raw", f"docker://{name}"],
    "docker": lambda name: ["buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", name],
}


class BaseImageError(Exception):
    """The digest cannot be found out: a sentence for people."""


def pinned(dockerfile: str) -> tuple[str, str]:
    """The name with tag of the base image, and its digest; the digest is empty where the image is not pinned."""
    match = _BASE.search(dockerfile)
    if match is None:
        raise BaseImageError("the Dockerfile has no line ARG BASE=NAME:TAG")
    return match["name"], match["digest"] or ""


def resolve(name: str, path: str | None = None) -> str:
    """The digest that a registry has for a name.

    Args:
        name: the image with its tag.
        path: where to look for tools; None: as a shell does.
    """
    for tool, arguments in TOOLS.items():
        program = shutil.which(tool, path=path)
        if program is None:
            continue
        done = subprocess.run([program, *arguments(name)], capture_output=True, check=False)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip().splitlines()
            raise BaseImageError(f"{tool} cannot read {name}: {why[-1] if why else 'no reason given'}")
        digest = _digest(tool, done.stdout)
        if _DIGEST.fullmatch(digest) is None:
            raise BaseImageError(f"{tool} printed no digest for {name}")
        return digest
    raise BaseImageError(f"none of {', '.join(TOOLS)} is installed; install one to ask the registry")


def _digest(tool: str, output: bytes) -> str:
    # Of the manifest itself: skopeo's own field is that of one platform.
    return f"sha256:{sha256(output).hexdigest()}" if tool == "skopeo" else output.decode(errors="replace").strip()


def renew(dockerfile: str, digest: str) -> str:
    """The Dockerfile with another digest."""
    name, _ = pinned(dockerfile)
    return _BASE.sub(f"ARG BASE={name}@{digest}", dockerfile, count=1)


def main() -> int:
    """Write the Dockerfile; returns the exit status."""
    text = DOCKERFILE.read_text()
    try:
        name, before = pinned(text)
        digest = resolve(name)
    except BaseImageError as error:
        print(f"base-image: {error}", file=sys.stderr)
        return 1
    DOCKERFILE.write_text(renew(text, digest))
    print(f"{name}: unchanged" if digest == before else f"{name}: {before or 'not pinned'} -> {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
