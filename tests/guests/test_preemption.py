"""A pod of higher priority takes the room of a guest: the guest moves and counts on, and without the policy it dies."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from hack.node.cluster import PAUSE
from tests.e2e.support.kube import KubeObject, eventually
from tests.e2e.support.migrations import HOSTNAME
from tests.e2e.support.objects import obj
from tests.e2e.support.workloads import PODS
from webhook.k8s.quantity import nanos
from webhook.names import policy_label

from .support import NAMESPACE, OTHER, Guests, gaps, phases_of

CLASSES = "scheduling.k8s.io/v1/priorityclasses"
CLASS = "before-guests"
PREEMPTOR = "preemptor"
# Of memory: more than what is left beside the guest, and less than what is left without it.
MORE_BYTES = 128 << 20
BOUND_SECONDS = 300.0


def in_bytes(amounts: Mapping[str, Any] | None) -> int:
    return (nanos((amounts or {}).get("memory", "0")) or 0) // 10**9


def of_container(container: Mapping[str, Any]) -> int:
    return in_bytes(container.get("resources", {}).get("requests"))


def requested(pod: Mapping[str, Any]) -> int:
    """What the scheduler counts for a pod, of memory."""
    spec = pod["spec"]
    inits = spec.get("initContainers", [])
    sidecars = [one for one in inits if one.get("restartPolicy") == "Always"]
    running = sum(map(of_container, [*spec["containers"], *sidecars]))
    return max([running, *map(of_container, inits)]) + in_bytes(spec.get("overhead"))


def free_on(guests: Guests, node: str) -> int:
    allocatable = in_bytes(guests.admin.get("v1/nodes", node)["status"]["allocatable"])
    pods = guests.admin.list(PODS, fieldSelector=f"spec.nodeName={node}")
    living = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
    return allocatable - sum(map(requested, living))


class Preemption:
    """Pods that want the room of a guest on its node."""

    def __init__(self, guests: Guests) -> None:
        self._guests = guests
        guests.admin.create(CLASSES, obj("PriorityClass", CLASS, "scheduling.k8s.io/v1", value=1000))

    def ask(self, node: str) -> None:
        """A pod that fits on a node once the guest has gone."""
        pod = obj("Pod", PREEMPTOR, "v1")
        requests = {"memory": str(free_on(self._guests, node) + MORE_BYTES)}
        container = {"name": "main", "image": PAUSE, "imagePullPolicy": "Never", "resources": {"requests": requests}}
        pod["spec"] = {
            "containers": [container],
            "nodeSelector": {HOSTNAME: node},
            "priorityClassName": CLASS,
            "terminationGracePeriodSeconds": 0,
        }
        self._guests.admin.create(PODS, pod, NAMESPACE)

    def bound_at(self) -> dt.datetime:
        """When the scheduler bound the pod, which is waited for."""

        def look() -> dt.datetime | None:
            pod: KubeObject = self._guests.admin.get(PODS, PREEMPTOR, NAMESPACE)
            conditions = {one["type"]: one for one in pod.get("status", {}).get("conditions", [])}
            scheduled = conditions.get("PodScheduled", {})
            if scheduled.get("status") != "True":
                return None
            return dt.datetime.fromisoformat(scheduled["lastTransitionTime"])

        return eventually(look, what="the preemptor to be bound", timeout=BOUND_SECONDS)

    def end(self) -> None:
        self._guests.admin.delete_all(PODS, NAMESPACE, labelSelector="!kubevirt.io")
        self._guests.admin.delete(CLASSES, CLASS)


@pytest.fixture
def preemption(guests: Guests) -> Iterator[Preemption]:
    made = Preemption(guests)
    yield made
    made.end()


def test_a_preempted_guest_counts_on_elsewhere(guests: Guests, preemption: Preemption) -> None:
    guests.start("web")
    source = guests.node_of("web")
    guests.follow("web")
    before = guests.count_on("web")

    preemption.ask(source)
    (made,) = eventually(lambda: guests.migrations("web"), what="a migration", timeout=60)
    ended = phases_of(guests.wait_migrated(made))["Succeeded"]
    bound = preemption.bound_at()
    after = guests.count_on("web")

    assert guests.node_of("web") == OTHER[source]
    assert (gaps(after), after[: len(before)], guests.told("web").count("guest: booted")) == ([], before, 1)
    assert len(guests.migrations("web")) == 1
    waited, pause = (bound - ended).total_seconds(), guests.longest_pause("web") - 1
    print(f"bound {waited:.0f}s after the migration had succeeded; the guest stood still for {pause:.1f}s")


def test_without_the_policy_it_dies(guests: Guests, preemption: Preemption) -> None:
    guests.admin.patch("v1/namespaces", NAMESPACE, {"metadata": {"labels": {policy_label("preemption"): "audit"}}})
    guests.start("web")
    vmi = guests.vmi("web")
    source = guests.node_of("web")

    preemption.ask(source)
    preemption.bound_at()

    def is_another() -> bool:
        return bool(guests.vmi("web")["metadata"]["uid"] != vmi["metadata"]["uid"])

    # KubeVirt starts a guest anew, which has lost all that was in its memory.
    eventually(is_another, what="another guest in its stead", timeout=BOUND_SECONDS)
    guests.wait_booted("web")
    assert min(guests.counts("web")) <= 1
    assert guests.migrations("web") == []
