"""Command line: ``python -m bench.churn``.

Exit status 1 if a promise was broken or the run failed.
"""

from __future__ import annotations

import argparse
import http.client
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from bench.churn import samples
from bench.churn.cluster import FLAGS, ChurnInstallation, ChurnReplica, Size, Workloads, wait_called
from bench.churn.plot import plot
from bench.churn.samples import ChurnOutcome, Sample
from bench.churn.traffic import Churn, Rates, Recorder
from bench.options import at_least, writable
from hack.controlplane import build
from tests.e2e.support.kube import KubeError
from tests.e2e.support.objects import kubevirt_crds
from tests.e2e.support.plane import ControlPlane
from tests.e2e.support.processes import StartError

# By then the caches of a replica are full, and with the CAs of the first three rotations so are the caBundles.
_WARM_UP: Final = 2400
_FAILURES: Final = (build.UnavailableError, StartError, KubeError, OSError, AssertionError, http.client.HTTPException)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, or draw a run again; then say what was kept."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        outcome = ChurnOutcome.load(options.draw) if options.draw else _run(options)
    except _FAILURES as error:
        print(f"bench.churn: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if options.svg:
        options.svg.write_text(plot(outcome))
    print(f"{outcome.began}, {outcome.machine}")
    print(*outcome.lines(), sep="\n")
    return int(not all(verdict.kept for verdict in outcome.verdicts()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.churn",
        description="Let a large cluster change for an hour, and look at what a replica holds.",
    )
    parser.add_argument("--seconds", type=at_least(5), default=3600, help="of churn that counts (3600)")
    parser.add_argument("--warm-up", type=at_least(0), help=f"seconds before it ({_WARM_UP}; less before a short run)")
    parser.add_argument("--nodes", type=at_least(10), default=5000, help="in the cluster (5000)")
    parser.add_argument("--vms", type=at_least(10), default=2000, help="that run in it (2000)")
    parser.add_argument("--steps", type=float, default=6.0, help="of owners and KubeVirt in a second (6)")
    parser.add_argument(
        "--heartbeats", type=float, default=16.0, help="of kubelets in a second (16, each node in five minutes)"
    )
    parser.add_argument("--settings", type=at_least(1), default=420, help="seconds between two changes of them (420)")
    parser.add_argument("--rotations", type=at_least(1), default=600, help="seconds between two of the CA (600)")
    parser.add_argument("--every", type=at_least(1), default=5, help="seconds between two looks (5)")
    parser.add_argument("--json", type=writable, metavar="FILE", help="write all samples")
    parser.add_argument("--svg", type=writable, metavar="FILE", help="draw the picture")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="run nothing; take the samples of this file")
    return parser


def _run(options: argparse.Namespace) -> ChurnOutcome:
    size = Size(options.nodes, options.vms)
    rates = Rates(options.steps, options.heartbeats, options.settings, options.rotations)
    warm_up = min(_WARM_UP, options.seconds * 2 / 3) if options.warm_up is None else options.warm_up
    plan = {name: getattr(options, name) for name in ("nodes", "vms", "steps", "heartbeats", "seconds")}
    recorder = Recorder()
    with tempfile.TemporaryDirectory(prefix="churn-") as name:
        directory = Path(name)
        plane = ControlPlane(
            directory / "plane", build.ensure(os.environ), definitions=kubevirt_crds(), apiserver_flags=FLAGS
        )
        with plane, ChurnInstallation(plane, directory) as installation:
            workloads = Workloads(plane, size, recorder.answered)
            workloads.prepare(_say)
            replica = installation.begin()
            wait_called(workloads)
            machines = workloads.populate(_say)
            recorder.take()
            outcome = ChurnOutcome(time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), _machine(), plan, warm_up)
            before = samples.counters(replica.ops("/metrics")[1])
            with Churn(workloads, machines, installation, replica, recorder, rates) as churn:
                _look_on(outcome, options, plane, replica, recorder, churn)
            after = samples.counters(replica.ops("/metrics")[1])
            outcome.replica = {name: after[name] - before.get(name, 0.0) for name in sorted(after)}
            replica.terminate()
            assert replica.wait_ended() == 0, f"the replica did not end by itself: {replica.log}"
            outcome.errors = [line["event"] for line in replica.logged() if line["level"] in ("error", "critical")]
    if options.json:
        outcome.save(options.json)
    return outcome


def _look_on(
    outcome: ChurnOutcome,
    options: argparse.Namespace,
    plane: ControlPlane,
    replica: ChurnReplica,
    recorder: Recorder,
    churn: Churn,
) -> None:
    """Take samples until the time is over."""
    servers = (plane._apiserver, plane._etcd)  # noqa: SLF001 - it has no other users
    seconds = outcome.warm_up + outcome.plan["seconds"]
    begun, parts = time.monotonic(), [replica.pid, *(server.pid for server in servers), os.getpid()]
    while (at := time.monotonic() - begun) < seconds:
        time.sleep(min(options.every, max(0.0, seconds - at)))
        if churn.failure:
            raise churn.failure
        assert replica.running, f"the replica has ended: {replica.log.read_text()[-2000:]}"
        metrics, record = replica.ops("/metrics")[1], recorder.take()
        resident, anonymous = samples.process_memory(replica.pid)
        outcome.samples.append(
            Sample(
                at=time.monotonic() - begun,
                resident=resident,
                anonymous=anonymous,
                descriptors=samples.process_descriptors(replica.pid),
                tasks=samples.tasks(metrics),
                staleness=max(samples.staleness(metrics).values()),
                cpu=samples.process_cpu([replica.pid]),
                all_cpu=samples.process_cpu(parts),
                load=os.getloadavg()[0],
                seconds=record.seconds,
            )
        )
        outcome.counts += record.counts
        outcome.marks += [(when - begun, what) for when, what in record.marks]
        if options.json:
            outcome.save(options.json)


def _machine() -> str:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores shared by all of it, {platform.system()}, {python}"


def _say(text: str) -> None:
    print(f"bench.churn: {text}", file=sys.stderr, flush=True)


def _terminated(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
