"""What forecasts know of groups: drains, migrations and starts follow the rules that pods get."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.builders import Json, changed
from tests.builders import settings as any_settings
from tests.forecast.clusters import HOST, node, owned, priority_class, snapshot, vm
from tests.golden_files import Golden
from tests.policies.decisions import evaluate
from tests.policies.eviction import world as of_eviction
from tests.policies.groups import world as of_groups
from tests.policies.groups.test_pods import RULES
from tests.policies.groups.world import APART, APART_BY_ZONE, HOSTS, IN_GROUP, TOGETHER, section
from tests.policies.migration import world as migrations
from webhook import names
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, NamespaceKey, from_memory
from webhook.forecast import balance, drain, loss, report, update
from webhook.forecast.additions import additions_by
from webhook.forecast.balance_report import BalancePlan
from webhook.forecast.loss_report import StartPlan
from webhook.forecast.report import VmPlan
from webhook.forecast.start import notes_of_group
from webhook.k8s.types.meta import Namespace
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.machines import LauncherPod, Vmi
from webhook.placement.nodes import ZONE
from webhook.placement.requirements import Origin
from webhook.policies.groups import additions
from webhook.policies.groups.placement import placement_of
from webhook.policies.groups.reasons import BROKEN
from webhook.policies.groups.settings import GROUPS_ANNOTATION, GroupSettings
from webhook.policies.migration.explanation import MigrationExplanation, Question, explain
from webhook.policies.migration.settings import MigrationSettings
from webhook.settings.model import Settings

OPTED_IN = {names.policy_label("groups"): "enforce"}
APP = {"kubevirt.io": "virt-launcher"}


def zoned(name: str, zone: str) -> Json:
    labels: dict[str, Any] = {ZONE: zone}
    return node(name, **labels)


THREE = [zoned("a", "x"), zoned("b", "x"), zoned("c", "y")]


def by(groups: GroupSettings) -> Settings:
    return changed(any_settings(), groups=groups)


def grouped(name: str, on: str, groups: GroupSettings, *, older: bool = False) -> tuple[Json, Json]:
    """A VM of the group with what the policy writes into VMI and pod when it starts."""
    vmi, pod = vm(name, on, labels={**IN_GROUP, **APP})
    record = {} if older else of_groups.recorded(groups)
    made = of_groups.pod(record)
    made["metadata"]["labels"]["kubevirt.io/created-by"] = made["metadata"]["ownerReferences"][0]["uid"] = f"uid-{name}"
    written = of_groups.after(made, groups)
    pod["spec"]["affinity"] = written["spec"]["affinity"]
    vmi["metadata"]["annotations"], pod["metadata"]["annotations"] = record, written["metadata"]["annotations"]
    return vmi, pod


def drained(nodes: list[Json], *vms: Any, groups: GroupSettings, **options: Any) -> dict[str, VmPlan]:
    namespace = {"labels": options.pop("labels", OPTED_IN), "annotations": options.pop("annotations", {})}
    plan = drain.plan(snapshot(nodes, vms, settings=by(groups), namespace=namespace), ["a"])
    assert not any(each.gaps for each in plan.steps[0].vms)
    return {each.name: each for each in plan.steps[0].vms}


class TestLosses:
    """Of node a: its VMs start anew."""

    def lost(self, nodes: list[Json], *vms: Any, groups: GroupSettings) -> dict[str, StartPlan]:
        owners = [owned(each) for each in vms]
        objects = snapshot(nodes, vms, owners=owners, settings=by(groups), namespace={"labels": OPTED_IN})
        return {each.name: each for each in loss.plan(objects, ["a"]).vms}

    def test_three_apart_on_three_nodes_cannot_lose_one(self) -> None:
        groups = section(APART)
        vms = [grouped(f"db-{on}", on, groups) for on in "abc"]
        assert self.lost(THREE, *vms, groups=groups)["db-a"].code == report.PODS_APART
        assert self.lost([*THREE, zoned("d", "y")], *vms, groups=groups)["db-a"].to == "d"

    def test_hosts(self) -> None:
        groups = section(HOSTS)
        one = grouped("db", "a", groups)
        assert self.lost([*THREE, node("d", license="oracle")], one, groups=groups)["db"].to == "d"
        assert self.lost(THREE, one, groups=groups)["db"].code == report.NO_ELIGIBLE_NODE

    def test_one_that_stays_together_starts_where_the_others_run(self) -> None:
        groups = section(TOGETHER)
        nodes = [*THREE, *(zoned(name, "y") for name in "defgh")]
        vms = [grouped("db-a", "a", groups), grouped("db-g", "g", groups)]
        assert self.lost(nodes, *vms, groups=groups)["db-a"].to == "g"


class TestDrains:
    def test_three_apart_on_three_nodes_cannot_lose_one(self, golden: Golden) -> None:
        groups = section(APART)
        found = drained(THREE, *(grouped(f"db-{on}", on, groups) for on in "abc"), groups=groups)["db-a"]
        assert (found.outcome, found.code) == (report.BLOCKS, BROKEN)
        golden(found.reason)

    @pytest.mark.parametrize("priority", [0, 1000])
    def test_nothing_is_preempted_for_a_vm_whose_eviction_is_denied(self, priority: int) -> None:
        """kube-scheduler would delete a member of lower priority for the target pod, which there never is."""
        groups = section(APART)
        vms = {on: grouped(f"db-{on}", on, groups) for on in "abc"}
        for on, (vmi, pod) in vms.items():
            pod["spec"]["priority"] = priority if on == "b" else 1000
            vmi["spec"]["priorityClassName"] = pod["spec"]["priorityClassName"] = "low" if on == "b" else "high"
        classes = [priority_class("low", priority), priority_class("high", 1000)]
        namespace = {"labels": OPTED_IN}
        updates = {"workloadUpdateMethods": ["LiveMigrate"]}
        among = [*vms.values()]
        objects = snapshot(THREE, among, settings=by(groups), namespace=namespace, classes=classes, updates=updates)
        plan = drain.plan(objects, ["a"])
        ((found,),) = (each.vms for each in plan.steps)
        assert (found.outcome, found.code, plan.preempted) == (report.BLOCKS, BROKEN, 0)
        assert any("prefer" in each.change for each in plan.changes)
        # KubeVirt's own migrations are not denied.
        by_kubevirt = {each.name: each.code for each in update.plan(objects).vms}
        assert by_kubevirt["db-a"] == (report.PREEMPTS if priority == 0 else report.PODS_APART)

    def test_with_a_fourth_node_it_moves_there(self) -> None:
        groups = section(APART)
        nodes = [*THREE, zoned("d", "y")]
        assert drained(nodes, *(grouped(f"db-{on}", on, groups) for on in "abc"), groups=groups)["db-a"].to == "d"

    def test_apart_by_zone_it_moves_within_its_own(self) -> None:
        groups = section(APART_BY_ZONE)
        assert (
            drained(THREE, grouped("db-a", "a", groups), grouped("db-c", "c", groups), groups=groups)["db-a"].to == "b"
        )

    def test_an_older_vm_is_not_held_back_by_its_own_rule(self) -> None:
        """But by those of others, which kube-scheduler honours."""
        groups = section(APART)
        older = [grouped(f"db-{on}", on, groups, older=True) for on in "abc"]
        assert drained(THREE, *older, groups=groups)["db-a"].outcome == report.MOVES
        others = [grouped(f"db-{on}", on, groups) for on in "bc"]
        assert drained(THREE, older[0], *others, groups=groups)["db-a"].code == report.PODS_APART

    def test_those_that_stay_together_follow_each_other(self) -> None:
        groups = section(TOGETHER)
        nodes = [*THREE, *(zoned(name, "y") for name in "defgh")]
        found = drained(nodes, *(grouped(f"db-{number}", "a", groups) for number in range(4)), groups=groups)
        assert len({each.to for each in found.values()}) == 1

    def test_hosts(self, golden: Golden) -> None:
        groups = section(HOSTS)
        one = grouped("db", "a", groups)
        assert drained([*THREE, node("d", license="oracle")], one, groups=groups)["db"].candidates == ("d",)
        found = drained(THREE, one, groups=groups)["db"]
        assert (found.outcome, found.code) == (report.BLOCKS, BROKEN)
        golden(found.reason)

    @pytest.mark.parametrize("rules", [APART, HOSTS])
    def test_what_counts_is_the_mode_and_the_rules_of_now(self, rules: Json) -> None:
        groups = section(rules)
        one = grouped("db", "a", groups)
        for labels, now in (({}, groups), (OPTED_IN, GroupSettings()), (OPTED_IN, section({"apart": {}}))):
            assert drained(THREE, one, groups=now, labels=labels)["db"].outcome == report.MOVES

    def test_groups_of_a_namespace_and_those_that_span_some(self) -> None:
        licensed = {"db": HOSTS}
        own = {GROUPS_ANNOTATION: json.dumps(licensed)}
        one = grouped("db", "a", section(HOSTS))
        assert drained(THREE, one, groups=GroupSettings(), annotations=own)["db"].outcome == report.BLOCKS
        spanning = section({**HOSTS, "namespaces": ["demo", "shop"]})
        assert drained(THREE, grouped("db", "a", spanning), groups=spanning)["db"].outcome == report.BLOCKS
        elsewhere = section({**HOSTS, "namespaces": ["demo"]})
        assert drained(THREE, grouped("db", "a", elsewhere), groups=elsewhere)["db"].outcome == report.MOVES


PLACE = Namespace(msgspec.convert({"name": "demo", "labels": OPTED_IN}, type(Namespace().meta)))


def explained(
    groups: GroupSettings, *members: LauncherPod, others: Mapping[Key[Any], object] | None = None
) -> MigrationExplanation:
    world = {**of_groups.world(groups, *members), NamespaceKey("demo"): PLACE, **(others or {})}
    answer = explain(Question("demo", "web01", {}), Facts.of(world, additions=additions_by(by(groups))))
    return from_memory(answer)


def test_a_migration_is_explained_with_its_group(golden: Golden) -> None:
    answer = explained(section(APART), of_groups.member("node-a2"))
    assert answer.eligible.names == ["node-b1"]
    golden("\n".join(each.text for each in answer.reasons))


@pytest.mark.parametrize(
    ("cordoned", "code"), [((), BROKEN), (("node-a1", "node-a2", "node-b1"), common.NO_ELIGIBLE_NODE)]
)
def test_one_policy_speaks_of_a_migration_that_finds_no_node(cordoned: tuple[str, ...], code: str) -> None:
    """The policies groups and migration are two webhooks, and the user reads what both say."""
    groups = section(APART)
    members = of_groups.member("node-a2", "db-2"), of_groups.member("node-b1", "db-3")
    world = {**of_groups.world(groups, *members, index=of_groups.nodes(*cordoned)), NamespaceKey("demo"): PLACE}
    facts = Facts.of(world, additions=additions_by(by(groups)))
    asked = "/mutate/migration/virtualmachineinstancemigrations/enforce", migrations.asking(migrations.migration())
    told = of_groups.migrate(world, groups), evaluate(*asked, facts, MigrationSettings())
    assert [each.code for each in told if each.denial or each.warnings] == [code]
    if code == BROKEN:
        assert told[0].denial
        assert all(each in told[0].denial.message for each in ('"db-2", "db-3"', "ask your admin"))


def test_the_rules_of_its_group_are_no_gap() -> None:
    groups = section(APART)
    written = of_groups.after(of_groups.pod(of_groups.recorded(groups)), groups)
    found = of_eviction.pod(labels={**APP, **IN_GROUP}, annotations=written["metadata"]["annotations"])
    foreign = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "rack"}
    for more, gaps in (([], 0), ([foreign], 1)):
        terms = written["spec"]["affinity"]["podAntiAffinity"][of_groups.REQUIRED]
        affinity = {"podAntiAffinity": {of_groups.REQUIRED: [*terms, *more]}}
        pod = msgspec.convert(found | {"spec": {"nodeName": "node-a1", "affinity": affinity}}, LauncherPod)
        answer = explained(groups, others={migrations.PODS: (pod,)})
        assert len([each for each in answer.gaps if "anti-affinity" in each]) == gaps


@given(RULES)
def test_what_a_forecast_adds_to_nodes_is_what_the_policy_writes(rules: Json) -> None:
    groups = section(rules)
    vmi = of_groups.after(of_groups.vmi(), groups)
    added = additions.added_to_next(msgspec.convert(vmi | {"status": {"nodeName": "a"}}, Vmi), groups)
    written = of_groups.affinity(of_groups.pod(of_groups.recorded(groups)), groups).get("nodeAffinity", {})
    terms = written.get(of_groups.REQUIRED, {}).get("nodeSelectorTerms", [])
    expected = [each["key"] for term in terms for each in term["matchExpressions"]]
    assert [each.expression.key for each in added.required] == expected
    assert all(each.origin == Origin.GROUP for each in added.required)
    assert list(added.preferred) == written.get(of_groups.PREFERRED, [])


def test_a_vm_without_a_group_gets_nothing() -> None:
    for labels in ({}, {GROUP_LABEL: "none"}):
        read = msgspec.convert(of_groups.vmi(labels), Vmi)
        assert additions.added_to_next(read, section()).group is None


@pytest.mark.parametrize(
    ("rules", "members", "left"),
    [
        (APART, ("node-a2",), "leaves 2 of"),
        (APART, ("node-a1", "node-a2", "node-b1"), "of which 3 VMs run, leaves none of"),
        (TOGETHER, ("node-a1",), "of which 1 VM runs, leaves 1 of"),
        (APART, (), None),
        ({"apart": {}}, ("node-a1",), None),
        (APART, None, "not known"),
    ],
)
def test_a_start_says_how_many_nodes_its_group_leaves(rules: Json, members: Any, left: str | None) -> None:
    groups = section(rules)
    found = groups.group("db", "demo")
    assert found is not None
    pods = [of_groups.member(on, f"vm-{number}") for number, on in enumerate(members or ())]
    facts = Facts.of({of_groups.MEMBERS: Unavailable("forbidden") if members is None else tuple(pods)})
    vmi = msgspec.convert(of_groups.vmi(), Vmi)
    notes = from_memory(notes_of_group(placement_of("db", found), vmi, "demo", of_groups.nodes().review(()), facts))
    assert len(notes) == (left is not None)
    assert not left or left in notes[0]


class TestBalance:
    def balanced(self, key: str) -> BalancePlan:
        together = section({"together": {"topologyKey": key, "required": True}})
        vms = [grouped(name, "a", groups=together) for name in ("one", "two")]
        objects = snapshot(THREE, vms, settings=by(together), namespace={"labels": OPTED_IN})
        return balance.plan(objects, balance.Wanted(1))

    def test_a_vm_does_not_leave_its_group(self) -> None:
        found = self.balanced(HOST)
        assert (found.moves, [each.code for each in found.staying]) == ((), ["pods-apart"])
        # Within the zone it may go to another node.
        assert [each.to for each in self.balanced(ZONE).moves] == ["b"]
