"""`make interpreters`: the unit tests on every supported interpreter that this machine has, besides that of ``.venv``.

The image runs the newest one, Debian and RHEL have older ones: none of them may be the first to find out. To keep this
short, tests that draw random inputs, attack, or run control planes are left to ``make test``. `--quick` is for every
change: only the interpreter of the image, and only what depends on interpreters most: sockets, TLS, tasks, parsing, and
what of the standard library is imported, of which the image lacks parts.

`make bounds`: all unit tests with other versions of the dependencies than the locked ones. `--resolution lowest` takes
the lowest version of each that pyproject.toml promises, `newest` what an index has now. uv resolves them, since pip has
no strategy for the lowest.

Interpreters are found on PATH as ``python3.N``, and where pyenv keeps its own. Each has an environment below ``.venv``,
with this project and its programs installed, which ends with it. Standard library only.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements-dev.lock"
PROJECT = ROOT / "pyproject.toml"
ENVIRONMENTS = ROOT / ".venv" / "interpreters"
SELECTION = ("-m", "not e2e and not hypothesis and not kubevirt", "-n", "2", "--dist", "worksteal", "-q")
# Attacks and drawn inputs, tests of the tests, and tools for developers.
LEFT_OUT = ("attacks", "bench", "costs", "e2e", "fuzz", "hack", "mutants")
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
RESOLVE = ("--group=dev", "--group=build", "--group=release", "--extra=otel", "--generate-hashes", "--no-build")
# What `make unit` runs.
UNIT = ("-m", "not e2e and not page", *SELECTION[2:])
QUICK = tuple(f"tests/{name}" for name in ("certs", "k8s", "review", "server", "settings", "test_image_imports.py"))


def of_the_image() -> str:
    """The version of the interpreter that the image runs, such as 3.13."""
    found = re.search(r"^ARG BASE=python:(3\.\d+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return found[1] if found else ""


def supported() -> list[str]:
    """The supported versions, such as 3.11, as pyproject.toml lists them."""
    listed = re.findall(r"Programming Language :: Python :: (3\.\d+)", PROJECT.read_text())
    return sorted(listed, key=lambda version: int(version.partition(".")[2]))


def find(version: str, environ: Mapping[str, str]) -> Path | None:
    """An interpreter of a version, such as 3.13; None: this machine has none that runs."""
    pyenv = Path(environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    on_path = shutil.which(f"python{version}", path=environ.get("PATH"))
    candidates = [*([Path(on_path)] if on_path else []), *sorted(pyenv.glob(f"{version}.*/bin/python{version}"))]
    return next((each for each in candidates if _is(each, version)), None)


def _is(interpreter: Path, version: str) -> bool:
    """Whether an interpreter runs, is of a version, and makes virtual environments; pyenv's shims may do neither."""
    program = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([interpreter, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return False
    return done.stdout.strip() == version


class ResolutionError(Exception):
    """The versions cannot be resolved: a sentence for people."""


def resolve(resolution: str, directory: Path = ENVIRONMENTS) -> Path:
    """Write the versions of one of ``RESOLUTIONS`` into a file of requirements with hashes.

    Raises:
        ResolutionError: uv is missing, or finds no such versions.
    """
    uv = shutil.which("uv")
    if uv is None:
        raise ResolutionError("uv is missing; install it with `pipx install uv`")
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{resolution}.txt"
    strategy = f"--resolution={RESOLUTIONS[resolution]}"
    python = f"--python-version={sys.version_info.major}.{sys.version_info.minor}"
    command = [uv, "pip", "compile", "--quiet", "--upgrade", "--no-header", "--no-annotate", strategy, python, *RESOLVE]
    done = subprocess.run([*command, str(PROJECT), "-o", str(file)], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ResolutionError(f"uv cannot resolve the {resolution} versions: {done.stderr.strip()}")
    return file


def environment(
    interpreter: Path, version: str, directory: Path = ENVIRONMENTS, requirements: Path | None = None
) -> Path:
    """The Python of an environment with the required packages and this project, made where it is missing or old."""
    requirements = requirements or LOCK
    digest = hashlib.sha256(requirements.read_bytes() + PROJECT.read_bytes()).hexdigest()
    place = directory / version
    ready = place / ".ready"
    directory.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{version}.lock").open("w") as lock:
        # Dropped by the kernel when this process ends; another one may have made it meanwhile.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists() or ready.read_text() != digest:
            _make(interpreter, place, requirements)
            ready.write_text(digest)
    return place / "bin" / "python"


def _make(interpreter: Path, directory: Path, requirements: Path) -> None:
    _say(f"setting up {directory.name} (once)")
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run([interpreter, "-m", "venv", directory], check=True)
    pip = [str(directory / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, "--require-hashes", "-r", str(requirements)], check=True)
    # Its programs too, which tests start by their names.
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)], check=True)


def test(python: Path, paths: Sequence[str], selection: Sequence[str]) -> bool:
    """Whether the tests pass."""
    ignored = [f"--ignore={ROOT / 'tests' / name}" for name in LEFT_OUT] if selection == SELECTION else []
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *selection, *ignored, *paths]
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Test on each interpreter; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m hack.interpreters", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", help="tests to run (default: all that are selected)")
    parser.add_argument("--quick", action="store_true", help="only the image's interpreter, and the tests next to it")
    parser.add_argument("--resolution", choices=RESOLUTIONS, help="this interpreter, with these versions of packages")
    options = parser.parse_args(arguments)
    if options.resolution:
        return _test_resolution(options.resolution, options.paths)
    paths = options.paths or (QUICK if options.quick else ())
    own = "{}.{}".format(*sys.version_info[:2])
    failed = []
    for version in supported():
        interpreter = None if version == own else find(version, os.environ)
        if version == own:
            _say(f"Python {version}: tested by make test")
        elif options.quick and version != of_the_image():
            _say(f"Python {version}: skipped, since --quick tests only that of the image")
        elif interpreter is None:
            _say(f"Python {version}: skipped, since this machine does not have it")
        else:
            _say(f"Python {version}: {interpreter}")
            failed += [] if test(environment(interpreter, version), paths, SELECTION) else [version]
    if failed:
        _say(f"error: tests failed on Python {', '.join(failed)}")
    return 1 if failed else 0


def _test_resolution(resolution: str, paths: Sequence[str]) -> int:
    try:
        python = environment(Path(sys.executable), resolution, requirements=resolve(resolution))
    except ResolutionError as error:
        _say(f"error: {error}")
        return 2
    if test(python, paths, UNIT):
        return 0
    _say(f"error: tests failed with the {resolution} versions; correct the bounds in pyproject.toml, or the code")
    return 1


def _say(text: str) -> None:
    print(f"interpreters: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
