"""The requirements of a migration, from the cluster's facts; and why no node is eligible, for users and for audits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests import golden_files
from tests.builders import Json, config_of, installed, read_node
from tests.placement import samples
from tests.policies.migration import world as migrations
from tests.policies.migration.world import FOO, ONE_DEVICE, OWNED, OWNER, PODS, POLICY, VMI, facts, migration, vmi
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import Facts, Key, KubeVirtKey, ListKey, NamespaceKey, NodesKey, ObjectKey, Unreadable, from_memory
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.k8s.types.scheduling import Taint
from webhook.kubevirt.config import ClusterConfig, KubeVirtInstall
from webhook.placement import machines, target_pods
from webhook.placement.eligibility import Eligibility
from webhook.placement.index import NodeIndex
from webhook.placement.machines import LAUNCHER_PODS, MIGRATIONS, MOST_RESERVATIONS, LauncherPod, Migration, Vmi
from webhook.placement.nodes import HOSTNAME, Tolerated
from webhook.placement.requirements import Allocatable, Kvm, Label, Origin, Requirement, Untainted
from webhook.policies.common import migration_targets
from webhook.policies.common.migration_targets import Target, availability, details, no_node

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
    found = from_memory(migration_targets.find("demo", "web01", Facts.of(known)))
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


def test_what_the_last_migration_added_was_for_once_and_all_else_is_kubevirts_own() -> None:
    assert required(world(pod(), last=a_migration())) == [RULE]
    first = pod()
    del first["metadata"]["annotations"]
    assert required(world(first)) == [WISH, RULE]
    target = target_of(world(pod(), last=a_migration()))
    assert target.review().count == 0  # no node has the rule's label


@pytest.mark.parametrize("last", [None, a_migration("another")], ids=["gone", "another of its name"])
def test_what_a_migration_had_added_that_is_gone_is_not_taken_for_kubevirts(last: object) -> None:
    assert required(world(pod(), last=last)) == []


@pytest.mark.parametrize("other", [pod("node-b1"), pod(phase="Succeeded"), pod(phase="Failed")])
def test_only_the_pod_that_the_vm_runs_in_counts(other: Json) -> None:
    found = target_of(world(other))
    assert found.gaps[0] == target_pods.requirement_gaps(found.vmi, machines.NO_MIGRATION, None, None)[0]


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
    assert from_memory(migration_targets.find("demo", "web01", Facts.of(facts() | {VMI: None}))) is None


@pytest.mark.parametrize("key", [PODS, LAST, NodesKey(), VMI])
def test_what_can_not_be_read_is_said(key: Key[Any]) -> None:
    known = world(pod(), last=a_migration()) | {key: Unavailable("no answer")}
    with pytest.raises(Unreadable, match=": no answer"):
        from_memory(migration_targets.find("demo", "web01", Facts.of(known)))


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


@pytest.mark.control("vm-looks-unplaceable")
def test_what_the_present_pod_requests_the_target_pod_does() -> None:
    wanted = vmi(domain={"resources": {"requests": {FOO: "1"}}})
    known = world(resourceful({"memory": "1Gi", FOO: "1", KVM: "1"})) | {VMI: msgspec.convert(wanted, Vmi)}
    assert {(each.origin, each.resource, each.amount) for each in asked(known, Allocatable)} == {
        ("resources", "cpu", 100),
        ("resources", "memory", 2**30),
        ("resources", FOO, 1),
        ("kvm", KVM, 1),
    }
    assert asked(known, Kvm) == []
    # The device of KVM is a matter of KubeVirt's settings.
    emulating = {KubeVirtKey(): settings(developerConfiguration={"useEmulation": True})}
    required = asked(world(resourceful({KVM: "1"})) | emulating, Allocatable)
    assert not [each for each in required if each.origin == "kvm" or each.resource == KVM]
    assert len(asked(world(resourceful({"memory": "1Gi"})), Kvm)) == 1


def dra(*classes: Json | None) -> tuple[target_pods.DeviceClass, ...]:
    made = ({"metadata": {"name": "fast"}, "spec": spec} for spec in classes)
    return tuple(msgspec.convert(each, target_pods.DeviceClass) for each in made)


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
    known = facts(nodes=ONE_DEVICE) | migrations.requesting() | {ListKey(target_pods.DEVICE_CLASSES, ""): classes}
    target = target_of(known)
    assert (FOO in {each.resource for each in asked(known, Allocatable)}) is is_required
    assert (FOO in str(target.gaps)) is not is_required
    assert target.requests[FOO] == 1, "a quota counts it"
    assert bool(target.review().count) is not is_required
    assert [made.provides for made in dra(None)] == [{"deviceclass.resource.kubernetes.io/fast"}]


class TestPlugins:
    CLASS = ObjectKey(target_pods.RUNTIME_CLASSES, "", "kata")

    def world(self, found: Any, shown: Json | None = None) -> dict[Key[Any], object]:
        known = world(resourceful({}, nodeSelector=shown or {}))
        return known | {KubeVirtKey(): settings(defaultRuntimeClass="kata"), self.CLASS: found}

    @pytest.mark.control("runtime-classes")
    def test_a_runtime_class_chooses_nodes(self) -> None:
        scheduling = {"nodeSelector": {"runtime": "kata"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}
        known = self.world(msgspec.convert({"scheduling": scheduling}, target_pods.RuntimeClass), {"runtime": "kata"})
        assert "runtime=kata" in [str(label.expression) for label in asked(known, Label)]
        assert Tolerated(asked(known, Untainted)[0].tolerations).covers(Taint("kata", "x", "NoSchedule"))
        assert target_of(known).gaps == ()

    @pytest.mark.control("runtime-classes")
    def test_one_that_cannot_be_read_is_named(self) -> None:
        (gap,) = target_of(self.world(Unavailable("may not get runtimeclasses"))).gaps
        assert 'RuntimeClass "kata"' in gap
        assert gap.endswith(": may not get runtimeclasses")
        assert target_of(self.world(None)).gaps == ()

    def test_what_admission_plugins_tolerate_the_present_pod_shows(self) -> None:
        known = world(resourceful({}, tolerations=[{"key": "kata", "operator": "Exists"}, None]))
        assert Tolerated(asked(known, Untainted)[0].tolerations).covers(Taint("kata", "x", "NoSchedule"))
        assert not Tolerated(asked(world(resourceful({})), Untainted)[0].tolerations).covers(
            Taint("kata", "x", "NoSchedule")
        )

    def test_a_namespace_chooses_nodes_where_the_present_pod_shows_it(self) -> None:
        place = Namespace(ObjectMeta(annotations={target_pods.NODE_SELECTOR_ANNOTATION: "pool=vms,other=x"}))
        made = resourceful({}, nodeSelector={"pool": "vms", "left": "1"})
        # No migration made the pod, so that all of its node selector must come from elsewhere.
        del made["metadata"]["annotations"]
        first = world(made) | {NamespaceKey("demo"): place}
        labels = [str(label.expression) for label in asked(first, Label) if label.origin == "namespace"]
        assert labels == ["pool=vms"]
        (gap,) = target_of(first).gaps
        assert gap == target_pods.unexplained_labels_gap({"left": "1"})
        unread = first | {NamespaceKey("demo"): Unavailable("no answer")}
        assert "left=1, pool=vms" in target_of(unread).gaps[0]


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
        found = from_memory(migration_targets.of(msgspec.convert(vmi, Vmi), "demo", Facts.of(known)))
        return [each for each in found.gaps if gap in each]

    assert (len(gaps({"1.8": "1.7", "1.9": "1.8"}[version])), len(gaps(version))) == (0, 1)


# -- VMs with the same persistent reservation, which KubeVirt keeps on different nodes --------------------------------

CLAIM = "pr.kubevirt.io/claim-uid"


NODES = [read_node({"metadata": {"name": name, "labels": {HOSTNAME: f"host-{name}"}}}) for name in "abc"]


def reserving(on: str, uid: str = "web", phase: str = "Running", labels: Json | None = None) -> LauncherPod:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": uid, "uid": uid}
    meta = {"name": f"p-{uid}", "labels": labels or {CLAIM: ""}, "ownerReferences": [owner | {"controller": True}]}
    whole = {"metadata": meta, "spec": {"nodeName": on}, "status": {"phase": phase}}
    found = msgspec.convert(whole, LauncherPod)
    # As lists have it.
    assert LAUNCHER_PODS.keep
    return LAUNCHER_PODS.keep(found) or found


def target(others: object, own: LauncherPod | None = None, version: str = "1.9", *, reserves: bool = True) -> Target:
    """The target of a VM on node a, with pods that have the label of its claim."""
    vmi = {
        "metadata": {"name": "web", "namespace": "demo", "uid": "web"},
        "spec": {"domain": {"devices": {"disks": [{"lun": {"reservation": reserves}}]}}},
        "status": {"nodeName": "a"},
    }
    known: dict[Key[Any], object] = {
        NodesKey(): NodeIndex(NODES),
        KubeVirtKey(): installed(config_of(version)),
        ListKey(LAUNCHER_PODS, "demo", "kubevirt.io/created-by=web"): (own or reserving("a"),),
        ListKey(LAUNCHER_PODS, "demo", f"{CLAIM}="): others,
    }
    return from_memory(migration_targets.of(msgspec.convert(vmi, Vmi), "demo", Facts.of(known)))


def excluded(found: Target) -> list[str]:
    """The nodes that are ruled out by a reservation."""
    mine = [each for each in found.requirements if each.origin == Origin.RESERVATION]
    return [each.name for each in NODES if any(asked.reasons(each) for asked in mine)]


@pytest.mark.parametrize(
    ("others", "options", "nodes", "gap_count"),
    [
        ((reserving("a"), reserving("b", "other")), {"version": "1.8"}, [], 0),
        ((reserving("a"), reserving("b", "other")), {}, ["b"], 0),
        ((reserving("b", "other"),), {"reserves": False}, [], 0),
        # Neither pods without a node nor those that have ended count.
        ((reserving("", "waiting"), reserving("b", "ended", "Succeeded"), reserving("gone", "lost")), {}, [], 0),
        # A pod of an older release shows no reservation.
        ((reserving("b", "other"),), {"own": reserving("a", labels={"app": "x"})}, [], 1),
        (Unavailable("too many"), {}, [], 1),
    ],
    ids=["1.8", "1.9", "nothing reserved", "no nodes", "older pod", "unreadable"],
)
def test_the_nodes_of_other_vms_with_the_claim(others: object, options: Json, nodes: list[str], gap_count: int) -> None:
    found = target(others, **options)
    gaps = [each for each in found.gaps if "persistent reservation" in each]
    assert (excluded(found), len(gaps)) == (nodes, gap_count)


@pytest.mark.control("many-reservation-labels")
def test_many_labels_are_not_all_looked_up() -> None:
    """Any user who may create pods in the namespace can write them, and each is a request to the API server."""
    found = reserving("a", labels={f"pr.kubevirt.io/{number:03}": "" for number in range(500)})
    assert len(found.reservations) == len(found.meta.labels or {}) == MOST_RESERVATIONS


ASKED = target_pods.target_pod_requirements(samples.vmi(None, {"cpu": {"model": "x"}}), Migration.adding({"zone": "b"}))
LABELS = {"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/x": "true"}


def eligibility(count: int) -> Eligibility:
    """The eligibility on nodes that each have a taint of their own, and lack the added label."""
    taints = [{"key": "dedicated", "value": f"n{i:04}", "effect": "NoSchedule"} for i in range(count)]
    return NodeIndex(samples.node(f"n{i:04}", LABELS, taints=[taint]) for i, taint in enumerate(taints)).review(ASKED)


def test_few_classes_are_all_named_and_of_many_the_largest() -> None:
    found = eligibility(9)
    reason = no_node(found)
    assert (reason.code, len(found.failures)) == (common.NO_ELIGIBLE_NODE, 10)
    assert reason.text.startswith(availability(found))
    assert all(str(failure) in reason.text for failure in found.failures)
    found = eligibility(2000)
    text = no_node(found).text
    assert text.startswith(f"{availability(found)}: {found.failures[0]}, ")
    assert found.failures[0].count == found.total == 2000
    named = [failure for failure in found.failures if str(failure) in text]
    assert len(named) == 10
    assert str(len(found.failures) - 10) in text.rpartition(str(named[-1]))[2]


@pytest.mark.golden
def test_messages() -> None:
    nodes = [samples.node(name, LABELS | zone, cordoned=True) for name, zone in (("n1", {}), ("n2", {"zone": "b"}))]
    cordoned = NodeIndex(nodes)
    found = (eligibility(2), eligibility(20), cordoned.review(ASKED), eligibility(0))
    texts = [no_node(each).text for each in found]
    golden_files.check("no-eligible-node.txt", "\n".join(texts))


@pytest.mark.control("nodes-by-trial")
def test_every_node_is_in_the_audit_record() -> None:
    groups = details(eligibility(2000))["nodes"]
    assert len(groups) == 101
    assert (groups[-1]["fails"], groups[-1]["count"]) == (["other reasons, in 1900 combinations"], 1900)
    assert sorted(name for group in groups for name in group["nodes"]) == [f"n{i:04}" for i in range(2000)]


def with_state(name: str, *, legacy: str = "", declared: str = "") -> Vmi:
    """A VMI whose persistent state is on a claim that the API server has named (k8s.io/apiserver, storage/names)."""
    volume = legacy or f"persistent-state-for-{name}-"[:58] + "x7k2p"
    found: Json = vmi()
    found["metadata"] |= {"name": name}
    found["spec"]["volumes"] = [{"name": declared}] if declared else []
    found["status"]["volumeStatus"] = [{"name": volume, "persistentVolumeClaimInfo": {"claimName": volume}}]
    return msgspec.convert(found, Vmi)


@pytest.mark.parametrize("version", ["1.6.0", "1.6.4", "1.6.5", "1.7.2", "1.7.3", "1.8.1", "1.8.2", "1.9.0"])
def test_kubevirt_finds_the_persistent_state_of_every_name_since_it_does_not_look_for_the_name(version: str) -> None:
    release = config_of(version).release
    lost = [length for length in range(1, 64) if migration_targets.state_problem(with_state("v" * length), release)]
    assert lost == ([] if version in ("1.6.5", "1.7.3", "1.8.2", "1.9.0") else [*range(38, 64)])


def test_whose_persistent_state_is_found() -> None:
    release, long = config_of("1.8.1").release, "v" * 50
    # The claim of a VM that is older than generated names, one of a release that gives the volume a fixed name, and a
    # volume of the owner's with such a name.
    assert not migration_targets.state_problem(with_state(long, legacy=f"persistent-state-for-{long}"), release)
    assert migration_targets.state_problem(with_state(long, legacy="persistent-state-for-this-vm"), release)
    mine = "persistent-state-for-me"
    assert not migration_targets.state_problem(with_state(long, legacy=mine, declared=mine), release)
    without = msgspec.convert(vmi(), Vmi)
    assert not migration_targets.state_problem(without, release)
