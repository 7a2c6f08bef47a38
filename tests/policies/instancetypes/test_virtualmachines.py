"""Defaults for VMs: when they are injected, when they are put back, and when neither."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json, config_of
from tests.drawn import one_of_each
from tests.kubevirt import plain
from tests.kubevirt.samples import among
from tests.policies.decisions import changes, patched
from tests.policies.instancetypes import world as of_instancetypes
from tests.policies.instancetypes.world import BOTH, FEDORA, SMALL, WORLD, decide, facts, instancetype, preference, vm
from webhook.admission.decision import Decision, Denial, FieldCause, Reason
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import NotInMemory
from webhook.kubevirt.config import ClusterConfig
from webhook.policies.instancetypes import reasons

DYING = vm(instancetype=SMALL)
DYING["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
SIZE_ALONE = {("spec", "instancetype"), of_instancetypes.IT_MARK}
PREFERENCE_ALONE = {("spec", "preference"), of_instancetypes.PREF_MARK}
MINE = [*WORLD, instancetype("mine")]
NO_SMALL = [("VirtualMachineClusterInstancetype", "u1.small")]
INFERRED = {"inferFromVolume": "root"}
DEMANDING = preference(requirements={"cpu": {"guest": 8}})
BRIDGELESS = ClusterConfig.of({"network": {"permitBridgeInterfaceOnPodNetwork": False}})
ABSENT = reasons.default_missing("instancetype", of_instancetypes.SMALL_MARK)
FORBIDDEN = reasons.default_unusable("instancetype", reasons.not_allowed(of_instancetypes.SMALL_MARK, "demo", "cx1.*"))
FROM_AN_IMAGE = [{"metadata": {"name": "root"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "fedora"}}}]
OURS = {"instancetype": of_instancetypes.SMALL_MARK, "preference": of_instancetypes.FEDORA_MARK}
DEFAULT_SIZE: dict[str, Any] = {"default_instancetype": "u1.small"}
DEFAULT_PREFERENCE: dict[str, Any] = {"default_preference": "fedora"}
BESIDE_A_SIZE = BOTH | {"default_preference_scope": "all"}
UNSIZED = (
    vm({"cpu": {"sockets": 0, "model": ""}, "memory": {}, "resources": {"requests": {}}}),
    vm({"cpu": None, "memory": {"guest": None}, "ioThreadsPolicy": "auto"}),
    vm(instancetype=None, preference=None),
)
SIZES: list[Json] = [{"cpu": {"model": "host-passthrough"}}, {"resources": {"limits": {"cpu": "0"}}}]
ASKING = (preference(requirements={"cpu": {"guest": 1}}), of_instancetypes.SPREADING, of_instancetypes.CRASHING)
CONFLICTS = reasons.DEFAULT_CONFLICTS
UNCHECKED = reasons.default_conflicts(f"preference {of_instancetypes.FEDORA_MARK}", reasons.inferred_conflict).text
ON_B: dict[str, Any] = {"nodeSelector": {"a": "b"}}
CONFLICT = "spec.template.spec.nodeSelector conflicts with selected instance type"
REMOVED = vm(annotations={of_instancetypes.IT_MARK[2]: of_instancetypes.SMALL_MARK})


class TestCreate:
    def test_a_vm_that_says_nothing_gets_both_defaults_which_are_looked_up_at_the_same_time(self) -> None:
        decision = decide(vm(), facts(WORLD), **BOTH)
        assert (decision.code, changes(decision)) == (reasons.DEFAULTS_INJECTED, of_instancetypes.INJECTED)
        assert (decision.notes, decision.warnings) == (OURS, ())
        # Also where there is no KubeVirt, which has its defaults.
        assert changes(decide(vm(), facts(WORLD, configuration=None), **BOTH)) == of_instancetypes.INJECTED
        with pytest.raises(NotInMemory) as missing:
            decide(vm(), facts(), **BOTH)
        assert [getattr(key, "name", "") for key in missing.value.batch] == ["u1.small", "fedora"]

    @pytest.mark.control("annotations-name-things")
    @pytest.mark.parametrize(
        ("obj", "world", "settings", "left", "code", "said"),
        [
            # Zeros and other fields are no size, and null is no matcher.
            *(
                (obj, facts(WORLD), BOTH, set(of_instancetypes.INJECTED), reasons.DEFAULTS_INJECTED, None)
                for obj in UNSIZED
            ),
            # A VM that has one gets the other.
            (vm({"cpu": {"cores": 2}}), facts(WORLD), BESIDE_A_SIZE, PREFERENCE_ALONE, reasons.DEFAULTS_INJECTED, None),
            (vm(instancetype={"name": "mine"}), facts(MINE), BOTH, PREFERENCE_ALONE, reasons.DEFAULTS_INJECTED, None),
            # A preference that asks for nothing goes with anything.
            (vm(instancetype=INFERRED), facts(WORLD), BOTH, PREFERENCE_ALONE, reasons.DEFAULTS_INJECTED, None),
            # Whatever an inferred preference asks for, a VM of a size offers more.
            (vm(preference=INFERRED), facts(WORLD), BOTH, SIZE_ALONE, reasons.DEFAULTS_INJECTED, None),
            # What does not fit is left out, in KubeVirt's own words.
            (vm(instancetype={}), facts(WORLD), BOTH, set(), None, "Either Name or InferFromVolume"),
            (vm(template=ON_B), facts([instancetype(**ON_B), preference()]), BOTH, PREFERENCE_ALONE, None, CONFLICT),
            (vm(), facts([instancetype(), DEMANDING]), BOTH, SIZE_ALONE, None, "preference requires 8 vCPU"),
            (vm(), facts([instancetype(cpu={"guest": 3}), of_instancetypes.SPREADING]), BOTH, SIZE_ALONE, None, ""),
            (vm(), facts([preference()], NO_SMALL), BOTH, PREFERENCE_ALONE, None, ABSENT.text),
            (vm(), facts(WORLD), BOTH | {"allowed": ("cx1.*",)}, PREFERENCE_ALONE, None, FORBIDDEN.text),
            (vm(), facts(WORLD, configuration=BRIDGELESS), BOTH, set(), None, "bridge interface is not enabled"),
            # An inferred instancetype can not be checked against one that asks for something.
            *((vm(instancetype=INFERRED), facts([it]), DEFAULT_PREFERENCE, set(), None, UNCHECKED) for it in ASKING),
            # Beside an instancetype that does not exist nothing fits: of that alone validation warns.
            (vm(instancetype=SMALL), facts([DEMANDING], NO_SMALL), DEFAULT_PREFERENCE, set(), CONFLICTS, None),
            # Beside an inferred preference the default must still fit the VM.
            (
                vm({"ioThreadsPolicy": "auto"}, preference=INFERRED),
                facts([instancetype(ioThreadsPolicy="shared")]),
                DEFAULT_SIZE,
                set(),
                reasons.DEFAULT_CONFLICTS,
                "spec.template.spec.domain.ioThreadsPolicy",
            ),
            (vm(), facts([of_instancetypes.CRASHING]), DEFAULT_PREFERENCE, set(), reasons.DEFAULT_CONFLICTS, ""),
            # Defaults that are none.
            *(
                (vm(), facts(), {"default_instancetype": text}, set(), reasons.DEFAULT_UNUSABLE, "default-instancetype")
                for text in ("u1 small", "VirtualMachinePreference/u1")
            ),
            # What can not be read changes nothing, and the API server denies malformed VMs.
            (vm(), facts([preference()], (), NO_SMALL), BOTH, set(), common.LOOKUP_FAILED, "no answer in time"),
            (vm(), facts(configuration=Unavailable("not listed")), BOTH, set(), common.LOOKUP_FAILED, "not listed"),
            (vm({"cpu": {"sockets": "two"}}), facts(WORLD), BOTH, set(), common.INVALID_OBJECT, "domain.cpu.sockets"),
            # The owner's word counts.
            *((vm(domain), facts(WORLD), BOTH, set(), reasons.SIZED, None) for domain in SIZES),
            *(
                (vm(instancetype=given), facts(MINE), DEFAULT_SIZE, set(), reasons.OWNER_CHOSE_INSTANCETYPE, None)
                for given in ({"name": "mine"}, INFERRED, {})
            ),
            (REMOVED, facts(WORLD), DEFAULT_SIZE, set(), reasons.OWNER_REMOVED_INSTANCETYPE, None),
            (vm(), facts(), {}, set(), reasons.NO_DEFAULTS, None),
            (DYING, {}, BOTH, set(), common.BEING_DELETED, None),
            (vm(), {}, BOTH | {"virtual_machines": False}, set(), common.DISABLED, None),
        ],
    )
    def test_what_does_not_fit_is_left_out_with_a_warning(
        self, obj: Json, world: Any, settings: dict[str, Any], left: set[Any], code: str | None, said: str | None
    ) -> None:
        decision = decide(obj, world, **settings)
        assert (set(changes(decision)), code in (decision.code, None)) == (left, True)
        told = [warning for warning in decision.warnings if warning.code != reasons.MEMORY_MISSING]
        assert said in told[0].text if said is not None else not told

    def test_a_copy_of_a_vm_with_a_default_is_not_said_to_have_chosen_it(self) -> None:
        """A manifest that was exported carries the default and its annotation, into whatever namespace."""
        copied = vm(annotations={of_instancetypes.IT_MARK[2]: of_instancetypes.SMALL_MARK}, instancetype=SMALL)
        assert decide(copied, facts(WORLD), **DEFAULT_SIZE).code == reasons.ALREADY_APPLIED
        denied = decide(copied, facts(WORLD), verb="validate", allowed=("cx1.*",))
        assert denied.code == reasons.NOT_ALLOWED
        (hint,) = denied.warnings
        assert of_instancetypes.IT_MARK[2] in hint.text
        chosen = decide(vm(instancetype=SMALL), facts(WORLD), verb="validate", allowed=("cx1.*",))
        assert (chosen.code, chosen.warnings) == (reasons.NOT_ALLOWED, ())

    @pytest.mark.parametrize("cpu", [{"cores": 2}, {"model": "host-model"}])
    def test_a_vm_that_nothing_gives_memory_gets_a_warning_before_all_others(self, cpu: Json) -> None:
        for settings in (BOTH, DEFAULT_SIZE, {}):
            (warning,) = decide(vm({"cpu": cpu}), facts(WORLD), **settings).warnings
            assert warning.code == reasons.MEMORY_MISSING
        declined = vm(annotations={"kubevirt-webhook.github.io/instancetypes": "off"})
        assert [each.code for each in decide(declined, facts(), **BOTH).warnings] == [reasons.MEMORY_MISSING]
        # That a default is not there is said after what its owner can do.
        decision = decide(vm(), facts([preference()], NO_SMALL), **DEFAULT_SIZE)
        assert [each.code for each in decision.warnings] == [reasons.MEMORY_MISSING, reasons.DEFAULT_UNUSABLE]
        # What has memory can start, whoever gives it.
        for domain in ({"memory": {"guest": "1Gi"}}, {"memory": {"hugepages": {"pageSize": "2Mi"}}}):
            assert not decide(vm({"cpu": cpu, **domain}), facts(WORLD), **BOTH).warnings
        by_preset = vm({"cpu": cpu})
        by_preset["spec"]["template"]["metadata"] = {"labels": {"size": "large"}}
        assert not decide(by_preset, facts(WORLD, presets=[of_instancetypes.preset()]), **BOTH).warnings
        cpu_alone = of_instancetypes.preset(cpu={"cores": 2})
        assert decide(by_preset, facts(WORLD, presets=[cpu_alone]), **BOTH).warnings
        # Nobody knows what is in presets that cannot be read.
        unread = decide(vm({"cpu": cpu}), facts(WORLD, presets=Unavailable("forbidden")), **BOTH)
        assert reasons.MEMORY_MISSING not in [each.code for each in unread.warnings]

    @pytest.mark.control("many-presets")
    def test_presets_that_can_not_be_read_keep_no_default_away(self) -> None:
        decision = decide(vm(), facts(WORLD, presets=Unavailable("forbidden")), **BOTH)
        assert changes(decision) == of_instancetypes.INJECTED
        assert [warning.code for warning in decision.warnings] == [common.LOOKUP_FAILED]
        assert "forbidden" in decision.warnings[0].text

    @pytest.mark.parametrize("place", ["labels", "annotations"])
    def test_the_owner_may_opt_out(self, place: str) -> None:
        obj = vm()
        obj["metadata"][place] = {"kubevirt-webhook.github.io/instancetypes": "off"}
        assert decide(obj, facts(), **BOTH).code == common.OWNER_OPTED_OUT
        obj["spec"]["instancetype"] = SMALL
        assert not decide(obj, facts(WORLD), **BOTH, expand=True).changes

    @pytest.mark.parametrize("kind", ["VirtualMachineInstancetype", "VirtualMachineClusterInstancetype"])
    def test_kinds_of_defaults(self, kind: str) -> None:
        decision = decide(vm(), facts([instancetype(kind=kind)]), default_instancetype=f"{kind.lower()}s/u1.small")
        assert changes(decision)["spec", "instancetype"] == SMALL | ({} if "Cluster" in kind else {"kind": kind})

    @pytest.mark.parametrize(("scope", "left"), [("unsized", set()), ("all", PREFERENCE_ALONE)])
    def test_what_a_preset_says_is_a_size(self, scope: str, left: set[Any]) -> None:
        obj = vm()
        obj["spec"]["template"]["metadata"] = {"labels": {"size": "large"}}
        decision = decide(
            obj, facts(WORLD, presets=[of_instancetypes.preset()]), **BOTH, default_preference_scope=scope
        )
        assert set(changes(decision)) == left
        assert reasons.SIZED in [reason.code for reason in decision.reasons]
        assert (
            changes(decide(vm(), facts(WORLD, presets=[of_instancetypes.preset()]), **BOTH))
            == of_instancetypes.INJECTED
        )

    def test_an_architecture_that_comes_from_a_volume_can_not_be_required(self) -> None:
        world = facts([instancetype(), preference(requirements={"architecture": "amd64"})])
        decision = decide(vm(dataVolumeTemplates=FROM_AN_IMAGE), world, **BOTH)
        assert set(changes(decision)) == SIZE_ALONE
        why = reasons.default_conflicts(f"preference {of_instancetypes.FEDORA_MARK}", reasons.architecture_conflict)
        assert (decision.warnings, changes(decide(vm(), world, **BOTH))) == ((why,), of_instancetypes.INJECTED)
        # One that requires none goes with any.
        for likes in (preference(), preference(requirements={"cpu": {"guest": 1}})):
            decision = decide(vm(dataVolumeTemplates=FROM_AN_IMAGE), facts([instancetype(), likes]), **BOTH)
            assert (changes(decision), decision.warnings) == (of_instancetypes.INJECTED, ())

    @pytest.mark.parametrize(
        ("likes", "said"),
        [
            *(
                (likes, "")
                for likes in (of_instancetypes.CRASHING, preference(cpu={"preferredCPUFeatures": [{"name": "svm"}]}))
            ),
            (of_instancetypes.NO_DIVISION, "ratio of 0"),
        ],
    )
    def test_a_vm_on_which_kubevirt_would_crash_is_refused(self, likes: Json, said: str) -> None:
        matchers: Json = {"preference": FEDORA} | (
            {"instancetype": SMALL} if likes is of_instancetypes.NO_DIVISION else {}
        )
        decision = decide(vm(**matchers), facts([instancetype(), likes]))
        assert decision.denial
        assert (decision.code, decision.denial.code) == (reasons.DENIED, 422)
        assert decision.denial.causes[0].field == "spec.preference"
        assert said in decision.denial.message

    def test_other_refusals_are_left_to_the_validation_and_a_claimed_status_is_not_believed(self) -> None:
        decision = decide(vm(preference=FEDORA, instancetype=SMALL), facts([instancetype(), DEMANDING]))
        assert (decision.denial, decision.changes) == (None, ())
        status = {"instancetypeRef": {"name": "u1.small", "controllerRevisionRef": {"name": "forged"}}}
        assert not decide(vm(instancetype=SMALL) | {"status": status}, facts(WORLD)).denial


class TestExpansion:
    def test_what_the_matchers_say_is_written_out(self) -> None:
        obj = vm({"devices": {"disks": [{"name": "root", "disk": {}, "serial": "1"}]}}, unknown={"kept": True})
        decision = decide(obj, facts(WORLD), **BOTH, expand=True)
        got = patched(obj, decision)["spec"]
        domain = got["template"]["spec"]["domain"]
        assert (decision.code, got["unknown"]) == (reasons.EXPANDED, {"kept": True})
        assert not {"instancetype", "preference"} & set(got)
        assert (domain["memory"], domain["cpu"]) == ({"guest": "4Gi"}, {"sockets": 2, "cores": 1, "threads": 1})
        assert (domain["devices"]["disks"][0]["disk"], decision.notes) == ({"bus": "virtio"}, OURS)

    def test_a_revision_counts_whatever_kind_stands_beside_it(self) -> None:
        obj = vm(instancetype={"kind": "Nonsense", "name": "x", "revisionName": "r1"})
        decision = decide(obj, facts([of_instancetypes.revision("r1", instancetype())]), expand=True)
        assert decision.notes == {"instancetype": "ControllerRevision/r1"}
        assert patched(obj, decision)["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "4Gi"}

    @pytest.mark.parametrize("field", ["instancetype", "preference"])
    @pytest.mark.parametrize("given_", [{"inferFromVolume": "root"}, {"name": "missing"}])
    def test_what_can_not_be_told_stays(self, field: str, given_: Json) -> None:
        kinds = ("VirtualMachineClusterInstancetype", "VirtualMachineClusterPreference")
        world = facts(missing=[(kind, "missing") for kind in kinds])
        decision = decide(vm(**{field: given_}), world, expand=True)
        assert not decision.changes
        codes = [warning.code for warning in decision.warnings if warning.code != reasons.MEMORY_MISSING]
        assert codes == [decision.code]
        assert decision.code == (reasons.NOT_INFERRED if "inferFromVolume" in given_ else reasons.DENIED)

    @pytest.mark.parametrize(
        ("spec", "settings"),
        [
            ({"instancetype": SMALL, "preference": {"name": "big"}}, {}),
            ({"instancetype": SMALL, "preference": {"name": "thirds"}}, {}),
            ({"instancetype": SMALL}, {"allowed": ("cx1.*",)}),
            ({"instancetype": SMALL | {"revisionName": "r1"}}, {"allowed": ("u1.small",)}),
        ],
    )
    def test_what_the_validation_will_refuse_is_left_to_it(self, spec: Json, settings: dict[str, Any]) -> None:
        big = preference("big", requirements={"cpu": {"guest": 8}})
        thirds = preference("thirds", cpu={"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 3}})
        world = facts([*WORLD, big, thirds, of_instancetypes.revision("r1", instancetype("u1.large"))])
        decision = decide(vm(**spec), world, expand=True, **settings)
        validated = decide(vm(**spec), world, verb="validate", **settings)
        assert (decision.code, decision.changes, decision.warnings) == (reasons.DENIED, (), ())
        assert validated.denial

    def test_an_architecture_that_comes_from_a_volume_is_not_frozen(self) -> None:
        obj = vm(instancetype=SMALL, dataVolumeTemplates=FROM_AN_IMAGE)
        decision = decide(obj, facts(WORLD), expand=True)
        assert (decision.code, decision.changes) == (reasons.NOT_INFERRED, ())
        assert decision.warnings == (reasons.not_expanded_architecture,)
        obj["spec"]["template"]["spec"]["architecture"] = "arm64"
        assert decide(obj, facts(WORLD), expand=True).code == reasons.EXPANDED

    def test_the_storage_class_that_kubevirt_fills_in_at_admission(self) -> None:
        world = facts([preference("fast", volumes={"preferredStorageClassName": "fast"})])
        templates = [
            {"metadata": {"name": "a"}, "spec": {"storage": {}, "source": {"blank": {}}}},
            {"metadata": {"name": "b"}, "spec": {"pvc": {"storageClassName": "own"}, "source": {"blank": {}}}},
        ]
        obj = vm(preference={"name": "fast"}, dataVolumeTemplates=templates)
        got = patched(obj, decide(obj, world, expand=True))["spec"]["dataVolumeTemplates"]
        assert got[0]["spec"] == {"storage": {"storageClassName": "fast"}, "source": {"blank": {}}}
        assert got[1] == templates[1]

    def test_only_new_vms_with_matchers_are_expanded(self) -> None:
        changed = vm(instancetype=SMALL, runStrategy="Halted")
        assert not decide(changed, facts(WORLD), vm(instancetype=SMALL), expand=True).changes
        assert not decide(vm({"cpu": {"cores": 1}}), facts(WORLD), **BOTH, expand=True).changes


class TestReleases:
    @staticmethod
    def world(version: str, *objects: Json) -> Any:
        return facts(objects, configuration=config_of(version))

    @pytest.mark.parametrize("old", [None, vm({"memory": {"guest": "1Gi"}})])
    def test_of_one_that_is_too_old_nothing_is_changed(self, old: Json | None) -> None:
        decision = decide(vm(), self.world("1.5", *WORLD), old, **BOTH)
        assert (decision.code, decision.changes, decision.denial) == (reasons.KUBEVIRT_TOO_OLD, (), None)
        assert decision.warnings

    def test_a_default_that_kubevirt_1_6_has_given_a_kind_is_still_ours(self) -> None:
        """KubeVirt 1.6 writes the cluster-wide kind in lower case into the matcher that the webhook left without."""
        matcher = {**SMALL, "kind": "virtualmachineclusterinstancetype"}
        given = vm(annotations={of_instancetypes.IT_MARK[2]: of_instancetypes.SMALL_MARK}, instancetype=matcher)
        sized = copy.deepcopy(given)
        sized["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "8Gi"}
        decision = decide(sized, self.world("1.6", *WORLD), given, **BOTH)
        assert decision.code == reasons.DEFAULT_WITHDRAWN
        assert changes(decision)["spec", "instancetype"] is None

    def test_what_fits_one_release_does_not_fit_another(self) -> None:
        hotplug = vm({"memory": {"maxGuest": "16Gi"}})
        assert decide(hotplug, self.world("1.7", *WORLD), **BOTH).code == reasons.DEFAULTS_INJECTED
        assert "memory" in decide(hotplug, self.world("1.6", *WORLD), **BOTH).warnings[0].text


MISSING = ("VirtualMachineClusterInstancetype", "u1.gone")
SIZE_IN_THE_WAY = {"instancetype": of_instancetypes.SMALL_MARK}
MATCHERS: Json = {"instancetype": SMALL, "preference": FEDORA}
MARKED: Json = MATCHERS | {"annotations": {of_instancetypes.IT_MARK[2]: of_instancetypes.SMALL_MARK}}


def evaluate(obj: Json, world: dict[Any, object] | None = None, old: Json | None = None, **settings: Any) -> Decision:
    decision = decide(obj, facts(WORLD) if world is None else world, old, "validate", **settings)
    assert not decision.changes
    return decision


def refused(obj: Json, world: dict[Any, object] | None = None, old: Json | None = None, **settings: Any) -> Denial:
    denial = evaluate(obj, world, old, **settings).denial
    assert denial
    return denial


@pytest.mark.parametrize(
    ("obj", "world", "settings", "code"),
    [
        (vm(**MATCHERS), facts(WORLD), {}, reasons.VALID),
        (vm(), {}, {}, reasons.NO_MATCHER),
        (vm(instancetype=None), {}, {}, reasons.NO_MATCHER),
        # What is to be inferred is not missing, nor is it known to fit.
        (vm(instancetype=INFERRED), facts(), {"missing": "deny"}, reasons.NOT_INFERRED),
        (vm(**MATCHERS | {"preference": INFERRED}), facts(WORLD), {}, reasons.NOT_INFERRED),
        (vm({"cpu": 1}, instancetype=SMALL), facts(WORLD), {}, common.INVALID_OBJECT),
        (vm(instancetype=SMALL), {}, {"virtual_machines": False}, common.DISABLED),
        (DYING, {}, {}, common.BEING_DELETED),
        # The list is about instancetypes, and a kind that is none is missing.
        (vm(preference=FEDORA), facts(WORLD), {"allowed": ()}, reasons.VALID),
        (vm(instancetype={"name": "x", "kind": "Foo"}), facts(WORLD), {"allowed": ("u1.small",)}, reasons.MISSING),
    ],
)
def test_what_is_not_denied(obj: Json, world: dict[Any, object], settings: dict[str, Any], code: str) -> None:
    decision = evaluate(obj, world, **settings)
    assert (decision.code, decision.denial) == (code, None)


def test_conflicts_in_kubevirts_order_and_words() -> None:
    domain = {"cpu": {"sockets": 1, "cores": 1}, "memory": {"guest": "1Gi"}, "resources": {"requests": {"cpu": "1"}}}
    denial = refused(vm(domain, instancetype=SMALL))
    fields = ["resources.requests.cpu", "cpu.sockets", "cpu.cores", "memory.guest"]
    assert [cause.field for cause in denial.causes] == [f"spec.template.spec.domain.{field}" for field in fields]
    assert denial.code == 422
    assert denial.message == ", ".join(
        f"VM field(s) spec.template.spec.domain.{field} conflicts with selected instance type" for field in fields
    )


@pytest.mark.parametrize(
    ("obj", "world", "causes", "said"),
    [
        (
            vm(**MATCHERS),
            facts([instancetype(), DEMANDING]),
            [("FieldValueNotFound", "spec.instancetype")],
            "failure checking preference requirements: insufficient CPU resources of 2 vCPU",
        ),
        (vm(preference=FEDORA), facts([of_instancetypes.CRASHING]), [("FieldValueInvalid", "spec.preference")], ""),
    ],
    ids=["requirements", "crash"],
)
def test_what_cannot_work(obj: Json, world: dict[Any, object], causes: list[tuple[str, str]], said: str) -> None:
    denial = refused(obj, world)
    assert (denial.code, [(cause.reason, cause.field) for cause in denial.causes]) == (422, causes)
    assert denial.message.startswith(said)
    # What is not there beside it hides no conflict.
    world = facts(WORLD, missing=[("VirtualMachineClusterPreference", "gone")])
    obj = vm({"cpu": {"cores": 1}}, instancetype=SMALL, preference={"name": "gone"})
    assert "cpu.cores" in refused(obj, world).message


@pytest.mark.parametrize("missing", ["warn", "deny"])
@pytest.mark.parametrize(
    ("matcher", "said", "found_later"),
    [
        ({"name": "u1.gone"}, 'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "u1.gone" not found', True),
        ({"name": "x", "kind": "Foo"}, "got unexpected kind in InstancetypeMatcher: Foo", False),
        ({"name": "x", "revisionName": "gone"}, 'controllerrevisions.apps "gone" not found', True),
        # Inferred from an empty label.
        *(
            (given, reasons.names_nothing("instancetype", "instancetype.kubevirt.io/default-instancetype"), False)
            for given in ({}, {"kind": "VirtualMachineInstancetype"})
        ),
    ],
)
def test_what_is_not_there(matcher: Json, said: str, found_later: bool, missing: str) -> None:
    world = facts(WORLD, missing=[MISSING, ("ControllerRevision", "gone")])
    decision = evaluate(vm(instancetype=matcher), world, missing=missing)
    assert decision.code == reasons.MISSING
    if missing == "deny":
        cause = FieldCause("FieldValueNotFound" if found_later else "FieldValueInvalid", said, "spec.instancetype")
        assert decision.denial == Denial(422, said, (cause,))
    else:
        assert (decision.denial, decision.warnings) == (
            None,
            (reasons.missing("spec.instancetype", said, found_later),),
        )
        assert said.removesuffix(" not found") in decision.warnings[0].text
        assert "spec.instancetype" in decision.warnings[0].text


@pytest.mark.parametrize(
    ("domain", "matchers", "marks", "said"),
    [
        ({"memory": {"guest": "1Gi"}}, {"instancetype": SMALL}, SIZE_IN_THE_WAY, SIZE_IN_THE_WAY),
        ({"memory": {"guest": "1Gi"}}, {"instancetype": SMALL}, {"instancetype": "Other/other"}, None),
        # Too little for the preference, whatever becomes of the instancetype.
        ({"memory": {"guest": "1Gi"}}, MATCHERS, OURS, OURS),
        ({"memory": {"guest": "4Gi"}}, MATCHERS, OURS, SIZE_IN_THE_WAY),
        ({}, {"preference": FEDORA}, OURS, {"preference": of_instancetypes.FEDORA_MARK}),
        (
            {},
            {"instancetype": {"name": "u1.tiny"}, "preference": FEDORA},
            OURS,
            {"preference": of_instancetypes.FEDORA_MARK},
        ),
        ({"memory": {"guest": "4Gi"}}, {"instancetype": {"name": "u1.tiny"}, "preference": FEDORA}, OURS, None),
    ],
)
def test_whoever_runs_into_defaults_is_told_which_of_them_stand_in_the_way(
    domain: Json, matchers: Json, marks: dict[str, str], said: dict[str, str] | None
) -> None:
    tiny = instancetype("u1.tiny", memory={"guest": "1Gi"})
    world = facts([instancetype(), tiny, preference(requirements={"memory": {"guest": "2Gi"}})])
    keys = {"instancetype": of_instancetypes.IT_MARK[2], "preference": of_instancetypes.PREF_MARK[2]}
    annotations = {keys[field]: mark for field, mark in marks.items()}
    before = {field: value for field, value in MATCHERS.items() if field in marks}
    decision = evaluate(vm(domain, annotations=annotations, **matchers), world, vm(annotations=annotations, **before))
    assert decision.denial
    assert decision.warnings == ((Reason(reasons.DENIED, reasons.way_out_at_update(said)),) if said else ())


def test_no_way_out_is_one_on_which_kubevirt_would_crash() -> None:
    sized = vm({"memory": {"guest": "1Gi"}}, **MARKED)
    decision = evaluate(sized, facts([instancetype(), of_instancetypes.CRASHING]), vm(**MARKED))
    assert (bool(decision.denial), decision.warnings) == (True, ())
    # A new VM, as KubeVirt leaves one whose preference was inferred.
    decision = evaluate(vm(**MARKED), facts([instancetype(), DEMANDING]))
    assert decision.denial
    assert decision.warnings == (Reason(reasons.DENIED, reasons.way_out_at_create(of_instancetypes.SMALL_MARK)),)


@pytest.mark.control("long-allow-lists")
def test_a_refusal_shows_a_long_allow_list_only_in_part() -> None:
    message = refused(vm(instancetype=SMALL), allowed=tuple(f"cx{number}.*" for number in range(10_000))).message
    assert ": cx0.*, cx1.*" in message
    assert message.endswith("…")
    assert len(message) < 700


class TestUpdates:
    OLD = vm({"cpu": {"cores": 1}}, instancetype=SMALL)

    def test_what_was_admitted_once_stays_editable_until_template_or_matcher_change(self) -> None:
        new = vm({"cpu": {"cores": 1}}, instancetype=SMALL, runStrategy="Halted")
        assert evaluate(new, {}, self.OLD).code == reasons.UNCHANGED
        refused(vm({"cpu": {"cores": 2}}, instancetype=SMALL), old=self.OLD)
        refused(vm({"cpu": {"cores": 1}}, **MATCHERS), old=self.OLD)

    def test_a_matcher_that_stays_may_be_missing_and_disallowed(self) -> None:
        old, new = vm(instancetype={"name": "u1.gone"}), vm({"rng": {}}, instancetype={"name": "u1.gone"})
        assert not evaluate(new, facts(missing=[MISSING]), old, missing="deny", allowed=("cx1.*",)).denial

    def test_the_stored_revision_counts(self) -> None:
        status = {"instancetypeRef": {"name": "u1.small", "controllerRevisionRef": {"name": "r1"}}}
        new = vm(instancetype=SMALL, template={"nodeSelector": {"a": "b"}}) | {"status": status}
        world = facts([of_instancetypes.revision("r1", instancetype(nodeSelector={"c": "d"}))])
        assert "nodeSelector" in refused(new, world, vm(instancetype=SMALL)).message
        # But not what a sender claims.
        claimed = {"instancetypeRef": {"controllerRevisionRef": {"name": "stored"}}}
        forged = of_instancetypes.revision("stored", instancetype(cpu={"guest": 8}))
        world = facts([instancetype(), DEMANDING, forged])
        assert "insufficient CPU resources of 2 vCPU" in refused(vm(**MATCHERS) | {"status": claimed}, world).message

    def test_a_revision_of_another_kind_does_not_stand_for_what_is_not_there(self) -> None:
        captured = {"name": "u1.small", "kind": "VirtualMachineClusterInstancetype"}
        new = vm(instancetype=captured | {"kind": "VirtualMachineInstancetype"})
        new["status"] = {"instancetypeRef": captured | {"controllerRevisionRef": {"name": "r1"}}}
        world = facts(
            [of_instancetypes.revision("r1", instancetype())], missing=[("VirtualMachineInstancetype", "u1.small")]
        )
        said = 'virtualmachineinstancetypes.instancetype.kubevirt.io "u1.small" not found'
        assert refused(new, world, vm(instancetype=captured), missing="deny").message == said


class TestAllowList:
    @pytest.mark.parametrize(
        ("allowed", "denied"),
        [
            (("cx1.*", "u1.*"), False),
            (("virtualmachineclusterinstancetypes/u1.small",), False),
            (("VirtualMachineInstancetype/*", "Foo/u1.small"), True),
            ((), True),
        ],
    )
    def test_patterns(self, allowed: tuple[str, ...], denied: bool) -> None:
        decision = evaluate(vm(instancetype=SMALL), allowed=allowed)
        assert bool(decision.denial) is denied
        if decision.denial:
            assert (decision.code, decision.denial.code) == (reasons.NOT_ALLOWED, 403)
            assert decision.denial.causes[0].field == "spec.instancetype.name"

    @pytest.mark.control("allow-list-by-a-revision")
    @pytest.mark.parametrize(
        ("captured", "labels", "denied"),
        [("u1.large", {}, True), ("u1.large", {"object-name": "other"}, True), ("u1.small", {}, False)],
    )
    @pytest.mark.parametrize("kind", [{}, {"kind": "Nonsense"}])
    def test_a_revision_of_another_one_is_no_way_around(
        self, captured: str, labels: dict[str, str], denied: bool, kind: dict[str, str]
    ) -> None:
        world = facts([*WORLD, of_instancetypes.revision("r1", instancetype(captured), **labels)])
        matcher = {"name": "u1.small", "revisionName": "r1"} | kind
        decision = evaluate(vm(instancetype=matcher), world, allowed=("u1.small",))
        assert (decision.denial is not None) is denied is (decision.code == reasons.NOT_ALLOWED)

    @pytest.mark.parametrize("content", [None, {"kind": "VirtualMachine", "metadata": {"name": "u1.small"}}])
    def test_a_revision_that_holds_no_instancetype_is_no_way_around(self, content: Json | None) -> None:
        there = [of_instancetypes.revision("r1", content)] if content else []
        world = facts([*WORLD, *there], [] if content else [("ControllerRevision", "r1")])
        decision = evaluate(vm(instancetype=SMALL | {"revisionName": "r1"}), world, allowed=("u1.small",))
        assert decision.denial and decision.denial.code == 403
        assert decision.reasons == (Reason(reasons.NOT_ALLOWED, reasons.not_captured("r1", "demo", "u1.small")),)

    @pytest.mark.parametrize(("allowed", "other"), [("u1.small", of_instancetypes.SMALL_MARK), ("cx1.*", "")])
    def test_the_cluster_wide_one_of_the_name_is_told_of_where_it_is_allowed(self, allowed: str, other: str) -> None:
        named = {"kind": "VirtualMachineInstancetype", **SMALL}
        said = reasons.not_allowed("VirtualMachineInstancetype/u1.small", "demo", allowed, other)
        assert refused(vm(instancetype=named), allowed=(allowed,)).message == said

    def test_a_vm_too_large_to_be_evaluated_is_no_way_around(self) -> None:
        large = vm(instancetype=SMALL)
        large["spec"]["template"]["metadata"] = {"annotations": {str(number): "" for number in range(5001)}}
        codes = [evaluate(large, allowed=(name,)).code for name in ("u1.large", "u1.small")]
        assert codes == [reasons.NOT_ALLOWED, common.INVALID_OBJECT]


@pytest.mark.control("allow-list-while-down")
def test_what_can_not_be_read_is_denied_where_the_admin_wants_it_so() -> None:
    decision = evaluate(vm(instancetype=SMALL), facts(unreadable=NO_SMALL), missing="deny")
    assert (decision.code, decision.denial, len(decision.warnings)) == (common.LOOKUP_FAILED, None, 1)
    decision = evaluate(vm(instancetype=SMALL), facts(unreadable=NO_SMALL), failure_policy="Fail")
    assert decision.denial
    assert (decision.code, decision.denial.code, decision.warnings) == (common.LOOKUP_FAILED, 503, ())


@pytest.mark.parametrize("matcher", [5, "u1.small", [], {"name": 5}, {"name": "u1.small", "revisionName": {}}])
def test_a_matcher_that_can_not_be_read_is_denied(matcher: Any) -> None:
    decision = evaluate(vm(instancetype=matcher), allowed=("u1.large",))
    assert decision.denial
    assert (decision.code, decision.denial.code) == (common.INVALID_OBJECT, 422)
    assert [cause.field for cause in decision.denial.causes] == ["spec.instancetype"]


_ITS = [
    instancetype(),
    instancetype("u1.large", nodeSelector={"zone": "a"}, gpus=[{"name": "g", "deviceName": "nvidia.com/x"}]),
    instancetype(
        "odd", cpu={"guest": 3, "dedicatedCPUPlacement": True}, memory={"guest": "1Gi", "overcommitPercent": 15}
    ),
]
_PREFS = [
    preference(),
    preference("big", requirements={"cpu": {"guest": 3}, "memory": {"guest": "2Gi"}}),
    preference("spread", cpu={"preferredCPUTopology": "spread"}),
    preference("crash", cpu={"preferredCPUFeatures": [{"name": "vmx"}]}),
    preference("arm", requirements={"architecture": "arm64"}, preferredArchitecture="arm64"),
]
_CPU = one_of_each({"dedicatedCpuPlacement": (..., True, False), "cores": (..., 0, 1, 2)})
_MEMORY = one_of_each({"guest": (..., "1Gi"), "maxGuest": (..., "8Gi")})
_DOMAINS = st.fixed_dictionaries({}, optional={"cpu": _CPU, "memory": _MEMORY, "ioThreadsPolicy": st.just("auto")})


@given(
    domain=_DOMAINS,
    template=one_of_each({"nodeSelector": (..., {"zone": "b"}), "architecture": (..., "amd64")}),
    own=st.sampled_from([None, {"name": "odd"}]),
    default=st.sampled_from(["u1.small", "u1.large", "odd"]),
    preferred=st.sampled_from(["fedora", "big", "spread", "crash", "arm"]),
    scope=st.sampled_from(["unsized", "all"]),
)
def test_nothing_is_injected_that_kubevirt_would_refuse(
    domain: Json, template: Json, own: Json | None, default: str, preferred: str, scope: str
) -> None:
    obj = vm(domain, template=template, **({"instancetype": own} if own else {}))
    world = facts([*_ITS, *_PREFS])
    defaults: dict[str, Any] = {"default_instancetype": default, "default_preference": preferred}
    decision = decide(obj, world, **defaults, default_preference_scope=scope)
    assert not decision.denial
    if decision.changes:
        get = among([*_ITS, *_PREFS])
        after = plain.mutate_vm(patched(obj, decision), get, lambda: "u").vm
        assert plain.validate_vm(after, get).is_allowed
        again = decide(patched(obj, decision), world, **defaults)
        assert not again.changes


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
UNKNOWN = st.dictionaries(st.sampled_from(["brandNew", "brandNewer"]), _VALUES, max_size=2)
DOMAINS = st.fixed_dictionaries(
    {},
    optional={
        "memory": st.fixed_dictionaries({}, optional={"guest": st.just("2Gi"), "brandNew": _VALUES}),
        "cpu": st.fixed_dictionaries({}, optional={"cores": st.integers(1, 4), "brandNew": _VALUES}),
        "brandNew": _VALUES,
    },
)


def without_unknown(value: Any) -> Any:
    if isinstance(value, list):
        return [without_unknown(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: without_unknown(each) for name, each in value.items() if not name.startswith("brandNew")}


@given(
    version=st.sampled_from(["1.10.0", "1.12.1", "2.0.0"]),
    gates=st.lists(st.text(max_size=8), max_size=3),
    domain=DOMAINS,
    sized=st.booleans(),
    of_type=UNKNOWN,
    of_preference=UNKNOWN,
    of_machine=UNKNOWN,
    make=st.sampled_from([vm, of_instancetypes.vmi]),
)
def test_what_the_newest_known_release_allows_is_never_denied(
    version: str, gates: Any, domain: Json, sized: bool, of_type: Json, of_preference: Json, of_machine: Json, make: Any
) -> None:
    matchers = MATCHERS if sized and make is vm else {}
    sent = make(domain, **matchers)
    sent["spec"] |= of_machine
    objects = [instancetype(**of_type), preference(**of_preference)]
    developer = {"featureGates": gates, "disabledFeatureGates": gates, "brandNew": 1}
    newer = config_of(version, {"developerConfiguration": developer})
    for verb in ("mutate", "validate") if make is vm else ("mutate",):
        known = decide(without_unknown(sent), facts(without_unknown(objects)), verb=verb, **DEFAULT_SIZE)
        decision = decide(sent, facts(objects, configuration=newer), verb=verb, **DEFAULT_SIZE)
        assert (decision.denial is None) or known.denial, decision.denial
