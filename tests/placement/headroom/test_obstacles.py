"""Starts that no node takes: what keeps the VM from each node, and only what would help."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.forecast.clusters import HOST, Json, apart, filler, node, together
from tests.placement.headroom.fleets import headroom, machine, placed, starting
from webhook import names
from webhook.placement.groups import GROUP_LABEL, GroupPlacement, HostRule, PlaceRule
from webhook.placement.headroom.verdicts import Verdict

NAMES = ("node-a", "node-b", "node-c", "node-d")
NODES = [node(name, zone=zone) for name, zone in zip(NAMES, "xxyy", strict=True)]
CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
LAUNCHER = {"kubevirt.io": "virt-launcher"}


def tainted(name: str, key: str = "dedicated", value: str | None = "gpu", **more: Any) -> Json:
    made = node(name, **more)
    made["spec"]["taints"] = [{"key": key, "value": value, "effect": "NoSchedule"}]
    return made


def member(rule: str = "apart", key: str = HOST, group: str = "database") -> Json:
    """What a VM's pod has of a group with one required rule, for `machine`."""
    required = PlaceRule(key, required=True)
    kind = {"apart": "podAntiAffinity", "together": "podAffinity"}[rule]
    affinity = {
        kind: {"requiredDuringSchedulingIgnoredDuringExecution": GroupPlacement(group).required_terms(required)}
    }
    return {"labels": LAUNCHER | {GROUP_LABEL: group}, "affinity": affinity}


def judged(pod: Json, running: Any = (), nodes: Any = NODES, **more: Any) -> Verdict:
    verdict = headroom(nodes, running, also=["new"], **more).judge(starting("new", **pod))
    assert verdict.kind == "no-room"
    return verdict


def on(*names: str, **spec: Any) -> list[tuple[Json, Json]]:
    return [machine(f"db-{number}", name, **spec) for number, name in enumerate(names)]


class TestGroups:
    def test_a_vm_that_is_tied_to_the_node_of_another_one_of_its_group(self) -> None:
        """No node that is added has the hostname."""
        pinned = {"nodeSelector": {HOST: "node-a"}}
        verdict = judged(member() | pinned, on("node-a", **member()))
        assert verdict.why.named == (
            "0/4 nodes are available: 3 node(s) without kubernetes.io/hostname=node-a (required by the nodeSelector of"
            ' its pod), 1 node(s) where another VM of group "database" runs'
        )
        assert verdict.fix.named == (
            "let the VM run on more nodes, stop another VM of its group on node-a, or take the VM out of the group"
        )
        assert "node-a" not in verdict.why.plain + verdict.fix.plain
        assert "add a node" not in verdict.fix.named + verdict.fix.plain
        assert verdict.why.plain == (
            'it may run on none that has room, because of its nodeSelector and group "database"'
        )

    def test_the_fifth_of_a_group_on_four_nodes(self) -> None:
        verdict = judged(member(), on(*NAMES, **member()))
        assert verdict.why.named == '0/4 nodes are available: 4 node(s) where another VM of group "database" runs'
        assert verdict.fix.named == "stop another VM of its group, take the VM out of the group, or add a node"

    def test_the_fourth_which_leaves_none_for_a_loss(self) -> None:
        """Less memory does not help; to a VM of another namespace its group is not named."""
        found = headroom(NODES, on(*NAMES[:3], **member()), also=["new"])
        verdict = found.judge(starting("new", **member()))
        fix = "add a node, or take a VM out of the group of the one that finds no place"
        assert (verdict.kind, verdict.fix.plain) == ("broken", fix)
        assert verdict.fix.named.endswith(', or take a VM out of group "database"')
        crowded = headroom(NODES, [*on(*NAMES, **member()), machine("large", "node-a", "5Gi")], also=["new"])
        others = crowded.judge(replace(starting("new", "4Gi"), name=("other", "virt-launcher-new")))
        assert "group" not in others.fix.named + others.fix.plain

    def test_a_group_whose_vms_are_in_different_zones(self) -> None:
        rule = member(key="zone")
        verdict = judged(rule | {"nodeSelector": {"zone": "x"}}, on("node-a", **rule))
        assert '2 node(s) in whose zone another VM of group "database" runs' in verdict.why.named
        assert verdict.fix.named == (
            "let the VM run on more nodes, stop another VM of its group in zone x, or take the VM out of the group"
        )

    def test_a_group_that_stays_together_where_there_is_no_room(self) -> None:
        rule = member("together")
        verdict = judged({"memory": "6Gi"} | rule, on("node-a", memory="4Gi", **rule))
        assert verdict.why.named == (
            "0/4 nodes are available: 1 node(s) with too little memory free, 3 node(s) where no other VM of group"
            ' "database" runs'
        )
        assert verdict.fix.named == (
            'free 2Gi of memory on node-a, ask your admin to prefer the rule of group "database", or take the VM out of'
            " the group"
        )

    def test_a_zone_where_no_vm_of_the_group_is(self) -> None:
        rule = member("together", "zone")
        verdict = judged(rule | {"nodeSelector": {"zone": "y"}}, on("node-a", **rule))
        assert '2 node(s) in whose zone no other VM of group "database" runs' in verdict.why.named
        assert "add a node" not in verdict.fix.named
        verdict = judged(rule | {"memory": "6Gi"}, on("node-a", "node-b", **rule | {"memory": "4Gi"}))
        assert "add a node that it may run on" in verdict.fix.named

    @pytest.mark.parametrize("own", [[], [{"key": "zone", "operator": "In", "values": ["x"]}]])
    def test_the_nodes_of_a_group(self, own: list[Json]) -> None:
        """Its rule stands among the terms of the owner's own node affinity."""
        placement = GroupPlacement("database", nodes=HostRule({"license": "oracle"}, required=True))
        (term,) = placement.required_nodes()
        terms = [{"matchExpressions": [*own, *term["matchExpressions"]]}]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        pod = machine("new", "", affinity=affinity)[1]
        pod["spec"]["nodeName"] = ""
        pod["metadata"]["annotations"] = {names.INJECTED_GROUP_ANNOTATION: placement.text}
        verdict = headroom(NODES, also=["new"]).judge(placed(pod))
        assert '4 node(s) without license=oracle (required by group "database")' in verdict.why.named
        assert "group" in verdict.why.plain
        assert verdict.fix.named == (
            'ask your admin to prefer the rule of group "database", take the VM out of the group, or add a node that it'
            " may run on"
        )


class TestRulesOfOwners:
    def test_a_selector_that_no_node_meets(self) -> None:
        for selector in (
            {"disk": "fast"},
            {HOST: "node-x"},
            {"disk": "fast", "cpu-model.node.kubevirt.io/new": "true"},
        ):
            verdict = judged({"nodeSelector": selector})
            assert verdict.fix.named == "let the VM run on more nodes, or add a node that it may run on"

    def test_node_affinity_that_names_a_node(self) -> None:
        field = {"key": "metadata.name", "operator": "In", "values": ["node-a"]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        verdict = judged({"affinity": affinity, "memory": "6Gi"}, on("node-a", memory="4Gi"))
        assert verdict.why.named == (
            "0/4 nodes are available: 3 node(s) outside the VM's node affinity, 1 node(s) with too little memory free"
        )
        assert verdict.fix.named == "free 2Gi of memory on node-a, or let the VM run on more nodes"

    def test_what_kubevirt_requires_is_no_selector_of_the_owner(self) -> None:
        nodes = [node("node-a")]
        nodes[0]["metadata"]["labels"]["kubevirt.io/schedulable"] = "false"
        verdict = judged({"nodeSelector": {"kubevirt.io/schedulable": "true"}}, nodes=nodes)
        assert verdict.why.named.endswith("1 node(s) without kubevirt.io/schedulable=true (no working virt-handler)")
        assert verdict.fix.named == "add a node that it may run on"

    def test_taints(self) -> None:
        verdict = judged({}, nodes=[tainted("node-a"), tainted("node-b", CONTROL_PLANE["key"], None)])
        assert "1 node(s) with the taint dedicated=gpu:NoSchedule" in verdict.why.named
        assert "taint" in verdict.why.plain
        assert "dedicated" not in verdict.why.plain + verdict.fix.plain
        assert verdict.fix.named == (
            "have the VM tolerate the taint dedicated=gpu:NoSchedule, or add a node that it may run on"
        )

    def test_those_of_the_control_plane_are_not_what_is_full(self) -> None:
        nodes = [*NODES[:2], tainted("control", CONTROL_PLANE["key"], None)]
        verdict = judged({"memory": "6Gi"}, on("node-a", "node-b", memory="4Gi"), nodes)
        assert verdict.why.named == (
            "0/3 nodes are available: 1 node(s) with the taint node-role.kubernetes.io/control-plane:NoSchedule,"
            " 2 node(s) with too little memory free"
        )
        assert verdict.fix.named == "free 2Gi of memory on node-a, or add a node that it may run on"

    def test_rules_between_pods(self) -> None:
        full = [filler(f"p{name}", name, "1Gi", app="web") for name in NAMES]
        verdict = judged({"affinity": apart(app="web")}, pods=full)
        assert verdict.why.named.endswith("4 node(s) where pod anti-affinity keeps it away")
        assert verdict.fix.named == "relax the pod anti-affinity, or add a node"
        verdict = judged({"affinity": together(app="db")}, pods=full)
        assert verdict.why.named.endswith("4 node(s) where its pod affinity finds no pod")
        assert verdict.fix.named == "relax its pod affinity"

    def test_where_each_node_has_two_reasons_no_single_change_is_offered(self) -> None:
        pinned = {"nodeSelector": {HOST: "node-a"}, "memory": "6Gi"}
        verdict = judged(member() | pinned, on("node-a", "node-b", **member() | {"memory": "4Gi"}), nodes=NODES[:2])
        assert verdict.fix.named == verdict.fix.plain == "change more than one of these"


class TestRoom:
    def test_where_there_is_no_room_only_that_is_said(self) -> None:
        verdict = judged({"memory": "6Gi"}, on(*NAMES, memory="4Gi"))
        assert verdict.why.named == verdict.why.plain == ""
        assert verdict.fix.named == "free 2Gi of memory on node-a, or add a node"

    def test_no_room_is_to_be_freed_on_a_node_that_is_too_small(self) -> None:
        verdict = judged({"memory": "12Gi"})
        assert verdict.why.named == ""
        assert verdict.fix.named == "add a node that offers 12Gi of memory"
        assert verdict.fix.plain == "add a node that offers more memory"

    def test_a_cordoned_node(self) -> None:
        nodes = [NODES[0], node("node-b", cordoned=True)]
        verdict = judged({"memory": "6Gi"}, on("node-a", memory="4Gi"), nodes)
        assert verdict.fix.named == 'uncordon node "node-b"'

    @pytest.mark.control("starts-kept-out")
    def test_of_many_reasons_the_first_are_listed(self) -> None:
        nodes = [tainted(f"n{number:02}", value=f"v{number:02}") for number in range(20)]
        assert judged({}, nodes=nodes[:10]).why.named.endswith("NoSchedule and 5 more reasons")
        verdict = judged({}, nodes=nodes)
        assert verdict.why.named.endswith("20 node(s) with taints that the VM does not tolerate")
        assert verdict.fix.named.startswith("have the VM tolerate the taints of more nodes, or ")


def test_a_loss_offers_no_node_where_none_helps_a_vm_that_is_tied_to_one() -> None:
    found = headroom(NODES, also=["new"])
    verdict = found.judge(starting("new", nodeSelector={HOST: "node-a"}))
    assert (verdict.kind, verdict.lost) == ("broken", "node-a")
    assert verdict.fix.named == verdict.fix.plain == "let the VM run on more nodes"
