"""Which pods can be evidence against a scheduler: those that no tenant can make wait."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json
from tests.cluster.scheduler_health.pods import pod
from webhook.cluster.scheduler_health import (
    MOST,
    MOST_PER_NAMESPACE,
    UNNOTICED_SECONDS,
    VOLUME_SECONDS,
    Waiting,
    WaitingPods,
    is_listed,
)
from webhook.k8s.types.core import PendingPod
from webhook.kubevirt.types.views import ActiveVmi

OVERDUE = UNNOTICED_SECONDS + 1


SCHEDULED = {"conditions": [{"type": "PodScheduled", "status": "False"}]}


def read(manifest: Json) -> PendingPod:
    return msgspec.convert(manifest, PendingPod)


def watched(*manifests: Json, opted_in: tuple[str, ...] = ("east", "west"), since: float = 0.0) -> WaitingPods:
    pods = WaitingPods(opted_in.__contains__)
    for manifest in manifests:
        pods.observe_waiting(Waiting.of(read(manifest), since))
    return pods


def check_all(pods: WaitingPods, now: float) -> None:
    for waiting in pods.unchecked_pods(now, MOST):
        pods.record_check(waiting.uid, listed=True)


def evidence(*manifests: Json, now: float = OVERDUE, namespace: str = "") -> str | None:
    """What pods that have waited since 0 say, every VMI knowing its own."""
    pods = watched(*manifests)
    check_all(pods, now)
    return pods.evidence(now, namespace)


class TestEnough:
    def test_pods_of_two_namespaces(self, golden: Callable[[str], None]) -> None:
        two = pod("east"), pod("west")

        golden(evidence(*two) or "")
        assert evidence(*two, now=UNNOTICED_SECONDS) is None

    def test_pods_of_two_vms_for_their_own_namespace_alone(self, golden: Callable[[str], None]) -> None:
        two = pod("east", "a"), pod("east", "b")

        assert evidence(*two) is None
        assert evidence(*two, namespace="west") is None
        golden(evidence(*two, namespace="east") or "")

    def test_one_pod_or_one_vm_is_never_enough(self) -> None:
        assert evidence(pod("east"), namespace="east") is None
        assert evidence(pod("east", "a", 1), pod("east", "a", 2), namespace="east") is None

    def test_nobody_is_named(self) -> None:
        text = evidence(pod("east", "secret-a"), pod("west", "secret-b"), namespace="east") or ""

        assert "secret" not in text
        assert "east" not in text

    def test_the_log_is_told_which(self) -> None:
        pods = watched(pod("west", "b"), pod("east", "a"))
        check_all(pods, OVERDUE)

        assert pods.witnesses() == ["east/virt-launcher-a-0", "west/virt-launcher-b-0"]


class TestNoEvidence:
    @pytest.mark.parametrize(
        "spec",
        [
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "none"}]},
            {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "none"}]},
            {"schedulingGates": [{"name": "example.com/gate"}]},
            {"schedulingGroup": {"podGroupName": "gang"}},
            {"workloadRef": {"name": "gang", "podGroup": "gang"}},
        ],
    )
    def test_pods_that_a_live_scheduler_may_leave_aside(self, spec: Json) -> None:
        gated = pod("east", **spec), pod("west", **spec)

        assert evidence(*gated, now=1e6) is None
        assert watched(*gated).unchecked_pods(1e6, MOST) == []

    @pytest.mark.parametrize(
        "volume", [{"persistentVolumeClaim": {"claimName": "root"}}, {"ephemeral": {"volumeClaimTemplate": {}}}]
    )
    def test_pods_whose_volumes_a_scheduler_may_be_waiting_for(self, volume: Json) -> None:
        pods = [
            pod(each, volumes=[{"name": "other", "emptyDir": {}}, {"name": "root", **volume}])
            for each in ("east", "west")
        ]

        assert evidence(*pods, now=VOLUME_SECONDS + UNNOTICED_SECONDS) is None
        assert evidence(*pods, now=VOLUME_SECONDS + OVERDUE)

    def test_volumes_that_nobody_must_make(self) -> None:
        pods = [pod(each, volumes=[{"name": "run", "emptyDir": {}}]) for each in ("east", "west")]

        assert evidence(*pods)

    def test_namespaces_that_have_not_opted_in(self) -> None:
        pods = watched(pod("foreign-1"), pod("foreign-2"), pod("east"))

        assert [waiting.namespace for waiting in pods.unchecked_pods(OVERDUE, MOST)] == ["east"]
        check_all(pods, OVERDUE)
        assert pods.evidence(OVERDUE, "foreign-1") is None

    def test_a_namespace_that_opts_out_later(self) -> None:
        inside = {"east", "west"}
        pods = WaitingPods(inside.__contains__)
        for each in inside:
            pods.observe_waiting(Waiting.of(read(pod(each)), 0.0))
        check_all(pods, OVERDUE)
        assert pods.evidence(OVERDUE)

        inside.remove("west")

        assert pods.evidence(OVERDUE) is None

    @pytest.mark.parametrize("change", ["labels", "ownerReferences"])
    def test_other_pods(self, change: str) -> None:
        others = [pod("east"), pod("west")]
        for other in others:
            del other["metadata"][change]

        assert evidence(*others) is None

    def test_pods_that_no_vmi_knows(self) -> None:
        pods = watched(pod("east"), pod("west"))
        for waiting in pods.unchecked_pods(OVERDUE, MOST):
            pods.record_check(waiting.uid, listed=False)

        assert pods.evidence(OVERDUE) is None
        assert pods.unchecked_pods(OVERDUE + 60, MOST) == []

    def test_pods_that_nobody_has_asked_about(self) -> None:
        assert watched(pod("east"), pod("west")).evidence(OVERDUE) is None


class TestPositive:
    def test_a_scheduler_that_has_just_tried_a_pod_is_available_whatever_waits(self) -> None:
        pods = watched(pod("east"), pod("west"), pod("foreign", "x"))
        check_all(pods, 100.0)
        assert pods.evidence(100.0)

        pods.observe_attempt("foreign-x-0", 100.0)

        assert pods.evidence(100.0 + UNNOTICED_SECONDS) is None
        assert pods.evidence(100.0 + OVERDUE)

    def test_pods_that_never_waited_prove_nothing(self) -> None:
        pods = watched(pod("east"), pod("west"))
        check_all(pods, OVERDUE)

        # A tenant who creates a pod may also bind it.
        pods.observe_attempt("bound-by-its-maker", OVERDUE)

        assert pods.evidence(OVERDUE)

    def test_what_is_gone_is_no_evidence_any_more(self) -> None:
        pods = watched(pod("east"), pod("west"), pod("west", "b"))
        check_all(pods, OVERDUE)
        pods.forget("west-a-0")
        assert pods.evidence(OVERDUE)
        pods.forget("west-b-0")
        assert pods.evidence(OVERDUE) is None
        assert pods.witnesses() == ["east/virt-launcher-a-0"]


class TestBounds:
    def test_of_one_namespace(self) -> None:
        pods = watched(*(pod("east", f"vm-{number}") for number in range(MOST_PER_NAMESPACE + 50)), pod("west"))

        assert len(pods) == MOST_PER_NAMESPACE + 1
        check_all(pods, OVERDUE)
        assert pods.evidence(OVERDUE)

    def test_of_all(self) -> None:
        pods = watched(*(pod(f"ns-{number}") for number in range(MOST + 50)))

        assert len(pods) == MOST

    def test_what_goes_makes_room(self) -> None:
        pods = watched(*(pod("east", f"vm-{number}") for number in range(MOST_PER_NAMESPACE)))
        pods.forget("east-vm-0-0")
        pods.observe_waiting(Waiting.of(read(pod("east", "new")), 0.0))

        assert len(pods) == MOST_PER_NAMESPACE

    def test_pods_that_come_and_go_leave_nothing(self) -> None:
        pods = watched(pod("west"))
        for number in range(3 * MOST):
            made = pod("east", f"vm-{number}")
            pods.observe_waiting(Waiting.of(read(made), 0.0))
            pods.forget(made["metadata"]["uid"])

        assert len(pods._due) <= 2 * MOST
        assert [waiting.namespace for waiting in pods.unchecked_pods(OVERDUE, MOST)] == ["west"]

    def test_namespaces_take_turns_in_being_checked(self) -> None:
        many = [pod("east", f"vm-{number}") for number in range(50)]
        pods = watched(*many, pod("west"))

        chosen = pods.unchecked_pods(OVERDUE, 4)

        assert sorted(waiting.namespace for waiting in chosen) == ["east", "east", "east", "west"]


class TestListed:
    @pytest.mark.parametrize(
        ("vmi", "known"),
        [
            (None, False),
            ({"metadata": {"uid": "vmi-east-a"}}, False),
            ({"metadata": {"uid": "vmi-east-a"}, "status": {"activePods": None}}, False),
            ({"metadata": {"uid": "vmi-east-a"}, "status": {"activePods": {"another": ""}}}, False),
            ({"metadata": {"uid": "another"}, "status": {"activePods": {"east-a-0": ""}}}, False),
            ({"metadata": {"uid": "vmi-east-a"}, "status": {"activePods": {"east-a-0": ""}}}, True),
        ],
    )
    def test_by_the_vmi_that_owns_it(self, vmi: Json | None, known: bool) -> None:
        waiting = Waiting.of(read(pod("east")), 0.0)

        assert is_listed(waiting, None if vmi is None else msgspec.convert(vmi, ActiveVmi)) is known


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["seen", "tried", "gone", "check"]),
            st.sampled_from(["east", "west", "foreign"]),
            st.sampled_from("abc"),
            st.integers(0, 20),
        ),
        max_size=60,
    )
)
def test_evidence_is_what_a_plain_count_says(steps: list[tuple[str, str, str, int]]) -> None:
    pods = WaitingPods({"east", "west"}.__contains__)
    waiting: dict[str, tuple[str, str, float]] = {}
    known: set[str] = set()
    now, tried = 0.0, -1e9
    for step, namespace, owner, seconds in steps:
        now += seconds
        uid = f"{namespace}-{owner}-0"
        if step == "seen":
            pods.observe_waiting(Waiting.of(read(pod(namespace, owner)), now))
            waiting.setdefault(uid, (namespace, owner, now))
        elif step == "check":
            check_all(pods, now)
            known |= {each for each, (_, _, since) in waiting.items() if now - since > UNNOTICED_SECONDS}
        else:
            if step == "tried" and uid in waiting:
                tried = now
            (pods.observe_attempt(uid, now) if step == "tried" else pods.forget(uid))
            waiting.pop(uid, None)
            known.discard(uid)
        counted = [waiting[each] for each in known if waiting[each][0] != "foreign"]
        lately = now - tried <= UNNOTICED_SECONDS
        all_over = len({namespace for namespace, _, _ in counted}) >= 2 and not lately
        east = len({owner for namespace, owner, _ in counted if namespace == "east"}) >= 2 and not lately
        assert bool(pods.evidence(now)) == all_over
        assert bool(pods.evidence(now, "east")) == (all_over or east)
