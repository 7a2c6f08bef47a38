"""Starts after which any one node may be lost, and starts after which one may not be."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.forecast.clusters import apart, filler, node, vm
from tests.placement.headroom.fleets import Clock, finished, headroom, machine, node_view, placed, starting
from webhook.admission.step_budget import StepBudget
from webhook.k8s.types.scheduling import REQUIRED
from webhook.placement.headroom.headroom import RESERVED_SECONDS, AskedStart, Headroom
from webhook.placement.headroom.layout import POD
from webhook.placement.headroom.obstacles import Fix
from webhook.placement.headroom.pods import KnownVm

THREE = [node("a"), node("b"), node("c")]


def full(*more: str, clock: Clock | None = None) -> Headroom:
    """Three nodes of 8Gi, two of which can hold what runs on the three and no more."""
    vms = [vm(f"{place}{number}", place, "2500Mi") for place in "abc" for number in range(2)]
    return headroom(THREE, vms, also=more, clock=clock)


class TestStart:
    def test_it_is_kept_where_the_others_have_room_for_what_any_node_carries(self) -> None:
        verdict = headroom(THREE, [vm("x", "a", "2Gi")], also=["new"]).judge(starting("new", "2Gi"))
        assert (verdict.kind, verdict.how) == ("kept", "room")

    def test_it_is_broken_where_a_lost_node_leaves_a_vm_down_with_the_node_the_vm_and_what_helps(self) -> None:
        verdict = full("new").judge(starting("new", "2Gi"))
        assert verdict.kind == "broken"
        assert verdict.lost in "abc"
        assert verdict.before == 0
        assert verdict.vms
        assert "add a node like" in verdict.fix.named

    def test_a_vm_that_no_other_node_could_take_breaks_it_itself(self) -> None:
        nodes = [node("a", memory="16Gi"), node("b"), node("c")]
        verdict = headroom(nodes, also=["big"]).judge(starting("big", "12Gi"))
        assert (verdict.kind, verdict.node, verdict.lost) == ("broken", "a", "a")
        assert verdict.vms == (("shop", "big"),)
        assert verdict.fix == Fix("add a node like a", "add a node")

    def test_what_helps_is_about_the_vm_that_the_start_leaves_down(self) -> None:
        """One that had no place before needs far more room, on another node, and nobody asks for that."""
        nodes = [node("a", memory="64Gi"), node("b", memory="64Gi"), node("c", memory="64Gi")]
        vms = [vm("huge", "a", "50Gi"), vm("b0", "b", "40Gi"), vm("c0", "c", "41Gi")]
        verdict = headroom(nodes, vms, also=["new"]).judge(starting("new", "24Gi"))
        assert (verdict.kind, verdict.vms, verdict.before) == ("broken", (("shop", "new"),), 1)
        assert verdict.fix.named.startswith("free 1Gi of memory on c")

    def test_a_cordoned_node_that_would_help_is_the_cheapest_fix(self) -> None:
        nodes = [node("a", memory="16Gi"), node("b"), node("c", memory="16Gi", cordoned=True)]
        verdict = headroom(nodes, also=["big"]).judge(starting("big", "12Gi"))
        assert verdict.fix == Fix('uncordon node "c"', "uncordon a node")

    def test_a_vm_without_room_even_now_breaks_it_as_soon_as_it_finds_some(self) -> None:
        verdict = headroom(THREE, also=["big"]).judge(starting("big", "12Gi"))
        assert (verdict.kind, verdict.fix.named) == ("no-room", "add a node that offers 12Gi of memory")

    @pytest.mark.parametrize("strategy", ["Manual", "Once"])
    def test_vms_that_nothing_starts_again_need_no_place(self, strategy: str) -> None:
        nodes = [node("a", memory="16Gi"), node("b"), node("c")]
        found = headroom(nodes, [], also=["big"], strategy=strategy)
        assert found.judge(starting("big", "12Gi")).kind == "kept"

    def test_a_vm_that_was_halted_a_moment_ago_needs_one(self) -> None:
        """Its pod may be reviewed before the watch has seen that its owner has switched it on."""
        nodes = [node("a", memory="16Gi"), node("b"), node("c")]
        found = headroom(nodes)
        found.put_vm(("shop", "big"), KnownVm("Halted", is_stopped=True))
        assert found.judge(starting("big", "12Gi")).kind == "broken"
        assert found._vms["shop", "big"].is_stopped

    def test_they_take_the_place_of_others_all_the_same(self) -> None:
        found = full()
        found.put_vm(("shop", "new"), KnownVm("Manual"))
        assert found.judge(starting("new", "2Gi")).kind == "broken"

    def test_pods_of_other_controllers_start_anew_first_and_those_of_daemon_sets_do_not(self) -> None:
        nodes = [node("a"), node("b")]
        vms = [vm("x", "a", "4Gi")]
        for owner, kind in (("ReplicaSet", "broken"), ("DaemonSet", "kept")):
            pods = [filler("p", "a", "2Gi", owner=owner), filler("q", "b", "1Gi", owner="DaemonSet")]
            found = headroom(nodes, vms, pods=pods, also=["new"], strategy="Always")
            found.put_vm(("shop", "new"), KnownVm("Manual"))
            # On b the VM, the pod and the new one need 4 + 2 + 2 + 1 of 8.
            verdict = found.judge(starting("new", "2Gi", nodeSelector={"kubernetes.io/hostname": "b"}))
            assert verdict.kind == kind, owner

    def test_rules_between_pods_count(self) -> None:
        nodes = [node("a"), node("b")]
        only: Any = {"affinity": apart(app="db"), "labels": {"app": "db"}}
        found = headroom(nodes, [vm("x", "a", **only)], also=["y"])
        verdict = found.judge(starting("y", **only))
        assert (verdict.kind, verdict.node) == ("broken", "b")
        found = headroom([*nodes, node("c")], [vm("x", "a", **only)], also=["y"])
        assert found.judge(starting("y", **only)).kind == "kept"

    def test_a_vm_takes_no_place_on_a_node_that_it_does_not_fit_on(self) -> None:
        """db-2 may start again in its own zone alone, beside h1, where h3 has no room."""
        nodes = [node(f"{zone}{number}", memory="64Gi", zone=zone) for zone in "ab" for number in range(2)]
        fleet = [machine("h1", "a1", "40Gi"), machine("h2", "b1", "40Gi")]
        for name, at, memory in (("db-1", "b0", "4Gi"), ("db-2", "a0", "1Gi")):
            # As the rules of groups are: a VM keeps off all others, and not off itself.
            affinity = apart("zone", app="db")
            (term,) = affinity["podAntiAffinity"][REQUIRED]
            itself = {"key": "kubevirt.io/created-by", "operator": "NotIn", "values": [f"uid-{name}"]}
            term["labelSelector"]["matchExpressions"] = [itself]
            fleet.append(machine(name, at, memory, affinity=affinity, labels={"app": "db"}))
        verdict = headroom(nodes, fleet, also=["h3"]).judge(starting("h3", "40Gi"))
        assert (verdict.kind, verdict.how) == ("kept", "simulation")

    def test_a_vm_takes_a_whole_node_from_those_that_it_keeps_away(self) -> None:
        nodes = [node("a", zone="a"), node("b", zone="b"), node("c", zone="b")]
        fleet = [machine("x", "a"), machine("web", "b", labels={"app": "web"}, nodeSelector={"zone": "b"})]
        new = starting("new", labels={"app": "web"}, affinity=apart(app="web"))
        found = headroom(nodes, [*fleet, machine("y", "a")], also=["new"])
        verdict = found.judge(new)
        assert (verdict.kind, verdict.node, verdict.lost, verdict.vms) == ("broken", "c", "b", (("shop", "web"),))

    def test_pods_of_a_node_without_vms_are_in_the_way_of_the_first_one_there(self) -> None:
        nodes = [node("a"), node("b")]
        pods = [filler(f"p{number}", "b", "1Gi", owner="ReplicaSet") for number in range(3)]
        verdict = headroom(nodes, [vm("x", "a", "4Gi")], pods=pods, also=["new"]).judge(starting("new", "2Gi"))
        assert (verdict.kind, verdict.lost, verdict.vms) == ("broken", "b", (("shop", "new"),))

    @pytest.mark.control("starts-kept-out")
    def test_what_was_broken_before_is_no_reason(self) -> None:
        nodes = [node("a", memory="64Gi"), node("b"), node("c")]
        found = headroom(nodes, [vm("giant", "a", "60Gi")], also=["small"])
        assert found.judge(starting("small", "1Gi")).kind == "kept"

    def test_one_that_makes_it_worse_is(self) -> None:
        nodes = [node("a", memory="64Gi"), node("b", memory="64Gi"), node("c")]
        found = headroom(nodes, [vm("giant", "a", "60Gi"), vm("other", "b", "60Gi")], also=["new"])
        pod = starting("new", "9Gi")
        assert found.judge(pod).kind == "no-room"
        verdict = headroom([node("a", memory="80Gi"), *nodes[1:]], [vm("giant", "a", "60Gi")], also=["new"]).judge(pod)
        assert verdict.kind == "broken"

    @pytest.mark.control("starts-kept-out")
    def test_rules_that_mean_too_many_namespaces_and_values_are_not_evaluated(self) -> None:
        # All of it is looked up by each namespace with each value: a pod of 20 kB would have a million entries.
        many = [str(number) for number in range(300)]
        term: Any = {"labelSelector": {"matchExpressions": [{"key": "k", "operator": "In", "values": many}]}}
        affinity = apart(app="db")
        terms = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        terms[0] |= term | {"namespaces": many}
        found, hostile = headroom(THREE, also=["new"]), starting("new", affinity=affinity)
        assert hostile.is_complex
        assert found.judge(hostile).kind == "not-proven"
        found.put_pod(replace(hostile, node="a"))
        assert not found._current().simulation.rules.has_rules

    @pytest.mark.control("starts-kept-out")
    def test_beyond_the_steps_it_says_that_it_does_not_know(self) -> None:
        found = headroom(THREE, [vm(f"{place}{number}", place, "2500Mi") for place in "abc" for number in range(2)])
        found.put_vm(("shop", "new"), KnownVm("Manual"))
        assert found.judge(starting("new", "128Mi", cpu="2"), 10).kind == "not-proven"

    def test_but_not_of_what_all_other_nodes_together_have_too_little_of(self) -> None:
        verdict = full("new").judge(starting("new", "2Gi"), 10)
        assert (verdict.kind, verdict.how) == ("broken", "room")
        assert verdict.shortage == "its VMs request 7048Mi of memory, and all other nodes have 6384Mi free"

    def test_it_leaves_all_as_it_was(self) -> None:
        found = full("new")
        found.judge(starting("new", "2Gi"), 45)
        assert found.judge(starting("new", "2Gi")) == full("new").judge(starting("new", "2Gi"))

    def test_one_of_a_vm_that_is_not_known_yet_needs_a_place(self) -> None:
        nodes = [node("a", memory="16Gi"), node("b"), node("c")]
        assert headroom(nodes).judge(starting("big", "12Gi")).kind == "broken"

    @pytest.mark.control("starts-kept-out")
    @pytest.mark.parametrize("count", [0, 19, 20, 40, 90])
    def test_pods_that_fit_nowhere_keep_no_vm_from_its_place(self, count: int) -> None:
        """VM z has crashed, and another pod taken its room; it gets a place as soon as there is one again."""
        nodes = [node("a"), node("b")]
        found = headroom(nodes, [vm("x", "a", "7Gi"), vm("y", "b", "6Gi"), vm("z", "b", "1900Mi")], also=["new"])
        found.judge(starting("new", "100Gi"))
        for number in range(count):
            found.put_pod(replace(starting(f"gpu{number}", nodeSelector={"gpu": "yes"}), vm=""))
        found.put_pod(placed(filler("fill", "b", "1900Mi")))
        found.remove_pod(("shop", "virt-launcher-z"))
        found.put_vm(("shop", "y"), KnownVm("Halted", is_stopped=True))
        found.remove_pod(("shop", "virt-launcher-y"))

        assert found.judge(starting("new", "5500Mi")).kind == "no-room"

    def test_of_many_that_wait_each_is_looked_at_in_turn(self) -> None:
        found = headroom([node("a")], also=["new"])
        found.judge(starting("new", "100Gi"))
        for number in range(70):
            found.put_pod(replace(starting(f"p{number}", "7Gi" if number == 65 else "100Gi"), vm=""))
        model = found._current()
        model.unbind((POD, "shop", "virt-launcher-p65"))
        for _ in range(4):
            model.place_waiting(20)
        assert (POD, "shop", "virt-launcher-p65") in model.places

    def test_changes_of_nodes_are_taken_in_beside_the_reviews_in_large_clusters(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("webhook.placement.headroom.headroom.MOST_SCORED", 1)
        found = full("new")
        assert not found.is_ready
        for number, _ in enumerate(found.rebuild()):
            if not number:
                # What happens meanwhile is in it.
                found.remove_pod(("shop", "virt-launcher-a0"))
                found.remove_vm(("shop", "a0"))
        assert found.is_ready
        assert found.judge(starting("new", "2Gi")).kind == "kept"
        found.remove_node("c")
        assert found.judge(starting("new", "2Gi")).kind == "kept"
        assert list(found.rebuild())
        assert found.judge(starting("new", "2Gi")).kind in ("broken", "no-room")
        assert not list(found.rebuild())

    @given(st.lists(st.sampled_from(("begin", "go on", "end", "node", "pod", "gone")), max_size=40), st.randoms())
    def test_however_many_are_rebuilt_at_once_nothing_that_changes_is_lost(
        self, happenings: list[str], random: Random
    ) -> None:
        """An answer rebuilds a small cluster, a watch a large one; one may become the other in the middle."""
        found = headroom([node(f"n{number}") for number in range(30)], [vm(f"v{n}", f"n{n}") for n in range(30)])
        under_way: list[Iterator[None]] = []
        for number, happening in enumerate(happenings):
            match happening:
                case "begin":
                    found._is_outdated = True
                    under_way.append(found.rebuild())
                case "go on" | "end" if under_way:
                    each = random.choice(under_way)
                    for _ in islice(each, None if happening == "end" else random.randrange(1, 9)):
                        pass
                case "node":
                    found.put_node(node_view(node(f"more-{number}")))
                case "pod":
                    found.put_pod(placed(vm(f"late-{number}", f"n{random.randrange(30)}", "5Gi")[1]))
                case "gone":
                    found.remove_pod(("shop", f"virt-launcher-v{random.randrange(30)}"))
        for each in under_way:
            assert not [*each][100:]
        model = found._current()
        placed_pods = {key[1:]: model.names[place.position] for key, place in model.places.items() if key[0] == POD}
        assert placed_pods == {name: pod.node for name, pod in found._pods.items()}
        # A place that is kept for a VM takes some, too.
        kept = {model.names[place.position] for key, place in model.places.items() if key[0] != POD}
        for name in found._nodes.keys() - kept:
            used = sum(each.simulated.requests["memory"] for each in found._pods.values() if each.node == name)
            position = model.index.position(name)
            assert position is not None
            assert model.simulation.resources(position).free["memory"] == 8 * 2**30 - used


class TestChanges:
    @pytest.mark.control("starts-kept-out")
    def test_what_is_kept_of_rules_of_pods_that_are_gone_goes_without_any_start(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("webhook.placement.headroom.headroom.MOST_SCORED", 1)
        monkeypatch.setattr("webhook.placement.headroom.headroom._MOST_CHANGES", 1000)
        found = headroom(THREE)
        found._current()
        tracked, required = set(), set()
        for number in range(300):
            name = f"{number}"
            if number % 2:
                pod = replace(starting("w", affinity=apart(app=name)), node="a")
            else:
                pod = starting("w", nodeSelector={"zone": name})
            found.put_pod(pod)
            found.remove_pod(pod.name)
            for _ in found.rebuild():
                pass
            tracked.add(len(found._current().simulation.rules._tracked))
            required.add(len(found._current()._eligibility))
        assert 1 < max(tracked) <= 100
        assert 1 < max(required) <= 60

    def test_a_cluster_of_many_pods_is_not_counted_again_and_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("webhook.placement.headroom.headroom.MOST_SCORED", 1)
        monkeypatch.setattr("webhook.placement.headroom.headroom._MOST_CHANGES", 5)
        found = full("new")
        assert list(found.rebuild())
        assert not list(found.rebuild())
        found.judge(starting("new"))
        assert not list(found.rebuild())

    @pytest.mark.control("starts-kept-out")
    def test_pods_of_all_tenants_are_looked_up_by_few_rules_of_one(self) -> None:
        found = headroom(THREE, also=["new"])
        for number in range(200):
            term = {"topologyKey": "zone", "namespaceSelector": {}}
            more = [{"key": f"k{number}", "operator": "Exists"}]
            selected = {"matchLabels": {"kubevirt.io": "virt-launcher"}, "matchExpressions": more}
            rule = {"podAntiAffinity": {REQUIRED: [term | {"labelSelector": selected}]}}
            found.put_pod(replace(starting(f"w{number}", affinity=rule), node="a", vm=""))
        index = found._current().simulation.rules
        launcher = replace(starting("new").simulated.info, labels={"kubevirt.io": "virt-launcher"})
        budget = StepBudget()
        budget.run(index.keeps_away, launcher)
        assert budget.spent < 100

    @pytest.mark.control("starts-kept-out")
    def test_a_rule_looks_at_pods_of_the_namespaces_alone_that_it_means(self) -> None:
        found = full("new")
        model = found._current()
        looked_at = [info.namespace for info, _ in model._bound(frozenset(["demo"]))]
        assert not looked_at
        assert {info.namespace for info, _ in model._bound(None)} == {"shop"}
        found.remove_vm(("shop", "a0"))
        found.remove_pod(("shop", "virt-launcher-a0"))
        assert len(list(model._bound(frozenset(["shop"])))) == 5


class TestRestart:
    def test_a_vm_whose_pod_is_gone_starts_again_in_the_place_that_is_kept(self) -> None:
        clock = Clock()
        found = full("new", clock=clock)
        assert not found.has_run(starting("new"))
        found.remove_pod(("shop", "virt-launcher-a0"))
        again = starting("a0", "2500Mi")
        assert found.has_run(again)
        # Nobody else gets its room.
        assert found.judge(starting("new", "2Gi")).kind == "broken"
        clock.now += 1801
        assert not found.has_run(again)
        assert found.judge(starting("new", "2Gi")).kind == "kept"

    def test_vms_of_a_lost_node_have_places_elsewhere_at_once(self) -> None:
        found = full("new")
        found.remove_node("a")
        # Their pods are still there.
        assert found.has_run(replace(starting("a0"), name=("shop", "virt-launcher-a0-2")))
        assert found.judge(starting("new", "2Gi")).kind == "no-room"
        found.remove_pod(("shop", "virt-launcher-a0"))
        found.remove_pod(("shop", "virt-launcher-a1"))
        assert found.judge(starting("new", "2Gi")).kind == "no-room"
        found.put_node(node_view(node("a")))
        assert found.judge(starting("new", "512Mi")).kind == "kept"

    def test_one_that_its_owner_has_stopped_gives_its_room_back_at_once(self) -> None:
        found = full("new")
        found.put_vm(("shop", "a0"), KnownVm("Halted", is_stopped=True))
        found.remove_pod(("shop", "virt-launcher-a0"))
        assert not found.has_run(starting("a0"))
        assert found.judge(starting("new", "2Gi")).kind == "kept"

    def test_one_that_is_deleted_does_too(self) -> None:
        found = full("new")
        found.remove_pod(("shop", "virt-launcher-a0"))
        found.remove_vm(("shop", "a0"))
        assert found.judge(starting("new", "2Gi")).kind == "kept"

    def test_of_those_that_run_at_the_beginning_nobody_has_seen_the_end(self) -> None:
        found = headroom(THREE)
        for name, vm_known in {
            "runs": KnownVm("Always"),
            "halted": KnownVm("Halted", is_stopped=True),
            "denied": KnownVm("Always", is_denied=True),
        }.items():
            found.put_vm(("shop", name), vm_known)
        found.begin()
        assert [found.has_run(starting(each)) for each in ("runs", "halted", "denied")] == [True, False, False]


class TestReservation:
    @pytest.mark.control("room-taken-twice")
    def test_two_starts_cannot_both_take_the_last_room(self) -> None:
        clock = Clock()
        found = full("one", "two", clock=clock)
        found.remove_pod(("shop", "virt-launcher-a0"))
        found.remove_vm(("shop", "a0"))
        one, two = starting("one", "2Gi"), starting("two", "2Gi")
        assert found.judge(one).kind == "kept"
        assert found.judge(two).kind == "kept"
        found.reserve(one)
        assert found.judge(two).kind == "broken"
        # It is asked about again, for it was not created.
        assert found.judge(one).kind == "kept"
        clock.now += RESERVED_SECONDS
        assert found.judge(two).kind == "kept"

    @pytest.mark.control("room-taken-twice")
    def test_one_that_is_being_decided_holds_its_room_until_it_is_denied(self) -> None:
        nodes = [node(name, memory="8Gi" if name in "ab" else "4Gi") for name in "abcde"]
        found = headroom(nodes, also=["large", "small"])
        large, small = starting("large", "7Gi"), starting("small", "2Gi")
        # Each of them alone.
        assert (found.judge(large).kind, found.judge(small).how) == ("kept", "room")
        deciding = found.decide(AskedStart(large, is_dry_run=False))
        next(deciding)
        assert found.peek(small) is None
        assert finished(deciding).kind == "kept"
        assert found.judge(small).kind == "broken"
        # It is about to be created, until it is not.
        found.release(large)
        assert found.judge(small).how == "room"
        found.put_pod(placed(filler("filler", "b", "4Gi")))
        assert finished(found.decide(AskedStart(large, is_dry_run=False))).kind == "broken"
        assert found.judge(small).kind == "kept"

    def test_a_dry_run_holds_nothing_in_the_end_and_nobody_asks_about_two_at_once(self) -> None:
        found = full("one", "two")
        found.remove_pod(("shop", "virt-launcher-a0"))
        found.remove_vm(("shop", "a0"))
        assert finished(found.decide(AskedStart(starting("one", "2Gi"), is_dry_run=True))).kind == "kept"
        assert finished(found.decide(AskedStart(starting("two", "2Gi"), is_dry_run=False))).kind == "kept"
        assert finished(found.decide(AskedStart(starting("one", "2Gi"), is_dry_run=True))).kind == "broken"

    def test_a_review_that_nobody_waits_for_any_more_leaves_its_room_held_and_all_else_as_it_was(self) -> None:
        found = full("one", "two")
        found.remove_pod(("shop", "virt-launcher-a0"))
        found.remove_vm(("shop", "a0"))
        deciding = found.decide(AskedStart(starting("one", "2Gi"), is_dry_run=False))
        next(deciding)
        deciding.close()
        # The API server may have admitted it.
        assert found.judge(starting("two", "2Gi")).kind == "broken"

    def test_a_start_that_was_denied_is_denied_again_at_once_until_something_changes(self) -> None:
        found = full("new")
        new = starting("new", "2Gi")
        assert found.peek(new) is None
        verdict = finished(found.decide(AskedStart(new, is_dry_run=False)))
        assert verdict.kind == "broken"
        # Its pod has another name at each attempt.
        again = replace(new, name=("shop", "virt-launcher-new-2"))
        assert found.peek(again) == verdict
        assert found.peek(starting("new", "1Gi")) is None
        # A pod that is seen again as it was changes nothing; a VM that stops does.
        found.put_pod(found._pods["shop", "virt-launcher-b0"])
        assert found.peek(again) == verdict
        found.remove_pod(("shop", "virt-launcher-b0"))
        assert found.peek(again) is None

    def test_the_pod_takes_its_place(self) -> None:
        clock = Clock()
        found = full("one", "two", clock=clock)
        found.remove_pod(("shop", "virt-launcher-a0"))
        found.remove_vm(("shop", "a0"))
        one = starting("one", "2Gi")
        found.reserve(one)
        found.put_pod(one)
        clock.now += RESERVED_SECONDS
        assert found.judge(starting("two", "2Gi")).kind == "broken"
        found.put_pod(replace(one, node="a"))
        assert found.judge(starting("two", "2Gi")).kind == "broken"
