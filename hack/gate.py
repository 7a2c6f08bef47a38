"""A part of `.ci/run` that only some machines can run: where they have its parts, and once for the same sources.

A machine that turns out to be unable to is no failure of a change: whatever is skipped is said in one line.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.controlplane import build, bundles

ROOT: Final = Path(__file__).resolve().parents[1]
SKIPPED: Final = "skipped: "

Environ = Mapping[str, str]


@dataclass(frozen=True)
class Gate:
    """What is run, and what decides whether it is.

    Attributes:
        name: begins the line that says why it is skipped.
        subject: what the machine must be able to start.
        parts: what has to be built, such as ``the parts of a node``.
        target: the target of the Makefile that builds them.
        bundles: the programs among the parts.
        sources: what the tests are about, and hardly any other test; files and directories.
        tests: what is run.
        directory: where the other parts are, in the cache.
        image: the place of an image that is built from them, by the environment and the directory.
        missing: what the machine lacks, by the environment; empty: nothing.
        run: runs a command beside the subject, and returns its exit status.
    """

    name: str
    subject: str
    parts: str
    target: str
    bundles: Sequence[bundles.Bundle]
    sources: Sequence[str]
    tests: Sequence[str]
    directory: str
    image: Callable[[Environ, Path], Path]
    missing: Callable[[Environ], str]
    run: Callable[[Sequence[str]], int]

    def reason_to_skip(self, environ: Environ, digest: str) -> str:
        """Why the tests are not run, for people; empty: they are. The digest is that of the sources."""
        if reason := self.missing(environ):
            return reason
        built = [build.location(environ, bundle=bundle).is_dir() for bundle in self.bundles]
        if not all(built) or not self.image(environ, self.place(environ)).exists():
            return f"{SKIPPED}{self.parts} are not built on this machine; {self.target} builds them"
        if self.mark(environ).exists() and self.mark(environ).read_text() == digest:
            return f"{SKIPPED}it has passed here with the same sources"
        return ""

    def place(self, environ: Environ) -> Path:
        """Where the parts are."""
        return build.cache_root(environ) / self.directory

    def mark(self, environ: Environ) -> Path:
        """The file with the digest of the sources that passed last."""
        return self.place(environ) / "passed"

    def main(self) -> int:
        """Run the tests, or say why not; returns the exit status, which is 0 also where they are skipped."""
        digest = sources_digest(self.sources)
        reason = self.reason_to_skip(os.environ, digest)
        if not reason:
            status = self.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *self.tests])
            if status == 0:
                self.mark(os.environ).write_text(digest)
            if status != build.EX_UNAVAILABLE:
                return status
            reason = f"{SKIPPED}this machine could not start {self.subject}; the line above says why"
        print(f"{self.name}: {reason}")
        return 0


def sources_digest(sources: Sequence[str], root: Path = ROOT) -> str:
    """The digest of names and contents of the files that git lists, those that are not committed yet among them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *sources]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    found = hashlib.sha256()
    for name in sorted(filter(None, listed.split("\0"))):
        if (root / name).is_file():
            found.update(f"{name}\0{hashlib.sha256((root / name).read_bytes()).hexdigest()}\0".encode())
    return found.hexdigest()
