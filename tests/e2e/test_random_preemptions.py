"""Random preemptions and taints beside the real scheduler and taint controller: who waits, and which VMs die.

`make test` has a few. ``PREEMPTIONS=200 pytest tests/e2e/test_random_preemptions.py`` has as many, and prints the
figures of docs/preemption.md.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .conftest import NewWebhook, OwnPlane
from .support import manifests
from .support.kube import Json, Kube, KubeError, eventually
from .support.lent import LentPlane
from .support.migrations import HOSTNAME
from .support.objects import make_node, obj
from .support.played_kubevirt import Copying, PlayedKubeVirt
from .support.rbac import may
from .support.tenant import Tenant
from .support.victims import TAINT, requesting_pod
from .support.webhook_server import ACCOUNT, DOMAIN, WebhookServer
from .support.workloads import MIGRATIONS, PODS, VMIS

PREEMPTION = f"{DOMAIN}/preemption"
COUNT = int(os.environ.get("PREEMPTIONS", "6"))
SEED = int(os.environ.get("PREEMPTIONS_SEED", "1"))
AT_ONCE = 8
# The least that the settings allow, so that it is reached.
DEADLINE_SECONDS = 30
SETTINGS = {
    "preemption": {"requestMigrations": True, "deadlineSeconds": DEADLINE_SECONDS, "maxPerCluster": 100},
}
CLASSES = "scheduling.k8s.io/v1/priorityclasses"
NODES = "v1/nodes"
ROOM = 4
# What a loaded machine may need for all that is not waiting.
SLACK_SECONDS = 30
SCHEDULERS_OWN = ("schedule_attempts_total", "preemption_attempts_total")


class DrawnVm(NamedTuple):
    """A VM of a scene.

    Attributes:
        copying: how it is copied.
        is_bound: whether it may run on its node alone.
    """

    copying: Copying
    is_bound: bool

    @property
    def can_move(self) -> bool:
        """Whether it moves if there is room, before anyone loses patience."""
        return not self.is_bound and self.copying.succeeds and self.copying.seconds is not None


class Drawn(NamedTuple):
    """What one scene is, by its seed alone.

    Attributes:
        vms: those on its first node, which is full; what they leave is taken by pods of the same priority.
        free: how many pods the other two nodes have room for.
        wanted: for how many pods the preemptor needs room; 0: the node is tainted instead.
        is_urgent: whether the preemptor is one that no VM may keep waiting.
    """

    vms: list[DrawnVm]
    free: tuple[int, int]
    wanted: int
    is_urgent: bool


def draw(seed: int) -> Drawn:
    dice = random.Random(seed)
    vms = []
    for _ in range(dice.randint(1, ROOM)):
        kind = dice.choices(["moves", "fails", "hangs", "bound"], [12, 2, 1, 2])[0]
        seconds = None if kind == "hangs" else dice.uniform(0, 12)
        vms.append(DrawnVm(Copying(seconds, kind != "fails"), kind == "bound"))
    free = (dice.choice([0, 1, 4]), dice.choice([0, 2, 4]))
    wanted = dice.choice([0, 0, 1, 1, 1, 2, 3, 4])
    return Drawn(vms, free, wanted, wanted > 0 and dice.random() < 0.05)


class Outcome(NamedTuple):
    """What became of a scene.

    Attributes:
        seconds: how long the preemptor waited, or until no VM was left on the tainted node.
        moved: the VMs that run elsewhere.
        dead: those whose guests died.
        unjustified: of these, the ones that could have moved.
    """

    number: int
    drawn: Drawn
    seconds: float
    moved: list[str]
    dead: list[str]
    unjustified: list[str]


class Scene:
    """Three nodes of their own, the first of them full."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number, self.drawn = world, number, draw(SEED * 10_000 + number)
        self.kube, self.space = world.kube, world.tenant.namespace
        self.label = {"scene": str(number)}
        self.nodes = [f"scene-{number}-{each}" for each in "abc"]
        self.vms = {f"vm-{number}-{at}": vm for at, vm in enumerate(self.drawn.vms)}
        self.preemptor = f"preemptor-{number}"

    def play(self, least: float = 0) -> Outcome:
        """What becomes of it, after so many seconds at least: pods for which there is no room are tried meanwhile."""
        try:
            self._set()
            begin = time.monotonic()
            self._begin()
            what = f"{self.preemptor} to be bound, or its node to be left: {self.drawn}"
            eventually(self._is_over, what=what, timeout=DEADLINE_SECONDS + 120)
            outcome = self._outcome(time.monotonic() - begin)
            time.sleep(max(0.0, begin + least - time.monotonic()))
            return outcome
        finally:
            self._clear()

    def _set(self) -> None:
        for name in self.nodes:
            make_node(self.kube, name, self.label, allocatable={"cpu": str(ROOM)})
        for node, free in zip(self.nodes[1:], self.drawn.free, strict=True):
            if free < ROOM:
                # No target pod takes its place.
                self._pod(f"filler-{node}", ROOM - free, nodeName=node, priorityClassName="kept")
        first = self.nodes[0]
        for name, vm in self.vms.items():
            selector = self.label | ({HOSTNAME: first} if vm.is_bound else {})
            self.world.kubevirt.start(name, first, vm.copying, selector)
        for number in range(ROOM - len(self.vms)):
            self._pod(f"batch-{self.number}-{number}", 1, nodeName=first)

    def _begin(self) -> None:
        first = self.nodes[0]
        if not self.drawn.wanted:
            self.kube.patch(NODES, first, {"spec": {"taints": [{"key": TAINT, "effect": "NoExecute"}]}})
            return
        priority = "system-cluster-critical" if self.drawn.is_urgent else "high"
        self._pod(self.preemptor, self.drawn.wanted, nodeSelector={HOSTNAME: first}, priorityClassName=priority)

    def _is_over(self) -> bool:
        pods = [pod for pod in self.kube.list(PODS, self.space) if pod["spec"].get("nodeName") == self.nodes[0]]
        if self.drawn.wanted:
            return self.preemptor in [pod["metadata"]["name"] for pod in pods]
        return not any(pod["status"].get("phase") == "Running" for pod in pods)

    def _outcome(self, seconds: float) -> Outcome:
        dead = [name for name in self.vms if name in self.world.kubevirt.dead]
        moved = [name for name in self.vms if name not in dead and self._node_of(name) != self.nodes[0]]
        return Outcome(self.number, self.drawn, seconds, moved, dead, self._unjustified(dead, moved))

    def _node_of(self, vm: str) -> str:
        return str(self.kube.get(VMIS, vm, self.space)["status"]["nodeName"])

    def _unjustified(self, dead: list[str], moved: list[str]) -> list[str]:
        """Of the dead ones those that had room elsewhere and the time to go there."""
        if self.drawn.is_urgent:
            return []
        affected = [self.vms[name] for name in (*dead, *moved)]
        # Each takes room elsewhere, by its target pod or because it is started again; one that fails does both.
        needed = sum(1 if each.can_move else 2 for each in affected)
        if needed > sum(self.drawn.free):
            return []
        # Of several victims, the last one is deleted after the others: it has the time that these have left.
        is_late = self.drawn.wanted > 1 and any(each.copying.seconds is None for each in affected if not each.is_bound)
        return [name for name in dead if self.vms[name].can_move and not is_late]

    def _clear(self) -> None:
        # VMs first, or they would be started again.
        for name in self.vms:
            _delete(self.kube, VMIS, name, self.space)
        names = set(self.vms)
        for migration in self.kube.list(MIGRATIONS, self.space):
            if migration["spec"]["vmiName"] in names:
                _delete(self.kube, MIGRATIONS, migration["metadata"]["name"], self.space)
        for pod in self.kube.list(PODS, self.space):
            selects = pod["spec"].get("nodeSelector", {}).get("scene") == str(self.number)
            if selects or pod["spec"].get("nodeName") in self.nodes:
                _delete(self.kube, PODS, pod["metadata"]["name"], self.space, gracePeriodSeconds="0")
        for name in self.nodes:
            _delete(self.kube, NODES, name)

    def _pod(self, name: str, cpu: int, **spec: Any) -> None:
        pod = requesting_pod(name, str(cpu), {"app": "batch"}, **spec)
        pod["spec"]["terminationGracePeriodSeconds"] = 0
        self.kube.create(PODS, pod, self.space)


def _delete(kube: Kube, resource: str, name: str, space: str | None = None, **query: str) -> None:
    try:
        kube.delete(resource, name, space, **query)
    except KubeError as error:
        assert error.status == 404, error


class Cost(NamedTuple):
    """What a scheduler did: how often it tried to place or to preempt, and the seconds of a processor that it took."""

    attempts: float
    preemptions: float
    cpu_seconds: float


class World:
    """One namespace in which scenes are played, several at once."""

    def __init__(self, plane: LentPlane, server: WebhookServer, mode: str) -> None:
        self.plane, self.kube = plane, plane.admin
        self.tenant = Tenant.new(server, mode=mode, policies=[PREEMPTION])
        self.kubevirt = PlayedKubeVirt(self.kube, self.tenant.controller, self.tenant.namespace)

    def play(self, least: Sequence[float]) -> tuple[list[Outcome], Cost]:
        """What becomes of so many scenes, each of which lasts so many seconds at least, and what it costs."""
        before = self._cost()
        with self.kubevirt, ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = [*pool.map(lambda number: Scene(self, number).play(least[number]), range(len(least)))]
        assert self.kubevirt.mistakes == []
        return outcomes, Cost(*(after - earlier for after, earlier in zip(self._cost(), before, strict=True)))

    def _cost(self) -> Cost:
        attempts, preemptions = (self.plane.scheduler_metric("default", f"scheduler_{name}") for name in SCHEDULERS_OWN)
        return Cost(attempts, preemptions, _cpu_seconds(self.plane.scheduler("default").pid))

    def deletions(self) -> list[Json]:
        """The decisions on the deletions of VMs' pods, by schedulers and the taint controller."""
        users = ("system:kube-scheduler", "system:serviceaccount:kube-system:node-controller")
        return [line for line in self.tenant.audit("Pod") if line.get("details", {}).get("user") in users]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def plane(own_plane: OwnPlane, kube_scheduler: object) -> LentPlane:
    plane = own_plane()
    manifests.apply(plane.admin, "components/preemption/rbac.yaml")
    # Of what is preempted, of what preempts, and of what stays in any case.
    for name, value in (("high", 1_000_000), ("kept", 1_000_000_000)):
        plane.admin.create(CLASSES, obj("PriorityClass", name, value=value))
    plane.start_controller_manager(accounts=True)
    plane.start_scheduler("default")
    return plane


@pytest.fixture
def server(plane: LentPlane, new_webhook: NewWebhook) -> WebhookServer:
    server = new_webhook(SETTINGS, access=plane)
    creates = partial(may, plane.kube(*ACCOUNT), "create", "virtualmachineinstancemigrations", "", "kubevirt.io")
    eventually(creates, what="the authorizer to know the role")
    return server


@pytest.mark.timeout(7200)
def test_no_vm_is_lost_that_could_move_and_no_preemptor_waits_beyond_the_deadline(
    plane: LentPlane, server: WebhookServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with_policy, without = World(plane, server, "enforce"), World(plane, server, "audit")
    outcomes, cost = with_policy.play([0.0] * COUNT)
    # For as long, so that the cost can be compared.
    others, other_cost = without.play([each.seconds for each in outcomes])

    if COUNT > 20:
        with capsys.disabled():
            print("\n" + "\n".join(figures(with_policy, outcomes, cost, without, others, other_cost)))
    assert [(each.unjustified, each) for each in outcomes if each.unjustified] == []
    late = [each for each in outcomes if each.seconds > DEADLINE_SECONDS + SLACK_SECONDS]
    assert late == []
    # Without it, none of the same VMs has moved.
    assert [name for each in others for name in each.moved] == []
    assert any(each.moved for each in outcomes)
    assert any(each.dead for each in others)
    assert cost.attempts <= 2 * other_cost.attempts
    assert cost.preemptions <= 2 * other_cost.preemptions


def figures(
    world: World, outcomes: list[Outcome], cost: Cost, without: World, others: list[Outcome], other_cost: Cost
) -> Iterator[str]:
    for name, found, spent, where in (("with", outcomes, cost, world), ("without", others, other_cost, without)):
        waits = sorted(each.seconds for each in found if each.drawn.wanted)
        taints = sorted(each.seconds for each in found if not each.drawn.wanted)
        moved, dead = (sum(len(getattr(each, what)) for each in found) for what in ("moved", "dead"))
        lines = where.deletions()
        yield f"{name}: {len(found)} scenes, {len(taints)} taints; {moved} VMs moved, {dead} dead"
        yield f"  preemptors waited {_spread(waits)}; nodes were left after {_spread(taints)}"
        yield f"  scheduler: {spent}; DELETEs of VMs' pods: {len(lines)}"
        by_code = Counter(line["reasons"][0]["code"] for line in lines)
        yield f"  {dict(by_code.most_common())}"


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "-"
    return f"{seconds[len(seconds) // 2]:.1f} s (median), {seconds[-1]:.1f} s (longest)"
