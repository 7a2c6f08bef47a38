"""The host's own CPU and its vendor, which a migrating VM takes with it."""

from __future__ import annotations

from tests.placement.hosts import FEATURE, HOST_MODEL, INTEL, MODEL, NAMED, OBSOLETE, VENDOR, asked
from tests.placement.samples import (
    node,
    pod,
)
from tests.placement.samples import vmi as a_vmi
from webhook.placement.machines import Migration
from webhook.placement.target_pods import target_pod_requirements

# -- the host's own CPU, and the vendor --------------------------------------------------------------------------------


def test_a_first_migration_takes_the_cpu_of_the_node() -> None:
    found = asked(target_pod_requirements(a_vmi(None, HOST_MODEL, nodeName="n1"), source_pod=pod(), source_node=INTEL))

    assert found["host-model"] == [f"{MODEL}Skylake=true", f"{FEATURE}vmx=true"]
    assert found["vendor"] == [f"{VENDOR}Intel=true"]


def test_a_later_migration_takes_what_its_pod_required() -> None:
    source = pod(**{f"{MODEL}Broadwell": "true", f"{FEATURE}a": "true", "zone": "a"})

    found = asked(target_pod_requirements(a_vmi(None, HOST_MODEL), source_pod=source, source_node=INTEL))

    assert found["host-model"] == [f"{MODEL}Broadwell=true", f"{FEATURE}a=true"]


def test_values_are_taken_as_they_stand_over_the_vms_own() -> None:
    by_hand = {"host-model-cpu.node.kubevirt.io/Mine": "yes", "host-model-required-features.node.kubevirt.io/a": "yes"}
    vm = a_vmi({"nodeSelector": {f"{FEATURE}a": "no", "zone": "a"}}, HOST_MODEL)

    found = asked(target_pod_requirements(vm, source_pod=pod(), source_node=node("n1", by_hand)))

    assert found["host-model"] == [f"{MODEL}Mine=yes", f"{FEATURE}a=yes"]
    assert found["vm"] == ["zone=a"]


def test_a_node_that_names_no_model_gives_no_features() -> None:
    unnamed = node("n1", {"host-model-required-features.node.kubevirt.io/vmx": "true", f"{VENDOR}Intel": "true"})

    found = asked(target_pod_requirements(a_vmi(None, HOST_MODEL), source_pod=pod(), source_node=unnamed))

    assert "host-model" not in found
    assert found["vendor"] == [f"{VENDOR}Intel=true"]


def test_features_of_the_owners_own_are_not_asked_for_twice() -> None:
    domain = {"cpu": {"model": "host-model", "features": [{"name": "vmx"}]}}
    source = pod(**{f"{FEATURE}vmx": "true"})

    found = asked(target_pod_requirements(a_vmi(None, domain), source_pod=source, source_node=INTEL))

    # That its pod has one already means to KubeVirt that the VM has migrated before: it adds no model.
    assert "host-model" not in found
    assert found["kubevirt"] == [f"{FEATURE}vmx=true", f"no {OBSOLETE}"]


def test_other_models_carry_nothing() -> None:
    source = pod(**{f"{MODEL}Broadwell": "true", f"{FEATURE}a": "true"})

    found = asked(target_pod_requirements(a_vmi(None, NAMED), source_pod=source, source_node=INTEL))

    assert "host-model" not in found
    assert found["kubevirt"] == ["cpu-model.node.kubevirt.io/Westmere=true"]


def test_an_added_vendor_does_not_switch_the_guard_off() -> None:
    found = asked(
        target_pod_requirements(a_vmi(None, NAMED), Migration.adding({f"{VENDOR}AMD": "true"}), source_node=INTEL)
    )

    assert found["added"] == [f"{VENDOR}AMD=true"]
    assert found["vendor"] == [f"{VENDOR}Intel=true"]


def test_a_vendor_of_the_vms_own_is_enough() -> None:
    vm = a_vmi({"nodeSelector": {f"{VENDOR}AMD": "true"}}, NAMED)

    assert "vendor" not in asked(target_pod_requirements(vm, source_node=INTEL))


def test_without_the_node_the_pod_tells_the_vendor() -> None:
    source = pod(**{f"{VENDOR}Intel": "true"})

    assert asked(target_pod_requirements(a_vmi(None, NAMED), source_pod=source))["vendor"] == [f"{VENDOR}Intel=true"]
    assert "vendor" not in asked(
        target_pod_requirements(a_vmi(None, NAMED), source_pod=source, source_pod_added={f"{VENDOR}Intel": "true"})
    )
