"""How many migrations a node receives at once beside a real KubeVirt and a real scheduler, while many begin at once.

``KUBEVIRT_FIGURES=1 make kubevirt`` also drains with the other limits of docs/migration.md, and prints its figures.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.webhook_server import DOMAIN, WebhookServer, install
from tests.e2e.support.workloads import MIGRATIONS, PODS, VMS
from webhook.k8s.types.scheduling import PREFERRED
from webhook.placement.machines import JOB_UID

from .control_plane import ZONES, RunningKubeVirt
from .place import HOSTNAME, Place, cordoned, make_place

pytestmark = pytest.mark.kubevirt

FIRST, FAVORITE, *OTHERS = sorted(ZONES)
# All would go to the same node.
TERM: Json = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [FAVORITE]}]}
TEMPLATE: Json = {
    "domain": {"devices": {}, "memory": {"guest": "64Mi"}},
    "affinity": {"nodeAffinity": {PREFERRED: [{"weight": 100, "preference": TERM}]}},
}
NODES = [FAVORITE, *OTHERS]
FIGURES = bool(os.environ.get("KUBEVIRT_FIGURES"))
NewLimited: TypeAlias = Callable[[int], Place]


@pytest.fixture
def new_limited(real: RunningKubeVirt, tmp_path: Path) -> Iterator[NewLimited]:
    """Makes a namespace in which a node may receive so many migrations; 0: any number."""
    install(real.plane.admin)
    eventually(real.is_empty, what="the VMs of other tests to end")
    with ExitStack() as servers:

        def make(most: int) -> Place:
            settings = {"schedulers": {}, "migration": {"maxInboundPerNode": most}}
            server = servers.enter_context(WebhookServer(real.plane, tmp_path, f"inbound-{most}", settings))
            assert server.validates
            return make_place(real, server.labels("enforce", [f"{DOMAIN}/migration"]), {})

        yield make
    real.configure(migrations=None)


def receiving(place: Place) -> Counter[str]:
    """The nodes of the target pods of all migrations that have not ended, by name."""
    # In this order: whatever has not ended later had not when the pods were listed.
    pods = place.admin.list(PODS)
    unfinished = {
        each["metadata"]["uid"]
        for each in place.admin.list(MIGRATIONS)
        if each.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    }
    targets = [pod for pod in pods if pod["metadata"].get("labels", {}).get(JOB_UID) in unfinished]
    return Counter(pod["spec"]["nodeName"] for pod in targets if pod["spec"].get("nodeName"))


def populate(place: Place, count: int) -> list[str]:
    """VMs that all run on the first node, and would all go to the same other one; their names."""
    made = [f"vm-{number}" for number in range(count)]
    with cordoned(place, NODES):
        for name in made:
            place.vm(name, template=TEMPLATE)
        assert {place.running(name)["status"]["nodeName"] for name in made} == {FIRST}
    return made


@pytest.mark.parametrize("most", [1, 2])
def test_a_burst_of_migrations_never_exceeds_it(new_limited: NewLimited, most: int) -> None:
    place = new_limited(most)
    place.real.configure(migrations={"parallelMigrationsPerCluster": 40, "parallelOutboundMigrationsPerNode": 40})
    count = most * len(NODES)
    for _ in range(3):
        vms = populate(place, count)
        with place.real.nodes.holding(), ThreadPoolExecutor(count) as pool:
            begun = [*pool.map(place.migrate, vms)]
            eventually(lambda: receiving(place).total() == count, what="all target pods to have a node")
            assert receiving(place) == dict.fromkeys(NODES, most)
        assert {place.ended(migration) for migration in begun} == {"Succeeded"}
        place.admin.delete_all(VMS, place.namespace)
        eventually(place.real.is_empty, what="the VMs to end")


@pytest.mark.parametrize("outbound", [2, 6])
@pytest.mark.parametrize("most", [0, 1, 2, 5] if FIGURES else [1])
def test_a_drain_never_exceeds_it_and_no_migration_fails(
    new_limited: NewLimited, most: int, outbound: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a node with 20 VMs, which take three seconds each."""
    place = new_limited(most)
    limits = {"parallelMigrationsPerCluster": max(5, outbound), "parallelOutboundMigrationsPerNode": outbound}
    place.real.configure(migrations=limits)
    vms = populate(place, 20)
    seen: list[int] = []
    with place.real.nodes.copying(3), ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=280s")
        drain = pool.submit(place.real.plane.kubectl, "drain", FIRST, *options, check=False)
        try:
            while not drain.done():
                seen.append(max(receiving(place).values(), default=0))
                time.sleep(0.05)
            lasted = time.monotonic() - began
            assert drain.result().returncode == 0, drain.result().stderr
        finally:
            place.admin.patch("v1/nodes", FIRST, {"spec": {"unschedulable": None}})
    assert FIRST not in {place.running(name)["status"]["nodeName"] for name in vms}
    phases = Counter(each["status"]["phase"] for each in place.admin.list(MIGRATIONS, place.namespace))
    if FIGURES:
        with capsys.disabled():
            print(f"limit {most}, {outbound} outbound: {lasted:.0f} s, at most {max(seen)} at once, {dict(phases)}")
    assert phases == {"Succeeded": 20}
    if most:
        # Where more leave the node than the others may receive, the next higher limit counts.
        assert max(seen) <= max(most, math.ceil(outbound / (len(NODES) - 1)))
