"""VMIs that no VM owns: what the webhook fills in, and what it denies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import Json
from tests.policies.instancetypes.world import (
    FEDORA_MARK,
    IT_MARK,
    PREF_MARK,
    SMALL_MARK,
    applied,
    changes,
    decide,
    facts,
    instancetype,
    preference,
    preset,
    vmi,
)
from webhook import names
from webhook.admission.reasons import common
from webhook.admission.reasons import instancetypes as reasons
from webhook.kubevirt.config import ClusterConfig

BOTH: dict[str, Any] = {"default_instancetype": "u1.small", "default_preference": "fedora"}
WORLD = [instancetype(), preference()]
ASKED = {
    "kubevirt-webhook.github.io/instancetype": "u1.small",
    "kubevirt-webhook.github.io/preference": "VirtualMachineClusterPreference/fedora",
}
REPLICASET = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceReplicaSet",
    "name": "r",
    "controller": True,
}
OF_VM = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web01", "uid": "u", "controller": True}


class TestWhatIsFilled:
    @pytest.mark.parametrize("owner", [None, REPLICASET])
    def test_by_defaults(self, owner: Json | None) -> None:
        obj = vmi(owner=owner)

        decision = decide(obj, facts(WORLD), **BOTH)

        got = applied(obj, decision)
        domain = got["spec"]["domain"]
        assert decision.code == reasons.APPLIED
        assert domain["cpu"] == {"sockets": 2, "cores": 1, "threads": 1}
        assert domain["memory"] == {"guest": "4Gi"}
        assert domain["devices"]["disks"] == [{"name": "root", "disk": {"bus": "virtio"}}]
        assert domain["devices"]["interfaces"] == [{"name": "default", "bridge": {}}]
        assert got["spec"]["networks"] == [{"name": "default", "pod": {}}]
        assert got["metadata"]["annotations"] == {
            IT_MARK[2]: SMALL_MARK,
            PREF_MARK[2]: FEDORA_MARK,
            "kubevirt.io/cluster-instancetype-name": "u1.small",
            "kubevirt.io/cluster-preference-name": "fedora",
        }
        assert decision.notes == {"instancetype": SMALL_MARK, "preference": FEDORA_MARK}

    def test_by_its_owners_annotations(self) -> None:
        world = facts([*WORLD, instancetype("default"), preference("other")])
        decision = decide(vmi(annotations=ASKED), world, default_instancetype="default", default_preference="other")
        assert decision.notes == {"instancetype": SMALL_MARK, "preference": FEDORA_MARK}

    def test_a_preference_for_acpi_replaces_what_the_owner_wrote(self) -> None:
        obj = vmi({"features": {"acpi": {"enabled": False}}})
        world = facts([preference(features={"preferredAcpi": {}})])
        assert applied(obj, decide(obj, world, default_preference="fedora"))["spec"]["domain"]["features"]["acpi"] == {}

    def test_what_the_owner_wrote_stays_as_it_was_written(self) -> None:
        obj = vmi(
            {"devices": {"disks": [{"name": "root", "disk": {}, "x": 1}], "rng": {}}, "machine": None}, y={"z": "0010"}
        )

        got = applied(obj, decide(obj, facts(WORLD), **BOTH))["spec"]

        assert got["y"] == {"z": "0010"}
        assert got["domain"]["machine"] is None
        assert got["domain"]["devices"]["rng"] == {}
        assert got["domain"]["devices"]["disks"] == [{"name": "root", "disk": {"bus": "virtio"}, "x": 1}]

    def test_quantities_are_not_made_canonical(self) -> None:
        obj = vmi({"memory": {"guest": "1024Mi"}})
        got = applied(obj, decide(obj, facts(WORLD), default_preference="fedora", default_preference_scope="all"))
        assert got["spec"]["domain"]["memory"] == {"guest": "1024Mi"}

    def test_volumes_without_disks_get_some_and_the_preference_reaches_them(self) -> None:
        obj = vmi({"devices": {}})
        got = applied(obj, decide(obj, facts(WORLD), **BOTH))
        assert got["spec"]["domain"]["devices"]["disks"] == [{"name": "root", "disk": {"bus": "virtio"}}]

    def test_early_preferences_decide_on_the_interface_and_the_input(self) -> None:
        early = {"preferredAutoattachPodInterface": False, "preferredAutoattachInputDevice": True}
        more = {"preferredInputBus": "virtio", "preferredInputType": "tablet"}
        world = facts([preference(devices=early | more)])

        got = applied(vmi(), decide(vmi(), world, default_preference="fedora"))["spec"]

        assert "networks" not in got
        assert got["domain"]["devices"]["inputs"] == [{"name": "default-0", "bus": "virtio", "type": "tablet"}]

    def test_the_clusters_default_interface(self) -> None:
        masquerade = ClusterConfig.of({"network": {"defaultNetworkInterface": "masquerade"}})
        got = applied(vmi(), decide(vmi(), facts(WORLD, configuration=masquerade), **BOTH))
        assert got["spec"]["domain"]["devices"]["interfaces"] == [{"name": "default", "masquerade": {}}]

    @pytest.mark.parametrize(("scope", "left"), [("unsized", set()), ("all", {"preference"})])
    def test_what_a_preset_says_is_a_size(self, scope: str, left: set[str]) -> None:
        made = vmi()
        made["metadata"]["labels"] = {"size": "large"}
        assert set(decide(made, facts(WORLD, presets=[preset()]), **BOTH, default_preference_scope=scope).notes) == left

    def test_who_asks_for_one_gets_it_beside_a_preset(self) -> None:
        made = vmi(annotations={"kubevirt-webhook.github.io/instancetype": "u1.small"})
        made["metadata"]["labels"] = {"size": "large"}
        assert set(decide(made, facts(WORLD, presets=[preset()])).notes) == {"instancetype"}

    def test_a_preference_of_a_sized_vmi_only_where_the_scope_is_all(self) -> None:
        sized = vmi({"cpu": {"cores": 2}})
        assert decide(sized, facts(WORLD), **BOTH).code == reasons.SIZED
        assert set(decide(sized, facts(WORLD), **BOTH, default_preference_scope="all").notes) == {"preference"}


class TestWhatIsNot:
    def test_vmis_of_vms(self) -> None:
        assert decide(vmi(owner=OF_VM, annotations=ASKED), {}, **BOTH).code == reasons.OWNED_BY_A_VM

    def test_a_vm_that_is_no_controller_stands_behind_nothing(self) -> None:
        assert decide(vmi(owner={**OF_VM, "controller": False}), facts(WORLD), **BOTH).code == reasons.APPLIED

    def test_without_wish_or_default(self) -> None:
        assert decide(vmi(), {}).code == reasons.NO_DEFAULTS

    def test_switches_and_opting_out(self) -> None:
        off = {"kubevirt-webhook.github.io/instancetypes": "off"}
        assert decide(vmi(), {}, **BOTH, virtual_machine_instances=False).code == common.DISABLED
        assert decide(vmi(annotations=off), {}, **BOTH).code == common.OWNER_OPTED_OUT

    def test_an_empty_wish_declines(self) -> None:
        obj = vmi(annotations={"kubevirt-webhook.github.io/instancetype": ""})
        assert set(decide(obj, facts(WORLD), **BOTH).notes) == {"preference"}

    def test_a_copy_of_what_we_filled_is_not_filled_again(self) -> None:
        filled = applied(vmi(annotations=ASKED), decide(vmi(annotations=ASKED), facts(WORLD)))
        decision = decide(filled, {}, **BOTH)
        assert (decision.code, decision.changes, decision.denial) == (reasons.ALREADY_APPLIED, (), None)

    def test_a_default_that_conflicts_is_left_out_with_a_warning(self) -> None:
        world = facts([instancetype(nodeSelector={"a": "b"}), preference()])

        decision = decide(vmi(nodeSelector={"c": "d"}), world, **BOTH)

        # The preference applies all the same.
        assert set(decision.notes) == {"preference"}
        assert ("spec", "domain", "memory") not in changes(decision)
        why = "VMI conflicts with instancetype spec in fields: [spec.nodeSelector]"
        assert decision.warnings == (reasons.vmi_default_unusable("instancetype", "u1.small", why),)

    def test_defaults_of_which_none_fits(self) -> None:
        picky = preference(requirements={"architecture": "s390x"})
        world = facts([instancetype(nodeSelector={"a": "b"}), picky])

        decision = decide(vmi(nodeSelector={"c": "d"}), world, **BOTH)

        assert (decision.code, decision.changes) == (reasons.DEFAULT_UNUSABLE, ())
        conflict, unmet = decision.warnings
        assert conflict.code == unmet.code == reasons.DEFAULT_UNUSABLE
        assert '"u1.small"' in conflict.text
        assert "spec.nodeSelector" in conflict.text
        # Each default with its own reason, not with the other's.
        assert '"fedora"' in unmet.text
        assert "architecture s390x" in unmet.text
        assert "spec.nodeSelector" not in unmet.text

    def test_a_wish_that_fits_neither_alone_nor_beside_a_default(self) -> None:
        asked = {"kubevirt-webhook.github.io/preference": "fedora"}
        picky = preference(requirements={"architecture": "s390x"})
        world = facts([instancetype(nodeSelector={"a": "b"}), picky])

        denial = decide(vmi(annotations=asked, nodeSelector={"c": "d"}), world, default_instancetype="u1.small").denial

        # Not the default's conflict, which the owner can't help.
        assert denial
        assert "preference requires architecture s390x" in denial.message

    @pytest.mark.parametrize("text", ["Foo/x", "u1 small"])
    def test_a_default_that_is_none(self, text: str) -> None:
        decision = decide(vmi(), facts(WORLD), default_instancetype=text)

        assert (decision.code, decision.changes) == (reasons.DEFAULT_UNUSABLE, ())
        assert [warning.code for warning in decision.warnings] == [reasons.DEFAULT_UNUSABLE]
        assert names.DEFAULT_INSTANCETYPE_ANNOTATION in decision.warnings[0].text

    def test_a_default_that_is_missing_or_not_allowed(self) -> None:
        world = facts([preference()], missing=[("VirtualMachineClusterInstancetype", "u1.small")])

        missing = decide(vmi(), world, **BOTH)
        not_allowed = decide(vmi(), facts(WORLD), **BOTH, allowed=("cx1.*",))

        assert [set(decision.notes) for decision in (missing, not_allowed)] == [{"preference"}, {"preference"}]
        assert '"u1.small" not found' in missing.warnings[0].text
        why = reasons.not_allowed(SMALL_MARK, "demo", "cx1.*")
        assert not_allowed.warnings == (reasons.vmi_default_unusable("instancetype", "u1.small", why),)

    def test_what_can_not_be_read(self) -> None:
        world = facts(unreadable=[("VirtualMachineClusterInstancetype", "u1.small")])
        decision = decide(vmi(annotations=ASKED), world | facts([preference()], unreadable=[]) | world)
        assert (decision.code, decision.denial, len(decision.warnings)) == (common.LOOKUP_FAILED, None, 1)

    def test_malformed_vmis_are_left_to_the_api_server(self) -> None:
        decision = decide(vmi({"cpu": []}), facts(WORLD), **BOTH)
        assert (decision.code, decision.changes) == (common.INVALID_OBJECT, ())


class TestWhatIsRefused:
    """An owner who requests an instancetype gets it, or a denial that says why not."""

    def test_conflicts_with_all_causes(self) -> None:
        decision = decide(vmi({"cpu": {"cores": 1}, "memory": {"guest": "1Gi"}}, annotations=ASKED), facts(WORLD))

        assert decision.denial
        assert decision.denial.code == 422
        fields = ["spec.domain.cpu.cores", "spec.domain.memory.guest"]
        assert decision.denial.message == f"VMI conflicts with instancetype spec in fields: [{', '.join(fields)}]"
        assert [cause.field for cause in decision.denial.causes] == fields

    def test_what_is_not_there(self) -> None:
        world = facts([preference()], missing=[("VirtualMachineClusterInstancetype", "u1.small")])

        decision = decide(vmi(annotations=ASKED), world)

        assert decision.denial
        assert decision.denial.message == (
            "metadata.annotations[kubevirt-webhook.github.io/instancetype]: "
            'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "u1.small" not found'
        )

    def test_what_is_not_allowed(self) -> None:
        decision = decide(vmi(annotations=ASKED), facts(WORLD), allowed=("cx1.*",))
        assert decision.denial
        assert (decision.code, decision.denial.code) == (reasons.NOT_ALLOWED, 403)

    def test_nonsense(self) -> None:
        decision = decide(vmi(annotations={"kubevirt-webhook.github.io/instancetype": "Foo/bar"}), facts())
        assert decision.denial
        assert "got unexpected kind in InstancetypeMatcher: Foo" in decision.denial.message

    def test_requirements_and_spreads(self) -> None:
        demanding = preference(requirements={"memory": {"guest": "64Gi"}})
        spread = preference(cpu={"preferredCPUTopology": "spread"})

        refused = decide(vmi(annotations=ASKED), facts([instancetype(), demanding]))
        odd = decide(vmi(annotations=ASKED), facts([instancetype(cpu={"guest": 3}), spread]))

        assert refused.denial
        assert "preference requires 64Gi" in refused.denial.message
        assert odd.denial
        assert "not divisible" in odd.denial.message

    def test_a_requirement_of_a_sized_vmi_names_its_own_fields(self) -> None:
        world = facts([preference(requirements={"cpu": {"guest": 8}}, cpu={"preferredCPUTopology": "cores"})])
        asked = {"kubevirt-webhook.github.io/preference": "fedora"}

        decision = decide(vmi({"cpu": {"cores": 2}}, annotations=asked), world)

        assert decision.denial
        assert decision.denial.causes[0].field == "spec.domain.cpu.cores"

    def test_what_can_not_be_read_as_one(self) -> None:
        odd = instancetype(cpu={"guest": "two"})
        assert decide(vmi(annotations=ASKED), facts([odd, preference()])).denial
        assert not decide(vmi(), facts([odd, preference()]), **BOTH).denial

    def test_a_crash(self) -> None:
        zero = preference(cpu={"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 0}})

        decision = decide(vmi(annotations=ASKED), facts([instancetype(), zero]))

        assert decision.denial
        assert "ratio of 0" in decision.denial.message

    def test_a_default_never_stands_in_the_way_of_a_wish(self) -> None:
        asked = {"kubevirt-webhook.github.io/instancetype": "u1.small"}
        world = facts([instancetype(), preference(requirements={"cpu": {"guest": 64}})])

        decision = decide(vmi(annotations=asked), world, default_preference="fedora")

        assert not decision.denial
        assert set(decision.notes) == {"instancetype"}
        assert "preference requires 64 vCPU" in decision.warnings[0].text
