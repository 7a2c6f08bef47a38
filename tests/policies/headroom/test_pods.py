"""VMs' starts: which are denied, with what helps, and what never is."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.builders import Json, changed
from tests.forecast.clusters import together, vm
from tests.placement.headroom.fleets import placed
from tests.policies.decisions import answered, deciding
from tests.policies.headroom.world import PATH, QUOTAS_OF_DEMO, cluster, decide, facts, review, starting_pod
from webhook.admission.reasons import common
from webhook.admission.step_budget import StepBudget, TooComplex
from webhook.errors import Unavailable
from webhook.facts import Facts, HeadroomKey, VerdictKey, uncached_key
from webhook.placement.headroom.pods import PlacedPod
from webhook.placement.headroom.verdicts import Verdict
from webhook.placement.machines import JOB_UID
from webhook.placement.quota import ResourceQuota
from webhook.policies.headroom import reasons
from webhook.policies.headroom.settings import HeadroomSettings


def quota(hard: str, used: str) -> ResourceQuota:
    status = {"hard": {"requests.memory": hard}, "used": {"requests.memory": used}}
    return msgspec.convert({"metadata": {"name": "q"}, "status": status}, ResourceQuota)


def running(name: str, memory: str, namespace: str = "demo") -> PlacedPod:
    pod = vm(name, "a", memory)[1]
    pod["metadata"]["namespace"] = namespace
    return placed(pod)


def waiting(
    name: str, labels: dict[str, str], selector: dict[str, str] | None = None, beside: str | None = None
) -> PlacedPod:
    """A pod of another namespace that has no node yet."""
    pod = vm(name, "", "1Gi", affinity=together(**{beside: "yes"}) if beside else None)[1]
    pod["metadata"] |= {"name": name, "namespace": "evil", "labels": labels}
    pod["spec"]["nodeSelector"] = selector
    return placed(pod)


class TestLoss:
    def test_a_start_is_admitted_as_long_as_any_node_may_be_lost(self) -> None:
        decision = decide(facts())
        assert (decision.code, decision.denial, decision.details) == (reasons.KEPT, None, {"shown-by": "room"})

    def test_one_that_breaks_it_is_denied_with_the_node_and_what_helps(self) -> None:
        decision = decide(facts(cluster(full=True)), review(starting_pod("2Gi")))
        assert decision.code == reasons.NO_PLACE
        assert decision.denial
        assert decision.denial.code == 403
        text = decision.reasons[0].text
        assert f"if it starts on node {decision.details['node']} and node {decision.details['lost']} is lost" in text
        assert "add a node like" in text

    @pytest.mark.control("reveals-other-namespaces")
    def test_vms_of_other_namespaces_are_counted_and_not_named(self) -> None:
        found = cluster(full=True, strategy="Manual")
        decision = decide(facts(found), review(starting_pod("2Gi")))
        assert decision.details["vms"]
        assert all(each.startswith("shop/") for each in decision.details["vms"])
        assert "of other namespaces" in decision.reasons[0].text
        assert "shop/" not in decision.reasons[0].text

    @pytest.mark.control("pods-claim-to-be-admins")
    def test_who_may_be_no_api_server_gets_no_names(self) -> None:
        decision = decide(facts(cluster(full=True)), review(starting_pod("2Gi")), verified=False)
        text = decision.reasons[0].text
        assert decision.details["lost"] in "abc"
        assert text == ("if it starts and one of the nodes is lost, 1 VM finds no place; add a node")

    def test_one_that_finds_no_room_even_now_is_denied(self) -> None:
        assert decide(facts(), review(starting_pod("100Gi"))).code == reasons.NO_ROOM

    @pytest.mark.control("pods-claim-to-be-admins")
    def test_one_that_only_its_own_rules_keep_from_nodes_with_room_is_told_which(self) -> None:
        pod = starting_pod()
        pod["spec"]["nodeSelector"] = {"disk": "fast"}
        decision = decide(facts(), review(pod))
        assert decision.code == reasons.NO_ROOM
        assert "3 node(s) without disk=fast" in decision.reasons[0].text
        assert "3 node(s) without disk=fast" in decision.details["why"]
        assert "no node has room" not in decision.reasons[0].text
        unnamed = decide(facts(), review(pod), verified=False).reasons[0].text
        assert "nodeSelector" in unnamed
        assert "node(s)" not in unnamed

    def test_it_can_be_switched_off(self) -> None:
        decision = decide(facts(cluster(full=True)), review(starting_pod("2Gi")), node_loss=False)
        assert decision.code == reasons.KEPT

    @pytest.mark.control("starts-kept-out")
    def test_what_takes_too_long_to_find_out_is_admitted(self) -> None:
        pod = starting_pod("2Gi")
        pod["spec"]["tolerations"] = [{"key": f"k{number}", "operator": "Exists"} for number in range(1000)]
        decision = decide(facts(cluster(full=True)), review(pod))
        assert (decision.code, decision.denial) == (reasons.NOT_PROVEN, None)


class TestOthers:
    """What the pods of one tenant do to the reviews of others."""

    @pytest.mark.control("starts-kept-out")
    def test_a_pod_that_waits_with_thousands_of_labels_ends_no_review(self) -> None:
        found = cluster()
        found.put_pod(waiting("evil", {f"l{number}": "" for number in range(60_000)}, {"no": "such"}))
        assert StepBudget().run(decide, facts(found)).code == reasons.KEPT

    @pytest.mark.control("starts-kept-out")
    def test_no_review_pays_for_what_waits(self) -> None:
        spent = []
        for number in (0, 30):
            found = cluster()
            for each in range(number):
                found.put_pod(waiting(f"evil-{each}", {f"l{label}": "" for label in range(100)}, {"no": f"{each}"}))
            budget = StepBudget()
            assert budget.run(decide, facts(found)).code == reasons.KEPT
            spent.append(budget.spent)
        assert spent[0] == spent[1]

    @pytest.mark.control("starts-kept-out")
    def test_room_that_a_pod_would_have_taken_is_free_once_it_is_gone(self) -> None:
        found = cluster()
        found._current()
        for place in "abc":
            found.put_pod(waiting("evil", {f"l{number}": "" for number in range(30_000)}, beside="buddy"))
            buddy = vm("buddy", place, "1Mi", labels={"buddy": "yes"})[1]
            buddy["metadata"] |= {"name": "buddy", "namespace": "evil"}
            found.put_pod(placed(buddy))
            for _ in range(5):
                with suppress(TooComplex):
                    StepBudget().run(decide, facts(found))
            found.remove_pod(("evil", "evil"))
            found.remove_pod(("evil", "buddy"))
        assert StepBudget().run(decide, facts(found), review(starting_pod("2Gi"))).code == reasons.KEPT

    @pytest.mark.control("starts-kept-out")
    def test_a_start_that_takes_too_many_steps_at_once_is_decided_beside_other_reviews(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("webhook.placement.headroom.headroom._STEPS_AT_ONCE", 5)
        found = cluster()
        assert found.peek(running("web01", "1Gi")) is None
        assert StepBudget().run(decide, facts(found)).code == reasons.KEPT


class TestNeverDenied:
    def test_the_target_pod_of_a_migration(self) -> None:
        pod = starting_pod("2Gi")
        pod["metadata"]["labels"][JOB_UID] = "m"
        assert decide(facts(cluster(full=True)), review(pod)).code == reasons.MIGRATES

    def test_a_vm_that_starts_again(self) -> None:
        found = cluster(full=True)
        found.put_pod(running("web01", "2Gi"))
        assert decide(facts(found), review(starting_pod("2Gi"))).code == reasons.RESTARTS
        found.remove_pod(("demo", "virt-launcher-web01"))
        assert decide(facts(found), review(starting_pod("2Gi"))).code == reasons.RESTARTS

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            (lambda pod: pod["metadata"]["labels"].clear(), common.NOT_LAUNCHER),
            (lambda pod: pod["metadata"].update(ownerReferences=[]), common.NO_VMI_OWNER),
            (lambda pod: pod["spec"].update(nodeName="a"), common.POD_BOUND),
            (lambda pod: pod["spec"].update(containers=[]), reasons.NOT_RENDERED),
        ],
    )
    def test_what_is_no_start_of_a_vm(self, change: Any, code: str) -> None:
        pod: Json = starting_pod("2Gi")
        change(pod)
        assert decide(facts(cluster(full=True)), review(pod)).code == code

    @pytest.mark.parametrize("key", [HeadroomKey(), QUOTAS_OF_DEMO])
    def test_what_cannot_be_evaluated(self, key: Any) -> None:
        decision = decide(facts(cluster(full=True)) | {key: Unavailable("X")}, review(starting_pod("2Gi")))
        assert (decision.code, decision.denial) == (common.LOOKUP_FAILED, None)
        assert decision.warnings

    def test_while_it_is_off(self) -> None:
        decision = decide(facts(cluster(full=True)), review(starting_pod("2Gi")), enabled=False)
        assert decision.code == common.DISABLED

    def test_another_operation(self) -> None:
        assert decide(facts(), review(operation="UPDATE")).code == common.OTHER_OPERATION


class TestQuota:
    def test_a_migration_of_the_vm_itself_needs_room_beside_it(self) -> None:
        assert decide(facts(None, quota("3Gi", "1Gi"))).code == reasons.KEPT
        decision = decide(facts(None, quota("2Gi", "1Gi")))
        assert decision.code == reasons.NO_MIGRATION
        assert "VM demo/web01 could not migrate then: exceeded quota: q" in decision.reasons[0].text
        assert decide(facts(None, quota("2Gi", "1Gi")), migration_quota=False).code == reasons.KEPT

    def test_so_does_that_of_the_largest_of_the_namespace(self) -> None:
        found = cluster()
        found.put_pod(running("large", "2Gi"))
        assert decide(facts(found, quota("5Gi", "2Gi"))).code == reasons.KEPT
        decision = decide(facts(found, quota("4Gi", "2Gi")))
        assert "VM demo/large could not migrate then" in decision.reasons[0].text
        unnamed = decide(facts(found, quota("4Gi", "2Gi")), verified=False).reasons[0].text
        assert "another VM of the namespace could not migrate then" in unnamed

    @pytest.mark.parametrize(
        ("hard", "denied_for"),
        # With this start 7 GiB are used, and before it 6.
        [("10Gi", None), ("9Gi", "large"), ("8Gi", "large"), ("7Gi", "large")],
    )
    def test_the_largest_is_named_by_which_all_can_migrate(self, hard: str, denied_for: str | None) -> None:
        """So an owner learns how much room is enough."""
        found = cluster()
        for name, memory in (("small", "1Gi"), ("large", "3Gi"), ("medium", "2Gi")):
            found.put_pod(running(name, memory))
        text = decide(facts(found, quota(hard, "6Gi"))).reasons[0].text
        assert denied_for is None or f"VM demo/{denied_for} could not migrate then" in text
        assert ("could not migrate" in text) == (denied_for is not None)

    def test_a_vm_that_could_not_migrate_before_keeps_no_other_from_starting(self) -> None:
        found = cluster()
        found.put_pod(running("large", "5Gi"))
        assert decide(facts(found, quota("10Gi", "6Gi"))).code == reasons.KEPT
        # Where another VM could, the room for all is named.
        text = decide(facts(found, quota("7Gi", "6Gi"))).reasons[0].text
        assert "VM demo/large could not migrate then" in text
        # The new one itself has to, also where it is as large.
        equal = review(starting_pod("5Gi"))
        assert decide(facts(found, quota("10Gi", "6Gi")), equal).code == reasons.NO_MIGRATION
        assert decide(facts(found, quota("7500Mi", "6Gi"))).code == reasons.NO_MIGRATION

    @pytest.mark.parametrize("gibibytes", [1, 17, 18, 30, 2**20])
    def test_whatever_its_size(self, gibibytes: int) -> None:
        """Quotas count in billionths of a byte, of which 18 GiB are more than 64 bits hold."""
        found = cluster()
        found.put_pod(running("large", f"{gibibytes}Gi"))
        room = 2 * gibibytes + 1
        assert decide(facts(found, quota(f"{room}Gi", f"{gibibytes}Gi"))).code == reasons.KEPT
        decision = decide(facts(found, quota(f"{room - 1}Gi", f"{gibibytes}Gi")))
        assert decision.code == reasons.NO_MIGRATION

    @pytest.mark.control("starts-kept-out")
    def test_a_namespace_of_hundreds_of_sizes_takes_steps_for_each(self) -> None:
        found, one = cluster(), running("one", "1Gi")
        for number in range(300):
            amounts = one.usage.amounts | {"requests.memory": 1000 + number}
            usage = replace(one.usage, amounts=amounts)
            found.put_pod(replace(one, name=("demo", f"p{number}"), vm=f"p{number}", usage=usage))
            found.reserve(replace(one, name=("demo", f"r{number}"), vm=f"r{number}"))
        with pytest.raises(TooComplex, match="VMs of the namespace"):
            StepBudget().run(decide, facts(found, quota("1000Gi", "1Gi")))

    def test_what_is_about_to_be_created_counts(self) -> None:
        found = cluster()
        other = running("other", "1Gi")
        found.put_vm(other.of_vm, found._vms["demo", "web01"])
        found.reserve(other)
        assert decide(facts(found, quota("3Gi", "1Gi"))).code == reasons.NO_MIGRATION
        assert decide(facts(found, quota("4Gi", "1Gi"))).code == reasons.KEPT

    @pytest.mark.parametrize("is_seen", [False, True])
    def test_what_was_admitted_while_a_start_waited_counts(
        self, is_seen: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pod that is seen is no longer about to be created; the quota counts it, as it is now and was not before."""
        found, other = cluster(full=True), running("other", "1Gi")
        found.put_vm(other.of_vm, found._vms["demo", "web01"])
        # What the losses are does not matter here, only that they have to be simulated.
        monkeypatch.setattr(found, "peek", lambda _: None)

        class Meanwhile(dict[Any, object]):
            def __missing__(self, key: VerdictKey) -> Verdict:
                found.reserve(other)
                if is_seen:
                    found.put_pod(other)
                found.reserve(key.start.pod)
                return Verdict("kept", "simulation")

        known = Facts.of(facts(found, quota("3Gi", "1Gi")))
        now = {uncached_key(QUOTAS_OF_DEMO): (quota("3Gi", "2Gi" if is_seen else "1Gi"),)}
        section: Any = changed(HeadroomSettings(), enabled=True)
        decision, _ = answered(deciding(PATH, review(starting_pod("1Gi")), known, section), Meanwhile(now))

        assert decision.code == reasons.NO_MIGRATION
        # What was denied holds no room.
        assert ("demo", "web01") not in found._claims
