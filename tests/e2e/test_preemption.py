"""What kube-scheduler and the taint controller do when the DELETE of a VM's pod is denied: docs/adr/0034.

Each test names one fact that the decision rests on. `KUBERNETES=1.33` has them on an older control plane.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from .conftest import OwnPlane
from .support.kube import eventually
from .support.lent import LentPlane
from .support.migrations import HOSTNAME
from .support.objects import make_node
from .support.placing import remove_pods
from .support.victims import ALLOWED, SPACE, Deletions, Nodes, later
from .support.workloads import PODS

SCHEDULER = "system:kube-scheduler"
TAINT_CONTROLLER = "system:serviceaccount:kube-system:node-controller"
# How often client-go asks again of itself (rest.Request, maxRetries), and the taint controller beyond that (retries).
RETRIES, ATTEMPTS = 10, 5
ONE = {HOSTNAME: "one"}
SYNCHRONOUS = ("--feature-gates=SchedulerAsyncPreemption=false",)


@pytest.fixture
def plane(own_plane: OwnPlane, kube_scheduler: object) -> LentPlane:
    return own_plane()


@pytest.fixture
def nodes(plane: LentPlane) -> Iterator[Nodes]:
    yield Nodes(plane.admin, "one")
    # No kubelet ends them gracefully.
    remove_pods(plane.admin)


@pytest.fixture
def deletions(plane: LentPlane, nodes: Nodes) -> Iterator[Deletions]:
    with Deletions(plane, lambda _: later(2)) as webhook:
        yield webhook


def test_a_denial_alone_makes_the_scheduler_ask_again_and_again(
    plane: LentPlane, nodes: Nodes, deletions: Deletions
) -> None:
    deletions.decide = lambda _: later()
    plane.start_scheduler("default")
    nodes.run("vm", "one")

    begin = nodes.ask()

    eventually(lambda: len(deletions.since(begin)) > RETRIES, what="more DELETEs")
    assert time.monotonic() - begin < 20
    assert {each.user for each in deletions.seen} == {SCHEDULER}
    assert nodes.is_target("vm")


def test_the_scheduler_asks_again_when_the_denial_says_so_and_binds_as_soon_as_the_pod_has_ended(
    plane: LentPlane, nodes: Nodes, deletions: Deletions
) -> None:
    make_node(plane.admin, "two")
    plane.start_scheduler("default")
    nodes.run("vm", "one")

    begin = nodes.ask(nodeSelector=ONE)
    eventually(lambda: len(deletions.since(begin)) == 3, what="three DELETEs")

    first, second, third = (each.at for each in deletions.seen)
    assert 1.9 < second - first < 4
    assert 1.9 < third - second < 4
    assert nodes.nominated() == "one"
    # Others go on being scheduled meanwhile.
    nodes.ask("other", cpu="1")
    assert nodes.bound("other")
    assert len(deletions.seen) == 3

    deletions.decide = lambda _: later(60)
    eventually(lambda: len(deletions.since(begin)) == 4, what="the DELETE with whose denial it waits for a minute")
    ended = nodes.end("vm")
    assert nodes.bound() - ended < 10
    assert not nodes.is_ending("vm")


def test_the_scheduler_asks_eleven_times_before_it_preempts_anew(
    plane: LentPlane, nodes: Nodes, deletions: Deletions
) -> None:
    deletions.decide = lambda _: later(1)
    plane.start_scheduler("default")
    nodes.run("vm", "one")

    begin = nodes.ask()

    eventually(lambda: len(deletions.since(begin)) > RETRIES + 1, what="a second preemption")
    gaps = [later.at - earlier.at for earlier, later in pairwise(deletions.seen)]
    assert min(gaps[:RETRIES]) > 0.9
    assert gaps[RETRIES] < 0.9


def test_each_of_several_preemptors_is_bound_if_the_deletion_of_an_ended_pod_is_denied(
    plane: LentPlane, nodes: Nodes, deletions: Deletions
) -> None:
    """Else those whose wait ends later are not, with 1.36 and 1.37: no event makes the scheduler try them again."""
    ended: set[str] = set()
    deletions.decide = lambda pod: later() if pod in ended else later(3)
    plane.start_scheduler("default")
    vms, preemptors = [f"vm-{number}" for number in range(3)], [f"preemptor-{number}" for number in range(3)]
    for name in vms:
        nodes.run(name, "one", cpu="1200m")

    begin = max(nodes.ask(name, cpu="1200m") for name in preemptors)
    eventually(lambda: len(deletions.since(begin)) >= len(vms), what="the DELETEs")
    for name in vms:
        nodes.end(name)
        ended.add(name)

    assert {nodes.bound(name) for name in preemptors}
    assert time.monotonic() - begin < 60
    assert not any(nodes.is_ending(name) for name in vms)


@pytest.mark.parametrize("first", ["vm", "web"])
def test_victims_that_are_no_vms_are_deleted_before_or_after_and_the_room_is_there_in_the_end(
    plane: LentPlane, nodes: Nodes, deletions: Deletions, first: str
) -> None:
    """One victim of several, which depends on their age and the release, is deleted after all others."""
    deletions.decide = lambda _: later(1)
    plane.start_scheduler("default")
    for name in (first, *({"vm", "web"} - {first})):
        nodes.run(name, "one", cpu="1800m", **({"labels": {"app": "web"}} if name == "web" else {}))
        # A pod's age is counted in seconds.
        time.sleep(1.1)

    begin = nodes.ask(cpu="3500m")
    eventually(lambda: len(deletions.since(begin, "vm")) > 2, what="some DELETEs")
    deletions.decide = lambda _: later()
    nodes.end("vm")

    eventually(lambda: nodes.is_ending("web"), what="the deletion of the other victim")
    nodes.bury("web")
    assert nodes.bound()
    assert not nodes.is_ending("vm")


def test_the_wait_outlives_the_preemptor(plane: LentPlane, nodes: Nodes, deletions: Deletions) -> None:
    """So who allows the DELETE later must see that somebody still waits for the room."""
    plane.start_scheduler("default")
    nodes.run("vm", "one")
    begin = nodes.ask()
    eventually(lambda: deletions.since(begin), what="a DELETE")

    nodes.bury("preemptor")

    gone = time.monotonic()
    eventually(lambda: deletions.since(gone, "vm"), what="a DELETE for a preemptor that is gone")


def test_without_asynchronous_preemption_the_wait_stops_all_scheduling(
    plane: LentPlane, nodes: Nodes, deletions: Deletions
) -> None:
    """It shows by the preemptor, which has no nominated node until its victims are deleted."""
    answered = threading.Event()
    deletions.decide = lambda _: ALLOWED if answered.is_set() else later(3)
    make_node(plane.admin, "two")
    plane.start_scheduler("default", options=SYNCHRONOUS)
    nodes.run("vm", "one")

    begin = nodes.ask(nodeSelector=ONE)
    eventually(lambda: deletions.since(begin), what="a DELETE")
    nodes.ask("other", cpu="1")
    eventually(lambda: len(deletions.since(begin)) > 2, what="a third DELETE")

    assert nodes.nominated() == ""
    assert "nodeName" not in nodes.get("other")["spec"]
    answered.set()
    assert nodes.bound("other")


def test_a_pod_is_deleted_as_without_the_webhook_when_that_is_gone(
    plane: LentPlane, nodes: Nodes, deletions: Deletions
) -> None:
    plane.start_scheduler("default")
    nodes.run("vm", "one")
    begin = nodes.ask()
    eventually(lambda: deletions.since(begin), what="a DELETE")

    with deletions.paused():
        eventually(lambda: nodes.is_ending("vm"), what="the deletion")
        nodes.bury("vm")
    assert nodes.bound()


def test_the_taint_controller_gives_up_for_good_after_five_denials(
    plane: LentPlane, nodes: Nodes, deletions: Deletions
) -> None:
    """So the last of them must not be a denial, or the pod stays on the node."""
    deletions.decide = lambda _: later()
    plane.start_controller_manager(accounts=True)
    nodes.run("vm", "one")

    begin = nodes.taint("one")
    eventually(lambda: len(deletions.since(begin)) >= ATTEMPTS, what="the DELETEs")
    time.sleep(3)

    # Of those who look at the pod by two queues, each tries so often.
    assert len(deletions.seen) in (ATTEMPTS, 2 * ATTEMPTS)
    assert {each.user for each in deletions.seen} == {TAINT_CONTROLLER}
    assert not nodes.is_ending("vm")
    # Neither a change of the pod nor of the node makes it try again.
    tried = len(deletions.seen)
    for resource, name, space in ((PODS, "vm", SPACE), ("v1/nodes", "one", None)):
        nodes.kube.patch(resource, name, {"metadata": {"labels": {"changed": "yes"}}}, space)
    time.sleep(2)
    assert len(deletions.seen) == tried


def test_the_taint_controller_waits_as_denials_say_at_each_of_its_attempts(
    plane: LentPlane, nodes: Nodes, deletions: Deletions
) -> None:
    deletions.decide = lambda _: later(1)
    plane.start_controller_manager(accounts=True)
    nodes.run("vm", "one")

    begin = nodes.taint("one")

    # Two queues may look at the pod, and then ask twice as often.
    eventually(lambda: deletions.since(begin + (ATTEMPTS - 1) * RETRIES), what="the last attempt's", timeout=120)
    assert len(deletions.seen) > (ATTEMPTS - 1) * RETRIES
    deletions.decide = lambda _: ALLOWED
    eventually(lambda: nodes.is_ending("vm"), what="the deletion")
