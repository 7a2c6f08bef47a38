"""The Go toolchain: builds the servers and the load client into the cache directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.reviews.errors import BenchError, MissingToolError, run

SOURCES: Final = Path(__file__).with_name("go")

# The report names the versions of these.
_MODULES: Final = ("sigs.k8s.io/controller-runtime", "k8s.io/api")

# Makes encoding/json decode faster; a toolchain that does not know it fails to build.
FASTER_JSON: Final = "jsonv2"
_FASTER: Final = ("partial", "peer")
PROGRAMS: Final = ("plain", "controllerruntime", "empty", "load", *_FASTER)


@dataclass(frozen=True, slots=True)
class BuiltServers:
    """What the toolchain made.

    Attributes:
        binaries: directory with a program for each package.
        faster_json: the programs ``partial`` and ``peer`` were built with the faster JSON decoder.
        versions: of Go and of the modules that matter here.
    """

    binaries: Path
    faster_json: bool
    versions: Mapping[str, str]


def build(cache: Path, programs: Sequence[str] = PROGRAMS) -> BuiltServers:
    """Build what has changed since the last time; Go knows.

    Args:
        cache: the directory for the programs.
        programs: some of `PROGRAMS`.

    Raises:
        MissingToolError: there is no Go.
        BenchError: the build failed.
    """
    go = shutil.which("go")
    if go is None:
        raise MissingToolError(
            "the benchmark builds its Go servers itself and `go` is not on PATH: install Go 1.26 or newer"
        )
    plain = os.environ | {"GOWORK": "off", "CGO_ENABLED": "0"}
    faster = plain | {"GOEXPERIMENT": FASTER_JSON}
    try:
        run("asking Go for an experiment", [go, "env", "GOEXPERIMENT"], cwd=SOURCES, environment=faster)
        known = True
    except BenchError:
        known = False
    binaries = cache / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    # The repository's state says nothing about these programs, and reading it can fail.
    command = [go, "build", "-trimpath", "-buildvcs=false", "-o", f"{binaries}{os.sep}"]
    for environment in (plain, faster):
        packages = [f"./{name}" for name in programs if (name in _FASTER) == (environment is faster)]
        if packages:
            used = environment if known else plain
            run(f"building {' '.join(packages)}", [*command, *packages], cwd=SOURCES, environment=used)
    return BuiltServers(binaries, known, _versions(go, plain))


def _versions(go: str, environment: Mapping[str, str]) -> dict[str, str]:
    found = {"Go": run("asking for Go's version", [go, "env", "GOVERSION"], cwd=SOURCES, environment=environment)}
    listing = run(
        "asking for module versions",
        [go, "list", "-m", "-f", "{{.Path}} {{.Version}}", *_MODULES],
        cwd=SOURCES,
        environment=environment,
    )
    for line in listing.splitlines():
        path, _, version = line.partition(" ")
        found[path.removeprefix("sigs.k8s.io/")] = version
    return {name: version.strip().removeprefix("go") for name, version in found.items()}
