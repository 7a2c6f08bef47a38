"""Evictions and migrations: denied where only the group leaves no node, with what keeps each of them out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import CONTROLLER, Json
from tests.policies.eviction import world as eviction
from tests.policies.groups.world import (
    APART,
    APART_BY_ZONE,
    HOSTS,
    MEMBERS,
    REQUIRED,
    TERM,
    TOGETHER,
    evict,
    member,
    migrate,
    nodes,
    running,
    section,
    world,
)
from tests.policies.migration import world as migration
from webhook.admission.decision import Decision
from webhook.admission.reasons import common
from webhook.admission.step_budget import StepBudget, TooComplex
from webhook.errors import Unavailable
from webhook.facts import KubeVirtKey, ListKey, NodesKey, ObjectKey
from webhook.k8s.types.selectors import NOT_IN, Expression
from webhook.placement.groups import GROUP_LABEL, GroupPlacement, HostRule, PlaceRule, required_labels, required_places
from webhook.placement.machines import LAUNCHER_PODS, LauncherPod, Vmi
from webhook.placement.nodes import ZONE
from webhook.placement.requirements import Label, Origin
from webhook.policies.groups import reasons
from webhook.policies.groups.settings import GROUPS_ANNOTATION

A2, B1 = member("node-a2", "second"), member("node-b1", "third")
LICENSED = migration.node("node-c1", "c", license="oracle")
TOGETHER_BY_ZONE: Json = {"together": {"topologyKey": ZONE, "required": True}}
POD = ObjectKey(LAUNCHER_PODS, "demo", eviction.POD)


def both(rules: Json, *members: LauncherPod, cordoned: tuple[str, ...] = ("node-a1",), **given: Any) -> set[str]:
    """The codes of what an eviction and a migration hear."""
    settings = section(rules)
    facts = world(settings, *members, index=nodes(*cordoned, more=given.pop("more", ())), **given)
    decisions = {"eviction": evict(facts, settings), "migration": migrate(facts, settings)}
    for decision, status in zip(decisions.values(), (429, 403), strict=True):
        assert bool(decision.denial) == (decision.code == reasons.BROKEN)
        assert decision.denial is None or decision.denial.code == status
    return {each.code for each in decisions.values()}


@pytest.mark.parametrize(
    ("rules", "members", "cordoned", "is_denied"),
    [
        (APART, (A2,), ("node-a1",), False),
        # Three apart on three nodes, one of which is drained.
        (APART, (A2, B1), ("node-a1",), True),
        (APART, (A2,), ("node-a1", "node-b1"), True),
        # Its own zone is free, since the one that runs there is itself.
        (APART_BY_ZONE, (B1,), ("node-a1",), False),
        (APART_BY_ZONE, (B1,), ("node-a1", "node-a2"), True),
        # Alone, the first of those that leave, and the next one.
        (TOGETHER, (), ("node-a1",), False),
        (TOGETHER, (member("node-a1"),), ("node-a1",), False),
        (TOGETHER, (member("node-a1"), A2), ("node-a1",), False),
        # Nobody drains its node: the others stay.
        (TOGETHER, (member("node-a1"),), (), True),
        (TOGETHER_BY_ZONE, (member("node-a1"),), (), False),
        (TOGETHER_BY_ZONE, (A2,), ("node-a1",), False),
        (TOGETHER_BY_ZONE, (B1,), ("node-a1", "node-b1"), False),
        (TOGETHER_BY_ZONE, (member("node-a1"),), ("node-a2",), True),
        (HOSTS, (), ("node-a1",), True),
    ],
)
def test_what_a_group_leaves(rules: Json, members: Any, cordoned: tuple[str, ...], is_denied: bool) -> None:
    assert both(rules, *members, cordoned=cordoned) == {reasons.BROKEN if is_denied else common.ELIGIBLE}


def test_what_is_only_preferred_holds_nobody_back() -> None:
    assert both({"apart": {}}, A2, B1) == {reasons.NOTHING_REQUIRED}


def test_hosts_of_a_group() -> None:
    assert both(HOSTS, more=[LICENSED]) == {common.ELIGIBLE}


def test_the_denial_says_what_keeps_each_node_out() -> None:
    settings = section(APART)
    facts = world(settings, A2, index=nodes("node-a1", "node-b1"))
    for decision in (evict(facts, settings), migrate(facts, settings)):
        assert decision.denial is not None
        message = decision.denial.message
        assert '"db"' in message
        assert "0/3 nodes are available" in message
        assert "1 node(s) where another VM of its group runs" in message
        failing = {name: each["fails"] for each in decision.details["nodes"] for name in each["nodes"]}
        assert failing["node-a2"] == ["where another VM of its group runs"]
        assert failing.keys() == {"node-a1", "node-a2", "node-b1"}


def test_the_denial_names_the_rule_and_what_is_full() -> None:
    """The other VM runs on one node of the zone, and the rule keeps the VM out of both."""
    settings = section(APART_BY_ZONE)
    labels: Json = {ZONE: "b"}
    more = [migration.node("node-b2", "b", **labels)]
    facts = world(settings, B1, index=nodes("node-a1", "node-a2", more=more))
    for decision in (evict(facts, settings), migrate(facts, settings)):
        assert decision.denial is not None
        assert "(apart by zone; its other VMs:" in decision.denial.message
        assert "2 node(s) in whose zone another VM of its group runs" in decision.denial.message


def test_a_rule_by_a_label_of_ones_own_is_named_by_its_key() -> None:
    placement = GroupPlacement("db", apart=PlaceRule("rack", required=True), nodes=HostRule({"a": "b"}, required=True))
    assert placement.required_rules == "apart by rack, on nodes with a=b"
    label = Label(Origin.APART, Expression("rack", NOT_IN, ("r1",)))
    assert label.lacking == "in whose rack another VM of its group runs"
    assert label.clause == "the VMs of its group must be apart by rack"


def test_where_no_node_is_left_anyway_the_group_is_not_the_cause() -> None:
    assert both(APART, A2, cordoned=("node-a1", "node-a2", "node-b1")) == {reasons.NOWHERE_ANYWAY}


def test_a_vm_that_is_older_than_the_rule_moves_freely() -> None:
    settings = section(APART)
    found = running(settings, older=True)
    assert both(APART, A2, B1, found=found) == {reasons.NOTHING_REQUIRED}


@pytest.mark.parametrize(
    ("group", "rules"),
    [("databse", APART), ("db", {**APART, "namespaces": ["elsewhere"]})],
    ids=["misspelt", "foreign"],
)
def test_a_group_without_rules_is_named_and_only_a_migrations_user_is_warned(group: str, rules: Json) -> None:
    """Whoever drains a node cannot correct the label of a VM, and is not hindered by it."""
    settings = section(rules)
    facts = world(settings, A2, B1, found=running(settings, group=group))
    drained, migrated = evict(facts, settings), migrate(facts, settings)
    for decision in (drained, migrated):
        assert (decision.code, decision.denial) == (reasons.WITHOUT_RULE, None)
        assert f'group "{group}"' in decision.reasons[0].text
    assert (drained.warnings, migrated.warnings) == ((), migrated.reasons)


def test_a_mistake_in_the_namespaces_groups_is_said_beside_a_group_without_rules() -> None:
    """The group may be one of those that cannot be read: then the label needs no correction."""
    settings = section(APART).with_annotations({GROUPS_ANNOTATION: "x"})
    facts = world(settings, A2, B1, found=running(settings, group="cache"))
    drained, migrated = evict(facts, settings), migrate(facts, settings)
    for decision in (drained, migrated):
        assert [each.code for each in decision.reasons] == [reasons.WITHOUT_RULE, reasons.INVALID]
    assert (drained.warnings, migrated.warnings) == ((), migrated.reasons)


def test_but_not_to_where_a_pod_keeps_its_group_away() -> None:
    """kube-scheduler honours what a running pod requires, whatever the rule is now."""
    settings = section(TOGETHER_BY_ZONE)
    keeping = {"podAntiAffinity": {REQUIRED: [TERM]}}
    found = world(settings, member("node-a2", affinity=keeping), index=nodes("node-a1"))
    assert evict(found, settings).code == reasons.BROKEN
    others: list[Json] = [{"podAntiAffinity": {REQUIRED: [TERM | {"labelSelector": {}}, 3]}}, {"podAntiAffinity": {}}]
    for other in others:
        found[MEMBERS] = (member("node-a2", affinity=other),)
        assert evict(found, settings).code == common.ELIGIBLE


@pytest.mark.parametrize(("named", "keeps_off"), [(None, False), (["shop"], False), (["shop", "demo"], True)])
def test_a_pod_keeps_away_whom_its_term_names(named: list[str] | None, keeps_off: bool) -> None:
    """A group that spans namespaces since its pod started: the pod's term is still about the pod's own namespace."""
    settings = section({**TOGETHER_BY_ZONE, "namespaces": ["demo", "shop"]})
    term = TERM | ({"namespaces": named} if named else {})
    keeping = member("node-a2", affinity={"podAntiAffinity": {REQUIRED: [term]}}, namespace="shop")
    found = world(settings, index=nodes("node-a1"))
    found[ListKey(LAUNCHER_PODS, "shop", f"{GROUP_LABEL}=db")] = (keeping,)
    assert evict(found, settings).code == (reasons.BROKEN if keeps_off else common.ELIGIBLE)


def test_what_owners_wrote_is_paid_for() -> None:
    forged = GroupPlacement("db", nodes=HostRule({f"k{number}": "" for number in range(99)}, required=True))
    with pytest.raises(TooComplex, match="labels of the group's nodes"):
        StepBudget(50).run(list, required_labels(forged))
    crowded = member("node-a2", affinity={"podAntiAffinity": {REQUIRED: [TERM] * 99}})
    with pytest.raises(TooComplex, match="terms of the affinity"):
        StepBudget(50).run(required_places, forged, "demo", [crowded], nodes().get)


@pytest.mark.parametrize(
    "other",
    [
        member("node-a2", migration.UID),
        member(""),
        member("gone"),
        member("node-a2", labels={"kubevirt.io": "x"}),
    ],
)
def test_pods_that_do_not_count(other: LauncherPod) -> None:
    assert both(APART, B1, other) == {common.ELIGIBLE}


def test_a_group_that_spans_namespaces_counts_all_of_them() -> None:
    settings = section({**APART, "namespaces": ["demo", "shop"]})
    facts = world(settings, A2)
    elsewhere = ListKey(LAUNCHER_PODS, "shop", MEMBERS.label)
    for others, code in (((), common.ELIGIBLE), ((B1,), reasons.BROKEN)):
        facts[elsewhere] = others
        assert evict(facts, settings).code == code


@pytest.mark.control("reveals-groups", "reveals-other-namespaces")
def test_vms_of_other_namespaces_are_not_named() -> None:
    settings = section({**APART, "namespaces": ["demo", "shop"]})
    elsewhere = {ListKey(LAUNCHER_PODS, "shop", MEMBERS.label): (member("node-b1", "x", namespace="shop"),)}
    facts = world(settings, A2) | elsewhere
    denial = evict(facts, settings).denial
    assert denial
    assert '(apart by node; its other VMs: "second")' in denial.message
    assert "2 node(s) where another VM of its group runs" in denial.message


def test_a_name_that_a_tenant_made_up_hides_nothing_of_the_answer() -> None:
    """Owner references may hold any name: what is to be done and why stand after those of the group's VMs."""
    settings = section(APART)
    others = [member("node-a2", "A free node: " + "x" * 10_000), member("node-b1", "third")]
    for decision in (evict(world(settings, *others), settings), migrate(world(settings, *others), settings)):
        assert decision.denial
        shown = decision.denial.for_user("groups", decision.code).message
        assert f'"A free node: {"x" * 44}...", "third"' in shown
        assert "ask your admin to prefer the rule: 0/" in shown


@pytest.mark.control("groups-across-tenants")
@pytest.mark.parametrize("unknown", [MEMBERS, NodesKey(), KubeVirtKey(), migration.VMI])
def test_what_is_not_known_denies_nothing(unknown: Any) -> None:
    settings = section(APART)
    facts = world(settings, A2, B1) | {unknown: Unavailable("forbidden")}
    for decision in (evict(facts, settings), migrate(facts, settings)):
        assert (decision.code, decision.denial) == (common.LOOKUP_FAILED, None)


class TestWhatIsNotEvaluated:
    SETTINGS = section(APART)

    def of_eviction(self, user: str = "admin", **facts: Any) -> Decision:
        return evict(world(self.SETTINGS, A2, B1) | facts.get("facts", {}), self.SETTINGS, user)

    @pytest.mark.parametrize(
        ("pod", "code"),
        [
            (None, reasons.NOT_MOVED),
            (eviction.pod(), reasons.NO_GROUP),
            (eviction.pod(phase="Succeeded"), reasons.NOT_MOVED),
            (eviction.pod(deletionTimestamp="2026-11-21T12:00:00Z"), reasons.NOT_MOVED),
            (eviction.pod(labels={"kubevirt-webhook.github.io/group": "db"}), common.NOT_LAUNCHER),
        ],
    )
    def test_pods(self, pod: Json | None, code: str) -> None:
        found = None if pod is None else msgspec.convert(pod, LauncherPod)
        assert self.of_eviction(facts={POD: found}).code == code

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            (None, common.VMI_NOT_FOUND),
            ({"metadata": {"uid": "x"}}, common.VMI_REPLACED),
            ({"spec": {"evictionStrategy": "None"}}, reasons.NOT_MOVED),
            ({"status": {"nodeName": "node-b1"}}, reasons.NOT_MOVED),
            ({"metadata": {"labels": {}}}, reasons.NO_GROUP),
        ],
    )
    def test_vms(self, change: Json | None, code: str) -> None:
        found = running(self.SETTINGS)
        for key, value in (change or {}).items():
            found[key] |= value
        vmi = None if change is None else msgspec.convert(found, Vmi)
        assert self.of_eviction(facts={migration.VMI: vmi}).code == code

    def test_kubevirts_own_and_those_between_clusters(self) -> None:
        facts = world(self.SETTINGS, A2, B1)
        assert self.of_eviction(CONTROLLER).code == common.BY_KUBEVIRT
        assert migrate(facts, self.SETTINGS, CONTROLLER).code == common.BY_KUBEVIRT
        for direction in ("sendTo", "receive"):
            spec: Any = {direction: {"migrationID": "x"}}
            assert migrate(facts, self.SETTINGS, **spec).code == reasons.BETWEEN_CLUSTERS
        assert migrate(facts | {migration.VMI: None}, self.SETTINGS).code == common.VMI_NOT_FOUND
