"""One run: a cluster, its traffic, its faults, and then the check of what happened."""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.support.kube import eventually
from tests.e2e.support.workloads import VMS, vm

from .checker import EXPLAINED, Report, check, gaps
from .cluster import Cluster
from .faults import KINDS, Faults
from .history import History, Run
from .minimize import minimize
from .model import RECOVERY_SECONDS
from .mutations import MUTATIONS
from .record import audit_events, moments, requests_of
from .traffic import FIRST_SETTINGS, TENANTS, Shape, Traffic, prepare

# Between the beginnings of two faults, at most.
QUIET_SECONDS = 20.0
# At the end, so that what fails without a cause is seen: faults excuse it for `RECOVERY_SECONDS`.
CALM_SECONDS = RECOVERY_SECONDS + 20.0
# A run that is shorter is for a look, and a mutation shows while things break: none of these ends calmly.
SHORT_SECONDS = 120.0


# Beyond the age that a store may have: between two lists of the namespace that is there for them.
STEADY_SECONDS = 15.0


@dataclass(frozen=True)
class Plan:
    """What a run is made of.

    Attributes:
        seconds: in which things break.
        current_seconds: the age up to which replicas let a store decide; None: as they are shipped.
        faults: that come first; afterwards any, at random.
        only: no others than these.
        kubevirt: a real KubeVirt's controllers run, and clients do what users do.
        pause: of each client between two requests, on average.
    """

    seed: int
    seconds: float
    replicas: int = 2
    clients: int = 4
    pause: float = 0.15
    mutation: str = ""
    current_seconds: float | None = None
    faults: tuple[str, ...] = ()
    only: bool = False
    kubevirt: bool = False

    def command(self) -> str:
        given = [f"--seed={self.seed}", f"--seconds={self.seconds:.0f}", f"--replicas={self.replicas}"]
        given += [f"--clients={self.clients}", *([f"--mutation={self.mutation}"] if self.mutation else [])]
        given += [f"--current-seconds={self.current_seconds:.0f}"] if self.current_seconds else []
        given += [f"--fault={fault}" for fault in self.faults] + (["--only"] if self.only else [])
        given += ["--kubevirt"] if self.kubevirt else []
        return shlex.join([".venv/bin/python", "-m", "tests.robustness", *given])


def record(plan: Plan, directory: Path, binaries: Path, kubevirt: Path | None = None) -> History:
    """Runs it, and returns what happened; the history lies in the directory too.

    Args:
        kubevirt: the directory of a real KubeVirt's binaries; only a plan with a real one needs it.
    """
    from webhook.k8s.client.reflector import CURRENT_SECONDS

    directory.mkdir(parents=True, exist_ok=True)
    current = plan.current_seconds or CURRENT_SECONDS
    wanted = plan.faults or (MUTATIONS[plan.mutation].faults if plan.mutation else ())
    with ExitStack() as ends:
        # Of the replicas, whenever they are started.
        for name, value in (
            ("ROBUSTNESS_MUTATION", plan.mutation),
            ("ROBUSTNESS_CURRENT_SECONDS", str(plan.current_seconds or "")),
        ):
            os.environ[name] = value
            ends.callback(os.environ.pop, name, None)
        cluster = ends.enter_context(Cluster(directory, binaries, plan.replicas, FIRST_SETTINGS, kubevirt))
        prepare(cluster)
        _wait_called(cluster)
        run = Run(plan.seed, current, cluster.definitions, plan.command(), time.time())
        print(f"  {time.strftime('%H:%M:%S')} traffic begins", flush=True)
        only = plan.only or bool(plan.mutation and wanted)
        faults = Faults(cluster, plan.seed, current, wanted, only=only)
        # Each VM of a real KubeVirt is work for its controllers, which wait for their turn on few processors.
        shape = Shape(plan.clients, plan.pause * (3 if plan.kubevirt else 1), current + STEADY_SECONDS)
        with Traffic(cluster, plan.seed, shape) as traffic:
            is_short = plan.seconds <= SHORT_SECONDS
            faults.run(time.time() + plan.seconds, 4.0 if is_short else QUIET_SECONDS)
            if not (is_short or plan.mutation):
                print(f"  {time.strftime('%H:%M:%S')} nothing breaks for {CALM_SECONDS:.0f} s", flush=True)
                faults.rest(time.time() + CALM_SECONDS)
        cluster.end_replicas()
        last = cluster.plane.admin.create("v1/configmaps", {"metadata": {"name": "last"}}, "default")
        # Etcd's own watch brings what it has: nothing that was written before is missing then.
        eventually(
            lambda: cluster.recorder.caught_up(int(last["metadata"]["resourceVersion"])), what="etcd's last revision"
        )
        events = audit_events(cluster.log)
        changes = cluster.recorder.changes(moments(events))
        webhooks = cluster.installation.entries()
        lines = [line for replica in cluster.replicas for line in replica.lines() if line.get("kind") == "decision"]
        history = History(
            run,
            changes,
            requests_of(events, lines, webhooks, changes),
            sorted(faults.done, key=lambda fault: fault.began),
            list(cluster.written),
            webhooks,
            [sample for sample in cluster.samples if sample.at >= run.began],
        )
        history.save(directory / "history.jsonl")
        print(f"  {_table(traffic.done)}", flush=True)
    return history


def _wait_called(cluster: Cluster) -> None:
    """Returns once the API server knows the configurations, the namespaces, and who serves."""

    def called() -> bool:
        made = cluster.plane.admin.create(VMS, vm("probe"), TENANTS[-1], dryRun="All")
        return bool(made["spec"]["template"]["spec"].get("schedulerName"))

    eventually(called, what="the API server to call the replicas")


def judge(history: History, mutation: str = "") -> tuple[Report, int]:
    """The report, printed, and the exit status: with a mutation, it is 0 when one of its rules has found it.

    Without one, it is 1 where a promise was broken, and where no decision was checked.
    """
    report = check(history)
    print(f"  {_table(report.counts)}, of {len(history.requests)} requests, {len(history.changes)} changes")
    shown: Counter[str] = Counter()
    for violation in sorted(report.violations, key=lambda violation: len(violation.history)):
        shown[violation.rule] += 1
        if shown[violation.rule] == 1:  # the one with the shortest history
            _, least = minimize(history, violation)
            print(f"\n{least}\n    seed {history.run.seed}; to repeat it: {history.run.command}")
    rules = Counter(violation.rule for violation in report.violations)
    print(f"\n{len(report.violations)} violations{f': {_table(rules)}' if rules else ''}")
    if mutation:
        found = MUTATIONS[mutation].rules & rules.keys()
        first = min((each.at for each in report.violations if each.rule in found), default=0.0) - history.run.began
        answer = f"found by what happened in the first {first:.0f} s" if found else "NOT FOUND"
        print(f"{mutation} ({MUTATIONS[mutation].fault}): {answer}")
        return report, 0 if found else 1
    if missing := gaps(history, report):
        print(f"not checked, since it did not happen: {', '.join(missing)}")
    if not report.counts[EXPLAINED]:
        print("NOTHING CHECKED: no decision was evaluated again; give it longer")
        return report, 1
    return report, 1 if report.violations else 0


def _table(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))


__all__ = ["KINDS", "Plan", "judge", "record"]
