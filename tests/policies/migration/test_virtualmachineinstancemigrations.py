"""Migrations as they are created: denied, warned about, or allowed."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tests.builders import Json
from tests.policies.migration import world as migrations
from tests.policies.migration.world import (
    AMD,
    NODES,
    ONE_DEVICE,
    PODS,
    VMI,
    decide,
    facts,
    launcher,
    migration,
    node,
    vmi,
)
from webhook.admission.decision import Denial
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import Key, NodesKey
from webhook.k8s.types.selectors import Expression
from webhook.placement.requirements import Contradiction, Elsewhere, Label, Origin
from webhook.policies.migration import reasons
from webhook.policies.migration.virtualmachineinstancemigrations import MAX_ADDED

API_ACCOUNT = "system:serviceaccount:kubevirt:kubevirt-apiserver"
B, C = {"zone": "b"}, {"zone": "c"}
SENDING = {"sendTo": {"migrationID": "x", "connectURL": "y"}}
LISTER = [("list", "nodes")]
LACKING_C = Label(Origin.ADDED, Expression.equals("zone", "c")).lacking
WARNING = "mutate/migration/virtualmachineinstancemigrations"
NO_VMI = facts() | {VMI: None}
PINNED = facts(vmi({"kubernetes.io/hostname": "node-a1"}))


def annotated(obj: Json, key: str) -> Json:
    obj["metadata"]["annotations"] = {f"kubevirt.io/{key}": "node-a1"}
    return obj


def refused(obj: Json, world: Any, code: str, status: int = 403, **settings: Any) -> Denial:
    decision = decide(obj, world, **settings)
    assert decision.denial
    assert (decision.code, decision.denial.code) == (code, status)
    return decision.denial


class TestEligible:
    def test_a_selector_that_fits(self) -> None:
        decision = decide(migration(B), facts())
        assert (decision.denial, decision.warnings, decision.reasons) == (None, (), (common.eligible(1, 4),))
        assert decision.notes == {"eligible-nodes": "1"}

    @pytest.mark.parametrize(
        ("added", "world", "code"),
        [(None, {}, reasons.NO_ADDED_SELECTOR), ({}, {}, reasons.NO_ADDED_SELECTOR), (B, NO_VMI, common.VMI_NOT_FOUND)],
    )
    def test_without_a_selector_or_a_vmi_nothing_is_denied(self, added: Any, world: Any, code: str) -> None:
        decision = decide(migration(added), world)
        assert (decision.code, decision.denial) == (code, None)


class TestSelector:
    @pytest.mark.control("migrations-that-cannot-succeed")
    @pytest.mark.parametrize(
        "added",
        [
            *({"zone": "not a label!"}, {"": "x"}, {"a/b/c": "x"}, {"zone": "x" * 64}),
            # Longer than any node could satisfy.
            {f"key-{number}": "x" for number in range(MAX_ADDED + 1)},
        ],
    )
    def test_what_no_node_can_have(self, added: dict[str, str]) -> None:
        denial = refused(migration(added), {}, reasons.SELECTOR_INVALID, 422)
        assert [cause.field for cause in denial.causes] == ["spec.addedNodeSelector"]
        assert len(added) == 1 or str(MAX_ADDED) in denial.message

    def test_every_mistake_is_told_and_of_many_the_first(self) -> None:
        two = refused(migration({"zone": "no label", "b/": "x"}), {}, reasons.SELECTOR_INVALID, 422)
        many = {f"{number:04} ": "x" for number in range(MAX_ADDED)}
        denial = refused(migration(many), {}, reasons.SELECTOR_INVALID, 422)
        assert (len(two.causes), len(denial.causes)) == (2, 21)
        assert denial.causes[-1].message.startswith(str(MAX_ADDED - 20))
        assert denial.causes[-1].message in denial.message

    @pytest.mark.control("cpu-vendor-widened")
    @pytest.mark.parametrize("key", [AMD, "cpu-feature.node.kubevirt.io/x", "kubevirt.io/schedulable"])
    def test_reserved_keys(self, key: str) -> None:
        assert key in refused(migration({key: "true"}), facts(), reasons.RESERVED_KEYS).message

    def test_reserved_keys_may_be_allowed_but_never_widen(self) -> None:
        # The VM runs on Intel, so no AMD node is eligible whatever the key does to KubeVirt's own requirement.
        assert decide(migration({AMD: "true"}), facts(), reserved_keys="allow").denial

    def test_the_sending_side_ignores_it(self) -> None:
        assert decide(migration(B, **SENDING), {}).code == reasons.ON_SENDING_SIDE
        assert decide(migration(B, **SENDING, receive={"migrationID": "x"}), facts()).code == common.ELIGIBLE

    @pytest.mark.parametrize("name", ["kubevirt-evacuation-x", "kubevirt-workload-update-x"])
    def test_names_of_kubevirts_own_migrations(self, name: str) -> None:
        obj = migration(B)
        obj["metadata"]["name"] = name
        assert refused(obj, {}, reasons.RESERVED_NAME, 422).causes[0].field == "metadata.name"


class TestCollision:
    WORLD = facts(vmi({"zone": "a"}))
    CONFLICT: ClassVar = Contradiction(
        (Label(Origin.ADDED, Expression.equals("zone", "b")), Label(Origin.VM, Expression.equals("zone", "a")))
    )

    @pytest.mark.control("migrations-that-cannot-succeed")
    def test_is_denied_with_both_origins(self) -> None:
        refused(migration(B), self.WORLD, reasons.SELECTOR_CONFLICT)
        reason = reasons.selector_conflict([self.CONFLICT], ["zone"], common.eligible(0, 4).text)
        assert decide(migration(B), self.WORLD).reasons == (reason,)
        # Or it is only warned about.
        decision = decide(migration(B), self.WORLD, collision="warn")
        assert decision.denial is None
        assert [reason.code for reason in decision.reasons] == [reasons.SELECTOR_CONFLICT, common.NO_ELIGIBLE_NODE]
        assert decision.warnings == (reasons.conflict_warning([self.CONFLICT]),)

    def test_may_be_left_to_kubevirt_where_it_drops_the_key_and_there_is_a_node(self) -> None:
        decision = decide(migration(B), self.WORLD, collision="ignore")
        # It stays in zone a: node-a2.
        assert (decision.denial, decision.warnings, decision.notes) == (None, (), {"eligible-nodes": "1"})
        world = facts(vmi({"zone": "a"}), nodes=NODES[:1])
        assert "zone=b" not in refused(migration(B), world, common.NO_ELIGIBLE_NODE, collision="ignore").message
        added = {"kubernetes.io/hostname": "node-a1"}
        assert decide(migration(added), facts(), collision="ignore").code == common.NO_ELIGIBLE_NODE

    def test_with_the_node_affinity_and_with_the_present_node(self) -> None:
        terms = [{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b"]}]}]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        refused(migration(B), facts(vmi(affinity=affinity)), reasons.SELECTOR_CONFLICT)
        hostname: Any = {"kubernetes.io/hostname": "host-1"}
        nodes = [node("ip-10-0-0-1", "a", **hostname), *NODES]
        there = vmi() | {"status": {"nodeName": "ip-10-0-0-1"}}
        message = refused(migration(hostname), facts(there, nodes), reasons.SELECTOR_CONFLICT).message
        assert Elsewhere(Origin.SOURCE_NODE, "ip-10-0-0-1").clause in message
        assert common.eligible(0, 5).text in message
        # A VM that contradicts itself is not the migration's fault.
        assert decide(migration({"zone": "a"}), PINNED).code == common.NO_ELIGIBLE_NODE


class TestHostModel:
    """Where no label names the CPU of the VM's node, KubeVirt creates no target pod, whatever the selector says."""

    MODEL = "cpu-model-migration.node.kubevirt.io/Skylake"
    HOST_MODEL: ClassVar[dict[str, str]] = {"host-model-cpu.node.kubevirt.io/Skylake": "true", MODEL: "true"}

    def world(self, labels: dict[str, Any], selector: dict[str, str] | None = None) -> dict[Key[Any], object]:
        found = vmi(domain={"cpu": {"model": "host-model"}})
        nodes = [node("node-a1", "a", **labels), node("node-b1", "b", **labels)]
        return facts(found, nodes) | {PODS: (launcher(nodeSelector=selector or {}),)}

    @pytest.mark.parametrize(
        "settings", [{}, {"no_eligible_node": "ignore", "collision": "ignore"}, {"no_eligible_node": "warn"}]
    )
    def test_of_a_host_that_no_label_names(self, settings: dict[str, Any]) -> None:
        denial = refused(migration(B), self.world({}), common.HOST_CPU_UNKNOWN, **settings)
        assert "node-a1" in denial.message

    def test_is_warned_of_where_nothing_is_added(self) -> None:
        decision = decide(migration(), self.world({}), WARNING)
        assert (decision.denial, decision.code) == (None, common.HOST_CPU_UNKNOWN)
        assert [warning.code for warning in decision.warnings] == [common.HOST_CPU_UNKNOWN]

    def test_of_a_host_that_a_label_names_or_that_the_pod_remembers(self) -> None:
        assert decide(migration(B), self.world(self.HOST_MODEL)).code == common.ELIGIBLE
        # It has migrated before, and its pod requires what it took over then.
        remembered = {self.MODEL: "true"}
        assert decide(migration(B), self.world(remembered, remembered)).code == common.ELIGIBLE


class TestNoNode:
    @pytest.mark.control("nodes-by-trial")
    def test_counts_and_reasons_by_class(self) -> None:
        message = refused(migration(C), facts(), common.NO_ELIGIBLE_NODE).message
        assert message.startswith(f"{common.eligible(0, 4).text}: 4 node(s) {LACKING_C}")
        assert "node-a1" not in message
        assert message.endswith("; choose other nodes, or leave out addedNodeSelector")
        # Where there is none at all.
        message = refused(migration(B), facts(nodes=[]), common.NO_ELIGIBLE_NODE).message
        assert message.startswith(common.eligible(0, 0).text)

    @pytest.mark.control("nodes-by-trial")
    def test_names_for_those_who_may_list_nodes(self) -> None:
        message = refused(migration(C), facts(may=LISTER), common.NO_ELIGIBLE_NODE).message
        assert f"node-a2, node-b1: {LACKING_C}" in message

    @pytest.mark.control("pods-claim-to-be-admins", "nodes-by-trial")
    def test_no_names_for_a_caller_that_could_claim_any_user(self) -> None:
        decision = decide(migration(C), facts(may=LISTER), verified=False)
        assert decision.denial == refused(migration(C), facts(), common.NO_ELIGIBLE_NODE)
        assert "node-a1" in str(decision.details)

    @pytest.mark.parametrize(("setting", "warned"), [("warn", 1), ("ignore", 0)])
    def test_where_an_autoscaler_may_help(self, setting: str, warned: int) -> None:
        decision = decide(migration(C), facts(), no_eligible_node=setting)
        assert (decision.denial, len(decision.warnings)) == (None, warned)

    @pytest.mark.control("slow-lookups")
    @pytest.mark.parametrize("key", [NodesKey(), VMI])
    def test_what_is_not_known_is_refused_with_503(self, key: Any) -> None:
        world = facts() | {key: Unavailable("no answer")}
        lax = decide(migration(B), world, failure_policy="Ignore")
        refused(migration(B), world, common.LOOKUP_FAILED, 503)
        assert (lax.code, lax.denial, len(lax.warnings)) == (common.LOOKUP_FAILED, None, 1)


class TestRight:
    def test_users_need_it(self) -> None:
        denial = refused(migration(B), facts(), reasons.NODE_CHOICE_FORBIDDEN, require_right=True)
        assert "migrationtargets.kubevirt-webhook.github.io" in denial.message
        world = facts(may=[("use", "migrationtargets")])
        assert decide(migration(B), world, require_right=True).code == common.ELIGIBLE

    @pytest.mark.control("virtctl-hides-the-user")
    @pytest.mark.parametrize(("setting", "code"), [("allow", common.ELIGIBLE), ("deny", reasons.NODE_CHOICE_FORBIDDEN)])
    def test_virtctl_hides_the_user(self, setting: str, code: str) -> None:
        decision = decide(migration(B), facts(), user=API_ACCOUNT, require_right=True, via_virtctl=setting)
        assert decision.code == code


@pytest.mark.control("many-user-migrations")
def test_unfinished_user_migrations_count() -> None:
    running, done = (migration() | {"status": {"phase": phase}} for phase in ("Running", "Succeeded"))
    world = facts(migrations=[running, done, annotated(migration(), "evacuationMigration")])
    refused(migration(B), world, reasons.TOO_MANY_MIGRATIONS, 429, max_unfinished=1)
    assert decide(migration(B), world, max_unfinished=1).reasons == (reasons.too_many(1, 1, "demo"),)
    assert decide(migration(B), world, max_unfinished=2).code == common.ELIGIBLE
    # With a selector they are a user's whatever their annotations say.
    world = facts(migrations=[annotated(migration(B), "evacuationMigration")])
    assert decide(migration(B), world, max_unfinished=1).code == reasons.TOO_MANY_MIGRATIONS


class TestWithoutSelector:
    def test_a_pinned_vm_is_warned_about(self) -> None:
        decision = decide(migration(), PINNED, WARNING)
        assert (decision.code, decision.denial) == (reasons.PINNED, None)
        assert [warning.code for warning in decision.warnings] == [reasons.PINNED]
        assert "kubernetes.io/hostname=node-a1" in decision.warnings[0].text

    @pytest.mark.parametrize("world", [facts(nodes=NODES[:1]), facts(nodes=ONE_DEVICE) | migrations.requesting()])
    def test_no_node_is_warned_about(self, world: Any) -> None:
        decision = decide(migration(), world, WARNING)
        assert (decision.code, decision.denial, len(decision.warnings)) == (common.NO_ELIGIBLE_NODE, None, 1)

    @pytest.mark.parametrize(
        ("obj", "world", "code"),
        [
            (migration(), facts(), common.ELIGIBLE),
            (migration(B), {}, common.OTHER_OPERATION),
            (migration(), NO_VMI, common.VMI_NOT_FOUND),
            (migration(), facts() | {NodesKey(): Unavailable("x")}, common.LOOKUP_FAILED),
            # The sending side makes no pod here.
            (migration(**SENDING), facts(nodes=NODES[:1]), reasons.ON_SENDING_SIDE),
            # KubeVirt's own need no look-up.
            (annotated(migration(), "evacuationMigration"), {}, common.BY_KUBEVIRT),
            (annotated(migration(), "workloadUpdateMigration"), {}, common.BY_KUBEVIRT),
        ],
    )
    def test_others_pass_silently(self, obj: Json, world: Any, code: str) -> None:
        decision = decide(obj, world, WARNING)
        assert (decision.code, decision.denial, decision.warnings) == (code, None, ())
