"""The facts that answers reveal of revisions, instancetypes, preferences and namespaces: a test for each kind.

Every string of an object that is read on behalf of a requester is a canary, but for what the requester is owed. A patch
goes into the requester's own object, and is looked at where it is not owed either.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.builders import VMI_UID, Json, changed, known, launcher_pod, read_node
from tests.policies.eviction import world as evictions
from tests.policies.instancetypes import world as of_instancetypes
from tests.policies.migration import world as migrations
from tests.review.memory import KeptInMemory, MemoryCluster
from webhook import names
from webhook.admission.reasons import common
from webhook.facts import AccessKey, Key, KubeVirtKey, ListKey, NamespaceKey, NodesKey, ObjectKey, VmiKey
from webhook.k8s.types.meta import Namespace, Unstructured
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, REVISIONS, UNSTRUCTURED
from webhook.kubevirt.types.views import ControllerRevision, Instancetype, KubeVirt, VirtualMachineInstance
from webhook.placement.index import NodeIndex
from webhook.placement.machines import EVACUEES, LAUNCHER_PODS, MIGRATIONS, UNFINISHED, Evacuee, LauncherPod, Migration
from webhook.policies.eviction import reasons as eviction
from webhook.policies.eviction.settings import EvictionSettings
from webhook.policies.instancetypes import reasons as instancetypes
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.migration import reasons as migration
from webhook.policies.migration.settings import MigrationSettings
from webhook.policies.registry import BY_PATH, ENDPOINTS
from webhook.policies.scheduling import reasons as scheduling
from webhook.review.reviewer import Evaluation, Reviewer
from webhook.server.events.writer import event_of
from webhook.settings.model import Settings

CANARY = "canary-7d1f"
MUTATE_VM = "/mutate/instancetypes/virtualmachines/enforce"
VALIDATE_VM = "/validate/instancetypes/virtualmachines/enforce"
MUTATE_VMI = "/mutate/instancetypes/virtualmachineinstances/enforce"
SCHEDULE_VM = "/mutate/scheduling/virtualmachines/enforce"
SCHEDULE_POD = "/mutate/scheduling/pods/enforce"
MIGRATE = "/validate/migration/virtualmachineinstancemigrations/enforce"
WARN = "/mutate/migration/virtualmachineinstancemigrations/enforce"
EVICT = "/mutate/eviction/pods/enforce"
# Members of objects whose keys people choose.
_MAPS = ("labels", "annotations", "nodeSelector", "addedNodeSelector")

Facts = dict[Key[Any], object]


def planted(value: Any, owed: Iterable[str] = (), path: str = "", number: Any = None) -> Any:
    """A JSON object with a canary for every string, and one more in each map, but at the paths that are owed."""
    number = number or itertools.count()
    if any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in owed):
        return value
    if isinstance(value, dict):
        made = {key: planted(item, owed, f"{path}.{key}".removeprefix("."), number) for key, item in value.items()}
        return made | {f"{CANARY}/k{next(number)}": CANARY} if path.endswith(_MAPS) else made
    if isinstance(value, list):
        return [planted(item, owed, f"{path}[]", number) for item in value]
    return f"{CANARY}-{next(number)}" if isinstance(value, str) else value


class Shown(msgspec.Struct):
    """The answer without its patch, with the Event; the audit line without its details; the facts that were read."""

    verdict: Evaluation
    requester: str
    patch: str
    audit: str
    details: str
    asked: list[Key[Any]]


def settings(**sections: Any) -> Settings:
    return changed(builders.settings(), **sections)


def show(
    path: str, body: Json, facts: Mapping[Key[Any], object], made: Settings | None = None, mode: str = "enforce"
) -> Shown:
    """Sends a review to a server that does not verify its callers, which is the default."""
    labels = dict.fromkeys((names.policy_label(one.policy) for one in ENDPOINTS), mode)
    there = facts.get(NamespaceKey("demo")) if mode == "as given" else None
    there = there or msgspec.convert({"metadata": {"name": "demo", "labels": labels}}, Namespace)
    place: Facts = {NamespaceKey("demo"): there, NamespaceKey("demo", uncached=True): there}
    cluster = MemoryCluster({**facts, **place}, peeked=set())
    kept = KeptInMemory()
    reviewer = Reviewer(cluster, lambda: made or settings(), kept, kept)
    endpoint, data = BY_PATH[path], msgspec.json.encode(body)

    async def both() -> tuple[Evaluation, bytes]:
        evaluated = await reviewer.evaluate(endpoint, data, 1e9, verified=False)
        return evaluated, await reviewer.review(endpoint, data, 1e9, verified=False)

    verdict, answer = asyncio.run(both())
    assert kept.errors == []
    response = json.loads(answer)["response"]
    patch = base64.b64decode(response.pop("patch", "")).decode()
    record = msgspec.to_builtins(kept.records[0])
    details = json.dumps(record.pop("details", None))
    requester = json.dumps([response, str(event_of(endpoint, verdict))])
    return Shown(verdict, requester, patch, json.dumps(record), details, cluster.reads)


def review(obj: Json, **request: Any) -> Json:
    return builders.review(obj, "alice", **request)


def silent(shown: Shown, *also: str) -> None:
    """No canary in the answer, in the Event, nor in what else is named."""
    for text in (shown.requester, *also):
        assert CANARY not in text


OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
DAEMONSET = {
    "metadata": {"name": "r1", "namespace": "demo", "labels": {"a": "b"}, "annotations": {"a": "b"}}
    | {"ownerReferences": [OWNER]},
    "data": {"spec": {"template": {"spec": {"containers": [{"env": [{"name": "TOKEN", "value": "s"}]}]}}}},
}
# Fields that make a DaemonSet's revision look like KubeVirt's.
INNER = {"kind": "VirtualMachineInstancetype", "apiVersion": "instancetype.kubevirt.io/v1beta1"}
LABELS = {"object-name": "u1", "object-kind": "VirtualMachineInstancetype"}
DISGUISES: dict[str, Json] = {
    "none": {},
    "kind": {"data": {"kind": "VirtualMachineInstancetype"}},
    "version only": {"data": {"apiVersion": "instancetype.kubevirt.io/v1beta1"}},
    "all but the owner": {"data": INNER, "labels": {f"instancetype.kubevirt.io/{key}": LABELS[key] for key in LABELS}},
}
NAMING_ONE: list[tuple[str, Json]] = [
    (VALIDATE_VM, of_instancetypes.vm(instancetype={"name": "x", "revisionName": "r1"})),
    (VALIDATE_VM, of_instancetypes.vm(preference={"name": "x", "revisionName": "r1"})),
    (MUTATE_VM, of_instancetypes.vm(preference={"name": "x", "revisionName": "r1"})),
    (MUTATE_VM, of_instancetypes.vm(instancetype={"name": "x", "revisionName": "r1"})),
    (SCHEDULE_VM, builders.vm(instancetype={"name": "x", "revisionName": "r1"})),
]


def revision_facts(revision: Json | None) -> Facts:
    facts: Facts = known() | of_instancetypes.facts()
    for resource, view in ((UNSTRUCTURED["ControllerRevision"], Unstructured), (REVISIONS, ControllerRevision)):
        with suppress(msgspec.ValidationError):
            facts[ObjectKey(resource, "demo", "r1")] = None if revision is None else msgspec.convert(revision, view)
    return facts


@pytest.mark.control("foreign-revisions", "reveals-foreign-revisions")
@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("missing", ["warn", "deny"])
@pytest.mark.parametrize("mode", ["enforce", "warn"])
@pytest.mark.parametrize(("path", "obj"), NAMING_ONE)
def test_a_foreign_revision(path: str, obj: Json, mode: str, missing: Any, disguise: str) -> None:
    """No user learns anything about it, not even that it exists."""
    worn = DISGUISES[disguise]
    revision = planted(DAEMONSET, ["metadata.ownerReferences"])
    revision["data"] |= worn.get("data", {})
    revision["metadata"]["labels"] |= worn.get("labels", {})
    for expand, allowed in itertools.product([False, True], [None, ("u1.small",)]):
        section = InstancetypeSettings(missing=missing, expand=expand, allowed=allowed)
        made = settings(instancetypes=section)
        shown = show(path, review(obj), revision_facts(revision), made, mode)
        absent = show(path, review(obj), revision_facts(None), made, mode)
        silent(shown, shown.audit, shown.patch)
        assert (shown.requester, shown.patch, shown.asked) == (absent.requester, absent.patch, absent.asked)


@pytest.mark.control("foreign-revisions", "reveals-captured-revisions")
@pytest.mark.parametrize(
    "data",
    [
        {"spec": {"cpu": {"guest": CANARY}}},
        {"spec": {"memory": {"guest": CANARY}}},
        {"spec": {"annotations": {CANARY: {CANARY: CANARY}}}},
        {"spec": {"nodeSelector": {CANARY: 1}}},
        {"spec": {"cpu": [CANARY]}},
        {"kind": {CANARY: CANARY}},
        {"metadata": {"labels": {CANARY: 1}}},
        {"apiVersion": f"instancetype.kubevirt.io/{CANARY}"},
        {"apiVersion": "instancetype.kubevirt.io/v1alpha2", "spec": {CANARY: CANARY}},
    ],
)
@pytest.mark.parametrize("path", [VALIDATE_VM, MUTATE_VM])
def test_a_captured_revision_that_can_not_be_decoded(path: str, data: Json) -> None:
    """To who names it: which field has the wrong type, never a value or a key."""
    revision = of_instancetypes.revision("r1", of_instancetypes.instancetype())
    revision["data"] = revision["data"] | data
    obj = of_instancetypes.vm(instancetype={"name": "u1.small", "revisionName": "r1"}, preference={"name": "fedora"})
    facts = revision_facts(revision) | of_instancetypes.facts([of_instancetypes.preference()])
    shown = show(path, review(obj), facts, settings(instancetypes=InstancetypeSettings(missing="deny")))
    silent(shown, shown.audit, shown.patch)


def _full(kind: str, name: str, **spec: Any) -> Json:
    meta: Json = {"name": name, "uid": "u", "labels": {"a": "b"}, "annotations": {"a": "b"}}
    meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}]
    return {"apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": kind, "metadata": meta, "spec": spec}


FULL_INSTANCETYPE = _full(
    *("VirtualMachineClusterInstancetype", "u1.small"),
    cpu={"guest": 2, "model": "m"},
    memory={"guest": "4Gi"},
    schedulerName="s",
    ioThreadsPolicy="p",
    nodeSelector={"a": "b"},
    annotations={"a": "b"},
    gpus=[{"name": "g", "deviceName": "d"}],
)
FULL_PREFERENCE = _full(
    *("VirtualMachineClusterPreference", "fedora"),
    annotations={"a": "b"},
    preferredSubdomain="s",
    machine={"preferredMachineType": "m"},
    devices={"preferredDiskBus": "b"},
    volumes={"preferredStorageClassName": "c"},
    requirements={"cpu": {"guest": 8}, "memory": {"guest": "1Gi"}},
)
APPLIED = "applied-3b9a"
_OWED = ("apiVersion", "kind", "metadata.name", "spec.memory", "spec.requirements")
BOTH = {"instancetype": {"name": "u1.small"}, "preference": {"name": "fedora"}}
SET_TOO: Json = {"schedulerName": "mine", "nodeSelector": {"mine": "x"}, "ioThreadsPolicy": "auto"}


def sized_facts() -> Facts:
    """No output shows the metadata; only the patch shows the spec."""
    objects = [planted(one, (*_OWED, "spec")) for one in (FULL_INSTANCETYPE, FULL_PREFERENCE)]
    for one in objects:
        one["spec"] = json.loads(json.dumps(planted({"spec": one["spec"]}, _OWED)["spec"]).replace(CANARY, APPLIED))
    read = msgspec.convert(objects[0], Instancetype)
    return of_instancetypes.facts(objects) | {ObjectKey(CLUSTER_INSTANCETYPES, "", "u1.small"): read}


@pytest.mark.control("reveals-instancetypes")
@pytest.mark.parametrize(
    ("path", "obj", "code"),
    [
        (VALIDATE_VM, of_instancetypes.vm(**BOTH), instancetypes.DENIED),
        (
            VALIDATE_VM,
            of_instancetypes.vm({"cpu": {"cores": 1}, "memory": {"guest": "1Gi"}}, template=SET_TOO, **BOTH),
            instancetypes.DENIED,
        ),
        (MUTATE_VM, of_instancetypes.vm(**BOTH), instancetypes.OWNER_CHOSE_INSTANCETYPE),
        (MUTATE_VM, of_instancetypes.vm(instancetype=BOTH["instancetype"]), instancetypes.EXPANDED),
        (MUTATE_VM, of_instancetypes.vm(), instancetypes.DEFAULTS_INJECTED),
        (
            MUTATE_VMI,
            of_instancetypes.vmi(annotations={names.INSTANCETYPE_ANNOTATION: "u1.small"}),
            instancetypes.APPLIED,
        ),
        (
            MUTATE_VMI,
            of_instancetypes.vmi(
                {"memory": {"guest": "1Gi"}}, annotations={names.INSTANCETYPE_ANNOTATION: "u1.small"}, **SET_TOO
            ),
            instancetypes.DENIED,
        ),
        (SCHEDULE_VM, builders.vm(instancetype={"name": "u1.small"}), scheduling.INSTANCETYPE_SETS_SCHEDULER),
    ],
)
def test_an_instancetype_and_a_preference(path: str, obj: Json, code: str) -> None:
    """A user who names them learns which fields they set, and the amounts that KubeVirt's denials compare. All fields
    that they apply appear only in the requester's own object, as KubeVirt would write it; their metadata never appears.
    """
    section = InstancetypeSettings(default_instancetype="u1.small", virtual_machine_instances=True, expand=True)
    if code == instancetypes.DEFAULTS_INJECTED:
        section = changed(section, expand=False)
    shown = show(path, review(obj), sized_facts(), settings(instancetypes=section))
    assert shown.verdict.decision.code == code
    silent(shown, shown.audit, shown.patch)
    assert APPLIED not in shown.requester
    assert (APPLIED in shown.patch) is (code in (instancetypes.EXPANDED, instancetypes.APPLIED))


@pytest.mark.control("reveals-namespaces")
@pytest.mark.parametrize("mode", ["enforce", "warn", "off", CANARY])
def test_the_namespace(mode: str) -> None:
    """To who sends an object to it: the mode, the defaults and the allow-list; no other label or annotation."""
    ours = {names.policy_label("instancetypes"): mode}
    parameters = {names.ALLOWED_INSTANCETYPES_ANNOTATION: "u1.*"}
    meta = planted({"name": "demo", "labels": {"a": "b"}, "annotations": {"a": "b"}}, ["name"])
    meta["labels"] |= ours
    meta["annotations"] |= parameters
    there = msgspec.convert({"metadata": meta}, Namespace)
    facts = of_instancetypes.facts([of_instancetypes.instancetype("big")]) | {NamespaceKey("demo"): there}
    shown = show(VALIDATE_VM, review(of_instancetypes.vm(instancetype={"name": "big"})), facts, mode="as given")
    assert (shown.verdict.decision.code == instancetypes.NOT_ALLOWED) is (mode in ("enforce", "warn"))
    silent(shown)


@pytest.mark.control(
    "volumes-of-other-namespaces",
    "account-reads-too-much",
    "reveals-volumes",
)
def test_volumes_and_their_sources_are_never_read() -> None:
    """PersistentVolumeClaims, DataVolumes, DataSources and VolumeSnapshots, of whatever namespace a VM names."""
    source = {"kind": "DataSource", "name": "s", "namespace": "other"}
    templates = [{"metadata": {"name": "d"}, "spec": {"sourceRef": source, "storage": {}}}]
    inferred = {"inferFromVolume": "root"}
    for path, section in itertools.product((MUTATE_VM, VALIDATE_VM), (False, True)):
        for matchers in ({"instancetype": inferred}, {"preference": {"name": "fedora"}}, {"preference": inferred}):
            made = settings(instancetypes=InstancetypeSettings(default_instancetype="u1.small", expand=section))
            obj = of_instancetypes.vm(dataVolumeTemplates=templates, **matchers)
            shown = show(path, review(obj), sized_facts(), made)
            read = {key.resource.kind for key in shown.asked if isinstance(key, ObjectKey)}
            assert read <= {"VirtualMachineClusterInstancetype", "VirtualMachineClusterPreference"}
    assert not {kind for kind in UNSTRUCTURED if "Volume" in kind or "DataSource" in kind}


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
        NodesKey(): NodeIndex(read_node(one) for one in nodes),
    }


@pytest.mark.control("nodes-by-trial", "reveals-nodes", "reveals-migrating-vmis", "reveals-launcher-pods")
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


@pytest.mark.control("nodes-by-trial", "reveals-migrating-vmis")
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


@pytest.mark.control("reveals-migrations")
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


@pytest.mark.control("reveals-evicted-pods", "reveals-all-migrations")
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


@pytest.mark.control("reveals-vmis-of-pods")
@pytest.mark.parametrize("uid", [VMI_UID, "another"])
def test_the_vmi_of_a_pod(uid: str) -> None:
    """To virt-controller, which makes the pod: nothing but whether the pod is changed."""
    stored = {"metadata": {"name": "web01", "uid": uid, "labels": {"a": "b"}}, "spec": {"schedulerName": "s"}}
    view = msgspec.convert(planted(stored, ["metadata.name", "metadata.uid"]), VirtualMachineInstance)
    shown = show(SCHEDULE_POD, builders.review(launcher_pod()), known() | {VmiKey("demo", "web01", VMI_UID): view})
    assert shown.verdict.decision.code == (scheduling.REWRITTEN if uid == VMI_UID else common.VMI_REPLACED)
    silent(shown, shown.patch)


@pytest.mark.control("reveals-target-migrations")
@pytest.mark.parametrize("uid", [migrations.POLICY, "another"])
def test_the_migration_of_a_target_pod(uid: str) -> None:
    """To virt-controller: what the migration adds, into the pod. To who guesses a name without the UID: nothing."""
    pod = launcher_pod()
    pod["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = migrations.POLICY
    pod["metadata"]["annotations"]["kubevirt.io/migrationJobName"] = "m1"
    policy = migrations.migration({CANARY: CANARY})
    policy["metadata"]["uid"] = uid
    facts = known() | {ObjectKey(MIGRATIONS, "demo", "m1"): msgspec.convert(policy, Migration)}
    shown = show("/mutate/migration/pods/enforce", builders.review(pod), facts)
    if uid == migrations.POLICY:
        assert CANARY in shown.patch
    else:
        assert shown.verdict.decision.code == migration.MIGRATION_NOT_FOUND
        silent(shown, shown.patch)


@pytest.mark.control("reveals-kubevirt")
def test_kubevirts_configuration() -> None:
    """To who migrates a VM: which labels KubeVirt requires of every VM's node, as every launcher pod shows."""
    developer = {"nodeSelectors": {"zone": "owed"}, "logVerbosity": {"virtAPI": 1}}
    configuration = {"developerConfiguration": developer, "network": {"defaultNetworkInterface": "bridge"}}
    whole = {
        "metadata": {"name": "kubevirt", "namespace": "kubevirt", "labels": {"a": "b"}, "annotations": {"a": "b"}},
        "spec": {"imageRegistry": "r", "configuration": configuration | {"smbios": {"sku": "s"}}},
        "status": {"phase": "Deployed"},
    }
    view = msgspec.convert(planted(whole, ["spec.configuration.developerConfiguration.nodeSelectors"]), KubeVirt)
    facts = moving() | {KubeVirtKey(): KubeVirtInstall.of([view])}
    shown = show(MIGRATE, migrations.asking(migrations.migration({"disk": "x"})), facts)
    assert shown.verdict.decision.denial
    silent(shown)


@pytest.mark.control("pods-claim-to-be-admins", "reveals-permissions")
@pytest.mark.parametrize("may", [True, False])
def test_the_requesters_permissions(may: bool) -> None:
    """To an unverified caller: nothing. Node names would show that the user whom it claims may list nodes."""
    rights = (key for key in migrations.facts(may=[]) if isinstance(key, AccessKey) and key.verb == "list")
    facts = moving() | dict.fromkeys(rights, may)
    denied = show(MIGRATE, migrations.asking(migrations.migration({"disk": "x"})), facts)
    silent(denied)
    assert not any(isinstance(key, AccessKey) for key in denied.asked)


@pytest.mark.control("reveals-other-namespaces")
def test_no_object_of_another_namespace_is_read() -> None:
    """Every look-up is in the review's namespace, or of a cluster-wide kind; caps count migrations of all of them."""
    asked: list[Key[Any]] = []
    pinned = {"name": "x", "revisionName": "r1"}
    absent: Facts = {**known(), **of_instancetypes.facts(missing=[("ControllerRevision", "r1")])}
    absent[ObjectKey(REVISIONS, "demo", "r1")] = None
    for path in (VALIDATE_VM, MUTATE_VM, SCHEDULE_VM):
        asked += show(path, review(of_instancetypes.vm(instancetype=pinned)), absent).asked
    for path in (MIGRATE, WARN):
        asked += show(path, migrations.asking(migrations.migration({"disk": "x"})), moving()).asked
    caps = settings(eviction=EvictionSettings(max_per_cluster=1))
    asked += show(EVICT, evictions.review(), moving() | {ListKey(MIGRATIONS, ""): ()}, caps).asked
    asked += show(SCHEDULE_POD, builders.review(launcher_pod()), known(builders.vmi())).asked

    namespaces = {getattr(key, "namespace", "demo") for key in asked if key != ListKey(MIGRATIONS, "")}
    assert namespaces <= {"demo", ""}
    assert {key.resource.namespaced for key in asked if isinstance(key, ObjectKey) and not key.namespace} <= {False}
