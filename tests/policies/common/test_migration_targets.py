"""The requirements of a migration, from the cluster's facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.builders import Json, config_of, installed
from tests.policies.migration.world import (
    FOO,
    ONE_DEVICE,
    OWNED,
    OWNER,
    PODS,
    POLICY,
    VMI,
    facts,
    migration,
    requesting,
    vmi,
)
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, NamespaceKey, NodesKey, ObjectKey
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.k8s.types.scheduling import Taint
from webhook.k8s.types.selectors import value_problem
from webhook.kubevirt.config import ClusterConfig, KubeVirtInstall
from webhook.placement.index import NodeIndex
from webhook.placement.machines import MIGRATIONS, NO_MIGRATION, LauncherPod, Migration, Vmi
from webhook.placement.requirements import Allocatable, Kvm, Label, Origin, Requirement, Untainted
from webhook.placement.target_pods import (
    DEVICE_CLASSES,
    NODE_SELECTOR_ANNOTATION,
    RUNTIME_CLASSES,
    DeviceClass,
    RuntimeClass,
    requirement_gaps,
    unexplained_labels_gap,
)
from webhook.policies.common import migration_targets
from webhook.policies.common.migration_targets import Target
from webhook.policies.common.required_facts import Unreadable

WISH, RULE = "kubevirt.io/pool", "kubevirt.io/rule"
LAST = ObjectKey(MIGRATIONS, "demo", "m1")


def pod(node: str = "node-a1", phase: str = "Running", **selector: str) -> Json:
    job = {"labels": {"kubevirt.io/migrationJobUID": POLICY}, "annotations": {"kubevirt.io/migrationJobName": "m1"}}
    spec = {"nodeName": node, "nodeSelector": {WISH: "true", RULE: "true"} | selector}
    return {"metadata": job | {"name": "p", "ownerReferences": OWNED}, "spec": spec, "status": {"phase": phase}}


def world(*pods: Json, last: object = None) -> dict[Key[Any], object]:
    """The VM, and the migration that brought it where it is."""
    return facts() | {PODS: tuple(msgspec.convert(one, LauncherPod) for one in pods), LAST: last}


def target_of(known: Mapping[Key[Any], object]) -> Target:
    found = migration_targets.find("demo", "web01", Facts.of(known))
    assert found
    return found


def asked(known: Mapping[Key[Any], object], kind: type[Requirement]) -> list[Any]:
    return [each for each in target_of(known).requirements if isinstance(each, kind)]


def required(known: Mapping[Key[Any], object]) -> list[str]:
    """KubeVirt's requirements on the next target by rules that only the present pod shows."""
    keys = [label.expression.key for label in asked(known, Label) if label.origin == Origin.KUBEVIRT]
    return [key for key in keys if key in {WISH, RULE}]


def a_migration(uid: str = POLICY) -> Migration:
    made = migration({WISH: "true"})
    made["metadata"]["uid"] = uid
    return msgspec.convert(made, Migration)


def test_what_the_last_migration_added_was_for_once() -> None:
    assert required(world(pod(), last=a_migration())) == [RULE]


@pytest.mark.parametrize("last", [None, a_migration("another")], ids=["gone", "another of its name"])
def test_what_a_migration_had_added_that_is_gone_is_not_taken_for_kubevirts(last: object) -> None:
    assert required(world(pod(), last=last)) == []


def test_a_pod_that_no_migration_made_shows_kubevirts_own() -> None:
    first = pod()
    del first["metadata"]["annotations"]
    assert required(world(first)) == [WISH, RULE]


@pytest.mark.parametrize("other", [pod("node-b1"), pod(phase="Succeeded"), pod(phase="Failed")])
def test_only_the_pod_that_the_vm_runs_in_counts(other: Json) -> None:
    found = target_of(world(other))
    assert found.gaps[0] == requirement_gaps(found.vmi, NO_MIGRATION, None, None)[0]


@pytest.mark.parametrize("owners", [None, [], [OWNER], [OWNER | {"uid": "another", "controller": True}]])
def test_a_pod_that_only_has_the_label_does_not_count(owners: Any) -> None:
    labelled, real = pod(), pod()
    labelled["metadata"] |= {"ownerReferences": owners, "creationTimestamp": "2026-08-22T10:00:00Z"}
    del real["spec"]["nodeSelector"]
    assert required(world(labelled, real, last=a_migration())) == []
    assert required(world(labelled, last=a_migration())) == []


def test_of_several_pods_the_last_one_counts() -> None:
    pods = [pod() for _ in range(3)]
    for one, time in zip(pods, ("08:00:00", "10:00:00", "09:00:00"), strict=True):
        one["metadata"]["creationTimestamp"] = f"2026-08-22T{time}Z"
        one["spec"]["nodeSelector"] = {f"kubevirt.io/made-at-{time[:2]}": "true"}
    keys = [label.expression.key for label in asked(world(*pods, last=a_migration()), Label)]
    assert [key for key in keys if "made-at" in key] == ["kubevirt.io/made-at-10"]


def test_a_vm_that_runs_nowhere_yet_has_no_pod() -> None:
    assert len(target_of(facts(vmi() | {"status": None})).gaps) == 2
    assert migration_targets.find("demo", "web01", Facts.of({VMI: None})) is None


@pytest.mark.parametrize("key", [PODS, LAST, NodesKey(), VMI])
def test_what_can_not_be_read_is_said(key: Key[Any]) -> None:
    known = world(pod(), last=a_migration()) | {key: Unavailable("no answer")}
    with pytest.raises(Unreadable, match=": no answer"):
        migration_targets.find("demo", "web01", Facts.of(known))


KVM = "devices.kubevirt.io/kvm"
RESERVING = [{"lun": {"reservation": True}}]


def resourceful(compute: Json, **spec: Any) -> Json:
    """The present pod, with a container that requests something."""
    made = pod()
    made["spec"] |= {"nodeSelector": {}, "containers": [{"name": "compute", "resources": {"requests": compute}}]}
    made["spec"] |= spec
    return made


def settings(**configuration: Any) -> KubeVirtInstall:
    return installed(ClusterConfig.of(configuration))


class TestTargetResources:
    def test_what_the_present_pod_requests_the_target_pod_does(self) -> None:
        wanted = vmi(domain={"resources": {"requests": {FOO: "1"}}})
        known = world(resourceful({"memory": "1Gi", FOO: "1", KVM: "1"})) | {VMI: msgspec.convert(wanted, Vmi)}
        assert {(each.origin, each.resource, each.amount) for each in asked(known, Allocatable)} == {
            ("resources", "cpu", 100),
            ("resources", "memory", 2**30),
            ("resources", FOO, 1),
            ("kvm", KVM, 1),
        }
        assert asked(known, Kvm) == []

    def test_the_device_of_kvm_is_a_matter_of_kubevirts_settings(self) -> None:
        emulating = {KubeVirtKey(): settings(developerConfiguration={"useEmulation": True})}
        required = asked(world(resourceful({KVM: "1"})) | emulating, Allocatable)
        assert not [each for each in required if each.origin == "kvm" or each.resource == KVM]
        assert len(asked(world(resourceful({"memory": "1Gi"})), Kvm)) == 1


def dra(*classes: Json | None) -> tuple[DeviceClass, ...]:
    return tuple(msgspec.convert({"metadata": {"name": "fast"}, "spec": spec}, DeviceClass) for spec in classes)


@pytest.mark.parametrize(
    ("classes", "is_required"),
    [
        ((), True),
        (dra(None, {"extendedResourceName": "example.com/other"}), True),
        (dra({"extendedResourceName": FOO}), False),
        (Unavailable("may not list deviceclasses"), False),
    ],
)
def test_an_extended_resource_that_a_driver_may_provide_rules_no_node_out(classes: Any, is_required: bool) -> None:
    """From Kubernetes 1.37 on a node may serve one that is not in its allocatable."""
    known = facts(nodes=ONE_DEVICE) | requesting() | {ListKey(DEVICE_CLASSES, ""): classes}
    target = target_of(known)
    assert (FOO in {each.resource for each in asked(known, Allocatable)}) is is_required
    assert (FOO in str(target.gaps)) is not is_required
    assert target.requests[FOO] == 1, "a quota counts it"
    assert bool(target.review(Facts.of(known)).count) is not is_required
    assert [made.provides for made in dra(None)] == [{"deviceclass.resource.kubernetes.io/fast"}]


class TestPlugins:
    CLASS = ObjectKey(RUNTIME_CLASSES, "", "kata")

    def world(self, found: Any, shown: Json | None = None) -> dict[Key[Any], object]:
        known = world(resourceful({}, nodeSelector=shown or {}))
        return known | {KubeVirtKey(): settings(defaultRuntimeClass="kata"), self.CLASS: found}

    def test_a_runtime_class_chooses_nodes(self) -> None:
        scheduling = {"nodeSelector": {"runtime": "kata"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}
        known = self.world(msgspec.convert({"scheduling": scheduling}, RuntimeClass), {"runtime": "kata"})
        assert "runtime=kata" in [str(label.expression) for label in asked(known, Label)]
        assert asked(known, Untainted)[0].tolerates(Taint("kata", "x", "NoSchedule"))
        assert target_of(known).gaps == ()

    def test_one_that_cannot_be_read_is_named(self) -> None:
        (gap,) = target_of(self.world(Unavailable("may not get runtimeclasses"))).gaps
        assert 'RuntimeClass "kata"' in gap
        assert gap.endswith(": may not get runtimeclasses")
        assert target_of(self.world(None)).gaps == ()

    def test_what_admission_plugins_tolerate_the_present_pod_shows(self) -> None:
        known = world(resourceful({}, tolerations=[{"key": "kata", "operator": "Exists"}, None]))
        assert asked(known, Untainted)[0].tolerates(Taint("kata", "x", "NoSchedule"))
        assert not asked(world(resourceful({})), Untainted)[0].tolerates(Taint("kata", "x", "NoSchedule"))

    def test_a_namespace_chooses_nodes_where_the_present_pod_shows_it(self) -> None:
        place = Namespace(ObjectMeta(annotations={NODE_SELECTOR_ANNOTATION: "pool=vms,other=x"}))
        made = resourceful({}, nodeSelector={"pool": "vms", "left": "1"})
        # No migration made the pod, so that all of its node selector must come from elsewhere.
        del made["metadata"]["annotations"]
        first = world(made) | {NamespaceKey("demo"): place}
        labels = [str(label.expression) for label in asked(first, Label) if label.origin == "namespace"]
        assert labels == ["pool=vms"]
        (gap,) = target_of(first).gaps
        assert gap == unexplained_labels_gap({"left": "1"})
        unread = first | {NamespaceKey("demo"): Unavailable("no answer")}
        assert "left=1, pool=vms" in target_of(unread).gaps[0]


def test_which_nodes_have_it() -> None:
    target = target_of(world(pod(), last=a_migration()))
    assert target.review(Facts.of(facts())).count == 0  # no node has the rule's label


def test_kubevirt_labels_migrations_with_the_vms_name() -> None:
    assert migration_targets.name_problem("v" * 63) is migration_targets.name_problem("web.01") is None
    assert str(value_problem("v" * 64)) in str(migration_targets.name_problem("v" * 64))


@pytest.mark.parametrize(
    ("version", "vmi", "gap"),
    [
        ("1.8", {"status": {"changedBlockTracking": {"backupStatus": {"backupName": "b"}}}}, "its backup runs"),
        ("1.8", {"spec": {"utilityVolumes": [{"name": "v"}]}}, "utility volumes are detached"),
        ("1.9", {"spec": {"domain": {"devices": {"disks": RESERVING}}}}, "persistent reservation"),
    ],
)
def test_what_a_release_does_beside_choosing_nodes(version: str, vmi: Json, gap: str) -> None:
    def gaps(text: str) -> list[str]:
        known: dict[Key[Any], object] = {NodesKey(): NodeIndex([]), KubeVirtKey(): installed(config_of(text))}
        found = migration_targets.of(msgspec.convert(vmi, Vmi), "demo", Facts.of(known))
        return [each for each in found.gaps if gap in each]

    assert (len(gaps({"1.8": "1.7", "1.9": "1.8"}[version])), len(gaps(version))) == (0, 1)
