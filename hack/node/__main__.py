"""`make node`: prepares what a node needs, and runs it, or a command beside it, in namespaces of its own.

Nothing is installed on the machine: Debian packages are unpacked into the cache, and lie over ``/usr`` only inside. The
end of the first process in the namespaces ends all others; what is left then are directories, which are removed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hack.controlplane import build, bundles
from hack.node import image, packages
from hack.node.requirements import NAMESPACES, missing

ROOT = Path(__file__).resolve().parents[2]
# What tests run beside the program.
NEIGHBOURS = (bundles.HELM, bundles.CERT_MANAGER, bundles.METRICS_SERVER)
CGROUPS = Path("/sys/fs/cgroup")
REMOVALS = 50


def main(arguments: Sequence[str] | None = None, neighbours: Sequence[bundles.Bundle] = NEIGHBOURS) -> int:
    """Run the node; returns the exit status of the command, or 69 where this machine cannot run one.

    Args:
        arguments: the command line; None: the program's own.
        neighbours: what is built for the command.
    """
    parser = argparse.ArgumentParser(prog="python -m hack.node", description="Run a node, or a command beside it.")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="command to run (default: wait for Ctrl-C)")
    command = parser.parse_args(arguments).command
    if reason := missing():
        print(f"node: {reason}", file=sys.stderr)
        return build.EX_UNAVAILABLE
    cache = build.cache_root(os.environ) / "node-parts"
    cache.mkdir(parents=True, exist_ok=True)
    try:
        binaries = build.ensure(os.environ)
        node = build.ensure(os.environ, bundle=bundles.NODE)
        for neighbour in neighbours if command else ():
            build.ensure(os.environ, bundle=neighbour)
        # Builds of images share a storage.
        with build.locked(cache / "lock"):
            usr = packages.ensure(cache)
            images = image.ensure(cache, usr)
    except (build.UnavailableError, bundles.BuildError, packages.PreparationError) as error:
        print(f"node: {error}", file=sys.stderr)
        # Everything else is the machine's: packages, interpreters and modules that it does not have.
        return 1 if isinstance(error, image.ImageError) else build.EX_UNAVAILABLE
    parts = {"NODE_BINARIES": binaries, "NODE_KUBELET": node, "NODE_USR": usr, "NODE_IMAGES": images}
    return enter("hack.node.inside", parts, command)


def enter(module: str, parts: Mapping[str, Path], command: Sequence[str]) -> int:
    """Run a module in namespaces of its own; returns its exit status.

    Args:
        module: starts the cluster.
        parts: environment variables that say where its parts are.
        command: what the module runs beside the cluster; empty: nothing.
    """
    with directory() as place:
        own = {"NODE_DIRECTORY": place, **parts, "PYTHONPATH": ROOT}
        environ = {**os.environ, **{name: str(value) for name, value in own.items()}}
        # The first process of a PID namespace takes in orphans: a shell reaps them.
        inside = ["bash", "-c", '"$@"; exit $?', "--", sys.executable, "-m", module, *command]
        try:
            return subprocess.run(["unshare", *NAMESPACES, *inside], env=environ, cwd=ROOT, check=False).returncode
        except KeyboardInterrupt:
            return 130


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A directory for all that a node writes; removed at the end, with its cgroups, whose root has the same name."""
    with tempfile.TemporaryDirectory(prefix="kubevirt-webhook-node-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        try:
            yield place
        finally:
            # After an interruption the last processes may still be ending, and a cgroup with a process stays.
            for _ in range(REMOVALS):
                remove_cgroups(place.name)
                if not cgroups(place.name):
                    break
                time.sleep(0.2)


def cgroups(name: str, root: Path = CGROUPS) -> list[Path]:
    """The cgroups of a node, the outermost of each hierarchy."""
    return [top for top in (root / name, *root.glob(f"*/{name}")) if top.is_dir()]


def remove_cgroups(name: str, root: Path = CGROUPS) -> None:
    """Remove the cgroups of a node from every hierarchy, the innermost first; whose processes have ended."""
    for top in cgroups(name, root):
        for each in [Path(each) for each, _, _ in os.walk(top, topdown=False)]:
            with contextlib.suppress(OSError):
                each.rmdir()


if __name__ == "__main__":
    sys.exit(main())
