"""Migrations as they are created: denied, warned about, or allowed."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tests.policies.migration.world import (
    AMD,
    API_ACCOUNT,
    FOO,
    NODES,
    ONE_DEVICE,
    decide,
    facts,
    migration,
    node,
    offering,
    requesting,
    vmi,
)
from webhook.admission.reasons import common
from webhook.admission.reasons import migration as reasons
from webhook.errors import Unavailable
from webhook.facts import NodesKey, ObjectKey
from webhook.k8s.types.selectors import Expression
from webhook.placement.machines import VMIS
from webhook.placement.requirements import Allocatable, Contradiction, Elsewhere, Label, Origin, Uncordoned
from webhook.policies.migration.virtualmachineinstancemigrations import MAX_ADDED

B = {"zone": "b"}
LISTER = [("list", "nodes")]
LACKING_C = Label(Origin.ADDED, Expression.equals("zone", "c")).lacking


class TestEligible:
    def test_a_selector_that_fits(self) -> None:
        decision = decide(migration(B), facts())

        assert (decision.code, decision.denial, decision.warnings) == (common.ELIGIBLE, None, ())
        assert decision.notes == {"eligible-nodes": "1"}
        assert decision.reasons == (common.eligible(1, 4),)

    @pytest.mark.parametrize("added", [None, {}])
    def test_without_a_selector_nothing_is_looked_at(self, added: Any) -> None:
        assert decide(migration(added), {}).code == reasons.NO_ADDED_SELECTOR

    def test_a_vmi_that_is_gone_is_left_to_kubevirt(self) -> None:
        world = facts() | {ObjectKey(VMIS, "demo", "web01"): None}
        assert (decide(migration(B), world).code, decide(migration(B), world).denial) == (common.VMI_NOT_FOUND, None)


class TestSelector:
    @pytest.mark.parametrize("added", [{"zone": "not a label!"}, {"": "x"}, {"a/b/c": "x"}, {"zone": "x" * 64}])
    def test_what_no_node_can_have(self, added: dict[str, str]) -> None:
        decision = decide(migration(added), {})

        assert decision.denial
        assert (decision.code, decision.denial.code) == (reasons.SELECTOR_INVALID, 422)
        assert [cause.field for cause in decision.denial.causes] == ["spec.addedNodeSelector"]

    def test_every_mistake_is_told(self) -> None:
        denial = decide(migration({"zone": "no label", "b/": "x"}), {}).denial
        assert denial
        assert len(denial.causes) == 2

    def test_of_many_mistakes_the_first_are_told(self) -> None:
        denial = decide(migration({f"{number:04} ": "x" for number in range(MAX_ADDED)}), {}).denial

        assert denial
        assert len(denial.causes) == 21
        assert denial.causes[-1].message.startswith(str(MAX_ADDED - 20))
        assert denial.causes[-1].message in denial.message

    def test_a_longer_selector_than_any_node_could_satisfy(self) -> None:
        decision = decide(migration({f"key-{number}": "x" for number in range(MAX_ADDED + 1)}), {})

        assert decision.denial
        assert (decision.code, decision.denial.code) == (reasons.SELECTOR_INVALID, 422)
        assert [cause.field for cause in decision.denial.causes] == ["spec.addedNodeSelector"]
        assert str(MAX_ADDED) in decision.denial.message

    @pytest.mark.parametrize("key", [AMD, "cpu-feature.node.kubevirt.io/x", "kubevirt.io/schedulable"])
    def test_reserved_keys(self, key: str) -> None:
        decision = decide(migration({key: "true"}), facts())

        assert decision.denial
        assert (decision.code, decision.denial.code) == (reasons.RESERVED_KEYS, 403)
        assert key in decision.denial.message

    def test_reserved_keys_may_be_allowed_but_never_widen(self) -> None:
        decision = decide(migration({AMD: "true"}), facts(), reserved_keys="allow")
        # The VM runs on Intel, so no AMD node is eligible whatever the key does to KubeVirt's own requirement.
        assert decision.denial

    def test_the_sending_side_ignores_it(self) -> None:
        assert decide(migration(B, sendTo={"migrationID": "x", "connectURL": "y"}), {}).code == reasons.ON_SENDING_SIDE
        local = migration(B, sendTo={"migrationID": "x", "connectURL": "y"}, receive={"migrationID": "x"})
        assert decide(local, facts()).code == common.ELIGIBLE

    @pytest.mark.parametrize("name", ["kubevirt-evacuation-x", "kubevirt-workload-update-x"])
    def test_names_of_kubevirts_own_migrations(self, name: str) -> None:
        obj = migration(B)
        obj["metadata"]["name"] = name

        decision = decide(obj, {})

        assert decision.denial
        assert (decision.code, decision.denial.causes[0].field) == (reasons.RESERVED_NAME, "metadata.name")


class TestResourcesOfTheTarget:
    """The resources that nodes lack permanently, and not their present usage."""

    WORLD = facts(nodes=ONE_DEVICE) | requesting()
    ANYWHERE: ClassVar = {"kubernetes.io/arch": "amd64"}

    def test_a_device_that_only_the_present_node_has(self) -> None:
        decision = decide(migration(self.ANYWHERE), self.WORLD)

        assert decision.denial
        assert (decision.code, decision.denial.code) == (common.NO_ELIGIBLE_NODE, 403)
        assert f"2 node(s) {Allocatable(Origin.RESOURCES, FOO, 1).lacking}" in decision.denial.message

    def test_a_migration_as_it_comes_is_only_warned_about(self) -> None:
        decision = decide(migration(), self.WORLD, "mutate/migration/virtualmachineinstancemigrations")
        assert (decision.code, decision.denial, len(decision.warnings)) == (common.NO_ELIGIBLE_NODE, None, 1)

    def test_memory_that_no_other_node_has(self) -> None:
        nodes = [*ONE_DEVICE, offering("node-b2", "b", **{FOO: "1"})]
        fits = decide(migration(self.ANYWHERE), facts(nodes=nodes) | requesting(memory="64Gi"))
        too_large = decide(migration(self.ANYWHERE), facts(nodes=nodes) | requesting(memory="65Gi"))

        assert fits.notes == {"eligible-nodes": "1"}
        assert too_large.denial
        assert Allocatable(Origin.RESOURCES, "memory", 65 * 1024**3).lacking in too_large.denial.message


class TestCollision:
    WORLD = facts(vmi({"zone": "a"}))

    def test_is_denied_with_both_origins(self) -> None:
        decision = decide(migration(B), self.WORLD)

        assert decision.denial
        assert (decision.code, decision.denial.code) == (reasons.SELECTOR_CONFLICT, 403)
        b, a = (Expression.equals("zone", value) for value in "ba")
        conflict = Contradiction((Label(Origin.ADDED, b), Label(Origin.VM, a)))
        assert decision.reasons == (reasons.selector_conflict([conflict], common.eligible(0, 4).text),)

    def test_may_only_be_warned_about(self) -> None:
        decision = decide(migration(B), self.WORLD, collision="warn")

        assert (decision.code, decision.denial) == (reasons.SELECTOR_CONFLICT, None)
        assert [reason.code for reason in decision.reasons] == [reasons.SELECTOR_CONFLICT, common.NO_ELIGIBLE_NODE]
        b, a = (Expression.equals("zone", value) for value in "ba")
        conflict = Contradiction((Label(Origin.ADDED, b), Label(Origin.VM, a)))
        assert decision.warnings == (reasons.pending(reasons.SELECTOR_CONFLICT, str(conflict)),)

    def test_may_be_left_to_kubevirt(self) -> None:
        decision = decide(migration(B), self.WORLD, collision="ignore")
        assert (decision.denial, decision.warnings) == (None, ())
        # It stays in zone a: node-a2.
        assert decision.notes == {"eligible-nodes": "1"}

    def test_what_is_left_to_kubevirt_still_needs_a_node(self) -> None:
        world = facts(vmi({"zone": "a"}), nodes=NODES[:1])

        decision = decide(migration(B), world, collision="ignore")

        assert decision.denial
        assert decision.code == common.NO_ELIGIBLE_NODE
        assert "zone=b" not in decision.denial.message

    def test_what_kubevirt_does_not_drop_is_not_ignored(self) -> None:
        added = {"kubernetes.io/hostname": "node-a1"}
        assert decide(migration(added), facts(), collision="ignore").code == common.NO_ELIGIBLE_NODE

    def test_with_the_node_affinity(self) -> None:
        terms = [{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b"]}]}]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}

        decision = decide(migration(B), facts(vmi(affinity=affinity)))

        assert (decision.code, decision.denial is None) == (reasons.SELECTOR_CONFLICT, False)

    def test_with_the_present_node(self) -> None:
        hostname: Any = {"kubernetes.io/hostname": "host-1"}
        nodes = [node("ip-10-0-0-1", "a", **hostname), *NODES]
        there = vmi()
        there["status"]["nodeName"] = "ip-10-0-0-1"

        decision = decide(migration({"kubernetes.io/hostname": "host-1"}), facts(there, nodes))

        assert decision.denial
        assert decision.code == reasons.SELECTOR_CONFLICT
        assert Elsewhere(Origin.SOURCE_NODE, "ip-10-0-0-1").clause in decision.denial.message
        assert common.eligible(0, 5).text in decision.denial.message

    def test_a_vm_that_contradicts_itself_is_not_the_migrations_fault(self) -> None:
        pinned = facts(vmi({"kubernetes.io/hostname": "node-a1"}))
        assert decide(migration({"zone": "a"}), pinned).code == common.NO_ELIGIBLE_NODE


class TestNoNode:
    def test_counts_and_reasons_by_class(self) -> None:
        decision = decide(migration({"zone": "c"}), facts())

        assert decision.denial
        assert decision.code == common.NO_ELIGIBLE_NODE
        assert decision.denial.message.startswith(f"{common.eligible(0, 4).text}: 4 node(s) {LACKING_C}")
        assert "node-a1" not in decision.denial.message

    def test_the_change_that_would_help(self) -> None:
        nodes = [*NODES[:2], node("node-b1", "b", cordoned=True)]

        denial = decide(migration(B), facts(nodes=nodes)).denial

        assert denial
        advice = denial.message.rpartition(";")[2]
        assert "1 node(s)" in advice
        assert Uncordoned(Origin.CORDONED, ()).lacking in advice

    def test_names_for_those_who_may_list_nodes(self) -> None:
        denial = decide(migration({"zone": "c"}), facts(may=LISTER)).denial
        assert denial
        assert f"node-a2, node-b1: {LACKING_C}" in denial.message

    def test_no_names_for_a_caller_that_could_claim_any_user(self) -> None:
        decision = decide(migration({"zone": "c"}), facts(may=LISTER), verified=False)

        assert decision.denial
        assert decision.denial == decide(migration({"zone": "c"}), facts()).denial
        assert "node-a1" in str(decision.details)

    def test_all_nodes_are_in_the_audit_record(self) -> None:
        details = decide(migration({"zone": "c"}), facts()).details
        assert sorted(name for group in details["nodes"] for name in group["nodes"]) == [
            "node-a1",
            "node-a2",
            "node-b1",
            "node-b2",
        ]

    def test_a_cluster_without_nodes(self) -> None:
        decision = decide(migration(B), facts(nodes=[]))

        assert decision.denial
        assert decision.code == common.NO_ELIGIBLE_NODE
        assert decision.denial.message.startswith(common.eligible(0, 0).text)

    @pytest.mark.parametrize(("setting", "warned"), [("warn", 1), ("ignore", 0)])
    def test_where_an_autoscaler_may_help(self, setting: str, warned: int) -> None:
        decision = decide(migration({"zone": "c"}), facts(), no_eligible_node=setting)
        assert (decision.denial, len(decision.warnings)) == (None, warned)

    @pytest.mark.parametrize("key", [NodesKey(), ObjectKey(VMIS, "demo", "web01")])
    def test_what_is_not_known_is_refused_with_503(self, key: Any) -> None:
        decision = decide(migration(B), facts() | {key: Unavailable("no answer")})

        assert decision.denial
        assert (decision.code, decision.denial.code) == (common.LOOKUP_FAILED, 503)

        lax = decide(migration(B), facts() | {key: Unavailable("no answer")}, failure_policy="Ignore")
        assert (lax.code, lax.denial, len(lax.warnings)) == (common.LOOKUP_FAILED, None, 1)


class TestRight:
    def test_users_need_it(self) -> None:
        decision = decide(migration(B), facts(), require_right=True)

        assert decision.denial
        assert (decision.code, decision.denial.code) == (reasons.NODE_CHOICE_FORBIDDEN, 403)
        assert "migrationtargets.kubevirt-webhook.github.io" in decision.denial.message

    def test_users_have_it(self) -> None:
        world = facts(may=[("use", "migrationtargets")])
        assert decide(migration(B), world, require_right=True).code == common.ELIGIBLE

    def test_virtctl_hides_the_user(self) -> None:
        allowed = decide(migration(B), facts(), user=API_ACCOUNT, require_right=True)
        denied = decide(migration(B), facts(), user=API_ACCOUNT, require_right=True, via_virtctl="deny")
        assert (allowed.code, denied.code) == (common.ELIGIBLE, reasons.NODE_CHOICE_FORBIDDEN)


class TestCap:
    def test_unfinished_user_migrations_count(self) -> None:
        running = migration() | {"status": {"phase": "Running"}}
        done = migration() | {"status": {"phase": "Succeeded"}}
        drain = migration()
        drain["metadata"] = {**drain["metadata"], "annotations": {"kubevirt.io/evacuationMigration": "node-a1"}}
        world = facts(migrations=[running, done, drain])

        refused = decide(migration(B), world, max_unfinished=1)

        assert refused.denial
        assert (refused.code, refused.denial.code) == (reasons.TOO_MANY_MIGRATIONS, 429)
        assert refused.reasons == (reasons.too_many(1, 1, "demo"),)
        assert decide(migration(B), world, max_unfinished=2).code == common.ELIGIBLE

    def test_with_a_selector_are_a_users_whatever_their_annotations_say(self) -> None:
        disguised = migration(B)
        mark = {"annotations": {"kubevirt.io/evacuationMigration": "node-a1"}}
        disguised["metadata"] = {**disguised["metadata"], **mark}

        assert decide(migration(B), facts(migrations=[disguised]), max_unfinished=1).code == reasons.TOO_MANY_MIGRATIONS


class TestWithoutSelector:
    PLACE = "mutate/migration/virtualmachineinstancemigrations"

    def test_a_pinned_vm_is_warned_about(self) -> None:
        decision = decide(migration(), facts(vmi({"kubernetes.io/hostname": "node-a1"})), self.PLACE)

        assert (decision.code, decision.denial) == (reasons.PINNED, None)
        assert [warning.code for warning in decision.warnings] == [reasons.PINNED]
        assert "kubernetes.io/hostname=node-a1" in decision.warnings[0].text

    def test_no_node_is_warned_about(self) -> None:
        decision = decide(migration(), facts(nodes=NODES[:1]), self.PLACE)
        assert (decision.code, decision.denial, len(decision.warnings)) == (common.NO_ELIGIBLE_NODE, None, 1)

    def test_the_sending_side_makes_no_pod_here(self) -> None:
        obj = migration(sendTo={"migrationID": "x", "connectURL": "y"})
        decision = decide(obj, facts(nodes=NODES[:1]), self.PLACE)
        assert (decision.code, decision.warnings) == (reasons.ON_SENDING_SIDE, ())

    @pytest.mark.parametrize("mark", ["evacuationMigration", "workloadUpdateMigration"])
    def test_kubevirts_own_need_no_look_up(self, mark: str) -> None:
        obj = migration()
        obj["metadata"]["annotations"] = {f"kubevirt.io/{mark}": "node-a1"}

        decision = decide(obj, {}, self.PLACE)

        assert (decision.code, decision.warnings) == (common.BY_KUBEVIRT, ())

    def test_others_pass_silently(self) -> None:
        assert decide(migration(), facts(), self.PLACE).code == common.ELIGIBLE
        assert decide(migration(B), {}, self.PLACE).code == common.OTHER_OPERATION
        assert (
            decide(migration(), facts() | {ObjectKey(VMIS, "demo", "web01"): None}, self.PLACE).code
            == common.VMI_NOT_FOUND
        )
        unreadable = decide(migration(), facts() | {NodesKey(): Unavailable("x")}, self.PLACE)
        assert (unreadable.code, unreadable.warnings) == (common.LOOKUP_FAILED, ())
