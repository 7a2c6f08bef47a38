"""VMIs that no VM owns: what the webhook fills in, and what it denies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import Json
from tests.policies.decisions import changes, patched
from tests.policies.instancetypes import world as of_instancetypes
from tests.policies.instancetypes.world import BOTH, SMALL_MARK, WORLD, decide, facts, instancetype, preference, vmi
from webhook import names
from webhook.admission.decision import Decision, Denial
from webhook.admission.reasons import common
from webhook.kubevirt.config import ClusterConfig
from webhook.policies.instancetypes import reasons

ASKED_SIZE = {"kubevirt-webhook.github.io/instancetype": "u1.small"}
ASKED_PREFERENCE = {"kubevirt-webhook.github.io/preference": "VirtualMachineClusterPreference/fedora"}
ASKED = ASKED_SIZE | ASKED_PREFERENCE
OF_VM = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web01", "uid": "u", "controller": True}
REPLICASET = OF_VM | {"kind": "VirtualMachineInstanceReplicaSet", "name": "r"}
SIZED = vmi({"cpu": {"cores": 2}})
SELECTING = vmi(nodeSelector={"c": "d"})
ELSEWHERE = instancetype(nodeSelector={"a": "b"})
LARGE = preference(requirements={"memory": {"guest": "64Gi"}})
PICKY = preference(requirements={"architecture": "s390x"})
CONFLICT = "VMI conflicts with instancetype spec in fields:"
GONE = 'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "u1.small" not found'
NO_SMALL = [("VirtualMachineClusterInstancetype", "u1.small")]
DEFAULT_SIZE = {"default_instancetype": "u1.small"}
ROOT = [{"name": "root", "disk": {"bus": "virtio"}}]


def asking(obj: Json, annotations: Json = ASKED, **metadata: Any) -> Json:
    return obj | {"metadata": obj["metadata"] | {"annotations": annotations} | metadata}


def filled(obj: Json, world: Any, **settings: Any) -> Json:
    """The spec of a VMI after the decision."""
    spec: Json = patched(obj, decide(obj, world, **settings))["spec"]
    return spec


class TestWhatIsFilled:
    @pytest.mark.parametrize("owner", [None, REPLICASET, {**OF_VM, "controller": False}])
    def test_by_defaults(self, owner: Json | None) -> None:
        obj = vmi(owner=owner)
        decision = decide(obj, facts(WORLD), **BOTH)

        got = patched(obj, decision)
        domain = got["spec"]["domain"]
        assert decision.code == reasons.APPLIED
        assert (domain["cpu"], domain["memory"]) == ({"sockets": 2, "cores": 1, "threads": 1}, {"guest": "4Gi"})
        assert domain["devices"] == {"disks": ROOT, "interfaces": [{"name": "default", "bridge": {}}]}
        assert got["spec"]["networks"] == [{"name": "default", "pod": {}}]
        assert got["metadata"]["annotations"] == {
            of_instancetypes.IT_MARK[2]: SMALL_MARK,
            of_instancetypes.PREF_MARK[2]: of_instancetypes.FEDORA_MARK,
            "kubevirt.io/cluster-instancetype-name": "u1.small",
            "kubevirt.io/cluster-preference-name": "fedora",
        }
        assert decision.notes == {"instancetype": SMALL_MARK, "preference": of_instancetypes.FEDORA_MARK}

    def test_by_its_owners_annotations_and_with_the_clusters_default_interface(self) -> None:
        world = facts([*WORLD, instancetype("default"), preference("other")])
        decision = decide(asking(vmi()), world, default_instancetype="default", default_preference="other")
        assert decision.notes == {"instancetype": SMALL_MARK, "preference": of_instancetypes.FEDORA_MARK}
        masquerade = ClusterConfig.of({"network": {"defaultNetworkInterface": "masquerade"}})
        got = filled(vmi(), facts(WORLD, configuration=masquerade), **BOTH)
        assert got["domain"]["devices"]["interfaces"] == [{"name": "default", "masquerade": {}}]

    def test_what_the_owner_wrote_stays_as_it_was_written_but_for_acpi(self) -> None:
        devices = {"disks": [{"name": "root", "disk": {}, "x": 1}], "rng": {}}
        got = filled(vmi({"devices": devices, "machine": None}, y={"z": "0010"}), facts(WORLD), **BOTH)
        assert (got["y"], got["domain"]["machine"], got["domain"]["devices"]["rng"]) == ({"z": "0010"}, None, {})
        assert got["domain"]["devices"]["disks"] == [{"name": "root", "disk": {"bus": "virtio"}, "x": 1}]
        # Nor are quantities made canonical; but a preference replaces its ACPI.
        world = facts([preference(features={"preferredAcpi": {}})])
        got = filled(vmi({"features": {"acpi": {"enabled": False}}}), world, default_preference="fedora")
        assert got["domain"]["features"]["acpi"] == {}
        settings = {"default_preference": "fedora", "default_preference_scope": "all"}
        got = filled(vmi({"memory": {"guest": "1024Mi"}}), facts(WORLD), **settings)
        assert got["domain"]["memory"] == {"guest": "1024Mi"}

    @pytest.mark.parametrize(("scope", "left"), [("unsized", set()), ("all", {"preference"})])
    @pytest.mark.parametrize(
        ("obj", "presets"),
        [
            (SIZED, ()),
            (vmi() | {"metadata": vmi()["metadata"] | {"labels": {"size": "large"}}}, [of_instancetypes.preset()]),
        ],
        ids=["own", "preset"],
    )
    def test_beside_a_size_only_a_preference_applies(self, obj: Json, presets: Any, scope: str, left: set[str]) -> None:
        decision = decide(obj, facts(WORLD, presets=presets), **BOTH, default_preference_scope=scope)
        assert set(decision.notes) == left
        assert left or decision.code == reasons.SIZED
        # Who asks for one gets it beside a preset.
        made = asking(vmi(), ASKED_SIZE, labels={"size": "large"})
        assert set(decide(made, facts(WORLD, presets=[of_instancetypes.preset()])).notes) == {"instancetype"}


class TestWhatIsNot:
    @pytest.mark.parametrize(
        ("obj", "settings", "code"),
        [
            (vmi(owner=OF_VM, annotations=ASKED), BOTH, reasons.OWNED_BY_A_VM),
            (vmi(), {}, reasons.NO_DEFAULTS),
            (vmi(), BOTH | {"virtual_machine_instances": False}, common.DISABLED),
            (vmi(annotations={"kubevirt-webhook.github.io/instancetypes": "off"}), BOTH, common.OWNER_OPTED_OUT),
            (vmi({"cpu": []}), BOTH, common.INVALID_OBJECT),
        ],
    )
    def test_what_is_left_alone(self, obj: Json, settings: dict[str, Any], code: str) -> None:
        decision = decide(obj, facts(WORLD) if code == common.INVALID_OBJECT else {}, **settings)
        assert (decision.code, decision.changes, decision.denial) == (code, (), None)

    def test_a_copy_of_what_was_filled_is_not_filled_again_and_an_empty_wish_declines(self) -> None:
        decision = decide(patched(asking(vmi()), decide(asking(vmi()), facts(WORLD))), {}, **BOTH)
        assert (decision.code, decision.changes, decision.denial) == (reasons.ALREADY_APPLIED, (), None)
        obj = vmi(annotations={"kubevirt-webhook.github.io/instancetype": ""})
        assert set(decide(obj, facts(WORLD), **BOTH).notes) == {"preference"}

    @pytest.mark.parametrize(
        ("obj", "world", "settings", "why"),
        [
            (SELECTING, facts([ELSEWHERE, preference()]), {}, f"{CONFLICT} [spec.nodeSelector]"),
            (vmi(), facts(WORLD), {"allowed": ("cx1.*",)}, reasons.not_allowed(SMALL_MARK, "demo", "cx1.*")),
            (vmi(), facts([preference()], missing=NO_SMALL), {}, f"{names.DEFAULT_INSTANCETYPE_ANNOTATION}: {GONE}"),
        ],
        ids=["conflict", "not allowed", "missing"],
    )
    def test_a_default_that_can_not_be_applied_is_left_out_with_a_warning(
        self, obj: Json, world: Any, settings: dict[str, Any], why: str
    ) -> None:
        decision = decide(obj, world, **BOTH, **settings)
        # The preference applies all the same.
        assert set(decision.notes) == {"preference"}
        assert ("spec", "domain", "memory") not in changes(decision)
        (warning,) = decision.warnings
        assert warning == reasons.default_unusable('instancetype "u1.small"', why)

    def test_defaults_of_which_none_fits(self) -> None:
        decision = decide(SELECTING, facts([ELSEWHERE, PICKY]), **BOTH)
        assert (decision.code, decision.changes) == (reasons.DEFAULT_UNUSABLE, ())
        conflict, unmet = decision.warnings
        assert conflict.code == unmet.code == reasons.DEFAULT_UNUSABLE
        assert '"u1.small"' in conflict.text
        assert "spec.nodeSelector" in conflict.text
        # Each default with its own reason, not with the other's.
        assert '"fedora"' in unmet.text
        assert "architecture s390x" in unmet.text
        assert "spec.nodeSelector" not in unmet.text

    @pytest.mark.parametrize("text", ["Foo/x", "u1 small"])
    def test_a_default_that_is_none(self, text: str) -> None:
        decision = decide(vmi(), facts(WORLD), default_instancetype=text)
        assert (decision.code, decision.changes) == (reasons.DEFAULT_UNUSABLE, ())
        assert [warning.code for warning in decision.warnings] == [reasons.DEFAULT_UNUSABLE]
        assert names.DEFAULT_INSTANCETYPE_ANNOTATION in decision.warnings[0].text

    def test_what_can_not_be_read_or_is_of_a_wrong_type_denies_nothing(self) -> None:
        assert not decide(vmi(), facts([instancetype(cpu={"guest": "two"}), preference()]), **BOTH).denial
        decision = decide(asking(vmi()), facts([preference()], unreadable=NO_SMALL))
        assert (decision.code, decision.denial, len(decision.warnings)) == (common.LOOKUP_FAILED, None, 1)


def refused(decision: Decision) -> Denial:
    assert decision.denial
    return decision.denial


class TestWhatIsRefused:
    """An owner who requests an instancetype gets it, or a denial that says why not."""

    def test_conflicts_with_all_causes_and_what_is_not_there_or_not_allowed(self) -> None:
        denial = refused(decide(asking(vmi({"cpu": {"cores": 1}, "memory": {"guest": "1Gi"}})), facts(WORLD)))
        fields = ["spec.domain.cpu.cores", "spec.domain.memory.guest"]
        said = f"{CONFLICT} [{', '.join(fields)}]"
        assert (denial.code, denial.message, [cause.field for cause in denial.causes]) == (422, said, fields)
        denial = refused(decide(asking(vmi()), facts([preference()], missing=NO_SMALL)))
        assert denial.message == f"metadata.annotations[kubevirt-webhook.github.io/instancetype]: {GONE}"
        decision = decide(asking(vmi()), facts(WORLD), allowed=("cx1.*",))
        assert (decision.code, refused(decision).code) == (reasons.NOT_ALLOWED, 403)

    @pytest.mark.parametrize(
        ("obj", "objects", "settings", "said"),
        [
            (
                asking(vmi(), {names.INSTANCETYPE_ANNOTATION: "Foo/bar"}),
                [],
                {},
                "unexpected kind in InstancetypeMatcher: Foo",
            ),
            (asking(vmi()), [instancetype(), LARGE], {}, "preference requires 64Gi"),
            (asking(vmi()), [instancetype(cpu={"guest": 3}), of_instancetypes.SPREADING], {}, "not divisible"),
            (asking(vmi()), [instancetype(), of_instancetypes.NO_DIVISION], {}, "ratio of 0"),
            (asking(vmi()), [instancetype(cpu={"guest": "two"}), preference()], {}, ""),
            # Not the default's conflict, which the owner can't help.
            (asking(SELECTING, ASKED_PREFERENCE), [ELSEWHERE, PICKY], DEFAULT_SIZE, "requires architecture s390x"),
        ],
        ids=["kind", "requirement", "spread", "crash", "type", "alone"],
    )
    def test_what_can_not_be_applied(self, obj: Json, objects: list[Json], settings: dict[str, Any], said: str) -> None:
        assert said in refused(decide(obj, facts(objects), **settings)).message

    def test_a_requirement_of_a_sized_vmi_names_its_own_fields(self) -> None:
        world = facts([preference(requirements={"cpu": {"guest": 8}}, cpu={"preferredCPUTopology": "cores"})])
        denial = refused(decide(asking(SIZED, ASKED_PREFERENCE), world))
        assert denial.causes[0].field == "spec.domain.cpu.cores"
        # A default never stands in the way of a wish.
        world = facts([instancetype(), preference(requirements={"cpu": {"guest": 64}})])
        decision = decide(asking(vmi(), ASKED_SIZE), world, default_preference="fedora")
        assert not decision.denial
        assert set(decision.notes) == {"instancetype"}
        assert "preference requires 64 vCPU" in decision.warnings[0].text
