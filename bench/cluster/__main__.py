"""Command line of the benchmark: ``python -m bench.cluster``."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.cluster import load, published
from bench.cluster.errors import FAILURES
from bench.cluster.load import Arrival
from bench.cluster.plane import CreationPlane
from bench.cluster.report import STEADY, ClusterReport
from bench.cluster.rounds import ClusterBench, ClusterPlan
from bench.cluster.ways import BESIDE, KYVERNO, OURS, WAYS, Programs
from bench.options import at_least, writable
from bench.reviews import golang, host
from bench.reviews.errors import run
from hack.controlplane import build, bundles

_GO: Final = ("empty", "controllerruntime")
_BURST: Final = 32
_USERS: Final = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; the exit code is 1 where an object was not created as it should be, or nothing was."""
    options = _parser().parse_args(arguments)
    try:
        report = ClusterReport.read(options.combine) if options.combine else _measured(options)
        if options.json:
            report.write(options.json)
        if options.write:
            _say(f"written: {', '.join(published.write(report))}")
    except FAILURES as error:
        _say(f"bench.cluster: {error}")
        return 1
    print(report.markdown(), end="")
    return 1 if report.faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.cluster",
        description="Create launcher pods and VMs through a real API server: without a webhook, with kubevirt-webhook, "
        "and with what one would pick instead.",
        epilog="The first run builds Kyverno, which takes eight minutes. A run with --write writes the published "
        "tables; several make them together with --json FILE each, then --combine FILE… --write.",
    )
    parser.add_argument("--ways", metavar="NAME,…", type=_ways, help=f"only these of {', '.join(WAYS)}")
    parser.add_argument("--rounds", type=at_least(1), default=3, help="how often each of them is measured (3)")
    parser.add_argument("--rate", type=at_least(1), default=60, help="objects in a second at a steady rate (60)")
    parser.add_argument("--seconds", type=at_least(1), default=3, help="seconds of that, for each kind (3)")
    parser.add_argument(
        "--beside",
        metavar="CHECKOUT",
        type=_checkout,
        help="also another version of kubevirt-webhook, from its checkout, in its .venv",
    )
    parser.add_argument("--json", metavar="FILE", type=writable, help="write all samples to FILE")
    parser.add_argument(
        "--combine", metavar="FILE", type=Path, nargs="+", help="measure nothing, and report these runs together"
    )
    parser.add_argument(
        "--write", action="store_true", help=f"write the tables into {published.README} and {published.PAGE}"
    )
    return parser


def _ways(names: str) -> list[str]:
    keys = [name.strip() for name in names.split(",")]
    for key in keys:
        if key not in WAYS:
            raise argparse.ArgumentTypeError(f"there is no way {key!r}; known are {', '.join(WAYS)}")
    return list(dict.fromkeys(keys))


def _checkout(name: str) -> Path:
    path = Path(name).absolute()
    if not (path / ".venv" / "bin" / "python").is_file():
        raise argparse.ArgumentTypeError(f"{name} has no .venv: run make setup there")
    return path


def _version(checkout: Path) -> str:
    commit = run("asking for the commit", ["git", "-C", checkout, "rev-parse", "--short=8", "HEAD"]).strip()
    return f"commit {commit}, {run('asking for its Python', [checkout / '.venv' / 'bin' / 'python', '-V']).strip()}"


def _measured(options: argparse.Namespace) -> ClusterReport:
    keys = options.ways or [key for key in WAYS if key != BESIDE]
    if options.beside and BESIDE not in keys:
        keys.insert(keys.index(OURS) + 1 if OURS in keys else 0, BESIDE)
    arrivals = (
        Arrival("warm-up", "warm-up", 1.0, per_second=options.rate),
        Arrival(STEADY, f"{options.rate} a second", options.seconds, per_second=options.rate),
        Arrival("bursts", f"bursts of {_BURST}", 1.6, per_second=40, burst=_BURST),
        # The shape of Kyverno's published measurements, at the lowest of their loads.
        Arrival("users", f"{_USERS} users", 1.5, users=_USERS),
    )
    cache = host.cache_directory()
    built = golang.build(cache, _GO)
    binaries = build.ensure(os.environ)
    wants_kyverno = any(key in KYVERNO for key in keys)
    kyverno = build.ensure(os.environ, bundle=bundles.KYVERNO) if wants_kyverno else None
    programs = Programs(built.binaries, load.build(cache), kyverno, options.beside)
    ways = [WAYS[key] for key in keys if key != BESIDE or options.beside]
    elsewhere = Arrival(STEADY, f"{options.rate} a second", min(2, options.seconds), per_second=options.rate)
    plan = ClusterPlan(ways, options.rounds, arrivals[1:], elsewhere, arrivals[0])
    with tempfile.TemporaryDirectory() as name, CreationPlane(Path(name), binaries) as plane:
        versions = {
            "Machine": host.describe(),
            "Kubernetes": str(plane.admin.request("GET", "/version")["gitVersion"]).removeprefix("v"),
            **({"Kyverno": build.version_of(kyverno).removeprefix("v")} if kyverno else {}),
            **built.versions,
            "Python": platform.python_version(),
            **({"Another version": _version(options.beside)} if options.beside else {}),
        }
        samples = [*ClusterBench(plan, plane, programs, _say).measure()]
    return ClusterReport(arrivals, versions, samples)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
