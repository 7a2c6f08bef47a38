"""Command line of the benchmark: ``python -m bench.reviews``."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Final, NoReturn

from bench.options import writable
from bench.reviews import golang, host, interpreter, published
from bench.reviews.errors import BenchError, run
from bench.reviews.load import Pressure
from bench.reviews.payloads import NAMES
from bench.reviews.report import ReviewsReport
from bench.reviews.rounds import Bench, ReviewsPlan
from bench.reviews.servers import BESIDE, NEWER, PEER, ROOT, TITLES, Pythons

# Neighbors of a virtual machine slow one round down and not the next; of five there is a median that they seldom reach.
_FULL = (5, Pressure(seconds=1.2, warmup=0.3))
_QUICK = (1, Pressure(seconds=0.5, warmup=0.2))
_ALL: Final = [key for key in TITLES if key != BESIDE]


def main() -> int:
    """Measure and report; the exit code is 2 where the machine lacks something, 1 where a server failed."""
    options = _parser().parse_args()
    # As Ctrl-C does, so that no server outlives the benchmark.
    signal.signal(signal.SIGTERM, _terminated)
    try:
        report = _measured(options)
        if options.json:
            report.write_json(options.json)
        if not (options.quick or options.no_write or options.servers != _ALL):
            _say(f"written: {', '.join(published.write(report))}")
    except BenchError as error:
        print(f"bench.reviews: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"bench.reviews: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench.reviews: interrupted, nothing to report", file=sys.stderr)
        return 130
    if options.markdown:
        print(report.markdown(), end="")
    else:
        report.print()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.reviews",
        description="Compare what one admission review costs on kubevirt-webhook and on the usual webhooks.",
        epilog="A whole run writes its figures into docs/performance.md. The first run builds the Go "
        "servers and virtual environments, which takes a few minutes more.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round: shows that all works, not how fast it is"
    )
    parser.add_argument(
        "--servers", metavar="NAME,…", type=_servers, default=_ALL, help=f"only these of {', '.join(_ALL)}"
    )
    parser.add_argument(
        "--beside",
        metavar="CHECKOUT",
        type=_checkout,
        help="also another version of kubevirt-webhook, from its checkout",
    )
    parser.add_argument("--python", metavar="PROGRAM", help="interpreter for the Python servers (default: the fastest)")
    parser.add_argument("--markdown", action="store_true", help="print Markdown instead of a table")
    parser.add_argument("--no-write", action="store_true", help="leave the tables of docs/performance.md as they are")
    parser.add_argument("--json", metavar="FILE", type=writable, help="also write all figures to FILE")
    return parser


def _servers(names: str) -> list[str]:
    keys = [name.strip() for name in names.split(",")]
    for key in keys:
        if key not in _ALL:
            raise argparse.ArgumentTypeError(f"there is no server {key!r}; known are {', '.join(_ALL)}")
    return list(dict.fromkeys(keys))


def _checkout(name: str) -> Path:
    checkout = Path(name).resolve()
    if not (checkout / "requirements.lock").is_file():
        raise argparse.ArgumentTypeError(f"{name} is not a checkout of kubevirt-webhook: it has no requirements.lock")
    return checkout


def _measured(options: argparse.Namespace) -> ReviewsReport:
    cores = host.cores()
    cache = host.cache_directory()
    built = golang.build(cache, [each for each in golang.PROGRAMS if each in (*options.servers, "load")])
    python, compared = interpreter.choose(options.python)
    _say(f"Python servers run on {python}")
    newer = interpreter.newest(compared, python) if NEWER in options.servers else None
    lock = ROOT / "requirements.lock"
    beside: Path | None = options.beside
    pythons = Pythons(
        interpreter.environment(python, lock, cache),
        interpreter.environment(newer, lock, cache) if newer else None,
        interpreter.environment(python, beside / lock.name, cache) if beside else None,
        beside,
    )
    rounds, pressure = _QUICK if options.quick else _FULL
    keys = [key for key in options.servers if key != NEWER or newer]
    plan = ReviewsPlan([*keys, BESIDE] if beside else keys, rounds, pressure)
    _say(f"about {plan.seconds:.0f} s; {cores}")
    outcome = Bench(plan, pythons, built, cores).measure(_say)
    libraries = interpreter.versions(pythons.chosen)
    slower = [f"{other.version} {other.loop / python.loop:.2f}x" for other in compared if other is not python]
    machine = {
        "Machine": host.describe(),
        "Cores": f"{cores}; one core for each server (GOMAXPROCS=1), whatever more it could use",
        "Python": f"{python.version}, the fastest build here"
        + (f" (time of the same loop elsewhere: {', '.join(slower)})" if slower else "")
        + ", with "
        + ", ".join(f"{name} {version}" for name, version in libraries.items()),
        **({"Another version": f"commit {_commit(beside)}"} if beside else {}),
        **({"Newer Python": f"{newer.version}, whose build may not be optimized"} if newer else {}),
        "Go": ", ".join(f"{name} {version}".removeprefix("Go ") for name, version in built.versions.items())
        + (f"; needed fields only and same job: GOEXPERIMENT={golang.FASTER_JSON}" if built.faster_json else ""),
        "Method": f"median of interleaved rounds ({rounds} of {pressure.seconds:g} s each); TLS 1.3 with a P-256 key, "
        f"HTTP/1.1 keep-alive; pods of {NAMES:,} VMs by turns; kubevirt-webhook and {TITLES[PEER]!r} hold all of these "
        "VMs, and do lookups, metrics and an audit line for each review, the others do not",
    }
    return ReviewsReport(plan, outcome, machine)


def _commit(checkout: Path) -> str:
    return run("asking for the commit", ["git", "-C", checkout, "rev-parse", "--short=8", "HEAD"]).strip()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _terminated(*_: object) -> NoReturn:
    raise SystemExit(143)


if __name__ == "__main__":
    sys.exit(main())
