"""Whether this machine can run guests, and what it lacks, in one line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from hack.node.requirements import missing as missing_of_a_node

FREE_BYTES = 15 * 1024**3
# KubeVirt and a dozen small guests take as much, the control plane and two nodes with it.
MEMORY_BYTES = 8 * 1024**3
AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)


def missing(cache: Path, memory: Path = Path("/proc/meminfo")) -> str:
    """What this machine lacks to run guests; empty: nothing.

    Args:
        cache: where the parts are kept.
        memory: the kernel's own account of it.
    """
    if reason := missing_of_a_node():
        return reason
    cache.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(cache).free < FREE_BYTES:
        return f"skipped: guests need {FREE_BYTES // 1024**3} GiB of free disk"
    found = AVAILABLE.search(memory.read_text())
    if found and int(found[1]) * 1024 < MEMORY_BYTES:
        return f"skipped: guests need {MEMORY_BYTES // 1024**3} GiB of memory that nothing else uses"
    return ""
