"""Whether this machine can run a node, and what it lacks, in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = {
    "unshare": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "bash": "bash",
    "apt-get": "apt, on Debian or a relative of it",
    "dpkg": "dpkg",
    "perl": "perl, for mmdebstrap",
}
MEMORY_BYTES = 3 * 1024**3
NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
# What containers of this machine, even with root in them, are often not allowed.
PROBES = (
    (("unshare", *NAMESPACES, "true"), "namespaces"),
    (("unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", "lowerdir=/usr:/etc", "/mnt"), "overlay mounts"),
    (("unshare", "--net", "ip", "link", "add", "name", "one", "type", "veth", "peer", "name", "two"), "virtual links"),
)


def missing() -> str:
    """What this machine lacks to run a node; empty: nothing."""
    if not sys.platform.startswith("linux"):
        return "skipped: a node needs Linux, and this is not"
    if os.geteuid() != 0:
        return "skipped: a node needs root, for namespaces, mounts and cgroups; run it as root"
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"skipped: {program} is missing; install {package}"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "skipped: the kernel has no overlay file system, which containers need"
    if not any(Path("/sys/fs/cgroup").iterdir()):
        return "skipped: no cgroups are mounted under /sys/fs/cgroup"
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if available < MEMORY_BYTES:
        return "skipped: a node needs 3 GiB of memory"
    for command, what in PROBES:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            why = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
            return f"skipped: this machine does not let root make {what} ({why})"
    return ""
