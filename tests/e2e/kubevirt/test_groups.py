"""The rules of groups beside a real KubeVirt: whose pods have them, who keeps them, and what becomes of running VMs.

`RULES` has each kind of rule, required and preferred; most promises are the same for all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from tests.e2e.support.foreign_webhook import MARKED, evict
from tests.e2e.support.kube import Json, KubeError, KubeObject, denied, eventually
from tests.e2e.support.messages import parse
from tests.e2e.support.objects import obj
from tests.e2e.support.webhook_server import DOMAIN
from tests.e2e.support.workloads import MIGRATIONS, VMIS, VMS
from webhook.k8s.types.scheduling import PREFERRED, REQUIRED
from webhook.policies.groups.reasons import BROKEN
from webhook.policies.groups.settings import GROUPS_ANNOTATION, INJECTED_ANNOTATION

from .conftest import NewPlace
from .control_plane import ZONES
from .owners import clone, manifest, pool, restore, take_snapshot, write
from .place import HOSTNAME, Place, cordoned, differences, evict_all, move, needs_no_restart, restart, restarts_alike

pytestmark = pytest.mark.kubevirt

GROUP = f"{DOMAIN}/group"
JOINED = {GROUP: "db"}
# For VMs of pools, which say nothing at all.
SIZE = {f"{DOMAIN}/default-instancetype": "u1.small"}
# What kube-scheduler knows a member by.
SELECTOR = {"kubevirt.io": "virt-launcher", **JOINED}
SMALL: Json = {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}
# node-3 and node-4.
IN_B: Json = {"key": "zone", "operator": "In", "values": ["b"]}
LINUX: Json = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
BESIDE: Json = {"labelSelector": {"matchLabels": {"app": "elsewhere"}}, "topologyKey": HOSTNAME}
RATHER: Json = {"weight": 7, "podAffinityTerm": BESIDE}
PREFERS_LINUX: Json = {"weight": 7, "preference": {"matchExpressions": [LINUX]}}
# Of every kind, so that each rule stands beside some of it; no node is kept out.
OWN: Json = {
    "podAntiAffinity": {REQUIRED: [BESIDE], PREFERRED: [RATHER]},
    "podAffinity": {PREFERRED: [RATHER]},
    "nodeAffinity": {
        REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [LINUX]}] * 2},
        PREFERRED: [PREFERS_LINUX],
    },
}
FIELDS = {"apart": "podAntiAffinity", "together": "podAffinity", "nodes": "nodeAffinity"}


class Rule(NamedTuple):
    """One rule of the group ``db``.

    Attributes:
        kind: ``apart``, ``together`` or ``nodes``.
        what: the places, or the labels of the nodes.
    """

    kind: str
    what: Json
    required: bool

    def __str__(self) -> str:
        places = "-".join([self.kind, *(["zones"] if "topologyKey" in self.what else [])])
        return f"{places}-{'required' if self.required else 'preferred'}"

    @property
    def strength(self) -> str:
        """As which of both the rule stands in a pod."""
        return REQUIRED if self.required else PREFERRED

    @property
    def annotations(self) -> dict[str, str]:
        """Of a namespace whose group has this rule alone."""
        return {GROUPS_ANNOTATION: json.dumps({"db": self.rules})}

    @property
    def rules(self) -> Json:
        return {self.kind: {**self.what, "required": self.required}}

    def in_pod(self, pod: KubeObject) -> list[str]:
        """As which of both the rule is found in a pod."""
        stands = pod["spec"].get("affinity", {}).get(FIELDS[self.kind], {})
        required, preferred = stands.get(REQUIRED) or (), stands.get(PREFERRED) or ()
        if self.kind == "nodes":
            terms = required["nodeSelectorTerms"] if required else ()
            key, value = next(iter(self.what["labels"].items()))
            expression = {"key": key, "operator": "In", "values": [value]}
            has_required = bool(terms) and all(expression in term.get("matchExpressions", ()) for term in terms)
            has_preferred = any(expression in term["preference"].get("matchExpressions", ()) for term in preferred)
        else:
            has_required = any(map(self._is_of_group, required))
            has_preferred = any(self._is_of_group(term["podAffinityTerm"]) for term in preferred)
        return [REQUIRED] * has_required + [PREFERRED] * has_preferred

    def _is_of_group(self, term: Json) -> bool:
        key = self.what.get("topologyKey", HOSTNAME)
        return (term["labelSelector"].get("matchLabels"), term["topologyKey"]) == (SELECTOR, key)

    def is_kept(self, nodes: Sequence[str]) -> bool:
        """Whether it holds for VMs that run there."""
        places = {ZONES[node] if self.what else node for node in nodes}
        if self.kind == "nodes":
            return places == {"b"}
        return len(places) == (len(nodes) if self.kind == "apart" else 1)


KINDS: list[tuple[str, Json]] = [
    ("apart", {}),
    ("apart", {"topologyKey": "zone"}),
    ("together", {"topologyKey": "zone"}),
    ("nodes", {"labels": {"zone": "b"}}),
]
RULES = [Rule(kind, what, required) for kind, what in KINDS for required in (True, False)]
each_rule = pytest.mark.parametrize("rule", RULES, ids=str)
each_required = pytest.mark.parametrize("rule", [rule for rule in RULES if rule.required], ids=str)


def member(name: str = "web", *, labels: Json = JOINED, **template: Any) -> Json:
    """A VM of the group, as its owner keeps it in a file."""
    made = manifest(name, template=SMALL | template, run="Always")
    made["spec"]["template"]["metadata"] = {"labels": {"app": name, **labels}}
    return made


def start(place: Place, *names: str, **template: Any) -> list[str]:
    """Starts VMs of the group one after the other; the nodes that they run on."""
    for name in names:
        place.make(member(name, **template))
        place.running(name)
    return [node_of(place, name) for name in names]


def node_of(place: Place, name: str = "web") -> str:
    return str(place.running(name)["status"]["nodeName"])


def is_recorded(vmi: KubeObject) -> bool:
    return INJECTED_ANNOTATION in (vmi["metadata"].get("annotations") or {})


def announce(place: Place, rules: Json) -> None:
    """Changes the rules of the group; returns once the webhook knows them."""
    probe = f"probe-{time.monotonic_ns()}"
    text = json.dumps({"db": rules, probe: {"apart": {}}} if rules else {probe: {"apart": {}}})
    place.admin.patch("v1/namespaces", place.namespace, {"metadata": {"annotations": {GROUPS_ANNOTATION: text}}})
    asked = member("probe", labels={GROUP: probe})
    eventually(lambda: not place.make(asked, dryRun="All").warnings, what="the webhook to know the namespace's groups")


@each_rule
def test_pods_have_the_rule_and_nothing_is_written_into_vm_and_vmi(new_place: NewPlace, rule: Rule) -> None:
    place = new_place(rule.annotations)

    nodes = start(place, "web", "other")

    for name in ("web", "other"):
        vm, vmi, pod = place.get(VMS, name), place.get(VMIS, name), place.launcher(name)
        assert rule.in_pod(pod) == [rule.strength]
        assert vmi["metadata"]["labels"][GROUP] == pod["metadata"]["labels"][GROUP] == "db"
        assert "affinity" not in vm["spec"]["template"]["spec"]
        assert "affinity" not in vmi["spec"]
        assert INJECTED_ANNOTATION not in json.dumps(vm)
        assert is_recorded(vmi) == rule.required
        assert differences(place, name) == []
        assert needs_no_restart(place, name)
    # There is room: what is only preferred holds, too.
    assert rule.is_kept(nodes)


@each_rule
@pytest.mark.parametrize("way", ["server-side apply", "replace"])
def test_the_owners_affinity_stays_and_counts_however_it_is_written(
    new_place: NewPlace, apart: Place, rule: Rule, way: str
) -> None:
    place = new_place(rule.annotations)
    for where in (place, apart):
        write(where, way, member(affinity=OWN))
        where.running()
        # As Argo CD, Flux and owners do again and again.
        write(where, way, member(affinity=OWN), member(affinity=OWN))

    assert place.get(VMIS)["spec"]["affinity"] == apart.get(VMIS)["spec"]["affinity"] == OWN
    for _ in range(2):
        pod = place.launcher()
        assert rule.in_pod(pod) == [rule.strength]
        assert lacks_of_own(pod) == []
        assert restarts_alike(place, apart)
        restart(place)
        restart(apart)


def lacks_of_own(pod: KubeObject) -> list[str]:
    """The kinds of affinity that an owner wrote and a pod does not have."""
    affinity = pod["spec"]["affinity"]
    nodes = affinity["nodeAffinity"]
    terms = nodes[REQUIRED]["nodeSelectorTerms"]
    has = {
        "apart": BESIDE in affinity["podAntiAffinity"][REQUIRED] and RATHER in affinity["podAntiAffinity"][PREFERRED],
        "together": RATHER in affinity["podAffinity"][PREFERRED],
        "nodes": len(terms) == 2 and all(LINUX in term["matchExpressions"] for term in terms),
        "rather nodes": PREFERS_LINUX in nodes[PREFERRED],
    }
    return [kind for kind, is_there in has.items() if not is_there]


@each_rule
def test_virt_controller_takes_over_an_owners_affinity_and_leaves_the_rule(
    new_place: NewPlace, apart: Place, rule: Rule
) -> None:
    place = new_place(rule.annotations)
    # One that is alone in its group may migrate anywhere.
    start(place, "other")
    without, own = member(), member(affinity=OWN)
    for where in (place, apart):
        write(where, "server-side apply", without)
        where.running()
    record = place.get(VMIS)["metadata"]["annotations"].get(INJECTED_ANNOTATION)

    for after, before, affinity in ((own, without, OWN), (without, own, None)):
        for where in (place, apart):
            write(where, "server-side apply", after, before)
            has_it = lambda vmi, affinity=affinity: vmi["spec"].get("affinity") == affinity
            where.admin.wait(VMIS, "web", where.namespace, until=has_it, what="virt-controller to take it over")
        assert needs_no_restart(place)
        assert needs_no_restart(apart)
        assert place.get(VMIS)["metadata"]["annotations"].get(INJECTED_ANNOTATION) == record
        move(place)
        pod = place.launcher()
        assert rule.in_pod(pod) == [rule.strength]
        assert not affinity or lacks_of_own(pod) == []
        assert place.get(VMIS)["spec"].get("affinity") == affinity


@each_rule
def test_the_target_pods_of_migrations_have_the_rule(new_place: NewPlace, rule: Rule) -> None:
    place = new_place(rule.annotations)
    start(place, "web", "other")

    for _ in range(2):
        before = node_of(place)
        move(place)
        assert node_of(place) != before
        assert rule.in_pod(place.launcher()) == [rule.strength]
        assert needs_no_restart(place)
        if rule.required:
            assert rule.is_kept([node_of(place, name) for name in ("web", "other")])


@each_rule
def test_restored_and_cloned_vms_are_in_the_group(new_place: NewPlace, rule: Rule) -> None:
    place = new_place(rule.annotations)
    halted = member()
    halted["spec"]["runStrategy"] = "Halted"
    write(place, "replace", halted)
    take_snapshot(place)
    place.patch(VMS, "web", {"spec": {"template": {"metadata": {"labels": {GROUP: None}}}}})
    restore(place)
    clone(place)
    for name in ("web", "copy"):
        place.patch(VMS, name, {"spec": {"runStrategy": "Always"}})
        place.running(name)
    nodes = [node_of(place, name) for name in ("web", "copy")]
    for name in ("web", "copy"):
        assert rule.in_pod(place.launcher(name)) == [rule.strength]
        assert needs_no_restart(place, name)
    assert not rule.required or rule.is_kept(nodes)


@each_rule
def test_a_pools_vms_are_in_the_group(new_place: NewPlace, rule: Rule) -> None:
    place = new_place(SIZE | rule.annotations)
    pool(place, "Always", JOINED)
    place.running("web-0")

    assert rule.in_pod(place.launcher("web-0")) == [rule.strength]
    assert needs_no_restart(place, "web-0")


@each_rule
def test_vmis_without_a_vm_are_in_the_group(new_place: NewPlace, rule: Rule) -> None:
    place = new_place(rule.annotations)
    template = {"metadata": {"labels": {"app": "web", **JOINED}}, "spec": SMALL}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    place.make(obj("VirtualMachineInstanceReplicaSet", "web", spec=spec))
    place.make(obj("VirtualMachineInstance", "alone", labels=dict(JOINED), spec=SMALL))

    def both() -> list[str]:
        found = [vmi["metadata"]["name"] for vmi in place.admin.list(VMIS, place.namespace)]
        return found if len(found) == 2 else []

    names = eventually(both, what="both VMIs")
    assert [rule.in_pod(place.launcher(name)) for name in names] == [[rule.strength]] * 2
    assert not rule.required or rule.is_kept([node_of(place, name) for name in names])


# With one VM held in zone a and the other in zone b, none of these can be.
UNMET: dict[str, Json] = {
    "apart": {"topologyKey": "kubernetes.io/os"},
    "together": {"topologyKey": "zone"},
    "nodes": {"labels": {"zone": "nowhere"}},
}


@pytest.mark.parametrize("had_one", [False, True], ids=["appears", "becomes-required"])
@pytest.mark.parametrize("kind", UNMET)
def test_a_rule_that_cannot_hold_strands_no_vm_that_runs(new_place: NewPlace, kind: str, *, had_one: bool) -> None:
    preferred, required = (Rule(kind, UNMET[kind], required) for required in (False, True))
    place = new_place(preferred.annotations if had_one else {})
    start(place, "web", nodeSelector={"zone": "a"})
    start(place, "other", nodeSelector={"zone": "b"})
    announce(place, required.rules)
    assert needs_no_restart(place)

    for _ in range(2):
        move(place)
        assert required.in_pod(place.launcher()) == [PREFERRED]
    assert not is_recorded(place.get(VMIS))

    # From its next start on, it waits; and it starts once the rule is withdrawn and the VM is started again.
    assert place.real.call(place.namespace, "web", "restart") == ""
    pod = eventually(place.unschedulable, what="the scheduler to find no node")
    assert required.in_pod(pod) == [REQUIRED]
    announce(place, {})
    assert place.real.call(place.namespace, "web", "restart") == ""
    place.running()
    assert required.in_pod(place.launcher()) == []


@each_rule
def test_a_vm_joins_and_leaves_a_group_at_its_next_start(new_place: NewPlace, apart: Place, rule: Rule) -> None:
    place = new_place(rule.annotations)
    start(place, "other")
    outside, inside = member(labels={}), member()
    for where in (place, apart):
        write(where, "server-side apply", outside)
        where.running()

    for after, before, there in ((inside, outside, [rule.strength]), (outside, inside, [])):
        for where in (place, apart):
            write(where, "server-side apply", after, before)
        assert restarts_alike(place, apart)
        move(place)
        assert rule.in_pod(place.launcher()) == ([] if there else [rule.strength])
        restart(place)
        restart(apart)
        assert rule.in_pod(place.launcher()) == there
        assert restarts_alike(place, apart)


@each_rule
def test_a_namespace_that_opts_out_has_its_vms_go_on_without_the_rule(new_place: NewPlace, rule: Rule) -> None:
    place = new_place(rule.annotations)
    start(place, "other")
    start(place, "web")
    place.admin.patch("v1/namespaces", place.namespace, {"metadata": {"labels": {f"{DOMAIN}/groups": "audit"}}})
    asked = member("probe", labels={GROUP: "unknown"})
    eventually(lambda: not place.make(asked, dryRun="All").warnings, what="the webhook to know the mode")

    for follow in (move, restart):
        follow(place)
        assert rule.in_pod(place.launcher()) == []
        assert needs_no_restart(place)
    assert not is_recorded(place.get(VMIS))


@each_required
def test_an_eviction_that_only_the_group_makes_impossible_waits_for_a_node(new_place: NewPlace, rule: Rule) -> None:
    place = new_place({})
    eventually(place.real.is_empty, what="the VMs of other tests to end")
    together = rule.kind == "together"
    # Of VMs that are together on one node, none leaves it alone; they may leave it once nothing can come to it.
    rules = {"together": {"required": True}} if together else rule.rules
    announce(place, rules)
    node, other = start(place, "web", "other")
    # Others take the VM as far as its owner is concerned: only nodes of the rule are away.
    shut = {"apart": ZONES.keys() - {node, other}, "nodes": {"node-3", "node-4"} - {node}, "together": set()}[rule.kind]
    with cordoned(place, shut):
        eventually(lambda: _denied_by_us(place), what="the webhook to know of the nodes")
        denial = place.evict(place.launcher())
        assert (denial.status, parse(denial.message).code) == (429, BROKEN)
        assert "evacuationNodeName" not in place.get(VMIS)["status"]
        assert place.admin.list(MIGRATIONS, place.namespace) == []

    with cordoned(place, [node] if together else []):
        eventually(lambda: MARKED in place.evict(place.launcher()).message, what="the eviction")
        eventually(lambda: node_of(place) != node, what="the VM to leave its node")
    place.admin.delete(VMS, "other", place.namespace)


def _denied_by_us(place: Place) -> KubeError | None:
    """What the webhook says of an eviction that is not made: before it knows of the nodes, the VM must not move."""
    name = place.launcher()["metadata"]["name"]
    error = denied(lambda: evict(place.admin, name, place.namespace, dryRun="All"))
    return error if BROKEN in error.message else None


@pytest.mark.parametrize(
    "rule", [*(rule for rule in RULES if rule.required), Rule("together", {}, required=True)], ids=str
)
def test_a_drain_keeps_the_rule_while_virt_controller_migrates_several(new_place: NewPlace, rule: Rule) -> None:
    place = new_place(rule.annotations)
    eventually(place.real.is_empty, what="the VMs of other tests to end")
    names = ("web", "other") if rule.kind == "apart" else ("web", "other", "third")
    nodes = start(place, *names)
    drained = nodes[0]

    with cordoned(place, [drained]):

        def is_drained() -> bool:
            evict_all(place, [drained])
            return drained not in [node_of(place, name) for name in names]

        eventually(is_drained, what=f"{drained} to be drained")

    assert rule.is_kept([node_of(place, name) for name in names])
    stand = [rule.in_pod(place.launcher(name)) for name in names]
    # The first of those that are together may go anywhere if none stays; the others follow it.
    free = rule.kind == "together" and set(nodes) == {drained}
    assert sorted(stand) == sorted([[PREFERRED]] * free + [[REQUIRED]] * (len(names) - free))
