"""Defaults where KubeVirt expands instancetypes when it stores a VM, and in its releases."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.builders import Json
from tests.policies.instancetypes.world import (
    BOTH,
    FEDORA_MARK,
    IT_MARK,
    SMALL,
    SMALL_MARK,
    WORLD,
    applied,
    changes,
    decide,
    facts,
    instancetype,
    preference,
    revision,
    vm,
)
from webhook.admission.reasons import instancetypes as reasons
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.rules import rules_of


class TestExpansion:
    def test_what_the_matchers_say_is_written_out(self) -> None:
        obj = vm({"devices": {"disks": [{"name": "root", "disk": {}, "serial": "1"}]}})
        obj["spec"]["unknown"] = {"kept": True}

        decision = decide(obj, facts(WORLD), **BOTH, expand=True)

        got = applied(obj, decision)["spec"]
        assert decision.code == reasons.EXPANDED
        assert not {"instancetype", "preference"} & set(got)
        assert got["template"]["spec"]["domain"]["memory"] == {"guest": "4Gi"}
        assert got["template"]["spec"]["domain"]["cpu"] == {"sockets": 2, "cores": 1, "threads": 1}
        assert got["template"]["spec"]["domain"]["devices"]["disks"][0]["disk"] == {"bus": "virtio"}
        assert got["unknown"] == {"kept": True}
        assert decision.notes == {"instancetype": SMALL_MARK, "preference": FEDORA_MARK}

    def test_an_owners_matcher_too(self) -> None:
        got = applied(obj := vm(instancetype=SMALL), decide(obj, facts(WORLD), expand=True))

        assert got["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "4Gi"}

    def test_a_revision_counts_whatever_kind_stands_beside_it(self) -> None:
        obj = vm(instancetype={"kind": "Nonsense", "name": "x", "revisionName": "r1"})

        decision = decide(obj, facts([revision("r1", instancetype())]), expand=True)

        assert decision.notes == {"instancetype": "ControllerRevision/r1"}
        assert applied(obj, decision)["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "4Gi"}

    @pytest.mark.parametrize("field", ["instancetype", "preference"])
    @pytest.mark.parametrize("given_", [{"inferFromVolume": "root"}, {"name": "missing"}])
    def test_what_can_not_be_told_stays(self, field: str, given_: Json) -> None:
        kinds = ("VirtualMachineClusterInstancetype", "VirtualMachineClusterPreference")
        world = facts(missing=[(kind, "missing") for kind in kinds])

        decision = decide(vm(**{field: given_}), world, expand=True)

        assert not decision.changes
        assert [warning.code for warning in decision.warnings] == [decision.code]
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
        world = facts([*WORLD, big, thirds, revision("r1", instancetype("u1.large"))])

        decision = decide(vm(**spec), world, expand=True, **settings)
        validated = decide(vm(**spec), world, verb="validate", **settings)

        assert (decision.code, decision.changes, decision.warnings) == (reasons.DENIED, (), ())
        assert validated.denial

    def test_an_architecture_that_comes_from_a_volume_is_not_frozen(self) -> None:
        source = {"metadata": {"name": "root"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "fedora"}}}
        obj = vm(instancetype=SMALL, dataVolumeTemplates=[source])

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

        got = applied(obj, decide(obj, world, expand=True))["spec"]["dataVolumeTemplates"]

        assert got[0]["spec"] == {"storage": {"storageClassName": "fast"}, "source": {"blank": {}}}
        assert got[1] == templates[1]

    def test_only_new_vms_are_expanded(self) -> None:
        assert not decide(
            vm(instancetype=SMALL, runStrategy="Halted"), facts(WORLD), vm(instancetype=SMALL), expand=True
        ).changes

    def test_a_vm_without_matchers_has_nothing_to_expand(self) -> None:
        assert not decide(vm({"cpu": {"cores": 1}}), facts(WORLD), **BOTH, expand=True).changes


class TestReleases:
    @staticmethod
    def world(version: str, *objects: Json) -> Any:
        parsed = parse_version(version)
        assert parsed
        return facts(objects, configuration=ClusterConfig.of(None, rules=rules_of(release_of(parsed))))

    @pytest.mark.parametrize("old", [None, vm({"memory": {"guest": "1Gi"}})])
    def test_of_one_that_is_too_old_nothing_is_changed(self, old: Json | None) -> None:
        decision = decide(vm(), self.world("1.5", *WORLD), old, **BOTH)

        assert (decision.code, decision.changes, decision.denial) == (reasons.KUBEVIRT_TOO_OLD, (), None)
        assert decision.warnings

    def test_a_default_that_kubevirt_1_6_has_given_a_kind_is_still_ours(self) -> None:
        """KubeVirt 1.6 writes the cluster-wide kind in lower case into the matcher that the webhook left without."""
        matcher = {**SMALL, "kind": "virtualmachineclusterinstancetype"}
        given = vm(annotations={IT_MARK[2]: SMALL_MARK}, instancetype=matcher)
        sized = copy.deepcopy(given)
        sized["spec"]["template"]["spec"]["domain"]["memory"] = {"guest": "8Gi"}

        decision = decide(sized, self.world("1.6", *WORLD), given, **BOTH)

        assert decision.code == reasons.DEFAULT_WITHDRAWN
        assert changes(decision)["spec", "instancetype"] is None

    def test_what_fits_one_release_does_not_fit_another(self) -> None:
        hotplug = vm({"memory": {"maxGuest": "16Gi"}})

        assert decide(hotplug, self.world("1.7", *WORLD), **BOTH).code == reasons.DEFAULTS_INJECTED
        assert "memory" in decide(hotplug, self.world("1.6", *WORLD), **BOTH).warnings[0].text
