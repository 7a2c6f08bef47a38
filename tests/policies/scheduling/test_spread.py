"""Every rule about topology spread constraints."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import CONTROLLER, UNAVAILABLE, Json, known, launcher_pod, review, vm, vmi, zoned
from tests.policies.decisions import changes, decide_scheduling, declaring, patched
from webhook import names
from webhook.admission.decision import Decision
from webhook.errors import Unavailable
from webhook.facts import KubeVirtKey, NodesKey
from webhook.policies.scheduling import reasons as scheduling
from webhook.policies.scheduling.spread import constraints

PATH = ("spec", "topologySpreadConstraints")
VM_PATH = ("spec", "template", *PATH)
MARK = names.INJECTED_SPREAD_ANNOTATION
MARK_PATH = ("metadata", "annotations", MARK)
TEMPLATE_MARK = ("spec", "template", *MARK_PATH)
OWN: Json = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
OF_A_POOL = constraints("hostname")[0] | {"labelSelector": {"matchLabels": {"pool": "web"}}}

INVALID = ("Hostname", "on", "host name", "'; drop", "\x1b[31m")
WISHES: tuple[Json, ...] = (
    {"nodeSelector": {"zone": "a", "kubevirt.io/schedulable": "true"}},
    # Dedicated CPUs: equal limits, and nodes with a CPU manager.
    {
        "nodeSelector": {"cpumanager": "true"},
        "containers": [{"name": "compute", "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}}],
    },
    {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
    {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
    {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
)


def decide(body: Json, facts: dict[Any, object] | None = None, **settings: Any) -> Decision:
    return decide_scheduling(body, known(vmi()) if facts is None else facts, **({"spread": "hostname"} | settings))


def codes(decision: Decision) -> set[str]:
    return {reason.code for reason in decision.reasons}


def spread_vm(found: Any = ..., mark: str | None = None) -> Json:
    result = vm()
    template = result["spec"]["template"]
    if found is not ...:
        template["spec"]["topologySpreadConstraints"] = found
    if mark:
        result["metadata"]["annotations"] = template["metadata"]["annotations"] = {MARK: mark}
    return result


def of_vmi(**spec: Any) -> Json:
    metadata = {"name": "web01", "namespace": "demo"}
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata}
    return review(kind | {"spec": {"domain": {}} | spec}, CONTROLLER)


def annotated(annotation: str, value: str, **spec: Any) -> Json:
    made = launcher_pod(**spec)
    made["metadata"]["annotations"][annotation] = value
    return made


OF_HOST = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"kubevirt.io": "virt-launcher"}},
    "nodeAffinityPolicy": "Honor",
    "nodeTaintsPolicy": "Honor",
}


@pytest.mark.control("constraints-slow-the-scheduler")
def test_constraints_are_soft_and_count_launcher_pods_on_usable_nodes() -> None:
    of_zone, of_host = constraints("both")
    assert (constraints("zone"), constraints("hostname")) == ([of_zone], [of_host])
    assert of_host == OF_HOST
    assert of_zone == of_host | {"topologyKey": "topology.kubernetes.io/zone"}


AMOUNT = st.sampled_from(["", "1", "2"])


class TestZones:
    """The constraint on zones is written only where every node that the pod may use has a zone, and there are two."""

    @pytest.mark.parametrize(
        ("nodes", "written"),
        [
            (zoned(a="1", b="2"), "both"),
            *((zoned(**zones), "hostname") for zones in ({"a": "1", "b": ""}, {"a": "1"}, {})),
            (Unavailable("not listed yet"), "hostname"),
        ],
    )
    def test_both_never_harms(self, nodes: Any, written: str) -> None:
        decision = decide(review(launcher_pod()), known(vmi()) | {NodesKey(): nodes}, spread="both")
        assert (changes(decision)[PATH], changes(decision)[MARK_PATH]) == (constraints(written), written)

    def test_zone_alone_writes_nothing_then(self) -> None:
        decision = decide(review(launcher_pod()), known(vmi()) | {NodesKey(): zoned(a="")}, spread="zone")
        assert scheduling.SPREAD_WITHOUT_ZONES in codes(decision)
        assert PATH not in changes(decision)
        # Nodes are looked at only where zones are wanted.
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

    def test_in_vms_all_nodes_that_take_vms_count(self) -> None:
        section: Any = {"spread": "both", "spread_virtual_machines": True, "spread_virtual_machine_instances": True}
        unzoned = known(vmi()) | {NodesKey(): zoned(a="1", b="2", c="")}
        for body, path in ((of_vmi(), PATH), (review(vm()), VM_PATH)):
            assert changes(decide(body, **section))[path] == constraints("both")
            assert changes(decide(body, unzoned, **section))[path] == constraints("hostname")


class TestSpreadOfPods:
    def test_both_choices_make_one_patch_that_applies_once(self) -> None:
        pod = launcher_pod()
        del pod["metadata"]["annotations"]
        decision = decide(review(pod))
        result, marks = patched(pod, decision), {names.INJECTED_SCHEDULER_ANNOTATION: "kubevirt", MARK: "hostname"}
        assert codes(decision) == {scheduling.INJECTED, scheduling.SPREAD_INJECTED}
        assert (result["spec"]["schedulerName"], result["metadata"]["annotations"]) == ("kubevirt", marks)
        assert result["spec"]["topologySpreadConstraints"] == constraints("hostname")
        again = decide(review(result))
        assert (again.changes, scheduling.SPREAD_PRESENT in codes(again)) == ((), True)

    @pytest.mark.control("constraints-slow-the-scheduler")
    def test_off_says_nothing(self) -> None:
        assert codes(decide(review(launcher_pod()), spread="off")) == {scheduling.INJECTED}

    @pytest.mark.parametrize(
        ("scheduler", "facts", "declared", "warned"),
        [
            (None, known(vmi(), UNAVAILABLE), {}, True),
            (None, None, {"schedulers": {}}, False),
            *((name, known(vmi(name)), {}, False) for name in ("default-scheduler", "stork")),
        ],
    )
    def test_they_need_no_scheduler(self, scheduler: str | None, facts: Any, declared: Json, warned: bool) -> None:
        decision = decide(review(launcher_pod(**{"schedulerName": scheduler} if scheduler else {})), facts, **declared)
        assert decision.code == scheduling.SPREAD_INJECTED, "the reason that changed something comes first"
        assert changes(decision).keys() == {PATH, MARK_PATH}
        assert bool(decision.warnings) is warned

    @pytest.mark.parametrize(
        ("pod", "spread", "written"),
        [
            # Empty constraints are none.
            (launcher_pod(topologySpreadConstraints=[]), "hostname", "hostname"),
            (launcher_pod(topologySpreadConstraints=None), "hostname", "hostname"),
            # An owner may choose otherwise than the namespace.
            *(
                (annotated(names.SPREAD_ANNOTATION, "zone"), spread, "zone")
                for spread in ("off", "hostname", "nonsense")
            ),
            # A pod with other wishes gets them in addition.
            *((launcher_pod(**wishes), "hostname", "hostname") for wishes in WISHES),
        ],
    )
    def test_what_says_nothing_of_spreading_stays(self, pod: Json, spread: str, written: str) -> None:
        expected = {"schedulerName": "kubevirt", "topologySpreadConstraints": constraints(written)}
        assert patched(pod, decide(review(pod), spread=spread))["spec"] == pod["spec"] | expected

    @pytest.mark.parametrize(
        ("body", "facts"),
        [
            (review(launcher_pod(), user="mallory"), {}),
            (review(launcher_pod(), user="system:serviceaccount:shop:kubevirt-controller"), {}),
            (review(launcher_pod() | {"metadata": launcher_pod()["metadata"] | {"labels": {}}}), {}),
            (review(launcher_pod(nodeName="node-1")), {}),
            (review(launcher_pod()), {KubeVirtKey(): None}),
        ],
        ids=["a user's", "of another namespace", "no launcher pod", "bound", "no KubeVirt"],
    )
    def test_a_pod_of_others_is_left_alone(self, body: Json, facts: Any) -> None:
        assert not decide(body, known(vmi()) | facts).changes

    @pytest.mark.parametrize(
        ("pod", "spread", "code"),
        [
            (launcher_pod(topologySpreadConstraints=[OWN]), "hostname", scheduling.SPREAD_CHOSEN),
            # A forged annotation does not take the owner's constraints away from the owner.
            (annotated(MARK, "hostname", topologySpreadConstraints=[OWN]), "hostname", scheduling.SPREAD_CHOSEN),
            # A pool that is to be spread for itself says so in its template.
            (launcher_pod(topologySpreadConstraints=[OF_A_POOL]), "hostname", scheduling.SPREAD_CHOSEN),
            (annotated(names.SPREAD_ANNOTATION, "off"), "hostname", scheduling.SPREAD_OPTED_OUT),
            *((launcher_pod(), value, scheduling.SPREAD_INVALID) for value in INVALID),
        ],
    )
    def test_the_owners_choice_wins_and_an_invalid_value_is_said(self, pod: Json, spread: str, code: str) -> None:
        decision = decide(review(pod), spread=spread)
        assert code in codes(decision)
        assert PATH not in changes(decision)
        assert len(decision.warnings) == (code == scheduling.SPREAD_INVALID)

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
        result = patched(pod, decide(review(pod), spread=namespace))["spec"].get("topologySpreadConstraints")
        counts = own if own is not None else namespace
        usable = counts in ("hostname", "zone", "both")
        assert result == (written or (constraints(counts) if usable else written))


def test_vmis_where_settings_say_so() -> None:
    on: Json = {"spread_virtual_machine_instances": True}
    assert not decide(of_vmi()).changes, "off is the default"
    assert changes(decide(of_vmi(), **on)) == {PATH: constraints("hostname"), MARK_PATH: "hostname"}
    assert not decide(of_vmi(topologySpreadConstraints=[OWN]), **on).changes


INJECTED = spread_vm(constraints("hostname"), "hostname")


class TestVms:
    ITEM = (*VM_PATH, 'k:{"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"ScheduleAnyway"}')

    def updated(self, old: Json, new: Json, **settings: Any) -> Decision:
        body = review(new, operation="UPDATE", oldObject=old)
        return decide(body, **({"virtual_machines": False, "spread_virtual_machines": True} | settings))

    def test_where_settings_say_so(self) -> None:
        on: Json = {"virtual_machines": False, "spread_virtual_machines": True}
        written = {VM_PATH: constraints("hostname"), MARK_PATH: "hostname", TEMPLATE_MARK: "hostname"}
        assert not decide(review(spread_vm()), virtual_machines=False).changes, "off is the default"
        assert changes(decide(review(spread_vm()), **on)) == written
        assert not decide(review(spread_vm([OWN])), **on).changes

    def test_an_update_adds_and_changes_nothing(self) -> None:
        assert not self.updated(spread_vm(), spread_vm()).changes
        # Constraints that are the owner's in spite of the annotation were not injected.
        assert not self.updated(spread_vm([OWN], "hostname"), spread_vm()).changes
        leaving = spread_vm()
        leaving["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
        assert not self.updated(INJECTED, leaving).changes
        for spread in ("off", "zone"):
            assert not self.updated(INJECTED, INJECTED, spread=spread).changes

    def test_an_owner_may_remove_them_and_an_overwrite_gets_them_back(self) -> None:
        assert scheduling.SPREAD_REMOVED in codes(self.updated(INJECTED, spread_vm(mark="hostname")))
        decision = self.updated(spread_vm(constraints("both"), "both"), spread_vm())
        assert decision.code == scheduling.SPREAD_PRESERVED
        assert (changes(decision)[VM_PATH], changes(decision)[MARK_PATH]) == (constraints("both"), "both")

    @pytest.mark.parametrize(
        ("before", "own", "code"),
        [
            (None, "off", scheduling.SPREAD_OPTED_OUT),
            ("off", " off ", scheduling.SPREAD_OPTED_OUT),
            # The next pods get what the owner asks for now.
            (None, "zone", None),
            ("hostname", "both", None),
            # What says nothing new, or nothing at all, changes nothing.
            ("both", "both", scheduling.SPREAD_PRESERVED),
            ("zone", "hostname", scheduling.SPREAD_PRESERVED),
            ("hostname", None, scheduling.SPREAD_PRESERVED),
            (None, "nonsense", scheduling.SPREAD_PRESERVED),
        ],
    )
    def test_an_overwrite_that_asks_for_something_else_does_not(
        self, before: str | None, own: str | None, code: str | None
    ) -> None:
        old, new = spread_vm(constraints("hostname"), "hostname"), spread_vm()
        for obj, wish in ((old, before), (new, own)):
            if wish is not None:
                obj["spec"]["template"]["metadata"].setdefault("annotations", {})[names.SPREAD_ANNOTATION] = wish
        decision = self.updated(old, new)
        assert codes(decision) >= {code} - {None}
        assert (VM_PATH in changes(decision)) is (code == scheduling.SPREAD_PRESERVED)

    @pytest.mark.parametrize(
        ("before", "own", "gives_way"),
        [
            (None, "off", True),
            (None, "zone", True),
            (None, "hostname", False),
            ("both", "both", False),
            (None, "?", False),
        ],
    )
    def test_an_annotation_that_asks_for_something_else_takes_them_out(
        self, before: str | None, own: str, *, gives_way: bool
    ) -> None:
        old, new = copy.deepcopy(INJECTED), copy.deepcopy(INJECTED)
        for obj, wish in ((old, before), (new, own)):
            if wish is not None:
                obj["spec"]["template"]["metadata"]["annotations"][names.SPREAD_ANNOTATION] = wish
        decision = self.updated(old, new)
        gone = {VM_PATH: None, MARK_PATH: None, TEMPLATE_MARK: None}
        assert changes(decision) == (gone if gives_way else {})
        assert len(decision.warnings) == gives_way

    @pytest.mark.parametrize("own", [5, ["zone"], {}, True])
    def test_an_overwrite_whose_annotation_is_no_text_gets_them_back(self, own: object) -> None:
        """A template's metadata has no schema, so that the API server takes it."""
        new = spread_vm()
        new["spec"]["template"]["metadata"].setdefault("annotations", {})[names.SPREAD_ANNOTATION] = own
        assert scheduling.SPREAD_PRESERVED in codes(self.updated(spread_vm(constraints("hostname"), "hostname"), new))

    @pytest.mark.parametrize("rest", [[], constraints("hostname")])
    def test_they_give_way_to_the_owners(self, rest: list[Json]) -> None:
        decision = self.updated(INJECTED, spread_vm([*rest, OWN], "hostname"))
        assert decision.code == scheduling.SPREAD_WITHDRAWN
        own = {VM_PATH: [OWN]} if rest else {}
        assert changes(decision) == {MARK_PATH: None, TEMPLATE_MARK: None} | own
        assert len(decision.warnings) == 1
        # One that an owner has patched is the owner's.
        edited = spread_vm([each | {"maxSkew": 3} for each in constraints("hostname")], "hostname")
        assert changes(self.updated(INJECTED, edited)) == {MARK_PATH: None, TEMPLATE_MARK: None}

    def test_what_server_side_apply_merged_into_an_injected_one_is_the_owners_alone(self) -> None:
        merged = constraints("hostname")[0] | {"maxSkew": 3}
        merged["labelSelector"] = {"matchLabels": {"app": "web", "kubevirt.io": "virt-launcher"}}
        fields = (("topologyKey",), ("whenUnsatisfiable",), ("maxSkew",), ("labelSelector", "matchLabels", "app"))
        new = declaring(spread_vm([merged], "hostname"), *((*self.ITEM, *field) for field in fields))
        decision = self.updated(INJECTED, new)
        own = {"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 3}
        assert changes(decision)[VM_PATH] == [own | {"labelSelector": {"matchLabels": {"app": "web"}}}]
        # An owner who declares the very same keeps them, without annotations.
        new = declaring(spread_vm(constraints("hostname"), "hostname"), self.ITEM)
        assert changes(self.updated(INJECTED, new)) == {MARK_PATH: None, TEMPLATE_MARK: None}

    @pytest.mark.control("forged-ownership")
    @pytest.mark.parametrize("names", [None, ("k:{", "v:1", "k:[]")])
    def test_odd_records_of_field_ownership_are_nobodys(self, names: tuple[str, ...] | None) -> None:
        new = declaring(
            spread_vm([*constraints("hostname"), OWN], "hostname"), *((*VM_PATH, name) for name in names or ())
        )
        if names is None:
            new["metadata"]["managedFields"][0]["fieldsV1"] = {"f:spec": []}
        assert changes(self.updated(INJECTED, new))[VM_PATH] == [OWN]
