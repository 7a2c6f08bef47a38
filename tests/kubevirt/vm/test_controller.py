"""What the recorded answers do not show of virt-controller's rounds (tests/vectors): what runs and what is odd."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.kubevirt.plain import build_vmi, run_round
from tests.kubevirt.samples import among, instancetype, preference, revision, vm
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.instancetype.revision_store import RevisionStore
from webhook.kubevirt.rejection import Conflicts, Crash, Rejection

BOTH = {"instancetype": {"name": "u1"}, "preference": {"name": "linux"}}
OBJECTS = [instancetype(annotations={"i": "1"}), preference(preferredSubdomain="x")]


def built_vmi(given: Json, *objects: Json) -> Json:
    return build_vmi(given, among(objects))


def synced(given: Json, *objects: Json, **configuration: Any) -> tuple[Json, RevisionStore, Json]:
    return run_round(given, among([*OBJECTS, *objects]), ClusterConfig.of(configuration))


def expanding(policy: str) -> Json:
    return {"instancetype": {"referencePolicy": policy}}


def referring(name: str, **spec: Any) -> Json:
    given = vm(**spec)
    references = {"instancetype": {"name": "u1"}, "preference": {"name": "linux"}}
    given["status"] = {
        f"{field}Ref": {**reference, "controllerRevisionRef": {"name": name}}
        for field, reference in references.items()
        if field in spec
    }
    return given


def test_nothing_is_shared_and_nothing_is_changed() -> None:
    template = {"volumes": [{"name": "root", "containerDisk": {"image": "x:1"}}]}
    inputs = (vm(template, **BOTH), instancetype(annotations={"i": "1"}, gpus=[{"name": "g"}]), preference())
    before = deepcopy(inputs)
    built = built_vmi(*inputs)
    built["spec"]["volumes"][0]["containerDisk"]["image"] = "changed"
    built["spec"]["domain"]["devices"]["gpus"][0]["name"] = "changed"
    built["metadata"]["annotations"]["i"] = "changed"
    assert inputs == before


def test_requests_at_run_time() -> None:
    volumes = [{"name": name, "memoryDump": {"claimName": "dump"}} for name in ("dump", "b")]
    given = vm({"volumes": volumes})
    assert "startStrategy" not in built_vmi(given)["spec"]
    given["status"] = {
        "stateChangeRequests": [{"action": "Start", "data": {"paused": "true"}}],
        "memoryDumpRequest": {"phase": "Completed", "claimName": "dump"},
    }
    spec = built_vmi(given)["spec"]

    assert (spec["startStrategy"], [volume["name"] for volume in spec["volumes"]]) == ("Paused", ["b"])
    given["status"]["memoryDumpRequest"]["phase"] = "InProgress"
    assert [volume["name"] for volume in built_vmi(given)["spec"]["volumes"]] == ["dump", "b"]
    start = {"action": "Start", "data": {"paused": "no"}}
    for odd in ({**start, "action": "Stop"}, {**start, "data": []}, start, "x"):
        given["status"] = {"stateChangeRequests": [odd]}
        assert "startStrategy" not in built_vmi(given)["spec"]


@pytest.mark.parametrize("strategy", ["Always", "WaitAsReceiver"])
def test_a_vm_that_waits_for_one_from_elsewhere_is_a_migration_target(strategy: str) -> None:
    annotations = built_vmi(vm(runStrategy=strategy))["metadata"]["annotations"]
    assert ("kubevirt.io/create-migration-target" in annotations) == (strategy == "WaitAsReceiver")
    assert set(annotations.values()) <= {"0", "true"}


def test_capturing() -> None:
    result, store, built = synced(vm(**BOTH))
    names = ["vm-u1-v1beta1-u-1", "vm-linux-v1beta1-u-1"]
    assert [item["metadata"]["name"] for item in store.created] == names
    assert result["status"] == {
        "instancetypeRef": {"name": "u1", "controllerRevisionRef": {"name": names[0]}},
        "preferenceRef": {"name": "linux", "controllerRevisionRef": {"name": names[1]}},
    }
    # As upstream, the instancetype's annotations leak into the VM in memory.
    assert result["spec"]["template"]["metadata"]["annotations"] == {"i": "1"}
    assert built["spec"]["subdomain"] == "x"
    # A policy that there is not captures nothing.
    assert synced(vm(**BOTH), **expanding("some"))[1].created == []


def test_another_name_or_policy_or_revision_is_noted() -> None:
    given = vm(instancetype={"name": "u1", "inferFromVolumeFailurePolicy": "Ignore"})
    given["status"] = {"instancetypeRef": {"name": "u0", "controllerRevisionRef": {"name": "old"}}}
    old = revision("old", instancetype(name="u0"), "u0")
    assert synced(given, old)[0]["status"]["instancetypeRef"] == {
        "name": "u1",
        "inferFromVolumeFailurePolicy": "Ignore",
        "controllerRevisionRef": {"name": "vm-u1-v1beta1-u-1"},
    }
    given["spec"]["instancetype"]["revisionName"] = "old"
    assert synced(given, old)[0]["status"]["instancetypeRef"]["controllerRevisionRef"] == {"name": "old"}
    # Beside a revision of the same name.
    same = revision("vm-u1-v1beta1-u-1", instancetype(annotations={"i": "1"}), "u1")
    other = revision("vm-u1-v1beta1-u-1", instancetype(cpu={"guest": 9}), "u1")
    given = vm(instancetype={"name": "u1"})
    assert synced(given, same)[1].created == []
    with pytest.raises(Rejection, match="found existing ControllerRevision with unexpected data: vm-u1-v1beta1-u-1"):
        synced(given, other)


def test_conflicts_name_the_step() -> None:
    sentence = "VM field(s) spec.template.spec.schedulerName conflicts with selected instance type"
    setting = instancetype(schedulerName="s")
    by_revision = vm({"schedulerName": "s"}, instancetype={"name": "u1", "revisionName": "r"})
    for given, configuration, said in (
        (
            vm({"schedulerName": "s"}, **BOTH),
            {},
            f"error encountered while storing instancetype.kubevirt.io controllerRevisions: {sentence}",
        ),
        (
            vm({"schedulerName": "s"}, **BOTH),
            expanding("expand"),
            f"error encountered while expanding into VirtualMachine: {sentence}",
        ),
        (by_revision, {}, "VMI conflicts with instancetype spec in fields: [spec.schedulerName]"),
    ):
        with pytest.raises(Conflicts) as caught:
            synced(given, setting, revision("r", setting), **configuration)
        assert str(caught.value) == said


def unlabelled(name: str, captured: Json | None, label: str) -> Json:
    stored = revision(name, captured, label)
    del stored["metadata"]["labels"]["instancetype.kubevirt.io/object-version"]
    return stored


def test_revisions_that_cannot_be_replaced_or_cleaned_up() -> None:
    given, old = referring("old", instancetype={"name": "u1"}), unlabelled("old", instancetype(), "u1")
    there = revision("vm-u1-v1beta1-u-1", instancetype(), "u1")
    upgrading = "^error encountered while upgrading instancetype.kubevirt.io controllerRevisions: "
    cleaning = "^error encountered cleaning controllerRevision mine after successfully expanding VirtualMachine vm: "

    with pytest.raises(Rejection, match=rf'{upgrading}controllerrevisions.apps "vm-u1-v1beta1-u-1" already exists$'):
        synced(given, old, there)
    with pytest.raises(Crash, match="the ControllerRevision old is empty"):
        synced(given, unlabelled("old", None, "another"))
    # A replaced revision is no longer found by name.
    with pytest.raises(Rejection, match=r'^controllerrevisions.apps "old" not found$'):
        synced(vm(instancetype={"revisionName": "old"}), old)
    with pytest.raises(Rejection, match=f'{cleaning}controllerrevisions.apps "mine" not found'):
        synced(referring("mine", **BOTH), revision("mine", instancetype(), "x"), **expanding("expandAll"))
    # What forbids expansion.
    with pytest.raises(Rejection, match=r"^error encountered while expanding into VirtualMachine: slirp interface"):
        synced(vm(**BOTH), **expanding("expand"), network={"defaultNetworkInterface": "slirp"})
    features = preference(cpu={"preferredCPUFeatures": [{"name": "x"}]})
    with pytest.raises(Crash, match=r"^the preference names CPU features"):
        synced(vm(preference={"name": "linux"}), features, **expanding("expand"))
