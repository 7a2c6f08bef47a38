"""The machine: its cores, who runs on which, and what it is called in the report."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.reviews.errors import MissingToolError


@dataclass(frozen=True, slots=True)
class Cores:
    """Where servers and load run; None: this machine has one core for both.

    Attributes:
        siblings: the two are threads of one physical core, so load slows the server down.
    """

    server: int | None
    load: int | None
    siblings: bool = False

    def __str__(self) -> str:
        if self.server is None:
            return "servers and load share the only core, so no figure is worth quoting"
        shared = ", two threads of one physical core" if self.siblings else ""
        return f"servers on core {self.server}, load on core {self.load}{shared}"


def cores() -> Cores:
    """Two cores that this process may use, on different physical cores if there are such.

    Raises:
        MissingToolError: not Linux, whose process clocks and affinity the figures are made with.
    """
    if not sys.platform.startswith("linux"):
        raise MissingToolError(f"the benchmark needs Linux to pin and measure processes, this is {platform.system()}")
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        return Cores(None, None)
    server, *others = usable
    same = _siblings(server)
    apart = [core for core in others if core not in same]
    return Cores(server, (apart or others)[0], siblings=not apart)


def _siblings(core: int) -> set[int]:
    """The CPUs that share a physical core with ``core``, itself among them."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
    except OSError:  # Some sandboxes have no topology; then nothing is known to be shared.
        return {core}
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Children started inside run on ``core`` only.

    The parent moves there itself and back: what is pinned after its start has threads already that are not.
    """
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_model() -> str:
    """The processor's name, or its architecture where the kernel does not report it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def describe() -> str:
    """The machine in one line."""
    return f"{cpu_model()}, {os.cpu_count()} cores, Linux {platform.release()}"


def cache_directory() -> Path:
    """Where built servers and the virtual environment are kept between runs."""
    own = os.environ.get("KUBEVIRT_WEBHOOK_CACHE")
    if own:
        return Path(own).absolute() / "bench"
    shared = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(shared).absolute() / "kubevirt-webhook" / "bench"
