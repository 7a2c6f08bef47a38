"""Replicas on a real node: their permissions, and what clients notice while they end in every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

from tests.e2e.support.kube import eventually

from .support import NAMESPACE, USER, NodeInstallation, NodeReviews, servers, status_of

# Requests that an API server has sent to a replica before it learns that the replica ends.
LOST = 30


def test_they_run_as_nobody_and_need_no_dns_no_tmp_and_no_writing(installed: NodeInstallation) -> None:
    assert len(servers()) == 2
    for process in servers():
        status = status_of(process)
        assert {*status["Uid"].split(), *status["Gid"].split()} == {str(USER)}
        assert "0" not in status["Groups"].split()
        assert (int(status["CapEff"], 16), status["NoNewPrivs"], status["Seccomp"]) == (0, "1", "2")
        root = Path(f"/proc/{process}/root")
        # Without a DNS service, the kubelet names an address where no DNS server runs.
        resolver = (root / "etc" / "resolv.conf").read_text().split()
        assert {after for word, after in pairwise(resolver) if word == "nameserver"} <= {"127.0.0.1"}
        assert not (root / "tmp").exists()
        mounts = Path(f"/proc/{process}/mounts").read_text().splitlines()
        (flags,) = (line.split()[3] for line in mounts if line.split()[1] == "/")
        assert "ro" in flags.split(",")


def test_their_memory_has_a_limit(installed: NodeInstallation) -> None:
    place = Path(os.environ["NODE_DIRECTORY"]).name
    names = ("memory.limit_in_bytes", "memory.max")
    root = Path("/sys/fs/cgroup")
    files = [file for name in names for top in (root / place, root / "memory" / place) for file in top.rglob(name)]
    limits = [file.read_text().strip() for file in files]

    assert limits.count(str(512 * 1024 * 1024)) >= 2


def test_deleted_pods_are_not_felt(installed: NodeInstallation, load: NodeReviews) -> None:
    for pod in installed.pods():
        installed.admin.delete("v1/pods", pod["metadata"]["name"], NAMESPACE)
        installed.wait_ready()
    load.more()

    assert (load.denied, load.unchanged) == ([], 0)


def test_a_drain_moves_a_replica_and_is_not_felt(installed: NodeInstallation, load: NodeReviews) -> None:
    try:
        installed.kubectl("drain", "node-2", "--ignore-daemonsets", "--timeout=90s", timeout=100)
        installed.wait_ready()
        assert {pod["spec"]["nodeName"] for pod in installed.pods()} == {"node-1"}
        load.more()
    finally:
        installed.kubectl("uncordon", "node-2")
    assert (load.denied, load.unchanged) == ([], 0)
    # Back to one on each.
    installed.kubectl("-n", NAMESPACE, "rollout", "restart", "deployment/kubevirt-webhook")
    installed.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/kubevirt-webhook", "--timeout=90s", timeout=100)


def test_a_killed_replica_is_started_again_and_denies_nothing(installed: NodeInstallation, load: NodeReviews) -> None:
    victim, _ = sorted(servers())
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(servers()) == 2 and victim not in servers(), what="another process", timeout=90)
    installed.wait_ready()
    load.more()

    # Most entries have failurePolicy Ignore: what was on its way then is created without changes.
    assert load.denied == []
    assert load.unchanged <= LOST


def test_a_replica_that_hangs_is_taken_out_and_denies_nothing(installed: NodeInstallation, load: NodeReviews) -> None:
    victim = min(servers())
    os.kill(victim, signal.SIGSTOP)
    try:
        eventually(lambda: len(installed.ready_pods()) == 1, what="the replica to be taken out", timeout=90)
    finally:
        if victim in servers():
            os.kill(victim, signal.SIGCONT)
    installed.wait_ready()
    load.more()

    assert load.denied == []
    assert load.unchanged <= LOST


def test_replicas_that_the_api_server_does_not_reach_are_a_failure_of_doctor(installed: NodeInstallation) -> None:
    def reach() -> set[tuple[str, str]]:
        """The codes and verdicts of what doctor finds about connections."""
        report = json.loads(installed.run("doctor", "-o", "json", check=False).stdout)
        return {(one["code"], one["verdict"]) for one in report["findings"] if one["check"] == "reach"}

    def nft(*words: str) -> None:
        subprocess.run(["nft", *words], check=True)

    assert reach() == {("reachable", "ok")}
    replicas = ", ".join(pod["status"]["podIP"] for pod in installed.ready_pods())
    # As a NetworkPolicy of theirs would that denies all but the kubelets' probes: other tests' replicas stay reachable.
    table = ("table", "ip", "denied")
    nft("add", *table)
    try:
        nft("add", "chain", *table[1:], "out", "{ type filter hook output priority -300 ; }")
        nft("add", "rule", *table[1:], "out", "ip", "daddr", f"{{ {replicas} }}", "tcp", "dport", "8443", "drop")
        assert reach() == {("unreachable", "failure")}
        assert len(installed.ready_pods()) == 2
    finally:
        nft("delete", *table)


def test_doctor_outside_and_inside(installed: NodeInstallation) -> None:
    outside = installed.run("doctor", check=False)
    assert "2/2 replicas are ready" in outside.stdout
    assert "rollout-stuck" not in outside.stdout

    # Inside it is the replica's account, which may read less: unknown, and no traceback.
    pod = installed.pods()[0]["metadata"]["name"]
    program = ("/app/bin/kubevirt-webhook", "doctor", "--config=/etc/kubevirt-webhook/settings.yaml")
    inside = installed.kubectl("-n", NAMESPACE, "exec", pod, "--", *program, check=False)
    assert "Traceback" not in inside.stdout + inside.stderr
    assert "Deployment kubevirt-webhook/kubevirt-webhook" in inside.stdout
    # And a command with a kubeconfig looks for it.
    other = ("/app/bin/kubevirt-webhook", "uninstall", "--dry-run", "--kubeconfig=/nowhere")
    done = installed.kubectl("-n", NAMESPACE, "exec", pod, "--", *other, check=False)
    assert done.returncode != 0
    assert "/nowhere: the kubeconfig cannot be read" in done.stderr
