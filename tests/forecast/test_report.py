"""The plan as JSON: the page names every field that the command prints, and no other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.forecast import report
from webhook.forecast.report import START_SECONDS, QueuedMigration, about, at_most, limits_of
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.migrationpolicy import MigrationRules
from webhook.placement.machines import Migration, MigrationStatus

PAGES = Path(__file__).parents[2] / "docs"
GIB = 2**30
COMMON = (report.VmPlan, report.PreemptedPod, report.Remedy, report.Limits)
DRAIN = (report.DrainPlan, report.Step, report.BlockedPod, report.PlannedTransfer, report.SpareNode, *COMMON)


def named_on(page: str) -> set[str]:
    section = (PAGES / page).read_text().partition("## The plan as JSON")[2].partition("\n## ")[0]
    assert (report.SCHEMA if page == "drain.md" else report.UPDATE_SCHEMA) in section
    return set(re.findall(r"`([a-zA-Z]+)(?:\[\])?`", section)) | set(re.findall(r"([a-zA-Z]+)\[\]", section))


def printed_by(shapes: Iterable[type[msgspec.Struct]]) -> set[str]:
    return {field.encode_name for shape in shapes for field in msgspec.structs.fields(shape)}


def test_every_field_is_on_the_page() -> None:
    drain, update = named_on("drain.md"), named_on("kubevirt-updates.md")
    printed = printed_by((report.UpdatePlan, report.Evictions))
    assert printed_by(DRAIN) - drain == set(), "name them in docs/drain.md"
    assert drain - printed_by(DRAIN) <= {"moves", "blocks", "null"}
    assert printed - update - printed_by(COMMON) == set()
    assert update - printed <= {"blocks", "null"}


def limits(**migrations: object) -> report.Limits:
    return limits_of(ClusterConfig.of({"migrations": migrations}), ())


def test_limits_are_kubevirts_own_or_of_the_configuration() -> None:
    found = limits()
    assert (found.per_cluster, found.per_node, found.timeout_seconds_per_gib) == (5, 2, 150)
    assert (found.bandwidth, found.bandwidth_is_assumed) == (report.ASSUMED_BANDWIDTH, True)
    counts = {"parallelMigrationsPerCluster": 9, "parallelOutboundMigrationsPerNode": 3, "completionTimeoutPerGiB": 800}
    found = limits(**counts, bandwidthPerMigration="64Mi")
    assert (found.per_cluster, found.per_node, found.timeout_seconds_per_gib) == (9, 3, 800)
    assert (found.bandwidth, found.bandwidth_is_assumed) == (64 * 2**20, False)
    ended = Migration(status=MigrationStatus(phase="Succeeded"))
    assert limits_of(ClusterConfig(), (Migration(), ended)).unfinished == 1


def test_an_assumption_never_exceeds_the_limit() -> None:
    limited = ClusterConfig.of({"migrations": {"bandwidthPerMigration": "64Mi"}})
    assert limits_of(limited, (), 2**30).bandwidth == 64 * 2**20
    assert limits_of(limited, (), 2**20).bandwidth == 2**20
    assert limits_of(ClusterConfig(), (), 2**20).bandwidth == 2**20
    assert limits(bandwidthPerMigration="0").bandwidth_is_assumed
    slow = [QueuedMigration("a", GIB, rules=MigrationRules(2**20, 150, policy="slow"))]
    assert about(slow, limits()) == about(slow, limits(bandwidthPerMigration="64Mi")) == START_SECONDS + 1024


def test_without_a_timeout_there_is_no_longest_time() -> None:
    """live-migration-source.go: a completionTimeoutPerGiB of 0 ends no migration."""
    jobs = [QueuedMigration("a", GIB)]
    assert at_most(jobs, limits(completionTimeoutPerGiB=0)) is None
    assert at_most([], limits(completionTimeoutPerGiB=0)) == 0
    assert at_most(jobs, limits(completionTimeoutPerGiB=1)) == START_SECONDS + 2


@pytest.mark.parametrize(
    ("rules", "seconds"),
    [
        (MigrationRules(0, 100), 300),
        (MigrationRules(0, 100, allows_disruption=True), 600),
        (MigrationRules(0, 100, allows_post_copy=True), 300),
        (MigrationRules(0, 100, allows_post_copy=True, allows_disruption=True), None),
        (MigrationRules(0, 100, detects_stalls=True), None),
    ],
)
def test_how_a_migration_ends(rules: MigrationRules, seconds: int | None) -> None:
    """live-migration-source.go, handleLegacyConvergence: a guest that is paused gets the same time again."""
    job = QueuedMigration("a", 9 * GIB, size=2 * GIB, rules=rules)
    assert at_most([job], limits()) == (None if seconds is None else START_SECONDS + seconds)
    assert at_most([msgspec.structs.replace(job, size=None)], limits()) is None


@pytest.mark.parametrize(("jobs", "rounds"), [(0, 0), (1, 1), (2, 1), (3, 2), (5, 3)])
def test_a_node_sends_two_at_a_time(jobs: int, rounds: int) -> None:
    one = START_SECONDS + GIB // report.ASSUMED_BANDWIDTH
    assert about([QueuedMigration("a", GIB)] * jobs, limits()) == rounds * one
    # KubeVirt counts whole gigabytes (10**9).
    assert at_most([QueuedMigration("a", GIB)] * jobs, limits()) == rounds * (START_SECONDS + 2 * 150)


def test_the_cluster_sends_five_at_a_time() -> None:
    nodes = [QueuedMigration(f"n{number}", GIB) for number in range(10)]
    assert about(nodes, limits()) == 2 * about(nodes[:5], limits()) == 2 * about(nodes[:1], limits())
    assert about(nodes, limits(parallelMigrationsPerCluster=0)) == 0


JOBS = st.lists(st.builds(QueuedMigration, st.sampled_from("abc"), st.integers(0, 8 * GIB)), max_size=12)


@given(JOBS, st.integers(1, 4), st.integers(1, 3))
def test_no_schedule_is_shorter_than_its_work_or_longer_than_one_by_one(
    jobs: list[QueuedMigration], per_cluster: int, per_node: int
) -> None:
    found = limits(parallelMigrationsPerCluster=per_cluster, parallelOutboundMigrationsPerNode=per_node)
    each = [START_SECONDS + -(-job.memory // found.bandwidth) for job in jobs]
    by_node: Counter[str] = Counter()
    for job, seconds in zip(jobs, each, strict=True):
        by_node[job.node] += seconds
    total = about(jobs, found)
    assert total <= sum(each)
    assert total >= max(each, default=0)
    assert total * per_cluster >= sum(each)
    assert all(total * per_node >= seconds for seconds in by_node.values())


def test_a_migration_without_a_node_keeps_others_waiting() -> None:
    stuck, moving = QueuedMigration("a", GIB, held=report.held_seconds(report.NO_ROOM)), QueuedMigration("a", GIB)
    assert about([stuck, stuck], limits()) == 0
    assert about([stuck, moving], limits()) == about([moving], limits())
    assert about([stuck, stuck, moving], limits()) == report.PENDING_SECONDS + about([moving], limits())
    assert about([stuck, stuck, QueuedMigration("b", GIB)], limits()) == about([moving], limits())


def test_a_pod_that_no_scheduler_looks_at_is_kept_three_times_as_long() -> None:
    """KubeVirt's five minutes are for pods of which a scheduler has said that they are unschedulable."""
    held = report.held_seconds(report.SCHEDULER_DOWN)
    assert (held, report.held_seconds(report.HAS_ROOM)) == (900, 0)
    unseen, moving = QueuedMigration("a", GIB, held=held), QueuedMigration("a", GIB)
    assert about([unseen, unseen, moving], limits()) == held + about([moving], limits())
    assert report.waiting_times([report.NO_ROOM, report.SCHEDULER_DOWN, report.HAS_ROOM]) == "5m or 15m"
