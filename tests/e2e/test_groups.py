"""The real kube-scheduler keeps the rules of groups: where VMs start, through a drain, and back.

60 VMs of random groups on random clusters. What must hold is looked at by the nodes of the pods alone, whatever this
server has written into them. What an eviction is denied for is compared with what the scheduler does all the same.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.builders import review
from webhook.policies.groups.reasons import BROKEN, MISPLACED, WITHOUT_RULE

from .conftest import NewTenant, NewWebhook, OwnPlane
from .support.foreign_webhook import evict
from .support.kube import Json, KubeError, KubeObject, denial, denied, eventually
from .support.migrations import HOSTNAME, guest, migration, target_of
from .support.objects import ZONE, make_node, obj
from .support.placing import looked_at
from .support.tenant import Tenant
from .support.webhook_server import DOMAIN
from .support.workloads import MIGRATIONS, PODS, VMIS, VMS, launcher_of, vm

GROUPS, GROUP = f"{DOMAIN}/groups", f"{DOMAIN}/group"
RECORD = f"{DOMAIN}/injected-group"
LICENSED = {"license": "oracle"}
NODES = 9
MACHINES = 60
# Each with how many VMs it has at most: more could not all run.
RULES: dict[str, tuple[Json, int]] = {
    "apart": ({"apart": {"required": True}}, NODES - 2),
    "by-zone": ({"apart": {"topologyKey": ZONE, "required": True}}, 3),
    "rather-apart": ({"apart": {}}, NODES - 2),
    "together": ({"together": {"required": True}}, 4),
    "one-zone": ({"together": {"topologyKey": ZONE, "required": True}}, 6),
    "rather-one-zone": ({"together": {"topologyKey": ZONE}}, 6),
    "hosts": ({"nodes": {"labels": LICENSED, "required": True}}, 5),
    "rather-hosts": ({"nodes": {"labels": LICENSED}}, 5),
    "apart-in-a-zone": ({"apart": {"required": True}, "together": {"topologyKey": ZONE, "required": True}}, 2),
    "apart-on-hosts": ({"apart": {"required": True}, "nodes": {"labels": LICENSED, "required": True}}, 3),
}
MIGRATABLE = {"type": "LiveMigratable", "status": "True"}


class RandomGroups:
    """Some groups of each kind, whose VMs start in a random order on nodes of three zones."""

    def __init__(self, tenant: Tenant, seed: int) -> None:
        self.dice = random.Random(seed)
        self.tenant, self.kube = tenant, tenant.owner
        self.nodes: dict[str, Json] = {}
        for number in range(NODES):
            # As many nodes with the label as `hosts` takes, in each zone some.
            labels = {ZONE: "abc"[number % 3], **(LICENSED if number % 3 != 2 else {})}
            amounts = {"cpu": self.dice.choice(["8", "12", "16"]), "memory": self.dice.choice(["24Gi", "32Gi"])}
            found = make_node(self.kube, f"node-{number}", labels, allocatable=amounts)
            self.nodes[f"node-{number}"] = found["metadata"]["labels"]
        self.vmis: dict[str, KubeObject] = {}
        self.pods: dict[str, KubeObject] = {}
        for node in self.nodes:
            # A VM that only this node could take.
            probe = guest(f"probe-{node}", model="host-passthrough")
            probe["metadata"]["labels"] = {GROUP: f"only-{node}"}
            vmi = tenant.controller.create(VMIS, probe, tenant.namespace)
            status = {"status": {"nodeName": next(each for each in self.nodes if each != node)}}
            tenant.controller.patch(VMIS, vmi["metadata"]["name"], status, tenant.namespace)

    def start_all(self) -> None:
        groups = [f"{kind}-{number}" for kind in RULES for number in range(2)]
        sizes = {group: self.dice.randint(2, RULES[kind_of(group)][1]) for group in groups}
        names = [group for group in groups for _ in range(sizes[group])]
        names = (names + [""] * MACHINES)[:MACHINES]
        self.dice.shuffle(names)
        for number, group in enumerate(names):
            self.start(f"vm-{number:02}", group)

    def start(self, name: str, group: str) -> bool:
        """Starts a VM; whether the scheduler finds a node."""
        manifest = guest(name, model="host-passthrough", evictionStrategy="LiveMigrate")
        manifest["metadata"]["labels"] = {GROUP: group} if group else {}
        vmi = self.tenant.controller.create(VMIS, manifest, self.tenant.namespace)
        pod = self.tenant.pod(sized(launcher_of(vmi)))
        node = self._node_of(pod)
        if not node:
            self._delete(pod)
            return False
        status = {"status": {"phase": "Running", "nodeName": node, "conditions": [MIGRATABLE]}}
        self.vmis[name] = self.tenant.controller.patch(VMIS, name, status, self.tenant.namespace)
        self.pods[name] = pod
        return True

    def place_of(self, name: str) -> str:
        node: str = self.vmis[name]["status"]["nodeName"]
        return node

    def on(self, node: str) -> list[str]:
        return sorted(name for name in self.vmis if self.place_of(name) == node)

    def members(self) -> dict[str, list[str]]:
        found = defaultdict(list)
        for name, vmi in self.vmis.items():
            if group := vmi["metadata"].get("labels", {}).get(GROUP):
                found[group].append(name)
        return found

    def broken(self) -> Iterator[str]:
        """What of the required rules does not hold, by the nodes of the VMs alone."""
        for group, names in self.members().items():
            rules, _ = RULES[kind_of(group)]
            labels = [self.nodes[self.place_of(name)] for name in names]
            for kind in ("apart", "together"):
                if not rules.get(kind, {}).get("required"):
                    continue
                places = [each[rules[kind].get("topologyKey", HOSTNAME)] for each in labels]
                if len(set(places)) != (len(places) if kind == "apart" else 1):
                    yield f"{group}: {kind}, and they are in {places}"
            if rules.get("nodes", {}).get("required") and not all(LICENSED.items() <= each.items() for each in labels):
                yield f"{group}: on {labels}"

    def drain(self, node: str) -> dict[str, bool]:
        """Cordons a node and moves its VMs as evictions do; by their names, whether each moved."""
        self._cordon(node, unschedulable=True)
        return {name: self.move(name) for name in self.on(node)}

    def move(self, name: str) -> bool:
        """Whether an eviction is allowed, and then the scheduler finds a node; an allowed one must."""
        pod, space = self.pods[name], self.tenant.namespace
        error = denial(lambda: evict(self.kube, pod["metadata"]["name"], space, dryRun="All"))
        policy = {"metadata": {"uid": f"job-{name}", "name": f"job-{name}"}, "spec": {}}
        host = {"metadata": {"labels": self.nodes[self.place_of(name)]}}
        target = self.tenant.pod(sized(target_of(self.vmis[name], policy, pod, host)))
        node = self._node_of(target)
        about = (name, self.vmis[name]["metadata"].get("labels"), error and error.message)
        if error is None:
            assert node, about
            self._delete(pod)
            self.pods[name] = target
            self.vmis[name] = self.tenant.controller.patch(VMIS, name, {"status": {"nodeName": node}}, space)
            return True
        assert (error.status, BROKEN in error.message) == (429, True), about
        # Without the denial, the target pod would have waited for nothing.
        assert not node, about
        self._delete(target)
        return False

    def uncordon(self, node: str) -> None:
        self._cordon(node, unschedulable=None)

    def _cordon(self, node: str, *, unschedulable: bool | None) -> None:
        """Returns once the scheduler and the server know of it."""
        self.kube.patch("v1/nodes", node, {"spec": {"unschedulable": unschedulable}})
        eventually(lambda: self._is_eligible(node) != bool(unschedulable), what=f"the server to know of {node}")
        required = {**launcher_of(self.vmis[min(self.vmis)])["spec"], "nodeSelector": {HOSTNAME: node}}
        eventually(lambda: self._is_scheduled(required) != bool(unschedulable), what=f"the scheduler to know of {node}")

    def _is_eligible(self, node: str) -> bool:
        """Whether the server lets a VM migrate that only this node could take."""
        asked = review({**migration(f"probe-{node}"), "kind": "VirtualMachineInstanceMigration"}, "alice")
        asked["request"]["namespace"] = self.tenant.namespace
        path = "/validate/groups/virtualmachineinstancemigrations/enforce"
        return bool(self.tenant.server.ask(path, asked)["response"]["allowed"])

    def _is_scheduled(self, spec: Json) -> bool:
        pod = self.kube.create(PODS, {**obj("Pod", generateName="probe-"), "spec": spec}, self.tenant.namespace)
        node = self._node_of(pod)
        self._delete(pod)
        return bool(node)

    def _node_of(self, pod: KubeObject) -> str:
        found = looked_at(self.kube, pod["metadata"]["name"], self.tenant.namespace)
        return str(found["spec"].get("nodeName", ""))

    def _delete(self, pod: KubeObject) -> None:
        self.kube.delete(PODS, pod["metadata"]["name"], self.tenant.namespace, gracePeriodSeconds="0")


def kind_of(group: str) -> str:
    return group.rpartition("-")[0]


def sized(pod: Json) -> Json:
    """A launcher pod of a small VM, so that no node is full of them."""
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m", "memory": "512Mi"}}
    return pod


@pytest.mark.parametrize("seed", [3, 8])
def test_sixty_vms_keep_the_rules_through_a_drain_and_back(
    own_plane: OwnPlane, new_webhook: NewWebhook, seed: int
) -> None:
    plane = own_plane()
    rules = {f"{kind}-{number}": rule for kind, (rule, _) in RULES.items() for number in range(2)}
    for number in range(NODES):
        rules[f"only-node-{number}"] = {"nodes": {"labels": {HOSTNAME: f"node-{number}"}, "required": True}}
    server = new_webhook({"schedulers": {}, "groups": {"rules": rules}}, access=plane)
    cluster = RandomGroups(Tenant.new(server, policies=[GROUPS]), seed)
    plane.start_scheduler("default")
    cluster.start_all()

    assert len(cluster.vmis) == MACHINES, "each has a node"
    assert list(cluster.broken()) == []
    members = cluster.members()
    places = {name: cluster.place_of(name) for name in cluster.vmis}
    for group, names in members.items():
        # There is room: what is only preferred holds, too.
        if kind_of(group) == "rather-apart":
            assert len({places[name] for name in names}) == len(names), group
        if kind_of(group) == "rather-hosts":
            assert all(LICENSED.items() <= cluster.nodes[places[name]].items() for name in names), group

    first, second = cluster.dice.sample(sorted(cluster.nodes), 2)
    moved = cluster.drain(first)
    after_first = list(cluster.broken())
    cluster.uncordon(first)
    moved |= cluster.drain(second)
    after_second = list(cluster.broken())

    assert (after_first, after_second) == ([], [])
    assert any(moved.values())


SETTINGS = {"schedulers": {}, "groups": {"rules": {"db": {"apart": {"required": True}}}}}
REQUIRED, PREFERRED = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))
OWN: Json = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE}


@pytest.fixture
def tenant(new_webhook: NewWebhook, new_tenant: NewTenant) -> Tenant:
    return new_tenant(server=new_webhook(SETTINGS), policies=[GROUPS])


def in_group(name: str, group: str = "db", *, on_vm: bool = False) -> Json:
    made = vm(name)
    (made["metadata"].setdefault("labels", {}) if on_vm else made["spec"]["template"]["metadata"]["labels"])[GROUP] = (
        group
    )
    return made


def test_owners_hear_what_a_label_comes_to(tenant: Tenant) -> None:
    assert tenant.create(in_group("one")).warnings == ()
    (mistyped,) = tenant.create(in_group("two", "dbs")).warnings
    assert f"[{WITHOUT_RULE}]" in mistyped
    assert '"db"' in mistyped
    (misplaced,) = tenant.create(in_group("three", on_vm=True)).warnings
    assert f"[{MISPLACED}]" in misplaced
    # The usual mistake, made later.
    tenant.create(vm("four"))
    label = {"metadata": {"labels": {GROUP: "db"}}}
    (later,) = tenant.owner.patch(VMS, "four", label, tenant.namespace).warnings
    assert f"[{MISPLACED}]" in later
    # What changes nothing about it is not said again.
    assert tenant.owner.patch(VMS, "two", {"metadata": {"labels": {"a": "b"}}}, tenant.namespace).warnings == ()

    tenant.annotate(group_rules='{"dbs": {"together": {}}}')
    eventually(lambda: not tenant.create(in_group("probe", "dbs"), dryRun="All").warnings, what="the namespace's group")
    mistake = denied(lambda: tenant.annotate(group_rules='{"dbs": {}}'))
    assert "group-rules: dbs: a group has no rule" in str(mistake)


def test_what_the_owner_wrote_stands_beside_the_rules(tenant: Tenant) -> None:
    made = in_group("web")
    expression = {"key": "disk", "operator": "Exists"}
    own = {
        "podAntiAffinity": {REQUIRED: [OWN]},
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
    }
    vmi = tenant.start(made)
    pod = launcher_of(vmi)
    pod["spec"]["affinity"] = own
    changed = tenant.pod(pod)
    required = changed["spec"]["affinity"]["podAntiAffinity"][REQUIRED]
    assert required[0] == OWN
    assert (len(required), required[1]["labelSelector"]["matchLabels"][GROUP]) == (2, "db")
    assert changed["spec"]["affinity"]["nodeAffinity"] == own["nodeAffinity"]
    assert vmi["spec"].get("affinity") is None, "virt-controller would take it out again"
    record = json.loads(vmi["metadata"]["annotations"][RECORD])
    assert record == {"group": "db", "apart": {"topologyKey": HOSTNAME, "required": True}}

    # As of a VMI that is older than the rule.
    without = {"metadata": {"annotations": {RECORD: None}}}
    vmi = tenant.controller.patch(VMIS, "web", without, tenant.namespace)
    assert [*tenant.launch(vmi)["spec"]["affinity"]["podAntiAffinity"]] == [PREFERRED]


def test_modes_that_only_observe(tenant: Tenant) -> None:
    vmi = tenant.start(in_group("web"))
    tenant.label("warn", GROUPS)
    (warning,) = eventually(lambda: tenant.launch(vmi, dryRun="All").warnings, what="the mode")
    assert "would set" in warning
    assert not tenant.launch(vmi)["spec"].get("affinity")
    tenant.label("audit", GROUPS)
    eventually(lambda: not tenant.launch(vmi).warnings, what="the mode")


def test_a_migration_that_its_group_leaves_no_node_is_denied(own_plane: OwnPlane, new_webhook: NewWebhook) -> None:
    plane = own_plane()
    tenant = Tenant.new(new_webhook(SETTINGS, access=plane), policies=[GROUPS])
    for number in range(3):
        make_node(plane.admin, f"node-{number}")
    for number in range(3):
        vmi = tenant.controller.create(VMIS, grouped(f"db-{number}"), tenant.namespace)
        tenant.pod({**launcher_of(vmi), "spec": {**launcher_of(vmi)["spec"], "nodeName": f"node-{number}"}})
        status = {"status": {"phase": "Running", "nodeName": f"node-{number}", "conditions": [MIGRATABLE]}}
        tenant.controller.patch(VMIS, vmi["metadata"]["name"], status, tenant.namespace)

    def asked() -> KubeError | None:
        return denial(lambda: tenant.owner.create(MIGRATIONS, migration("db-0"), tenant.namespace, dryRun="All"))

    error = eventually(asked, what="the migration to be denied")
    assert (error.status, BROKEN in error.message) == (403, True)
    assert "2 node(s) where another VM of its group runs" in error.message
    # KubeVirt's own, of a drain, is never denied.
    tenant.controller.create(MIGRATIONS, migration("db-0"), tenant.namespace, dryRun="All")
    make_node(plane.admin, "node-3")
    eventually(lambda: asked() is None, what="the migration to have a node")


def grouped(name: str, group: str = "db") -> Json:
    made = guest(name, model="host-passthrough", evictionStrategy="LiveMigrate")
    made["metadata"]["labels"] = {GROUP: group}
    return made
