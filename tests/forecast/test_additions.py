"""What forecasts know of defaults agrees with what the policy writes, and decides where pods go."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json, changed
from tests.builders import settings as any_settings
from tests.forecast import clusters
from tests.forecast.clusters import node, snapshot, vm
from tests.golden_files import Golden
from tests.policies.defaults.world import GPU, POOL, PREFERRED, REQUIRED, after, section
from tests.policies.eviction import world as evictions
from tests.policies.migration import world as migrations
from tests.review.memory import MemoryCluster
from webhook import names
from webhook.admission.audit import NoAudit
from webhook.admission.reasons import common
from webhook.facts import Facts, NamespaceKey, from_memory
from webhook.forecast import drain, report, update
from webhook.forecast.additions import additions_by
from webhook.forecast.report import DrainPlan, VmPlan
from webhook.k8s.types.meta import Namespace
from webhook.placement.machines import LauncherPod, Vmi
from webhook.placement.requirements import Label, Origin
from webhook.policies.defaults import additions
from webhook.policies.defaults.settings import ANNOTATIONS
from webhook.policies.migration.explanation import MigrationExplanation, Question, explain
from webhook.policies.registry import BY_PATH
from webhook.review.reviewer import Evaluation, Reviewer
from webhook.settings.model import Settings

OPTED_IN = {names.policy_label("defaults"): "enforce"}
SELECTOR, AFFINITY, MODEL = (
    f"{names.DOMAIN}/injected-{row}" for row in ("node-selector", "required-node-affinity", "cpu-model")
)
SSD = {"disk": "ssd"}
RECORD = {SELECTOR: json.dumps(SSD)}


def by(**rows: Any) -> Settings:
    return changed(any_settings(), defaults=section(**rows))


SELECTING = by(nodeSelector=SSD)


def defaulted(name: str, on: str, annotations: Json | None = None, **spec: Any) -> tuple[Json, Json]:
    """A VM with what the policy writes into VMI and pod when it starts."""
    vmi, pod = vm(name, on, **spec)
    for each in (vmi, pod):
        each["metadata"]["annotations"] = dict(RECORD if annotations is None else annotations)
    return vmi, pod


def drained(nodes: list[Json], *vms: Any, settings: Settings | None = SELECTING, **options: Any) -> DrainPlan:
    namespace = {"labels": OPTED_IN, "annotations": options.pop("annotations", {})} | options.pop("namespace", {})
    return drain.plan(snapshot(nodes, vms, settings=settings, namespace=namespace, **options), ["a"])


def only(nodes: list[Json], one: Any, **options: Any) -> VmPlan:
    (found,) = drained(nodes, one, **options).steps[0].vms
    return found


DISKS = [node("a", disk="ssd"), node("b", disk="hdd"), node("c", disk="ssd"), node("d")]


class TestDrains:
    def test_a_default_selector_leaves_only_its_nodes(self) -> None:
        found = only(DISKS, defaulted("web", "a"))
        assert (found.to, found.eligible, found.candidates, found.gaps) == ("c", 1, ("c",), ())

    @pytest.mark.parametrize(
        "changes",
        [
            {"settings": None},
            {"settings": by(nodeSelector={})},
            {"settings": by(nodeSelector={"disk": "hdd"})},
            {"namespace": {"labels": {}}},
            {"namespace": {"labels": {names.policy_label("defaults"): "warn"}}},
            {"annotations": {ANNOTATIONS["node_selector"]: "off"}},
        ],
        ids=["no settings", "none", "another value", "not opted in", "warn", "off in the namespace"],
    )
    def test_only_what_is_recorded_and_in_force_counts(self, changes: Any) -> None:
        assert only(DISKS, defaulted("web", "a"), **changes).eligible == 3

    @pytest.mark.parametrize(
        "one", [vm("web", "a"), defaulted("web", "a", RECORD | {names.policy_label("defaults"): "off"})]
    )
    def test_an_older_vm_and_one_whose_owner_wants_none_go_anywhere(self, one: Any) -> None:
        assert only(DISKS, one).eligible == 3

    def test_what_the_owner_chose_counts(self) -> None:
        assert only(DISKS, defaulted("web", "a", nodeSelector={"disk": "hdd"})).candidates == ("b",)

    def test_a_present_pod_that_has_the_default_is_explained(self) -> None:
        """Else the plan says that the pod's node selector was not evaluated."""
        vmi, pod = defaulted("web", "a")
        pod["spec"]["nodeSelector"] = dict(SSD)
        for settings in (SELECTING, by(nodeSelector={})):
            assert only(DISKS, (vmi, pod), settings=settings).gaps == ()

    def test_the_default_that_leaves_no_node_is_named(self, golden: Golden) -> None:
        nodes = [node("a", disk="ssd"), node("b", disk="hdd"), node("c")]
        of_namespace = {ANNOTATIONS["node_selector"]: json.dumps(SSD)}
        for own in ({}, of_namespace):
            plan = drained(nodes, defaulted("web", "a"), annotations=own)
            (found,) = plan.steps[0].vms
            assert (found.outcome, found.code) == (report.BLOCKS, report.NO_ELIGIBLE_NODE)
            golden("\n".join([found.reason, *(each.change for each in plan.changes)]))

    def test_a_default_model_is_named(self, golden: Golden) -> None:
        vmi, pod = defaulted("web", "a", {MODEL: "Skylake-Server"})
        vmi["spec"]["domain"]["cpu"] = {"model": "Skylake-Server"}
        found = only(DISKS, (vmi, pod))
        assert found.code == report.NO_ELIGIBLE_NODE
        golden(found.reason)

    def test_tolerations_of_now_count_whatever_the_present_pod_has(self) -> None:
        """They are in each new pod, so that a VM that is older than the default gets to tainted nodes, too."""
        tainted = [node("a"), node("b") | {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}]
        vmi, pod = vm("web", "a")
        assert only(tainted, (vmi, pod), settings=by(tolerations=[GPU])).to == "b"
        pod["metadata"]["annotations"] = {names.INJECTED_TOLERATIONS_ANNOTATION: json.dumps([GPU])}
        pod["spec"]["tolerations"] = [GPU]
        assert only(tainted, (vmi, pod), settings=by(tolerations=[GPU])).to == "b"
        assert only(tainted, (vmi, pod), settings=by(tolerations=[])).code == report.NO_ELIGIBLE_NODE
        # What others than this policy put there stays.
        pod["metadata"]["annotations"] = {}
        assert only(tainted, (vmi, pod), settings=by(tolerations=[])).to == "b"

    def test_preferences_order_nodes(self) -> None:
        def preferring(disk: str) -> Settings:
            expression = {"key": "disk", "operator": "In", "values": [disk]}
            term = {"weight": 100, "preference": {"matchExpressions": [expression]}}
            return by(nodeAffinity={PREFERRED: [term]})

        assert [only(DISKS, vm("web", "a"), settings=preferring(disk)).to for disk in ("hdd", "ssd")] == ["b", "c"]

    def test_it_holds_after_a_first_move_too(self) -> None:
        """A rolling drain moves a VM several times; what a default required is no selector of its pod's own."""
        rows = by(nodeSelector=SSD, nodeAffinity={REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [POOL]}]}})
        annotations = RECORD | {AFFINITY: json.dumps([{"matchExpressions": [POOL]}])}
        nodes = [node(name, disk="ssd", pool="vms") for name in "ab"] + [node("c", disk="ssd"), node("d", pool="vms")]
        world = snapshot(nodes, [defaulted("web", "a", annotations)], settings=rows, namespace={"labels": OPTED_IN})
        plan = drain.plan(world, ["a", "b"], rolling=True)
        assert [(vm.to, vm.eligible, vm.gaps) for step in plan.steps for vm in step.vms] == [("b", 1, ()), ("a", 1, ())]

    def test_a_default_strategy_is_named(self, golden: Golden) -> None:
        annotations = {f"{names.DOMAIN}/injected-eviction-strategy": "None"}
        found = only(DISKS, defaulted("web", "a", annotations, evictionStrategy="None"))
        assert found.outcome == report.SHUTS_DOWN
        golden(found.reason)

    def test_an_update_knows_them(self) -> None:
        updates = {"workloadUpdateMethods": ["LiveMigrate"]}
        world = snapshot(
            DISKS, [defaulted("web", "a")], settings=SELECTING, namespace={"labels": OPTED_IN}, updates=updates
        )
        assert [(vm.to, vm.eligible) for vm in update.plan(world).vms] == [("c", 1)]

    def test_namespaces_with_other_defaults_are_other_classes(self) -> None:
        """VMs that are alike share an answer, and not across namespaces with other defaults."""
        world = snapshot(
            DISKS, [defaulted("web", "a"), defaulted("db", "a")], settings=SELECTING, namespace={"labels": OPTED_IN}
        )
        other = msgspec.structs.replace(
            world.namespaces[0], metadata=msgspec.structs.replace(world.namespaces[0].meta, name="lab", labels={})
        )
        moved = msgspec.structs.replace(
            world.vmis[1], metadata=msgspec.structs.replace(world.vmis[1].meta, namespace="lab")
        )
        pod = msgspec.structs.replace(
            world.pods[1], metadata=msgspec.structs.replace(world.pods[1].meta, namespace="lab")
        )
        both = msgspec.structs.replace(
            world, namespaces=(*world.namespaces, other), vmis=(world.vmis[0], moved), pods=(world.pods[0], pod)
        )
        eligible = {vm.name: vm.eligible for vm in drain.plan(both, ["a"]).steps[0].vms}
        assert eligible == {"web": 1, "db": 3}


def explained(found: Json, pod: LauncherPod, settings: Settings, added: Json | None = None) -> MigrationExplanation:
    place = Namespace(msgspec.convert({"name": "demo", "labels": OPTED_IN}, type(Namespace().meta)))
    world = {**migrations.facts(found), migrations.PODS: (pod,), NamespaceKey("demo"): place}
    return from_memory(
        explain(Question("demo", "web01", added or {}), Facts.of(world, additions=additions_by(settings)))
    )


ZONE_A, IN_B = {"zone": "a"}, {"key": "zone", "operator": "In", "values": ["b"]}


class TestMigrations:
    def test_the_target_pod_has_the_default(self, golden: Golden) -> None:
        vmi = migrations.vmi()
        vmi["metadata"]["annotations"] = {SELECTOR: json.dumps(ZONE_A)}
        pod = migrations.launcher(nodeSelector=dict(ZONE_A))
        answer = explained(vmi, pod, by(nodeSelector=ZONE_A))
        assert answer.eligible.names == ["node-a2"]
        assert not any("node selector" in gap for gap in answer.gaps)
        golden("\n".join(each.text for each in answer.reasons))

    def test_what_the_migration_adds_goes_before_it(self) -> None:
        vmi = migrations.vmi()
        vmi["metadata"]["annotations"] = {SELECTOR: json.dumps(ZONE_A)}
        answer = explained(vmi, migrations.launcher(nodeSelector={}), by(nodeSelector=ZONE_A), {"zone": "b"})
        assert (answer.eligible.names, answer.contradictions) == (["node-b1"], ())

    def test_a_present_pods_affinity_is_explained(self) -> None:
        vmi = migrations.vmi()
        vmi["metadata"]["annotations"] = {AFFINITY: json.dumps([{"matchExpressions": [IN_B]}])}
        terms = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [IN_B]}]}}}
        pod = migrations.launcher(nodeSelector={}, affinity=terms)
        rows = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [IN_B]}]}}}
        for settings, eligible in ((by(**rows), ["node-b1"]), (by(nodeSelector={}), ["node-a2", "node-b1"])):
            answer = explained(vmi, pod, settings)
            assert answer.eligible.names == eligible
            assert not any("node affinity" in gap for gap in answer.gaps)


# -- as the policy writes it -------------------------------------------------------------------------------------------

KEYS, VALUES = st.sampled_from(["disk", "pool", "zone"]), st.sampled_from(["a", "b"])
TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {"key": KEYS, "operator": st.just("Exists"), "effect": st.sampled_from(["NoSchedule", "NoExecute"])}
    ),
    max_size=3,
)
EXPRESSIONS = st.lists(
    st.fixed_dictionaries({"key": KEYS, "operator": st.just("In"), "values": st.lists(VALUES, min_size=1, max_size=2)}),
    max_size=2,
)


def rows_of(tolerations: list[Json], selector: Json, expressions: list[Json]) -> Json:
    affinity = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": expressions}]}} if expressions else {}
    return {"tolerations": tolerations, "nodeSelector": selector, "nodeAffinity": affinity}


ROWS = st.builds(rows_of, TOLERATIONS, st.dictionaries(KEYS, VALUES, max_size=2), EXPRESSIONS)


@given(ROWS, ROWS, ROWS)
def test_what_a_forecast_adds_is_what_the_policy_writes(owners: Json, at_start: Json, now: Json) -> None:
    """By whatever the owner has, the settings were at the start, and are now."""
    from tests.policies.defaults import world

    own = {"tolerations": owners["tolerations"], "nodeSelector": owners["nodeSelector"]}
    own |= {"affinity": {"nodeAffinity": owners["nodeAffinity"]}} if owners["nodeAffinity"] else {}
    vmi = after(world.vmi(**own), section(**at_start))
    pod = world.pod(vmi["metadata"].get("annotations"), **own)
    written = after(pod, section(**now))["spec"]

    added = additions.added_to_next(msgspec.convert(vmi, Vmi), section(**now))
    selector = {each.expression.key: each.expression.values[0] for each in added.selector}
    assert selector | own["nodeSelector"] == written.get("nodeSelector", {})
    expected = [each for each in written.get("tolerations", []) if each not in own["tolerations"]]
    assert [(each.key, each.effect) for each in added.tolerations] == [
        (each["key"], each["effect"]) for each in expected
    ]
    terms = (written.get("affinity") or {}).get("nodeAffinity", {}).get(REQUIRED, {}).get("nodeSelectorTerms", [])
    mine = owners["nodeAffinity"].get(REQUIRED, {}).get("nodeSelectorTerms", [{"matchExpressions": []}])
    asked = {json.dumps(each, sort_keys=True) for term in terms for each in term["matchExpressions"]}
    known = {json.dumps(each, sort_keys=True) for term in mine for each in term["matchExpressions"]}
    plain = [
        {"key": each.expression.key, "operator": "In", "values": [*each.expression.values]} for each in added.required
    ]
    assert asked == known | {json.dumps(each, sort_keys=True) for each in plain}
    assert all(isinstance(each, Label) and each.origin == Origin.DEFAULT for each in (*added.selector, *added.required))


@given(st.text(max_size=30), st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists, max_leaves=4))
def test_a_record_of_a_tenant_may_say_anything(text: str, value: Any) -> None:
    for said in (text, json.dumps(value), json.dumps([{"matchExpressions": [value]}]), json.dumps({"disk": value})):
        annotations = dict.fromkeys((SELECTOR, AFFINITY, names.INJECTED_TOLERATIONS_ANNOTATION), said)
        vmi, pod = clusters.vm("web", "a")
        for each in (vmi, pod):
            each["metadata"]["annotations"] = annotations
        read = msgspec.convert(vmi, Vmi), msgspec.convert(pod, LauncherPod)
        additions.added_to_present(*read)
        additions.added_to_next(read[0], section())


# -- policies ----------------------------------------------------------------------------------------------------------

EVERYWHERE = {"migration": "enforce", "eviction": "enforce", "defaults": "enforce"}


async def decided(path: str, body: Json, known: Any, settings: Settings, labels: Json) -> Evaluation:
    """What a server decides whose reviewer is made as `serve` makes it."""
    place = {"metadata": {"name": "demo", "labels": {names.policy_label(each): mode for each, mode in labels.items()}}}
    namespace = msgspec.convert(place, Namespace)
    known = known | {NamespaceKey("demo"): namespace, NamespaceKey("demo", uncached=True): namespace}
    reviewer = Reviewer(
        MemoryCluster(known), lambda: settings, NoAudit(), wall=lambda: evictions.NOW, additions=additions_by
    )
    deadline = asyncio.get_running_loop().time() + 60
    return await reviewer.evaluate(BY_PATH[path], msgspec.json.encode(body), deadline)


ZONE_C = {SELECTOR: json.dumps({"zone": "c"})}


@pytest.mark.parametrize(
    ("labels", "record", "is_denied"),
    [
        (EVERYWHERE, ZONE_C, True),
        (EVERYWHERE, {}, False),
        (EVERYWHERE | {"defaults": "audit"}, ZONE_C, False),
        (EVERYWHERE | {"defaults": "off"}, ZONE_C, False),
    ],
    ids=["recorded", "older", "audit", "off"],
)
async def test_policies_deny_what_a_default_leaves_no_node_for(labels: Json, record: Json, is_denied: bool) -> None:
    """The target pod would wait for a node with the default selector, and the migration fail after five minutes."""
    settings = by(nodeSelector={"zone": "c"})
    found = evictions.vmi()
    found["metadata"]["annotations"] = record
    known = evictions.facts(found)
    evicted = await decided("/mutate/eviction/pods/enforce", evictions.review(), known, settings, labels)
    assert (evicted.decision.denial is not None) == is_denied
    asked = migrations.asking(migrations.migration({"kubernetes.io/arch": "amd64"}))
    migrated = await decided(
        "/validate/migration/virtualmachineinstancemigrations/enforce", asked, known, settings, labels
    )
    assert (migrated.decision.denial is not None) == is_denied
    for each in (evicted, migrated):
        reason = each.decision.reasons[0]
        assert (reason.code == common.NO_ELIGIBLE_NODE) == is_denied
        assert ("the settings' default nodeSelector" in reason.text) == is_denied
