"""Builds the kubectl plugin for krew: ``python -m hack.plugin [--url URL]``.

An archive for this machine's platform and this interpreter's version, with the program and its dependencies as they are
installed here, and the manifest ``packaging/krew.yaml`` for it. Both are written to ``dist``. It needs no network.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import io
import platform
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hatchling.builders.wheel import WheelBuilder

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHON: Final = f"python3.{sys.version_info.minor}"
# krew links to it, so that it must find out where it really is.
LAUNCHER: Final = f"""#!/usr/bin/env {PYTHON}
import os
import sys

library = os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib")
sys.path.insert(0, library)
# For the server that the command demo starts.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (library, os.environ.get("PYTHONPATH"))))
from webhook.cli.main import plugin

plugin()
"""
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_ENTRY: Final = re.compile(r"^([a-z0-9-]+)==", re.MULTILINE)


def build(target: Path, url: str, level: int = 9) -> tuple[Path, Path]:
    """Build the archive and its manifest.

    Args:
        target: the directory to write to.
        url: where the archive will be, without its name.
        level: of the compression, from 1 to 9.

    Returns:
        The archive and the manifest.
    """
    target.mkdir(parents=True, exist_ok=True)
    version = f"v{importlib.metadata.version('kubevirt-webhook')}"
    system, machine = platform.system().lower(), platform.machine()
    architecture = _ARCHITECTURES.get(machine, machine)
    archive = target / f"kubectl-kubevirt_webhook-{version}-{system}-{architecture}.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=level) as tar:
        _add(tar, "kubectl-kubevirt_webhook", LAUNCHER.encode(), mode=0o755)
        _add(tar, "LICENSE", (ROOT / "LICENSE").read_bytes())
        for name, content in (*_program(), *_dependencies()):
            _add(tar, f"lib/{name}", content)
    values = {
        "VERSION": version,
        "HOMEPAGE": url.rpartition("/")[0] or url,
        "PYTHON": PYTHON,
        "OS": system,
        "ARCH": architecture,
        "URI": f"{url}/{archive.name}",
        "SHA256": hashlib.sha256(archive.read_bytes()).hexdigest(),
    }
    text = re.sub(r"^#.*\n", "", (ROOT / "packaging" / "krew.yaml").read_text(), flags=re.MULTILINE)
    manifest = target / "kubevirt-webhook.yaml"
    manifest.write_text(re.sub(rf"\b({'|'.join(values)})\b", lambda found: values[found[1]], text))
    return archive, manifest


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Add a file as any machine would: with no owner and no time."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def _program() -> Iterator[tuple[str, bytes]]:
    """The files of the wheel."""
    with tempfile.TemporaryDirectory() as directory:
        (wheel,) = WheelBuilder(str(ROOT)).build(directory=directory, versions=["standard"])
        with zipfile.ZipFile(wheel) as files:
            yield from ((name, files.read(name)) for name in sorted(files.namelist()))


def _dependencies() -> Iterator[tuple[str, bytes]]:
    """The files of all locked dependencies that are installed here."""
    for name in _ENTRY.findall((ROOT / "requirements.lock").read_text()):
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            # Of another platform.
            continue
        for file in sorted(distribution.files or (), key=str):
            place = Path(str(file.locate()))
            if ".." not in file.parts and "__pycache__" not in file.parts and place.is_file():
                yield file.as_posix(), place.read_bytes()


def main() -> None:
    """Build both into ``dist``."""
    parser = argparse.ArgumentParser(description="Build the kubectl plugin for krew.")
    parser.add_argument("--url", default="https://HOST/kubevirt-webhook/releases", help="where the archive will be")
    for file in build(ROOT / "dist", parser.parse_args().url.rstrip("/")):
        print(file)


if __name__ == "__main__":
    main()
