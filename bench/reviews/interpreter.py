"""The Python that the Python servers run on: the fastest build of this machine, in a virtual environment of its own.

A build without profile-guided optimization runs the same code a third slower, which would say something about
its builder only. Its configuration does not show it: Debian optimizes its packages without the option
``--enable-optimizations`` in ``CONFIG_ARGS``. So a short loop does.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.reviews.errors import BenchError, MissingToolError, run

# Older first: of equally fast ones, the first is taken, so that runs compare across machines.
_NAMES: Final = ("python3.11", "python3.12", "python3.13", "python3.14", "python3")

_DESCRIBE: Final = """
import json, os, ssl, sys, venv
print(json.dumps({
    "executable": os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
    "version": sys.version.split()[0],
    "usable": sys.version_info >= (3, 11) and sys.implementation.name == "cpython",
}))
"""

# What interpreters spend their time on: small integers, dictionaries, calls.
_LOOP: Final = """
import time
def step(seen, total, i):
    seen[i & 15] = total
    return total + (i & 7)
def loop():
    seen, total = {}, 0
    for i in range(100_000):
        total = step(seen, total, i)
def timed():
    start = time.process_time()
    loop()
    return time.process_time() - start
print(min(timed() for _ in range(5)))
"""
# Builds that are this much slower than the fastest count as equally fast.
_TOLERANCE: Final = 1.1

# The report names the versions of these.
_LIBRARIES: Final = ("aiohttp", "uvloop", "msgspec", "pydantic", "jsonpatch")
_VERSIONS: Final = f"""
import importlib.metadata, json, ssl
found = {{name: importlib.metadata.version(name) for name in {_LIBRARIES!r}}}
print(json.dumps(found | {{"OpenSSL": ssl.OPENSSL_VERSION.split()[1]}}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python of this machine.

    Attributes:
        executable: outside of any virtual environment.
        loop: CPU seconds of a loop that compares builds.
    """

    executable: Path
    version: str
    loop: float

    @property
    def minor(self) -> tuple[int, ...]:
        """Its version up to the second number."""
        return tuple(int(part) for part in self.version.split(".")[:2])

    def __str__(self) -> str:
        return f"{self.executable} {self.version}, {self.loop * 1000:.1f} ms for the comparison loop"


def choose(wanted: str | None) -> tuple[Interpreter, list[Interpreter]]:
    """The interpreter to run on, and all those that it was compared with.

    Args:
        wanted: use this one, whatever its speed.

    Raises:
        MissingToolError: there is no Python 3.11 or newer that can make virtual environments.
    """
    found = _candidates([wanted] if wanted else _search())
    if not found:
        raise MissingToolError(
            f"{wanted} is not a CPython 3.11 or newer with ssl and venv"
            if wanted
            else "no CPython 3.11 or newer with ssl and venv is on PATH"
        )
    fastest = min(candidate.loop for candidate in found)
    chosen = next(candidate for candidate in found if candidate.loop <= fastest * _TOLERANCE)
    return chosen, found


def newest(found: Iterable[Interpreter], chosen: Interpreter) -> Interpreter | None:
    """The newest of a later minor version than the chosen one; None: there is none."""
    newer = [each for each in found if each.minor > chosen.minor]
    return max(newer, key=lambda each: (each.minor, -each.loop), default=None)


def _search() -> Iterator[str]:
    """All places where an interpreter may be: the distribution's first, PATH, the one that runs this, pyenv's own."""
    directories = ["/usr/bin", *os.environ.get("PATH", "").split(os.pathsep)]
    for name in _NAMES:
        for directory in directories:
            path = Path(directory, name)
            if os.access(path, os.X_OK):
                yield str(path)
    yield sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    yield from (str(path) for name in _NAMES for path in sorted(pyenv.glob(f"*/bin/{name}")))


def _candidates(paths: Iterable[str]) -> list[Interpreter]:
    """Each usable interpreter once, with its speed: the best of three interleaved tries."""
    described: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        answer = _ask(path, _DESCRIBE)
        about = json.loads(answer) if answer else {}
        if about.get("usable"):
            described.setdefault(about["executable"], about["version"])
    loops: dict[str, list[float]] = {path: [] for path in described}
    for _ in range(3):
        for path, times in loops.items():
            answer = _ask(path, _LOOP)
            if answer:
                times.append(float(answer))
    return [Interpreter(Path(path), version, min(loops[path])) for path, version in described.items() if loops[path]]


def _ask(path: str, code: str) -> str:
    """What an interpreter prints; nothing if it is none (a launcher script without a version, for one)."""
    try:
        # Not run(): a candidate that fails is no failure of the benchmark.
        done = subprocess.run([path, "-I", "-c", code], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout


def environment(interpreter: Interpreter, lock: Path, cache: Path) -> Path:
    """The Python of a virtual environment with what ``lock`` lists, made on first use.

    Raises:
        BenchError: it can't be made.
    """
    if not lock.is_file():
        raise BenchError(f"{lock.name} is missing, so what the Python servers need is not known")
    identity = f"{interpreter.executable}\n{interpreter.version}\n".encode() + lock.read_bytes()
    home = cache / f"venv-{interpreter.version}-{hashlib.sha256(identity).hexdigest()[:12]}"
    python = home / "bin" / "python"
    complete = home / "complete"
    with _locked(cache / "venv.lock"):
        if not complete.exists():
            shutil.rmtree(home, ignore_errors=True)
            # Without pip: Debian's interpreter has none to put in.
            run("making a virtual environment", [interpreter.executable, "-m", "venv", "--without-pip", home])
            run("installing requirements.lock", [*_installer(python), "--require-hashes", "-r", lock])
            complete.touch()
    return python


def versions(python: Path) -> dict[str, str]:
    """The versions of the libraries that matter here."""
    found: dict[str, str] = json.loads(run("asking for library versions", [python, "-I", "-c", _VERSIONS]))
    return found


def _installer(python: Path) -> list[str | Path]:
    """A command that installs into the environment of ``python``."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", python]
    raise BenchError("installing requirements.lock needs pip in the Python that runs this, or uv on PATH")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time: two runs must not make the same environment at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
