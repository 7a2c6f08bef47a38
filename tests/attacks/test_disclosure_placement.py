"""The facts that answers reveal of nodes, VMIs, pods, migrations and the KubeVirt object: a test for each of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.attacks.canaries import (
    CANARY,
    CONSTRAIN,
    EVICT,
    MIGRATE,
    MUTATE_VM,
    SCHEDULE_POD,
    SCHEDULE_VM,
    VALIDATE_VM,
    WARN,
    Facts,
    planted,
    review,
    settings,
    show,
    silent,
)
from tests.builders import VMI_UID, Json, known, launcher_pod
from tests.policies.eviction import world as evictions
from tests.policies.instancetypes import world as sizes
from tests.policies.migration import world as migrations
from webhook.admission.reasons import common, eviction, migration, scheduling
from webhook.facts import AccessKey, Key, KubeVirtKey, ListKey, NodesKey, ObjectKey, VmiKey
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.resources import REVISIONS
from webhook.kubevirt.types.views import KubeVirt, VirtualMachineInstance
from webhook.placement.index import NodeIndex
from webhook.placement.machines import EVACUEES, LAUNCHER_PODS, MIGRATIONS, UNFINISHED, Evacuee, LauncherPod, Migration
from webhook.placement.nodes import Node
from webhook.settings.model import EvictionSettings, MigrationSettings

# -- nodes, VMIs, pods and migrations ----------------------------------------------------------------------------------


def planted_node(place: str, zone: str, **spec: Any) -> Json:
    made = migrations.node(f"{CANARY}-{place}", zone)
    made["metadata"] |= {"annotations": {"a": CANARY}, "uid": CANARY}
    made["metadata"]["labels"] |= {f"{CANARY}/label": CANARY, "topology.kubernetes.io/rack": CANARY}
    made["spec"] |= {"providerID": CANARY, "podCIDR": CANARY} | spec
    made["status"] = {"addresses": [{"type": "InternalIP", "address": CANARY}], "nodeInfo": {"machineID": CANARY}}
    return made


def moving(found: Json | None = None, **vmi: Any) -> Facts:
    """A VM on one of three nodes; canaries in all that is not a requirement."""
    nodes = [planted_node("a1", "a"), planted_node("a2", "a", unschedulable=True), planted_node("b1", "b")]
    made = found or migrations.vmi({"zone": "a"}, **vmi)
    made["metadata"] |= {"labels": {"a": CANARY}, "annotations": {"a": CANARY}}
    made["spec"] |= {"volumes": [{"name": CANARY, "cloudInitNoCloud": {"userData": CANARY}}], "hostname": CANARY}
    made["spec"]["accessCredentials"] = [{"sshPublicKey": {"source": {"secret": {"secretName": CANARY}}}}]
    made["status"] |= {"nodeName": f"{CANARY}-a1", "interfaces": [{"ipAddress": CANARY}], "guestOSInfo": {"id": CANARY}}
    pod = planted(
        {
            "metadata": {"name": "p", "labels": {"a": "b"}, "annotations": {"a": "b"}},
            "spec": {"nodeSelector": {"a": "b"}, "containers": [{"image": "i", "env": [{"name": "n", "value": "v"}]}]},
            "status": {"phase": "Running", "podIP": "ip", "hostIP": "ip"},
        },
        ["status.phase"],
    )
    pod["metadata"]["ownerReferences"] = migrations.OWNED
    pod["spec"]["nodeName"] = f"{CANARY}-a1"
    placed = msgspec.convert(pod, LauncherPod)
    return {
        **evictions.facts(made, nodes=nodes),
        **migrations.facts(made, nodes=nodes, may=[("list", "nodes")]),
        ListKey(LAUNCHER_PODS, "demo", f"kubevirt.io/created-by={migrations.UID}"): (placed,),
        NodesKey(): NodeIndex(Node.read(one) for one in nodes),
    }


@pytest.mark.parametrize("path", [MIGRATE, WARN])
@pytest.mark.parametrize(
    ("spec", "added", "code"),
    [
        ({}, {"zone": "b"}, migration.SELECTOR_CONFLICT),
        ({}, {"disk": "floppy"}, common.NO_ELIGIBLE_NODE),
        ({}, {"kubernetes.io/hostname": f"{CANARY}-a1"}, migration.SELECTOR_CONFLICT),
        ({}, None, common.NO_ELIGIBLE_NODE),
    ],
)
@pytest.mark.parametrize("mode", ["enforce", "warn"])
def test_nodes_and_the_vmi_of_a_migration(path: str, spec: Json, added: Json | None, code: str, mode: str) -> None:
    """To who migrates the VM: what the VM requires, how many nodes have it, taints. To the audit record: node names."""
    policy = migrations.migration(added, **spec)
    body = migrations.asking(policy)
    shown = show(path, body, moving(), mode=mode)

    # The requester's own words may come back.
    own = json.dumps(added or {})[1:-1]
    shown.requester = shown.requester.replace(own, "").replace(f"kubernetes.io/hostname={CANARY}-a1", "")
    silent(shown)
    if (path == MIGRATE) is bool(added):
        assert shown.verdict.decision.code == code
    if path == MIGRATE and added:
        assert f"{CANARY}-a2" in shown.details, "else this shows nothing"


def test_the_node_that_a_vm_comes_from_in_another_cluster() -> None:
    """To who receives it: that it must go elsewhere."""
    found = migrations.vmi()
    # Which is called as one of this cluster.
    state = {"sourceState": {"node": f"{CANARY}-a1", "pod": CANARY, "nodeSelectors": {}}}
    found["status"] |= {"migrationState": state, "phase": "WaitingForSync"}
    policy = migrations.migration({"disk": "floppy"}, receive={"migrationID": "m"})
    shown = show(MIGRATE, migrations.asking(policy), moving(found))

    assert shown.verdict.decision.code == common.NO_ELIGIBLE_NODE
    silent(shown)


def test_the_migrations_of_a_namespace() -> None:
    """To who migrates in it: how many are unfinished."""
    running = {"metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {"a": "b"}}, "spec": {"vmiName": "v"}}
    running["status"] = {"phase": "Running", "migrationState": {"sourceNode": "n", "targetPod": "p"}}
    others = msgspec.convert(planted(running, ["status.phase"]), Migration)
    facts = moving() | {ListKey(UNFINISHED, "demo"): (others,) * 3}
    made = settings(migration=MigrationSettings(max_unfinished=2))
    shown = show(MIGRATE, migrations.asking(migrations.migration({"zone": "a"})), facts, made)

    assert shown.verdict.decision.code == migration.TOO_MANY_MIGRATIONS
    silent(shown, shown.audit)


@pytest.mark.parametrize("caps", [{"max_per_cluster": 2}, {"max_per_namespace": 2}, {}])
def test_the_pod_the_vmi_and_the_migrations_of_an_eviction(caps: Json) -> None:
    """To the descheduler: the VM's name, and how many evacuations are unfinished, also in the whole cluster."""
    place = "demo" if "max_per_namespace" in caps else CANARY
    vms = [f"{CANARY}-{number}" for number in range(3)]
    each = [evictions.migration("Running", name=vm, vm=vm, namespace=place) for vm in vms]
    for one in each:
        one["metadata"]["annotations"] |= {CANARY: CANARY}
        one["status"]["migrationState"] = {"sourceNode": CANARY, "targetNode": CANARY}
    key = ListKey(UNFINISHED, "" if "max_per_cluster" in caps else "demo")
    evacuated = {"metadata": {"name": CANARY}, "status": {"phase": "Running", "evacuationNodeName": CANARY}}
    found = evictions.vmi() | {}
    found["spec"] |= {"nodeSelector": {"zone": "c"}}
    facts = moving(found)
    pod = evictions.pod(f"{CANARY}-a1", annotations={"a": CANARY})
    facts[ObjectKey(LAUNCHER_PODS, "demo", evictions.POD)] = msgspec.convert(pod, LauncherPod)
    facts |= {key: evictions.read(*each), evictions.MINE: ()}
    facts |= {ObjectKey(EVACUEES, place, vm): msgspec.convert(evacuated, Evacuee) for vm in vms}
    shown = show(EVICT, evictions.review(), facts, settings(eviction=EvictionSettings(**caps)))

    assert shown.verdict.decision.code == (eviction.TOO_MANY_EVACUATIONS if caps else common.NO_ELIGIBLE_NODE)
    silent(shown, shown.audit)


@pytest.mark.parametrize("uid", [VMI_UID, "another"])
def test_the_vmi_of_a_pod(uid: str) -> None:
    """To virt-controller, which makes the pod: nothing but whether the pod is changed."""
    stored = {"metadata": {"name": "web01", "uid": uid, "labels": {"a": "b"}}, "spec": {"schedulerName": "s"}}
    view = msgspec.convert(planted(stored, ["metadata.name", "metadata.uid"]), VirtualMachineInstance)
    shown = show(SCHEDULE_POD, builders.review(launcher_pod()), known() | {VmiKey("demo", "web01", VMI_UID): view})

    assert shown.verdict.decision.code == (scheduling.REWRITTEN if uid == VMI_UID else common.VMI_REPLACED)
    silent(shown, shown.patch)


@pytest.mark.parametrize("uid", [migrations.POLICY, "another"])
def test_the_migration_of_a_target_pod(uid: str) -> None:
    """To virt-controller: what the migration adds, into the pod. To who guesses a name without the UID: nothing."""
    pod = launcher_pod()
    pod["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = migrations.POLICY
    pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"] = "m1"
    policy = migrations.migration({CANARY: CANARY})
    policy["metadata"]["uid"] = uid
    facts = known() | {ObjectKey(MIGRATIONS, "demo", "m1"): msgspec.convert(policy, Migration)}
    shown = show(CONSTRAIN, builders.review(pod), facts)

    if uid == migrations.POLICY:
        assert CANARY in shown.patch
    else:
        assert shown.verdict.decision.code == migration.MIGRATION_NOT_FOUND
        silent(shown, shown.patch)


# -- the KubeVirt object, and the requester's permissions --------------------------------------------------------------


def test_kubevirts_configuration() -> None:
    """To who migrates a VM: which labels KubeVirt requires of every VM's node, as every launcher pod shows."""
    whole = {
        "metadata": {"name": "kubevirt", "namespace": "kubevirt", "labels": {"a": "b"}, "annotations": {"a": "b"}},
        "spec": {
            "imageRegistry": "r",
            "configuration": {
                "developerConfiguration": {"nodeSelectors": {"zone": "owed"}, "logVerbosity": {"virtAPI": 1}},
                "network": {"defaultNetworkInterface": "bridge"},
                "smbios": {"sku": "s"},
            },
        },
        "status": {"phase": "Deployed"},
    }
    view = msgspec.convert(planted(whole, ["spec.configuration.developerConfiguration.nodeSelectors"]), KubeVirt)
    shown = show(
        MIGRATE,
        migrations.asking(migrations.migration({"disk": "x"})),
        moving() | {KubeVirtKey(): KubeVirtInstall.of([view])},
    )

    assert shown.verdict.decision.denial
    silent(shown)


@pytest.mark.parametrize("may", [True, False])
def test_the_requesters_permissions(may: bool) -> None:
    """To an unverified caller: nothing. Node names would show that the user whom it claims may list nodes."""
    facts = moving() | {
        key: may for key in migrations.facts(may=[]) if isinstance(key, AccessKey) and key.verb == "list"
    }
    denied = show(MIGRATE, migrations.asking(migrations.migration({"disk": "x"})), facts)

    silent(denied)
    assert not any(isinstance(key, AccessKey) for key in denied.asked)


def test_no_object_of_another_namespace_is_read() -> None:
    """Every look-up is in the review's namespace, or of a cluster-wide kind; caps count migrations of all of them."""
    asked: list[Key[Any]] = []
    pinned = {"name": "x", "revisionName": "r1"}
    absent: Facts = {**known(), **sizes.facts(missing=[("ControllerRevision", "r1")])}
    absent[ObjectKey(REVISIONS, "demo", "r1")] = None
    for path in (VALIDATE_VM, MUTATE_VM, SCHEDULE_VM):
        asked += show(path, review(sizes.vm(instancetype=pinned)), absent).asked
    for path in (MIGRATE, WARN):
        asked += show(path, migrations.asking(migrations.migration({"disk": "x"})), moving()).asked
    caps = settings(eviction=EvictionSettings(max_per_cluster=1))
    asked += show(EVICT, evictions.review(), moving() | {ListKey(MIGRATIONS, ""): ()}, caps).asked
    asked += show(SCHEDULE_POD, builders.review(launcher_pod()), known(builders.vmi())).asked

    namespaces = {getattr(key, "namespace", "demo") for key in asked if key != ListKey(MIGRATIONS, "")}
    assert namespaces <= {"demo", ""}
    assert {key.resource.namespaced for key in asked if isinstance(key, ObjectKey) and not key.namespace} <= {False}
