"""Every rule about topology spread constraints, a policy call each."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.builders import UNAVAILABLE, Json, known, launcher_pod, review, vm, vmi, zoned
from webhook import names
from webhook.admission.decision import Decision
from webhook.admission.patch import operations
from webhook.admission.reasons import scheduling
from webhook.errors import Unavailable
from webhook.facts import Facts, KubeVirtKey, NodesKey
from webhook.policies.scheduling.spread import constraints
from webhook.review.endpoints import BY_PATH

PATH = ("spec", "topologySpreadConstraints")
VM_PATH = ("spec", "template", *PATH)
MARK_PATH = ("metadata", "annotations", names.INJECTED_SPREAD_ANNOTATION)
OWN: Json = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}


def decide(body: Json, facts: dict[Any, object] | None = None, **settings: Any) -> Decision:
    resource = body["request"]["resource"]["resource"]
    endpoint = BY_PATH[f"/mutate/scheduling/{resource}/enforce"]
    request = endpoint.codec.decode(msgspec.json.encode(body)).request
    section = builders.scheduling(**({"spread": "hostname"} | settings))
    return endpoint.handler(request.object, request, Facts.of(known(vmi()) if facts is None else facts), section)


def patched(body: Json, decision: Decision) -> Json:
    """The object after the decision, as the API server would store it."""
    ops = msgspec.to_builtins(operations(body["request"]["object"], decision.changes))
    result: Json = jsonpatch.apply_patch(body["request"]["object"], ops)
    return result


def changes(decision: Decision) -> dict[tuple[str, ...], Any]:
    return {change.path: change.new for change in decision.changes}


def codes(decision: Decision) -> set[str]:
    return {reason.code for reason in decision.reasons}


def spread_vm(found: Any = ..., mark: str | None = None, own: str | None = None) -> Json:
    result = vm()
    template = result["spec"]["template"]
    if found is not ...:
        template["spec"]["topologySpreadConstraints"] = found
    if mark:
        result["metadata"]["annotations"] = {names.INJECTED_SPREAD_ANNOTATION: mark}
        template["metadata"]["annotations"] = {names.INJECTED_SPREAD_ANNOTATION: mark}
    if own:
        template["metadata"].setdefault("annotations", {})[names.SPREAD_ANNOTATION] = own
    return result


class TestConstraints:
    @pytest.mark.parametrize(
        ("spread", "keys"),
        [
            ("hostname", ["kubernetes.io/hostname"]),
            ("zone", ["topology.kubernetes.io/zone"]),
            ("both", ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]),
        ],
    )
    def test_are_soft_and_count_launcher_pods_on_usable_nodes(self, spread: str, keys: list[str]) -> None:
        made = constraints(spread)
        assert [constraint["topologyKey"] for constraint in made] == keys
        for constraint in made:
            assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"
            assert constraint["labelSelector"] == {"matchLabels": {"kubevirt.io": "virt-launcher"}}
            assert (constraint["nodeAffinityPolicy"], constraint["nodeTaintsPolicy"]) == ("Honor", "Honor")


AMOUNT = st.sampled_from(["", "1", "2"])


class TestZones:
    """The constraint on zones is written only where every node that the pod may use has a zone, and there are two."""

    ZONED: Any = {"a": "1", "b": "2"}

    @pytest.mark.parametrize(
        ("nodes", "zones"), [(ZONED, True), ({"a": "1", "b": ""}, False), ({"a": "1"}, False), ({}, False)]
    )
    def test_both_never_harms(self, nodes: Any, zones: bool) -> None:
        decision = decide(review(launcher_pod()), known(vmi()) | {NodesKey(): zoned(**nodes)}, spread="both")
        written = "both" if zones else "hostname"

        assert changes(decision)[PATH] == constraints(written)
        assert changes(decision)[MARK_PATH] == written

    def test_zone_alone_writes_nothing_then(self) -> None:
        decision = decide(review(launcher_pod()), known(vmi()) | {NodesKey(): zoned(a="")}, spread="zone")
        assert scheduling.SPREAD_WITHOUT_ZONES in codes(decision)
        assert PATH not in changes(decision)

    def test_nodes_that_are_not_known_have_no_zones(self) -> None:
        facts = known(vmi()) | {NodesKey(): Unavailable("not listed yet")}
        assert changes(decide(review(launcher_pod()), facts, spread="both"))[PATH] == constraints("hostname")

    def test_nodes_are_looked_at_only_where_zones_are_wanted(self) -> None:
        facts = {key: value for key, value in known(vmi()).items() if key != NodesKey()}
        assert changes(decide(review(launcher_pod()), facts, spread="hostname"))[PATH] == constraints("hostname")

    @given(st.dictionaries(st.sampled_from("abcde"), AMOUNT), st.frozensets(st.sampled_from("abcde")))
    def test_nodes_that_the_pod_cannot_use_do_not_count(self, zones: dict[str, str], usable: frozenset[str]) -> None:
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in usable]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        pod = launcher_pod(affinity={"nodeAffinity": required})
        decision = decide(review(pod), known(vmi()) | {NodesKey(): zoned(**zones)}, spread="both")
        its = [zone for name, zone in zones.items() if name in usable]

        assert changes(decision)[MARK_PATH] == ("both" if all(its) and len({*its}) > 1 else "hostname")

    @pytest.mark.parametrize("kind", ["VMI", "VM"])
    def test_in_vms_all_nodes_that_take_vms_count(self, kind: str) -> None:
        own = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": "w", "namespace": "demo"},
        }
        body = review(vm() if kind == "VM" else own | {"spec": {"domain": {}}})
        section: Any = {"spread": "both", "spread_virtual_machines": True, "spread_virtual_machine_instances": True}
        path = VM_PATH if kind == "VM" else PATH

        assert changes(decide(body, **section))[path] == constraints("both")
        unzoned = known(vmi()) | {NodesKey(): zoned(a="1", b="2", c="")}
        assert changes(decide(body, unzoned, **section))[path] == constraints("hostname")


class TestSpreadOfPods:
    def test_pod_without_constraints_gets_them_and_its_scheduler(self) -> None:
        decision = decide(review(launcher_pod()))

        assert codes(decision) == {scheduling.INJECTED, scheduling.SPREAD_INJECTED}
        assert changes(decision)[PATH] == constraints("hostname")
        assert changes(decision)[MARK_PATH] == "hostname"
        assert changes(decision)["spec", "schedulerName"] == "kubevirt"

    def test_both_choices_make_one_patch_that_applies(self) -> None:
        body = review(launcher_pod())
        del body["request"]["object"]["metadata"]["annotations"]

        result = patched(body, decide(body))

        assert result["spec"]["topologySpreadConstraints"] == constraints("hostname")
        assert result["metadata"]["annotations"] == {
            names.INJECTED_SCHEDULER_ANNOTATION: "kubevirt",
            names.INJECTED_SPREAD_ANNOTATION: "hostname",
        }

    def test_a_second_call_changes_nothing(self) -> None:
        body = review(launcher_pod())
        again = copy.deepcopy(body)
        again["request"]["object"] = patched(body, decide(body))

        decision = decide(again)

        assert not decision.changes
        assert scheduling.SPREAD_PRESENT in codes(decision)

    def test_off_says_nothing(self) -> None:
        assert codes(decide(review(launcher_pod()), spread="off")) == {scheduling.INJECTED}

    @pytest.mark.parametrize(("health", "schedulers"), [(UNAVAILABLE, None), (None, {})])
    def test_they_need_no_scheduler(self, health: Any, schedulers: Any) -> None:
        declared = {} if schedulers is None else {"schedulers": schedulers}
        facts = known(vmi(), health) if health else known(vmi())

        decision = decide(review(launcher_pod()), facts, **declared)

        assert decision.code == scheduling.SPREAD_INJECTED, "the reason that changed something comes first"
        assert PATH in changes(decision)
        assert ("spec", "schedulerName") not in changes(decision)

    def test_without_any_scheduler_nobody_is_warned(self) -> None:
        assert not decide(review(launcher_pod()), schedulers={}).warnings

    @pytest.mark.parametrize("scheduler", ["default-scheduler", "stork"])
    def test_they_are_independent_of_the_owners_scheduler(self, scheduler: str) -> None:
        decision = decide(review(launcher_pod(schedulerName=scheduler)), known(vmi(scheduler)))
        assert changes(decision).keys() == {PATH, MARK_PATH}

    def test_the_owners_constraints_win(self) -> None:
        decision = decide(review(launcher_pod(topologySpreadConstraints=[OWN])))
        assert scheduling.SPREAD_CHOSEN in codes(decision)
        assert PATH not in changes(decision)

    def test_a_forged_annotation_makes_the_owners_constraints_nobody_elses(self) -> None:
        pod = launcher_pod(topologySpreadConstraints=[OWN])
        pod["metadata"]["annotations"][names.INJECTED_SPREAD_ANNOTATION] = "hostname"
        assert scheduling.SPREAD_CHOSEN in codes(decide(review(pod)))

    @pytest.mark.parametrize("empty", [[], None])
    def test_empty_constraints_are_none(self, empty: Any) -> None:
        pod = launcher_pod()
        pod["spec"]["topologySpreadConstraints"] = empty
        assert changes(decide(review(pod)))[PATH] == constraints("hostname")

    @pytest.mark.parametrize(
        "wishes",
        [
            {"nodeSelector": {"zone": "a", "kubevirt.io/schedulable": "true"}},
            # Dedicated CPUs: equal limits, and nodes with a CPU manager.
            {
                "nodeSelector": {"cpumanager": "true"},
                "containers": [{"name": "compute", "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}}],
            },
            {
                "affinity": {
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}]}
                }
            },
            {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
            {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        ],
    )
    def test_a_pod_with_other_wishes_gets_them_in_addition(self, wishes: Json) -> None:
        body = review(launcher_pod(**wishes))
        result = patched(body, decide(body))

        assert result["spec"]["topologySpreadConstraints"] == constraints("hostname")
        assert {field: result["spec"][field] for field in wishes} == wishes

    def test_a_pools_own_constraint_keeps_the_namespaces_away(self) -> None:
        """A pool that is to be spread for itself says so in its template."""
        pool = {**constraints("hostname")[0], "labelSelector": {"matchLabels": {"pool": "web"}}}
        decision = decide(review(launcher_pod(topologySpreadConstraints=[pool])))

        assert scheduling.SPREAD_CHOSEN in codes(decision)
        assert PATH not in changes(decision)

    def test_an_owner_may_opt_out(self) -> None:
        pod = launcher_pod()
        pod["metadata"]["annotations"][names.SPREAD_ANNOTATION] = "off"

        decision = decide(review(pod))

        assert scheduling.SPREAD_OPTED_OUT in codes(decision)
        assert PATH not in changes(decision)

    @pytest.mark.parametrize("namespace", ["off", "hostname", "nonsense"])
    def test_an_owner_may_choose_otherwise_than_the_namespace(self, namespace: str) -> None:
        pod = launcher_pod()
        pod["metadata"]["annotations"][names.SPREAD_ANNOTATION] = "zone"
        assert changes(decide(review(pod), spread=namespace))[PATH] == constraints("zone")

    @pytest.mark.parametrize("value", ["Hostname", "on", "host name", "'; drop", "\x1b[31m"])
    def test_an_invalid_value_changes_nothing_and_is_said(self, value: str) -> None:
        decision = decide(review(launcher_pod()), spread=value)

        assert scheduling.SPREAD_INVALID in codes(decision)
        assert PATH not in changes(decision)
        assert len(decision.warnings) == 1

    @pytest.mark.parametrize("user", ["mallory", "system:serviceaccount:shop:kubevirt-controller"])
    def test_a_pod_of_others_is_left_alone(self, user: str) -> None:
        assert not decide(review(launcher_pod(), user=user)).changes

    def test_a_pod_that_is_no_launcher_pod_is_left_alone(self) -> None:
        pod = launcher_pod()
        del pod["metadata"]["labels"]["kubevirt.io"]
        assert not decide(review(pod)).changes

    def test_a_bound_pod_is_left_alone(self) -> None:
        assert not decide(review(launcher_pod(nodeName="node-1"))).changes

    def test_a_cluster_without_kubevirt_is_left_alone(self) -> None:
        assert not decide(review(launcher_pod()), known(vmi()) | {KubeVirtKey(): None}).changes

    @given(
        st.lists(
            st.fixed_dictionaries(
                {"topologyKey": st.sampled_from(["kubernetes.io/hostname", "zone"]), "maxSkew": st.integers(1, 3)}
            ),
            max_size=3,
        ),
        st.sampled_from(names.SPREADS),
        st.none() | st.sampled_from([*names.SPREADS, "x"]),
    )
    def test_whatever_the_owner_wrote_stands(self, written: list[Json], namespace: str, own: str | None) -> None:
        pod = launcher_pod(topologySpreadConstraints=written)
        if own is not None:
            pod["metadata"]["annotations"][names.SPREAD_ANNOTATION] = own
        body = review(pod)

        result = patched(body, decide(body, spread=namespace))["spec"].get("topologySpreadConstraints")

        counts = own if own is not None else namespace
        usable = counts in ("hostname", "zone", "both")
        assert result == (written or (constraints(counts) if usable else written))


class TestSpreadOfVmis:
    def body(self, **spec: Any) -> Json:
        return review(
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstance",
                "metadata": {"name": "web01", "namespace": "demo"},
                "spec": {"domain": {}} | spec,
            },
            user="system:serviceaccount:kubevirt:kubevirt-controller",
        )

    def test_nothing_is_written_by_default(self) -> None:
        assert not decide(self.body()).changes

    def test_where_settings_say_so(self) -> None:
        decision = decide(self.body(), spread_virtual_machine_instances=True)
        assert changes(decision) == {PATH: constraints("hostname"), MARK_PATH: "hostname"}

    def test_the_owners_stand(self) -> None:
        assert not decide(self.body(topologySpreadConstraints=[OWN]), spread_virtual_machine_instances=True).changes


class TestVms:
    def created(self, found: Any = ..., **settings: Any) -> Decision:
        return decide(review(spread_vm(found)), virtual_machines=False, **settings)

    def updated(self, old: Json, new: Json, **settings: Any) -> Decision:
        body = review(new, operation="UPDATE", oldObject=old)
        return decide(body, **({"virtual_machines": False, "spread_virtual_machines": True} | settings))

    def test_nothing_is_written_by_default(self) -> None:
        assert not self.created().changes

    def test_where_settings_say_so(self) -> None:
        decision = self.created(spread_virtual_machines=True)
        assert changes(decision) == {
            VM_PATH: constraints("hostname"),
            MARK_PATH: "hostname",
            ("spec", "template", *MARK_PATH): "hostname",
        }

    def test_the_owners_stand(self) -> None:
        assert not self.created([OWN], spread_virtual_machines=True).changes

    def test_an_update_adds_nothing(self) -> None:
        assert not self.updated(spread_vm(), spread_vm()).changes

    @pytest.mark.parametrize("spread", ["off", "zone"])
    def test_injected_ones_stay_as_they_are(self, spread: str) -> None:
        there = spread_vm(constraints("hostname"), "hostname")
        assert not self.updated(there, there, spread=spread).changes

    def test_an_overwrite_gets_them_back(self) -> None:
        decision = self.updated(spread_vm(constraints("both"), "both"), spread_vm())

        assert decision.code == scheduling.SPREAD_PRESERVED
        assert changes(decision)[VM_PATH] == constraints("both")
        assert changes(decision)[MARK_PATH] == "both"

    def test_an_owner_may_remove_them(self) -> None:
        new = spread_vm(mark="hostname")
        assert scheduling.SPREAD_REMOVED in codes(self.updated(spread_vm(constraints("hostname"), "hostname"), new))

    @pytest.mark.parametrize("rest", [[], constraints("hostname")])
    def test_they_give_way_to_the_owners(self, rest: list[Json]) -> None:
        old = spread_vm(constraints("hostname"), "hostname")
        new = spread_vm([*rest, OWN], "hostname")

        decision = self.updated(old, new)

        assert decision.code == scheduling.SPREAD_WITHDRAWN
        result = patched(review(new), decision)
        assert result["spec"]["template"]["spec"]["topologySpreadConstraints"] == [OWN]
        assert names.INJECTED_SPREAD_ANNOTATION not in result["metadata"]["annotations"]
        assert names.INJECTED_SPREAD_ANNOTATION not in result["spec"]["template"]["metadata"]["annotations"]
        assert len(decision.warnings) == 1

    def test_what_server_side_apply_merged_into_an_injected_one_is_the_owners_alone(self) -> None:
        merged = constraints("hostname")[0] | {"maxSkew": 3}
        merged["labelSelector"] = {"matchLabels": {"app": "web", "kubevirt.io": "virt-launcher"}}
        new = spread_vm([merged], "hostname")
        item = 'k:{"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"ScheduleAnyway"}'
        tree: Json = {
            ".": {},
            "f:topologyKey": {},
            "f:whenUnsatisfiable": {},
            "f:maxSkew": {},
            "f:labelSelector": {"f:matchLabels": {"f:app": {}}},
        }
        fields: Json = {"f:spec": {"f:template": {"f:spec": {"f:topologySpreadConstraints": {item: tree}}}}}
        new["metadata"]["managedFields"] = [{"manager": "flux", "operation": "Apply", "fieldsV1": fields}]

        decision = self.updated(spread_vm(constraints("hostname"), "hostname"), new)

        assert changes(decision)[VM_PATH] == [
            {
                "maxSkew": 3,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ]

    def test_an_owner_who_declares_the_very_same_keeps_them_without_annotations(self) -> None:
        new = spread_vm(constraints("hostname"), "hostname")
        item = 'k:{"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"ScheduleAnyway"}'
        fields: Json = {"f:spec": {"f:template": {"f:spec": {"f:topologySpreadConstraints": {item: {}}}}}}
        new["metadata"]["managedFields"] = [{"manager": "flux", "operation": "Apply", "fieldsV1": fields}]

        decision = self.updated(spread_vm(constraints("hostname"), "hostname"), new)

        assert VM_PATH not in changes(decision)
        assert changes(decision)[MARK_PATH] is None

    @pytest.mark.parametrize(
        "fields",
        [
            {"f:spec": []},
            {"f:spec": {"f:template": {"f:spec": {"f:topologySpreadConstraints": {"k:{": {}, "v:1": {}, "k:[]": {}}}}}},
        ],
    )
    def test_odd_records_of_field_ownership_are_nobodys(self, fields: Json) -> None:
        new = spread_vm([*constraints("hostname"), OWN], "hostname")
        new["metadata"]["managedFields"] = [{"manager": "x", "operation": "Apply", "fieldsV1": fields}]
        assert changes(self.updated(spread_vm(constraints("hostname"), "hostname"), new))[VM_PATH] == [OWN]
