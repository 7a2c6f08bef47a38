"""The descheduler's evictions of guests: one becomes a migration, and one that is denied leaves the guest alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.build import location
from hack.controlplane.bundles import DESCHEDULER
from tests.e2e.support import foreign_webhook
from tests.e2e.support.descheduler import BACKGROUND, policy_of, process
from tests.e2e.support.kube import denied, eventually
from tests.e2e.support.messages import parse
from tests.e2e.support.pki import ADMIN
from tests.e2e.support.processes import Process

from .support import NAMESPACE, OTHER, Guests, gaps

HOSTNAME = "kubernetes.io/hostname"
# KubeVirt's answer, which the descheduler looks for.
TRIGGERED = "Eviction triggered evacuation"
COOL_DOWN = "[cool-down]"


def evict(guests: Guests, name: str) -> str:
    """Evict a guest as the descheduler does; returns the denial, which each answer is."""
    pod = guests.launcher(name)["metadata"]["name"]
    return denied(lambda: foreign_webhook.evict(guests.admin, pod, NAMESPACE, foreign_webhook.DESCHEDULER)).message


def wait_evacuated(guests: Guests, name: str, source: str) -> None:
    """Wait until KubeVirt's own migration of a guest has succeeded, and the guest runs elsewhere."""
    (made,) = eventually(lambda: guests.migrations(name), what=f"a migration of {name}")
    assert made["metadata"]["annotations"]["kubevirt.io/evacuationMigration"] == source
    guests.wait_migrated(made)
    eventually(lambda: guests.node_of(name) == OTHER[source], what=f"{name} to run elsewhere")


def test_an_eviction_by_the_descheduler_becomes_a_migration_unless_it_is_denied(guests: Guests) -> None:
    guests.run_vm("stuck", nodeSelector={HOSTNAME: "node-1"})
    guests.start("free")
    guests.wait_booted("stuck")
    guests.wait_migratable("stuck")
    source = guests.node_of("free")

    assert parse(evict(guests, "stuck")).code == "no-eligible-node"
    assert TRIGGERED in evict(guests, "free")

    wait_evacuated(guests, "free", source)
    # It has just been moved, so it stays for a while.
    assert parse(evict(guests, "free")).code == "cool-down"
    assert [each["spec"]["vmiName"] for each in guests.migrations()] == ["free"]
    assert "evacuationNodeName" not in guests.vmi("stuck")["status"]
    for name, node in (("free", OTHER[source]), ("stuck", "node-1")):
        assert (gaps(guests.count_on(name)), guests.told(name).count("guest: booted")) == ([], 1)
        assert guests.node_of(name) == node


@pytest.fixture
def descheduler(guests: Guests, tmp_path: Path) -> Iterator[Process]:
    """One with a plugin that evicts every VM, every three seconds: two idle nodes are not out of balance."""
    policy = policy_of(NAMESPACE)
    (profile,) = policy["profiles"]
    every = {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 1}}
    profile["pluginConfig"] = [profile["pluginConfig"][0], every]
    profile["plugins"] = {"deschedule": {"enabled": [every["name"]]}}
    binary = location(os.environ, bundle=DESCHEDULER) / "descheduler"
    options = ("--descheduling-interval=3s", BACKGROUND)
    made = process(binary, policy, guests.kubeconfig_for(*ADMIN), tmp_path, *options)
    yield made
    made.kill()


def test_the_real_descheduler_moves_a_guest_once(guests: Guests, descheduler: Process) -> None:
    guests.start("free")
    source = guests.node_of("free")

    descheduler.start()
    wait_evacuated(guests, "free", source)
    eventually(lambda: descheduler.log.read_text().count(COOL_DOWN) >= 2, what="further evictions to be denied")

    assert (len(guests.migrations("free")), guests.node_of("free")) == (1, OTHER[source])
    assert gaps(guests.count_on("free")) == []
