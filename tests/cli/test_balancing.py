"""Migrations are made one after the other, each by the plan of then, and none after one that fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.forecast.clusters import node, snapshot, vm
from tests.golden_files import Golden
from webhook.cli import balancing
from webhook.cli.balancing import StoppedError, run
from webhook.forecast import balance
from webhook.forecast.balance import Course, Wanted
from webhook.forecast.balance_report import BalancePlan
from webhook.forecast.snapshot import ClusterObjects
from webhook.k8s.client.api import ApiConnectionError

# What its creation, and what a migration's reads are answered with, by how it ends.
DENIED = {"denied": (403, b'{"message": "no"}'), "broken": (504, b'{"message": "etcdserver: request timed out"}')}
ODD = {"gone": (404, b"{}"), "garbled": (200, b"<html>"), "forbidden": (403, b"{}"), "never": (200, b"{}")}


async def raise_or_hold(end: str, errors: Mapping[str, Exception]) -> None:
    if end in errors:
        raise errors[end]
    if end == "held":
        await asyncio.Event().wait()


class KubeVirt:
    """A cluster whose migrations are looked at twice before they end; one of them may end in another phase."""

    def __init__(self, objects: ClusterObjects, ends: Mapping[str, str] | None = None) -> None:
        self.objects = objects
        self.asked: list[dict[str, Any]] = []
        self._ends = ends or {}
        self._looks = 0

    async def request(self, method: str, path: str, *_: Any, body: Any = None, **__: Any) -> tuple[int, bytes]:
        if path.startswith("/api/v1/namespaces/shop/pods/left-"):
            return self._pod_left(path.rpartition("left-")[2])
        assert path.startswith("/apis/kubevirt.io/v1/namespaces/shop/virtualmachineinstancemigrations")
        if method == "POST":
            name = body["spec"]["vmiName"]
            end = self._ends.get(name, "")
            if end in DENIED:
                return DENIED[end]
            await raise_or_hold(end, {"lost": TimeoutError()})
            self.asked.append(body)
            self._looks = 0
            odd = {"odd": b"<html>", "nameless": b'{"metadata": {}}'}
            return 201, odd.get(end) or json.dumps({"metadata": {"name": f"balance-{name}"}}).encode()
        name = self.asked[-1]["spec"]["vmiName"]
        self._looks += 1
        end = self._ends.get(name, "Succeeded")
        await raise_or_hold(end, {"silent": ApiConnectionError("connection refused"), "late": TimeoutError()})
        if end in ODD:
            return ODD[end]
        if self._looks == 1:
            return 200, json.dumps({"status": {"phase": "Running"}}).encode()
        if end == "Succeeded":
            self._move(name, self.asked[-1]["spec"]["addedNodeSelector"]["kubernetes.io/hostname"])
        state = {"migrationState": {"sourcePod": f"left-{name}"}}
        return 200, json.dumps({"status": {"phase": end, **state}}).encode()

    def _pod_left(self, name: str) -> tuple[int, bytes]:
        """The pod that a VM has left: it has ended already, or is gone."""
        return (200, b'{"status": {"phase": "Succeeded"}}') if name == "vm-0" else (404, b"{}")

    def _move(self, name: str, to: str) -> None:
        assert all(each.spec and each.status for each in self.objects.vmis)
        vmis = tuple(
            replace(each, status=replace(each.status, node_name=to)) if each.status and each.meta.name == name else each
            for each in self.objects.vmis
        )
        pods = tuple(
            replace(each, spec=replace(each.spec, node_name=to))
            if each.spec and each.meta.name == f"virt-launcher-{name}"
            else each
            for each in self.objects.pods
        )
        self.objects = replace(self.objects, vmis=vmis, pods=pods)


def balanced(cluster: KubeVirt, most: int = 20) -> tuple[BalancePlan, list[str]]:
    said: list[str] = []

    async def plan(course: Course, left: int) -> BalancePlan:
        return balance.plan(cluster.objects, Wanted(10, most=left), course)

    return asyncio.run(run(cluster, plan, most, said.append, pause=0)), said


def world() -> ClusterObjects:
    return snapshot([node(name, cpu="80") for name in "ab"], [vm(f"vm-{number}", "a") for number in range(4)])


def test_each_is_made_when_the_one_before_has_ended() -> None:
    cluster = KubeVirt(world())
    found, said = balanced(cluster)
    assert [each["spec"]["vmiName"] for each in cluster.asked] == ["vm-0", "vm-1"]
    assert (found.is_reached, found.moves, found.deviation, len(said)) == (True, (), 0.0, 4)
    assert [each.node_name for each in cluster.objects.vmis] == ["b", "b", "a", "a"]


def test_no_more_than_wanted() -> None:
    cluster = KubeVirt(world())
    found, _ = balanced(cluster, most=1)
    assert (len(cluster.asked), found.is_reached) == (1, False)


def test_a_surprise_changes_what_follows() -> None:
    class Surprised(KubeVirt):
        def _move(self, name: str, to: str) -> None:
            super()._move(name, to)
            super()._move("vm-3", "b")

    cluster = Surprised(world())
    assert (balanced(cluster)[0].is_reached, len(cluster.asked)) == (True, 1)


class Lingering(KubeVirt):
    """The pod that the first VM leaves stays for some looks, and takes what it took."""

    def __init__(self, looks: int) -> None:
        super().__init__(world())
        self.left_looks = looks
        self._all = self.objects.pods

    def _move(self, name: str, to: str) -> None:
        super()._move(name, to)
        if name == "vm-0":
            left = next(each for each in self._all if each.meta.name == "virt-launcher-vm-0")
            left = replace(left, metadata=replace(left.meta, name="left-vm-0"))
            self.objects = replace(self.objects, pods=(*self.objects.pods, left))

    def _pod_left(self, name: str) -> tuple[int, bytes]:
        self.left_looks -= name == "vm-0"
        if name == "vm-0" and self.left_looks > 0:
            return 200, b'{"status": {"phase": "Running"}}'
        pods = tuple(each for each in self.objects.pods if each.meta.name != f"left-{name}")
        self.objects = replace(self.objects, pods=pods)
        return super()._pod_left(name)


def test_the_pod_that_a_vm_has_left_is_waited_for() -> None:
    """With it, the first node would have more than half of all, and another VM would move."""
    cluster = Lingering(3)
    found, said = balanced(cluster)
    assert [each["spec"]["vmiName"] for each in cluster.asked] == ["vm-0", "vm-1"]
    assert (found.is_reached, found.deviation, cluster.left_looks, len(said)) == (True, 0.0, 0, 4)


def test_a_pod_that_does_not_end_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancing, "_LEAVING_SECONDS", 0.0)
    _, said = balanced(Lingering(99), most=1)
    assert any("left-vm-0" in line and "still takes room on a" in line for line in said)


@pytest.mark.parametrize(
    "end", ["Failed", "gone", "silent", "late", "garbled", "forbidden", "denied", "broken", "lost", "odd", "nameless"]
)
def test_it_stops_at_the_first_that_fails(end: str, golden: Golden) -> None:
    cluster = KubeVirt(world(), {"vm-0": end})
    with pytest.raises(StoppedError) as stopped:
        balanced(cluster)
    assert len(cluster.asked) == (end not in ("denied", "broken", "lost"))
    assert "1 planned after it not begun" in str(stopped.value)
    golden(str(stopped.value))


@pytest.mark.parametrize(("end", "what"), [("never", "goes on"), ("held", "may have been created")])
async def test_an_interruption_says_what_goes_on(end: str, what: str) -> None:
    cluster, said = KubeVirt(world(), {"vm-0": end}), list[str]()

    async def plan(course: Course, left: int) -> BalancePlan:
        return balance.plan(cluster.objects, Wanted(10, most=left), course)

    running = asyncio.create_task(run(cluster, plan, 20, said.append, pause=0))
    await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert what in said[-1]
    assert "1 planned after it not begun" in said[-1]
