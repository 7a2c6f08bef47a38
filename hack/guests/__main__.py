"""`make guests-lab`, and `make guests` with a command: prepares KubeVirt's nodes and runs them, in namespaces."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hack.controlplane import build, bundles
from hack.guests.parts import Parts
from hack.guests.requirements import missing
from hack.node import image, packages
from hack.node.__main__ import enter

# What tests run beside guests.
NEIGHBOURS = (bundles.DESCHEDULER,)


def main(arguments: Sequence[str] | None = None, neighbours: Sequence[bundles.Bundle] = NEIGHBOURS) -> int:
    """Run KubeVirt; returns the exit status of the command, or 69 where this machine cannot run it.

    Args:
        arguments: the command line; None: the program's own.
        neighbours: what is built for the command.
    """
    parser = argparse.ArgumentParser(prog="python -m hack.guests", description="Run guests, or a command beside them.")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="command to run (default: wait for Ctrl-C)")
    command = parser.parse_args(arguments).command
    if reason := missing(build.cache_root(os.environ)):
        print(f"guests: {reason}", file=sys.stderr)
        return build.EX_UNAVAILABLE
    try:
        parts = prepare(neighbours if command else ())
    except (build.UnavailableError, bundles.BuildError, packages.PreparationError) as error:
        print(f"guests: {error}", file=sys.stderr)
        return 1 if isinstance(error, image.ImageError) else build.EX_UNAVAILABLE
    return enter("hack.guests.inside", parts, command)


def prepare(neighbours: Sequence[bundles.Bundle] = ()) -> dict[str, Path]:
    """Build what is missing; returns the parts by the environment variables that name them inside.

    Args:
        neighbours: what is built besides.

    Raises:
        BuildError: Go could not build KubeVirt or Kubernetes.
        PreparationError: packages or an interpreter are not to be had.
        UnavailableError: there is no Go.
    """
    binaries = build.ensure(os.environ)
    node = build.ensure(os.environ, bundle=bundles.NODE)
    for neighbour in neighbours:
        build.ensure(os.environ, bundle=neighbour)
    shared = build.cache_root(os.environ) / "node-parts"
    own = build.cache_root(os.environ) / "guests-parts"
    for place in (shared, own):
        place.mkdir(parents=True, exist_ok=True)
    with build.locked(shared / "lock"):
        usr = packages.ensure(shared)
        images = image.ensure(shared, usr)
    with build.locked(own / "lock"):
        parts = Parts(os.environ, own, usr, binaries)
        made = parts.images()
    return {
        "NODE_BINARIES": binaries,
        "NODE_KUBELET": node,
        "NODE_USR": usr,
        "NODE_IMAGES": images,
        "GUESTS_IMAGES": made,
        "GUESTS_BINARIES": parts.binaries,
    }


if __name__ == "__main__":
    sys.exit(main())
