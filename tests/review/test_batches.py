"""Every fact that a policy may need, needed at once and none of it in memory: each endpoint still decides.

The golden file says in how many batches, each of which is a round trip to the API server, and what is read in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import pytest

from tests import builders
from tests.annotations import MISTAKES
from tests.builders import Json, changed, config_of, installed, known, opted_in, review, vm
from tests.golden_files import Golden
from tests.policies.defaults import world as of_defaults
from tests.policies.eviction import world as eviction
from tests.policies.groups import world as of_groups
from tests.policies.headroom import world as starts
from tests.policies.instancetypes import world as of_instancetypes
from tests.policies.migration import world as migrations
from tests.policies.preemption import world as preempted
from tests.review.memory import KeptInMemory, MemoryCluster
from webhook import names
from webhook.admission.reasons import common
from webhook.facts import (
    AccessKey,
    HeadroomKey,
    Key,
    KubeVirtKey,
    ListKey,
    NamespaceKey,
    NodesKey,
    ObjectKey,
    SchedulerKey,
    VerdictKey,
    VmiKey,
)
from webhook.k8s.types.meta import Namespace
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, NAMED_BY_VMS, REVISIONS
from webhook.kubevirt.types.views import ControllerRevision, Instancetype
from webhook.placement import machines
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node
from webhook.placement.quota import LIMIT_RANGES, QUOTAS, ResourceQuota
from webhook.placement.target_pods import RUNTIME_CLASSES, RuntimeClass
from webhook.policies import registry
from webhook.policies.defaults import reasons as defaults
from webhook.policies.eviction.settings import EvictionSettings
from webhook.policies.groups import reasons as groups
from webhook.policies.groups.settings import GroupSettings
from webhook.policies.headroom import reasons as headroom
from webhook.policies.headroom.settings import HeadroomSettings
from webhook.policies.instancetypes import reasons as instancetypes
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.migration import reasons as migration
from webhook.policies.migration.settings import MigrationSettings
from webhook.policies.naming import reasons as naming
from webhook.policies.preemption import reasons as preemption
from webhook.policies.preemption.settings import PreemptionSettings
from webhook.policies.registry import BY_PATH
from webhook.policies.scheduling import reasons as scheduling
from webhook.policies.sizes.settings import SizeSettings
from webhook.policy import AnyPolicy
from webhook.review.reviewer import Evaluation, Reviewer
from webhook.settings.policy_section import PolicySettings

Facts = Mapping[Key[Any], object]

# Of a review: more than a loaded machine takes.
SECONDS = 60
RESERVATIONS = [f"pr.kubevirt.io/lun-{number}" for number in range(machines.MOST_RESERVATIONS)]


class RemoteCluster(MemoryCluster):
    """Has nothing in memory, and notes which keys are read at the same time."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(dict(facts), peeked=set())
        self.batches: list[list[Key[Any]]] = []
        self._in_flight = 0

    async def read(self, key: Key[Any], deadline: float) -> Any:
        if not self._in_flight:
            self.batches.append([])
        self.batches[-1].append(key)
        self._in_flight += 1
        try:
            await asyncio.sleep(0)
            return await super().read(key, deadline)
        finally:
            self._in_flight -= 1


async def evaluated(
    path: str, body: Json, facts: Facts, section: PolicySettings | None, kind: type[RemoteCluster] = RemoteCluster
) -> tuple[Evaluation, RemoteCluster]:
    """The evaluation of a review where all policies are on, and the cluster that was asked."""
    cluster, kept, settings = kind({**facts, **opted_in(*registry.BY_NAME)}), KeptInMemory(), builders.settings()
    endpoint = BY_PATH[path]
    if section:
        settings = changed(settings, **{endpoint.policy: section})
    reviewer = Reviewer(cluster, lambda: settings, kept, kept, wall=lambda: eviction.NOW)
    deadline = asyncio.get_running_loop().time() + SECONDS
    verdict = await reviewer.evaluate(endpoint, msgspec.json.encode(body), deadline)
    assert kept.errors == []
    return verdict, cluster


def decide(
    path: str, body: Json, facts: Facts, section: PolicySettings | None = None, batches: int = 100
) -> tuple[Evaluation, RemoteCluster]:
    """The same where the deadline passes after so many batches."""

    class Timed(RemoteCluster):
        def __init__(self, facts: Facts) -> None:
            super().__init__(facts)
            clusters.append(self)

    async def run() -> tuple[Evaluation, RemoteCluster]:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def time() -> float:
            return began + (SECONDS if clusters and len(clusters[0].batches) >= batches else 0)

        with mock.patch.object(loop, "time", side_effect=time):
            return await evaluated(path, body, facts, section, Timed)

    clusters: list[RemoteCluster] = []
    return asyncio.run(run())


# -- placements: everything that the target of a migration may depend on ----------------------------------------------


def reserving() -> Json:
    """A VMI that has migrated before, with a GPU and persistent reservations of LUNs."""
    devices = {
        "gpus": [{"name": "gpu", "deviceName": migrations.FOO}],
        "disks": [{"name": each, "lun": {"reservation": True}} for each in RESERVATIONS],
    }
    return eviction.vmi(None) | {
        "spec": {"domain": {"cpu": {"model": "host-passthrough"}, "devices": devices}, "architecture": "amd64"}
    }


def placements(*forged: Json) -> dict[Key[Any], object]:
    """The world of such a VMI, with the migrations of other namespaces that claim to evacuate."""
    own = eviction.pod(
        labels={"kubevirt.io": "virt-launcher", "kubevirt.io/migrationJobUID": "1", **dict.fromkeys(RESERVATIONS, "")},
        annotations={"kubevirt.io/migrationJobName": "before"},
    )
    own["spec"] |= {
        "nodeSelector": {"pool": "vms"},
        "containers": [{"name": "compute", "resources": {"requests": {migrations.FOO: "1"}}}],
    }
    pod = msgspec.convert(own, machines.LauncherPod)
    before = {"metadata": {"name": "before", "uid": "1"}, "spec": {"vmiName": "web01"}}
    place = opted_in(*registry.BY_NAME)[NamespaceKey("demo")]
    assert isinstance(place, Namespace)
    offers = [migrations.offering(name, zone, **{migrations.FOO: "2"}) for name, zone in (("node-a1", "a"), ("b", "b"))]
    for each in offers:
        each["metadata"]["labels"]["pool"] = "vms"
    configuration = {"defaultRuntimeClass": "kata", "evictionStrategy": "LiveMigrate"}
    evacuees: dict[Key[Any], object] = {
        ObjectKey(machines.EVACUEES, each["metadata"]["namespace"], each["spec"]["vmiName"]): machines.Evacuee()
        for each in forged
    }
    quota = {"metadata": {"name": "q"}, "status": {"hard": {"pods": "9"}, "used": {"pods": "1"}}}
    return {
        **eviction.facts(reserving(), own, offers),
        KubeVirtKey(): installed(config_of("1.9", configuration)),
        migrations.PODS: (pod,),
        ObjectKey(machines.MIGRATIONS, "demo", "before"): msgspec.convert(before, machines.Migration),
        ObjectKey(RUNTIME_CLASSES, "", "kata"): RuntimeClass(),
        **{ListKey(machines.LAUNCHER_PODS, "demo", f"{each}="): (pod,) for each in RESERVATIONS},
        ListKey(QUOTAS, "demo"): (msgspec.convert(quota, ResourceQuota),),
        ListKey(LIMIT_RANGES, "demo"): (),
        ListKey(machines.UNFINISHED, ""): eviction.read(*forged),
        ListKey(machines.UNFINISHED, "demo"): (),
        **evacuees,
    }


def forged(count: int) -> list[Json]:
    """Migrations of a tenant that say that KubeVirt made them of evictions."""
    return [
        eviction.migration("Pending", None, name=f"m{number}", vm=f"vm{number}", namespace="evil")
        for number in range(count)
    ]


CAPPED = EvictionSettings(max_per_cluster=5, max_per_namespace=5)
PINNING = MigrationSettings(require_right=True, max_unfinished=5, failure_policy="Fail")


def rights(**may: bool) -> dict[Key[Any], object]:
    """Who may choose nodes, and list them: `migrations.USER`."""
    keys = {
        "use": AccessKey(migrations.USER, ("devs",), "", (), "use", names.DOMAIN, "migrationtargets", "demo"),
        "list": AccessKey(migrations.USER, ("devs",), "", (), "list", "", "nodes"),
    }
    return {keys[verb]: allowed for verb, allowed in may.items()}


def migrating(selector: Json | None) -> Json:
    asked = review(migrations.migration(selector), migrations.USER)
    asked["request"]["userInfo"]["groups"] = ["devs"]
    return asked


# Another migration, and its target pod.
RECEIVED: dict[Key[Any], object] = {
    ListKey(machines.UNFINISHED, ""): (
        msgspec.convert(
            {"metadata": {"name": "m2", "namespace": "other", "uid": "u2"}, "status": {"phase": "Running"}},
            machines.Migration,
        ),
    ),
    ListKey(machines.LAUNCHER_PODS, "other", f"{machines.JOB_UID}=u2"): (
        msgspec.convert(
            {"metadata": {"labels": {machines.JOB_UID: "u2"}}, "spec": {"nodeName": "node-b1"}}, machines.LauncherPod
        ),
    ),
}


def target_pod() -> Json:
    made = eviction.pod(
        labels={"kubevirt.io": "virt-launcher", "kubevirt.io/migrationJobUID": "2"},
        annotations={"kubevirt.io/migrationJobName": "now"},
    )
    return review(made | {"kind": "Pod", "apiVersion": "v1", "spec": {}, "status": {}})


NOW = {
    "metadata": {"name": "now", "uid": "2"},
    "spec": {"vmiName": "web01", "addedNodeSelector": {migrations.INTEL: "true"}},
}
ITSELF: dict[Key[Any], object] = {
    ObjectKey(machines.MIGRATIONS, "demo", "now"): msgspec.convert(NOW, machines.Migration)
}

# -- instancetypes and schedulers ------------------------------------------------------------------------------------

ZONED: dict[Key[Any], object] = {NodesKey(): builders.zoned(a="x", b="y")}
SPREAD = builders.scheduling(
    spread="both", spread_virtual_machines=True, spread_virtual_machine_instances=True, virtual_machine_instances=True
)
DEFAULTS = InstancetypeSettings(default_instancetype="u1.small", default_preference="fedora")
EXPANDING = changed(DEFAULTS, expand=True)
ALLOWING = InstancetypeSettings(allowed=("*",), failure_policy="Fail")
OBJECTS = [of_instancetypes.instancetype(), of_instancetypes.preference()]
CAPTURED = [of_instancetypes.revision("rev-i", OBJECTS[0]), of_instancetypes.revision("rev-p", OBJECTS[1])]
# Of another name than the VM has now, so that the live objects count.
FORMER = [
    of_instancetypes.revision("rev-i", of_instancetypes.instancetype("u1.old")),
    of_instancetypes.revision("rev-p", of_instancetypes.preference("old")),
]
REFERENCES = {
    "status": {
        "instancetypeRef": {"controllerRevisionRef": {"name": "rev-i"}},
        "preferenceRef": {"controllerRevisionRef": {"name": "rev-p"}},
    }
}
NAMED: Json = {"instancetype": of_instancetypes.SMALL, "preference": of_instancetypes.FEDORA}
PINNED: Json = {
    "instancetype": of_instancetypes.SMALL | {"revisionName": "rev-i"},
    "preference": of_instancetypes.FEDORA | {"revisionName": "rev-p"},
}
MARKS = {
    names.INJECTED_INSTANCETYPE_ANNOTATION: of_instancetypes.SMALL_MARK,
    names.INJECTED_PREFERENCE_ANNOTATION: of_instancetypes.FEDORA_MARK,
}
BROUGHT = ObjectKey(REVISIONS, "demo", "rev-i")
SIZE = ObjectKey(CLUSTER_INSTANCETYPES, "", "u1.small")
SCHEDULED = {
    **known(),
    BROUGHT: msgspec.convert(FORMER[0], ControllerRevision),
    SIZE: msgspec.convert(OBJECTS[0], Instancetype),
}


STATEFUL: Json = {"spec": {"domain": {"devices": {"tpm": {"persistent": True}}}}}
LONG_NAMED: Json = vm() | {"metadata": {"name": "n" * 40, "namespace": "demo"}, "spec": {"template": STATEFUL}}


SIZED: Json = vm() | {"spec": {"template": {"spec": {"domain": {"cpu": {"cores": 2}}}}}}
OF_A_VM: Json = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web01", "uid": "1"}
SIZED_VMI: Json = {
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "web01", "namespace": "demo", "ownerReferences": [OF_A_VM | {"controller": True}]},
    "spec": {"domain": {"cpu": {"cores": 2}}},
}


def annotated(policy: str) -> Json:
    """A namespace with an annotation that the policy cannot read."""
    mistake = MISTAKES[policy]
    metadata = {
        "name": "demo",
        "labels": {names.policy_label(policy): "enforce"},
        "annotations": {mistake.annotation: mistake.wrong},
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def updated(old: Json, new: Json) -> Json:
    return review(new, operation="UPDATE", oldObject=old)


# -- groups ------------------------------------------------------------------------------------------------------------

HERE: dict[Key[Any], object] = {KubeVirtKey(): installed()}
APART = of_groups.section()
TOGETHER = of_groups.section({**of_groups.TOGETHER, "namespaces": ["demo", "shop"]})


def grouped(section: GroupSettings) -> dict[Key[Any], object]:
    """The world of `placements`, with the VM in a group."""
    facts, vmi = placements(), reserving()
    vmi["metadata"] = of_groups.running(section)["metadata"]
    pod = msgspec.to_builtins(facts[ObjectKey(machines.LAUNCHER_PODS, "demo", eviction.POD)])
    pod["metadata"]["labels"] |= of_groups.IN_GROUP
    return {
        **facts,
        migrations.VMI: msgspec.convert(vmi, machines.Vmi),
        ObjectKey(machines.LAUNCHER_PODS, "demo", eviction.POD): msgspec.convert(pod, machines.LauncherPod),
        of_groups.MEMBERS: (),
    }


class Case(NamedTuple):
    path: str
    body: Json
    facts: Facts
    code: str
    section: PolicySettings | None = None


PREEMPTED: dict[Key[Any], object] = {
    eviction.MINE: (),
    preempted.WAITING: preempted.pods(preempted.preemptor()),
    preempted.ALL_UNFINISHED: (),
}
CASES = {
    "an eviction beside forged evacuations": Case(
        "/mutate/eviction/pods/enforce", eviction.review(), placements(*forged(5)), common.ELIGIBLE, CAPPED
    ),
    "a preempted pod": Case(
        "/validate/preemption/pods/enforce",
        preempted.review(),
        placements() | PREEMPTED,
        preemption.MIGRATION_REQUESTED,
        changed(PreemptionSettings(), request_migrations=True),
    ),
    "a VM starts": Case(
        "/validate/headroom/pods/enforce",
        starts.review(),
        known() | starts.facts(),
        headroom.KEPT,
        changed(HeadroomSettings(), enabled=True),
    ),
    "a migration with a selector": Case(
        "/validate/migration/virtualmachineinstancemigrations/enforce",
        migrating({"zone": "b"}),
        placements() | rights(use=True),
        common.ELIGIBLE,
        PINNING,
    ),
    "a migration to nowhere": Case(
        "/validate/migration/virtualmachineinstancemigrations/enforce",
        migrating({"zone": "none"}),
        placements() | rights(use=True, list=True),
        common.NO_ELIGIBLE_NODE,
        PINNING,
    ),
    "a migration without a selector": Case(
        "/mutate/migration/virtualmachineinstancemigrations/enforce", migrating(None), placements(), common.ELIGIBLE
    ),
    "a target pod with a limit of what a node receives": Case(
        "/mutate/migration/pods/enforce",
        target_pod(),
        placements() | ITSELF | RECEIVED,
        migration.CONSTRAINED,
        changed(MigrationSettings(), max_inbound_per_node=1),
    ),
    "a target pod": Case("/mutate/migration/pods/enforce", target_pod(), placements() | ITSELF, migration.CONSTRAINED),
    "a launcher pod": Case(
        "/mutate/scheduling/pods/enforce",
        review(builders.launcher_pod()),
        known(builders.vmi()) | ZONED,
        scheduling.INJECTED,
        SPREAD,
    ),
    "a VMI": Case(
        "/mutate/scheduling/virtualmachineinstances/enforce",
        review(of_instancetypes.vmi()),
        known() | ZONED,
        scheduling.INJECTED,
        SPREAD,
    ),
    "a VM of an instancetype": Case(
        "/mutate/scheduling/virtualmachines/enforce",
        review(vm(instancetype=of_instancetypes.SMALL)),
        SCHEDULED | ZONED,
        scheduling.INJECTED,
        SPREAD,
    ),
    "a VM that was overwritten": Case(
        "/mutate/scheduling/virtualmachines/enforce",
        updated(
            vm("kubevirt", of_instancetypes.SMALL, "kubevirt") | REFERENCES, vm(instancetype=of_instancetypes.SMALL)
        ),
        SCHEDULED | ZONED,
        scheduling.PRESERVED,
        SPREAD,
    ),
    "a new VM gets defaults": Case(
        "/mutate/instancetypes/virtualmachines/enforce",
        review(of_instancetypes.vm()),
        of_instancetypes.facts(OBJECTS, presets=[of_instancetypes.preset()]),
        instancetypes.DEFAULTS_INJECTED,
        DEFAULTS,
    ),
    "a new VM is expanded": Case(
        "/mutate/instancetypes/virtualmachines/enforce",
        review(of_instancetypes.vm(**PINNED)),
        of_instancetypes.facts(CAPTURED),
        instancetypes.EXPANDED,
        EXPANDING,
    ),
    "defaults of a VM that was overwritten": Case(
        "/mutate/instancetypes/virtualmachines/enforce",
        updated(
            of_instancetypes.vm(annotations=MARKS, **NAMED) | REFERENCES,
            of_instancetypes.vm(template={"hostname": "x"}),
        ),
        of_instancetypes.facts([*OBJECTS, *FORMER]),
        instancetypes.DEFAULTS_PRESERVED,
        DEFAULTS,
    ),
    "a VM's own matchers": Case(
        "/validate/instancetypes/virtualmachines/enforce",
        review(of_instancetypes.vm(**PINNED)),
        of_instancetypes.facts(CAPTURED),
        instancetypes.VALID,
        ALLOWING,
    ),
    "new names beside captured ones": Case(
        "/validate/instancetypes/virtualmachines/enforce",
        updated(
            of_instancetypes.vm(instancetype={"name": "u1.old"}, preference={"name": "old"}) | REFERENCES,
            of_instancetypes.vm(**NAMED) | REFERENCES,
        ),
        of_instancetypes.facts([*OBJECTS, *FORMER]),
        instancetypes.VALID,
        ALLOWING,
    ),
    "a VMI is filled": Case(
        "/mutate/instancetypes/virtualmachineinstances/enforce",
        review(of_instancetypes.vmi()),
        of_instancetypes.facts(OBJECTS, presets=[of_instancetypes.preset()]),
        instancetypes.APPLIED,
        DEFAULTS,
    ),
    "a VM with a name that its state makes too long": Case(
        "/validate/naming/virtualmachines/enforce",
        review(LONG_NAMED),
        {KubeVirtKey(): installed(config_of("1.8.1"))},
        naming.UNMIGRATABLE,
    ),
    "a VM that KubeVirt gives another size": Case(
        "/validate/sizes/virtualmachines/enforce",
        updated(vm(), SIZED),
        {KubeVirtKey(): installed()},
        common.BY_KUBEVIRT,
        changed(SizeSettings(), require_instancetype=True, failure_policy="Fail"),
    ),
    "a VMI with a size that KubeVirt creates for a VM": Case(
        "/validate/sizes/virtualmachineinstances/enforce",
        review(SIZED_VMI),
        {KubeVirtKey(): installed()},
        common.BY_KUBEVIRT,
        changed(SizeSettings(), require_instancetype=True, failure_policy="Fail"),
    ),
    **{
        f"a namespace with an annotation for {policy}": Case(
            f"/validate/{policy}/namespaces/enforce",
            review(annotated(policy), namespace="demo"),
            {KubeVirtKey(): installed()},
            common.ANNOTATION_INVALID,
        )
        for policy in MISTAKES
    },
    "a VMI that gets defaults": Case(
        "/mutate/defaults/virtualmachineinstances/enforce",
        review(of_defaults.vmi()),
        of_defaults.FACTS,
        defaults.RECORDED,
        of_defaults.section(),
    ),
    "a launcher pod that gets defaults": Case(
        "/mutate/defaults/pods/enforce",
        review(of_defaults.pod()),
        of_defaults.FACTS,
        defaults.INJECTED,
        of_defaults.section(),
    ),
    "a target pod of a group that stays together": Case(
        "/mutate/groups/pods/enforce",
        review(of_groups.pod(of_groups.recorded(TOGETHER), of_groups.MIGRATED)),
        {**grouped(TOGETHER), ListKey(machines.LAUNCHER_PODS, "shop", of_groups.MEMBERS.label): ()},
        groups.INJECTED,
        TOGETHER,
    ),
    "a VM in a group": Case(
        "/mutate/groups/virtualmachines/enforce", review(of_groups.vm(of_groups.IN_GROUP)), HERE, groups.JOINED, APART
    ),
    "a VMI in a group": Case(
        "/mutate/groups/virtualmachineinstances/enforce", review(of_groups.vmi()), HERE, groups.RECORDED, APART
    ),
    "the eviction of a VM in a group": Case(
        "/mutate/groups/evictions/enforce", eviction.review(None), grouped(APART), common.ELIGIBLE, APART
    ),
    "a migration of a VM in a group": Case(
        "/validate/groups/virtualmachineinstancemigrations/enforce",
        review(migrations.migration(), migrations.USER),
        grouped(APART),
        common.ELIGIBLE,
        APART,
    ),
}


def described(key: Key[Any]) -> str:
    match key:
        case ObjectKey():
            return f"{key.resource.kind} {key.name}{' (uncached)' if key.uncached else ''}"
        case ListKey():
            label = f" with {key.label}" if key.label else ""
            return f"{key.resource.plural} of {key.namespace or 'all'}{label}{' (uncached)' if key.uncached else ''}"
        case NamespaceKey():
            return f"Namespace {key.name}{' (uncached)' if key.uncached else ''}"
        case KubeVirtKey():
            return "KubeVirt"
        case NodesKey():
            return "nodes"
        case HeadroomKey():
            return "headroom"
        case VerdictKey():
            return "verdict on the start"
        case SchedulerKey():
            return f"health of {key.name}"
        case VmiKey():
            return f"VMI {key.name}"
    return str(key)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_every_fact_at_once(case: Case, golden: Golden) -> None:
    verdict, cluster = decide(case.path, case.body, case.facts, case.section)
    assert verdict.decision.code == case.code
    assert len(set(cluster.reads)) == len(cluster.reads), "nothing is read twice"
    batches = (", ".join(map(described, batch)) for batch in cluster.batches)
    golden("\n".join([f"{case.path}: {len(cluster.batches)} batches", *(f"  {batch}" for batch in batches)]))


WATCHED = {resource.path() for resource in NAMED_BY_VMS}


def permissions(key: Key[Any]) -> set[tuple[str, ...]]:
    """The permissions that it takes to answer a key beyond those that every server has, in any of its ways."""
    match key:
        case ObjectKey() | ListKey():
            own = "get" if isinstance(key, ObjectKey) else "list"
            verbs = (own, "list", "watch") if key.resource.path() in WATCHED else (own,)
            # What is named cluster-wide may be of the namespace.
            plurals = (key.resource.plural, key.resource.plural.replace("cluster", ""))
            return {(verb, key.resource.group, plural) for verb in verbs for plural in plurals}
        case VmiKey():
            return {("get", names.KUBEVIRT_GROUP, "virtualmachineinstances")}
        case SchedulerKey():
            return {("get", "coordination.k8s.io", "leases"), ("list", "", "pods"), ("watch", "", "pods")}
        case AccessKey():
            return {("create", "authorization.k8s.io", "subjectaccessreviews")}
        case NamespaceKey() | KubeVirtKey() | NodesKey() | HeadroomKey() | VerdictKey():
            return set()
    raise AssertionError(key)


@pytest.mark.parametrize("policy", registry.POLICIES, ids=lambda policy: policy.name)
def test_a_policys_rights_are_what_its_facts_need_and_nothing_more(policy: AnyPolicy) -> None:
    needed: set[tuple[str, ...]] = set()
    cases = [case for case in CASES.values() if BY_PATH[case.path].policy == policy.name]
    assert cases, "a policy without a case would need no rights"
    for case in cases:
        _, cluster = decide(case.path, case.body, case.facts, case.section)
        needed |= {each for key in cluster.reads for each in permissions(key)}
    granted = {each[:3] for right in policy.rights for each in right.permissions}
    assert granted == needed


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
async def test_what_is_in_memory_is_answered_at_once_and_alike(case: Case) -> None:
    class InMemory(RemoteCluster):
        def __init__(self, facts: Facts) -> None:
            super().__init__(facts)
            self.peeked = set(facts)

    remote, _ = await evaluated(case.path, case.body, case.facts, case.section)
    verdict, cluster = await evaluated(case.path, case.body, case.facts, case.section, InMemory)
    assert (verdict.decision, verdict.patch) == (remote.decision, remote.patch)
    # What is written out is read anew, and so is what denies.
    assert verdict.decision.denial or all(getattr(key, "uncached", False) for key in cluster.reads)


def pooled(name: str, zone: str, devices: str) -> Node:
    offer = migrations.offering(name, zone, **{migrations.FOO: devices})
    offer["metadata"]["labels"]["pool"] = "vms"
    return builders.read_node(offer)


NODES = {
    "devices": (pooled("node-a1", "a", "2"), pooled("b", "b", "2")),
    "no devices": (pooled("node-a1", "a", "0"), pooled("b", "b", "0")),
    "another zone": (pooled("node-a1", "a", "2"), pooled("b", "none", "2")),
    "none": (),
}


@pytest.mark.parametrize("then", NODES)
@pytest.mark.parametrize("first", NODES)
@pytest.mark.parametrize("case", [name for name, case in CASES.items() if NodesKey() in case.facts])
async def test_a_decision_rests_on_the_nodes_of_one_moment(case: str, first: str, then: str) -> None:
    """The index is the informer's own, so nodes may change while any batch is read: the last state decides."""

    async def decided(nodes: str, number: int = 0) -> tuple[Evaluation, int]:
        class Changing(RemoteCluster):
            async def read(self, key: Key[Any], deadline: float) -> Any:
                answer = await super().read(key, deadline)
                if len(self.batches) == number:
                    for each in [*index]:
                        index.remove(each.name)
                    for each in NODES[then]:
                        index.put(each)
                return answer

        index = NodeIndex(NODES[nodes])
        path, body, known, _, section = CASES[case]
        evaluation, cluster = await evaluated(path, body, {**known, NodesKey(): index}, section, Changing)
        return evaluation, len(cluster.batches)

    before, count = await decided(first)
    after, _ = await decided(then)
    for number in range(1, count + 1):
        evaluation, asked = await decided(first, number)
        expected = after if asked >= number else before
        assert (evaluation.decision, evaluation.patch) == (expected.decision, expected.patch)


@pytest.mark.parametrize("count", [5, 500])
def test_forged_evacuations_keep_no_eviction_from_being_evaluated(count: int) -> None:
    """They are looked at all at once, and no more than twice the cap and some."""
    verdict, cluster = decide("/mutate/eviction/pods/enforce", eviction.review(), placements(*forged(count)), CAPPED)
    few = decide("/mutate/eviction/pods/enforce", eviction.review(), placements(*forged(5)), CAPPED)[1]
    assert verdict.decision.code == common.ELIGIBLE
    assert len(cluster.batches) == len(few.batches)
    looked_at = [key for key in cluster.reads if isinstance(key, ObjectKey) and key.resource is machines.EVACUEES]
    assert len(looked_at) == min(count, 32 + 2 * 5)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_deadline_in_the_middle_is_the_endpoints_failure(case: Case) -> None:
    """Wherever it passes: the answer of an endpoint that cannot read, with that reason, or the whole decision."""
    endpoint = BY_PATH[case.path]
    # A headroom that nobody has asked yet counts its places first, which takes a batch more.
    decide(case.path, case.body, case.facts, case.section)
    _, all_of_it = decide(case.path, case.body, case.facts, case.section)
    for number in range(1, len(all_of_it.batches)):
        verdict, cluster = decide(case.path, case.body, case.facts, case.section, batches=number)
        assert len(cluster.batches) == number
        assert verdict.decision.code == common.LOOKUP_FAILED
        denial = verdict.decision.denial
        fails_closed = endpoint.on_error == "deny" and case.section and case.section.fails_closed
        assert (denial.code if denial else None) == (503 if fails_closed else None)
        assert denial or verdict.decision.warnings


def test_every_endpoint_has_such_a_case() -> None:
    missing = {path for path in BY_PATH if path.endswith("/enforce")} - {case.path for case in CASES.values()}
    assert sorted(missing) == [], "add a request for each to CASES, with all the facts that it awaits"
