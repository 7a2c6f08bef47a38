"""The images of the node: the one of the Dockerfile, built as it stands, and the pods' pause program.

Where no registry is reachable, the Dockerfile's base is a stand-in: Debian, minimal, with an interpreter of the same
version that this machine has. The final stage takes nothing from the base but that interpreter and shared libraries.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from hack.interpreters import find
from hack.node.packages import PreparationError, run

ROOT = Path(__file__).resolve().parents[2]
VERSION = "3.13"
NAME = "localhost/kubevirt-webhook"
PAUSE = "localhost/pause:1"
BASE = "localhost/python:stand-in"
LIBRARIES = (
    *("ca-certificates", "libbz2-1.0", "libexpat1", "libffi8", "liblzma5", "libncursesw6", "libreadline8"),
    *("libsqlite3-0", "libssl3", "libuuid1", "zlib1g"),
)
BASE_DOCKERFILE = """FROM scratch
ADD base.tar /
ADD python.tar /usr/local/
RUN ldconfig
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
CMD ["python3"]
"""
# Waits for the signal that ends the pod, and reaps nothing: each container has a PID namespace of its own.
PAUSE_PROGRAM = """package main

import ("os"; "os/signal"; "syscall")

func main() {
\tend := make(chan os.Signal, 1)
\tsignal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
\t<-end
}
"""
POLICY = {"default": [{"type": "insecureAcceptAnything"}]}
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


# How pip says that it reaches no registry.
UNREACHABLE = re.compile("connection broken|name resolution|Network is unreachable|timed out")


class ImageError(PreparationError):
    """The Dockerfile cannot be built, whatever machine it is."""


def ensure(cache: Path, usr: Path) -> Path:
    """A directory with the images as archives; built where the sources have changed."""
    builder = _Builder(cache, usr)
    builder.base()
    place = cache / "images"
    place.mkdir(exist_ok=True)
    builder.pause(place / "pause.tar")
    builder.program(place / "kubevirt-webhook.tar")
    return place


class _Builder:
    """Buildah with a storage of its own.

    Args:
        cache: the directory of the storage, and of what is kept between builds.
        usr: the directory that lies over ``/usr`` while it runs.
    """

    def __init__(self, cache: Path, usr: Path) -> None:
        self._cache = cache
        self._usr = usr
        (cache / "policy.json").write_text(json.dumps(POLICY))
        (cache / "registries.conf").write_text("unqualified-search-registries = []\n")
        (cache / "pip.conf").write_text(f"[global]\ncert = {AUTHORITIES}\n")

    def base(self) -> None:
        """Make the stand-in for the base image, where there is none for this interpreter."""
        interpreter = find(VERSION, os.environ)
        if interpreter is None:
            raise PreparationError(f"the image needs Python {VERSION}; install it, for example with pyenv")
        prefix = Path(run(str(interpreter), "-c", "import sys; print(sys.base_prefix)").strip())
        if prefix in (Path("/usr"), Path("/usr/local")):
            raise PreparationError(f"{interpreter} is a part of this machine; the image needs one of its own directory")
        mark = self._cache / "base.mark"
        wanted = hashlib.sha256(" ".join((str(prefix), BASE_DOCKERFILE, *LIBRARIES)).encode()).hexdigest()
        if mark.exists() and mark.read_text() == wanted:
            return
        with tempfile.TemporaryDirectory(dir=self._cache) as name:
            context = Path(name)
            include = f"--include={','.join(LIBRARIES)}"
            suite = _suite()
            self._inside("mmdebstrap", "--quiet", "--variant=minbase", include, suite, str(context / "base.tar"))
            left_out = ("--exclude=__pycache__", "--exclude=*.a", "--exclude=share")
            python = str(context / "python.tar")
            run("tar", "-C", str(prefix), *left_out, "--owner=0", "--group=0", "-cf", python, ".")
            (context / "Dockerfile").write_text(BASE_DOCKERFILE)
            self._build(BASE, context)
        mark.write_text(wanted)

    def pause(self, archive: Path) -> None:
        """Build the program that holds the namespaces of a pod."""
        if archive.exists():
            return
        with tempfile.TemporaryDirectory(dir=self._cache) as name:
            context = Path(name)
            (context / "pause.go").write_text(PAUSE_PROGRAM)
            environ = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GO111MODULE": "off"}
            subprocess.run(["go", "build", "-o", "pause", "pause.go"], cwd=context, env=environ, check=True)
            (context / "Dockerfile").write_text('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
            self._build(PAUSE, context)
        self._push(PAUSE, archive)

    def program(self, archive: Path) -> None:
        """Build the image of the Dockerfile out of the working tree, as git sees it."""
        with tempfile.TemporaryDirectory(dir=self._cache) as name:
            context = Path(name)
            listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
            for file in filter(None, listed):
                if (ROOT / file).exists():
                    (context / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / file, context / file, follow_symlinks=False)
            volumes = (f"{AUTHORITIES}:{AUTHORITIES}:ro", f"{self._cache / 'pip.conf'}:/etc/pip.conf:ro")
            arguments = ("--build-arg", f"BASE={BASE}", "--build-arg", "VERSION=e2e")
            try:
                self._build(f"{NAME}:one", context, *(f"--volume={one}" for one in volumes), *arguments)
            except PreparationError as error:
                if UNREACHABLE.search(error.output):
                    raise
                raise ImageError(str(error), error.output) from error
        self._push(f"{NAME}:one", archive)

    def _build(self, tag: str, context: Path, *options: str) -> None:
        ways = ("--isolation=chroot", "--network=host", "--pull-never", "--layers", "--timestamp=0")
        self._buildah(
            "bud", f"--signature-policy={self._cache / 'policy.json'}", *ways, *options, "-t", tag, str(context)
        )

    def _push(self, tag: str, archive: Path) -> None:
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        policy = f"--signature-policy={self._cache / 'policy.json'}"
        self._buildah("push", policy, tag, f"oci-archive:{partial}:{tag}")
        partial.rename(archive)

    def _buildah(self, verb: str, *arguments: str) -> None:
        storage = (f"--root={self._cache / 'storage'}", f"--runroot={self._cache / 'storage-run'}")
        registries = f"--registries-conf={self._cache / 'registries.conf'}"
        self._inside("buildah", *storage, "--storage-driver=overlay", registries, verb, *arguments)

    def _inside(self, *command: str) -> None:
        """Run a program of the packages."""
        script = f'mount -t overlay overlay -o lowerdir={self._usr}:/usr /usr && exec "$@"'
        run("unshare", "--mount", "--propagation=private", "bash", "-c", script, "--", *command)


def _suite() -> str:
    """The release of Debian that this machine runs, whose packages its apt has."""
    lines = dict(line.partition("=")[::2] for line in Path("/etc/os-release").read_text().splitlines())
    return lines.get("VERSION_CODENAME", "bookworm").strip('"')
