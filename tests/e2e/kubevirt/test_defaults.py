"""Each row of the defaults policy beside a real KubeVirt: who gets it, who keeps it, and what becomes of running VMs.

`ROWS` has one entry for each of the policy's defaults; the promises are the same for all of them.
"""

from __future__ import annotations

import copy
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from tests.e2e.support.kube import Json, eventually
from tests.e2e.support.objects import obj
from tests.e2e.support.webhook_server import DOMAIN, WebhookServer
from tests.e2e.support.workloads import PODS, VMIS, VMS
from tests.owners import WAYS
from webhook.k8s.json_tree import ABSENT, lookup
from webhook.k8s.types.scheduling import PREFERRED, REQUIRED
from webhook.policies.defaults import rows
from webhook.policies.defaults.rows import Default
from webhook.policies.defaults.settings import ANNOTATIONS

from .conftest import NewPlace
from .control_plane import ZONES, RunningKubeVirt
from .owners import change_pool, clone, manifest, pool, restore, take_snapshot, write
from .place import (
    Place,
    attachments,
    cordoned,
    differences,
    hotplugged,
    make_place,
    move,
    needs_no_restart,
    restart,
    restarts_alike,
)

pytestmark = pytest.mark.kubevirt

CLASSES = "scheduling.k8s.io/v1/priorityclasses"
# For VMs that say nothing at all. Without a preference: KubeVirt's set a grace period, which is an owner's choice then.
SIZE = {f"{DOMAIN}/default-instancetype": "u1.small"}
# Of a VM that says nothing but its size.
SMALL: Json = {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}
DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "vms", "effect": "NoSchedule"}
MINE = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
# node-3 and node-4.
IN_B: Json = {"key": "zone", "operator": "In", "values": ["b"]}
LINUX: Json = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
PREFERS_B: Json = {"weight": 50, "preference": {"matchExpressions": [IN_B]}}
PREFERS_LINUX: Json = {"weight": 7, "preference": {"matchExpressions": [LINUX]}}


def _affinity(**kinds: Any) -> Json:
    return {"affinity": {"nodeAffinity": kinds}}


def _in_each_term(terms: Sequence[Json], *expressions: Json) -> bool:
    return bool(terms) and all(each in term["matchExpressions"] for term in terms for each in expressions)


class Row(NamedTuple):
    """One default, as an admin writes it for a namespace, and what is to be found in a VM with it.

    Attributes:
        annotation: of the namespace, and its text, which is the default.
        holds: of the field's value: the default is in it.
        own: what an owner writes of it, in a template's spec.
        keeps: of the field's value: what the owner wrote counts.
        stands_in: the kind of object that it is written into.
    """

    default: Default
    annotation: tuple[str, str]
    holds: Callable[[Any], bool]
    own: Json
    keeps: Callable[[Any], bool]
    stands_in: str

    @property
    def annotations(self) -> dict[str, str]:
        """Of a namespace with this default alone."""
        return dict([self.annotation])

    def value(self, place: Place, name: str = "web") -> Any:
        """What the field says in the VMI, or in the launcher pod, of a VM that runs."""
        found = place.launcher(name) if self.stands_in == PODS else place.running(name)
        return lookup(found, self.default.path)

    def in_template(self, vm: Mapping[str, Any]) -> Any:
        return lookup(vm, ("spec", "template", *self.default.path))


def _row(default: Default, setting: str, value: Any, own: Json, **checks: Any) -> Row:
    text = value if isinstance(value, str) else json.dumps(value)
    checks = {"holds": lambda found: found == value, "keeps": checks.pop("keeps"), **checks}
    return Row(default=default, annotation=(ANNOTATIONS[setting], text), own=own, **checks)


ROWS = (
    _row(
        rows.TOLERATIONS,
        "tolerations",
        [DEDICATED],
        {"tolerations": [MINE]},
        holds=lambda found: DEDICATED in found,
        keeps=lambda found: MINE in found and DEDICATED not in found,
        stands_in=PODS,
    ),
    _row(
        rows.NODE_SELECTOR,
        "node_selector",
        {"zone": "b"},
        {"nodeSelector": {"zone": "a"}},
        holds=lambda found: found["zone"] == "b",
        keeps=lambda found: found["zone"] == "a",
        stands_in=PODS,
    ),
    _row(
        rows.REQUIRED_AFFINITY,
        "node_affinity",
        {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [IN_B]}]}},
        _affinity(**{REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [LINUX]}] * 2}}),
        holds=lambda found: _in_each_term(found, IN_B),
        keeps=lambda found: len(found) == 2 and _in_each_term(found, LINUX, IN_B),
        stands_in=PODS,
    ),
    _row(
        rows.PREFERRED_AFFINITY,
        "node_affinity",
        {PREFERRED: [PREFERS_B]},
        _affinity(**{PREFERRED: [PREFERS_LINUX]}),
        holds=lambda found: PREFERS_B in found,
        keeps=lambda found: PREFERS_LINUX in found and PREFERS_B in found,
        stands_in=PODS,
    ),
    _row(
        rows.PRIORITY_CLASS,
        "priority_class_name",
        "vms",
        {"priorityClassName": "mine"},
        keeps=lambda found: found == "mine",
        stands_in=VMIS,
    ),
    _row(
        rows.EVICTION_STRATEGY,
        "eviction_strategy",
        # KubeVirt's own is LiveMigrate here.
        "LiveMigrateIfPossible",
        {"evictionStrategy": "None"},
        keeps=lambda found: found == "None",
        stands_in=VMIS,
    ),
    _row(
        rows.GRACE_PERIOD,
        "termination_grace_period_seconds",
        77,
        {"terminationGracePeriodSeconds": 5},
        keeps=lambda found: found == 5,
        stands_in=VMIS,
    ),
    _row(
        rows.CPU_MODEL,
        "cpu_model",
        "Nehalem",
        {"domain": {**SMALL["domain"], "cpu": {"model": "Penryn"}}},
        keeps=lambda found: found == "Penryn",
        stands_in=VMIS,
    ),
)
ALL = {key: text for row in ROWS if row.default != rows.PREFERRED_AFFINITY for key, text in [row.annotation]} | {
    ANNOTATIONS["node_affinity"]: json.dumps(
        {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [IN_B]}]}, PREFERRED: [PREFERS_B]}
    )
}
LIMITS = (rows.NODE_SELECTOR, rows.REQUIRED_AFFINITY)
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.default.name.removeprefix("default-"))
limiting = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.default in LIMITS], ids=lambda row: row.default.name.removeprefix("default-")
)


@pytest.fixture(scope="module", autouse=True)
def _classes(real: RunningKubeVirt) -> Iterator[None]:
    for name, value in (("vms", 700), ("mine", 300)):
        real.plane.admin.create(CLASSES, obj("PriorityClass", name, value=value, preemptionPolicy="Never"))
    yield
    for name in ("vms", "mine"):
        real.plane.admin.delete(CLASSES, name)


def test_the_rows_are_those_of_the_policy() -> None:
    assert [row.default for row in ROWS] == list(rows.ALL)
    assert {row.annotation[0] for row in ROWS} == set(ANNOTATIONS.values())


def announce(place: Place, row: Row, text: str | None = None) -> None:
    """Makes a row the namespace's default, or a value of it; returns once the webhook knows it."""
    key, own = row.annotation
    grace = ANNOTATIONS["termination_grace_period_seconds"]
    changed = {grace: str(time.monotonic_ns() % 10**6 + 100), key: own if text is None else text}
    place.admin.patch("v1/namespaces", place.namespace, {"metadata": {"annotations": changed}})
    probe = obj("VirtualMachineInstance", "probe", spec=SMALL)

    def is_known() -> bool:
        made = place.make(copy.deepcopy(probe), dryRun="All")
        return str(made["spec"].get("terminationGracePeriodSeconds")) == changed[grace]

    eventually(is_known, what="the webhook to know the namespace's defaults")


def lacking(place: Place, name: str = "web") -> list[str]:
    """The rows that a VM with all defaults does not have."""
    return [row.default.name for row in ROWS if not row.holds(row.value(place, name))]


def marks(found: Mapping[str, Any]) -> set[str]:
    """The annotations of the policy in an object."""
    return {row.default.annotation for row in ROWS} & (found["metadata"].get("annotations") or {}).keys()


@each_row
def test_a_vm_that_names_nothing_gets_it_and_nothing_is_written_into_the_vm(new_place: NewPlace, row: Row) -> None:
    place = new_place(SIZE | row.annotations)
    place.vm()

    assert row.holds(row.value(place))
    assert needs_no_restart(place)
    vm = place.get(VMS)
    assert row.in_template(vm) is ABSENT
    assert marks(vm) | marks(vm["spec"]["template"]) == set()
    # The VMI says what its pods get, or what it got itself.
    has_mark = row.default.annotation in marks(place.get(VMIS))
    assert has_mark == (row.stands_in == VMIS or row.default in LIMITS)


def test_what_kubevirt_makes_of_them(new_place: NewPlace) -> None:
    place = new_place(SIZE | ALL)
    place.vm()
    assert lacking(place) == []

    spec = place.launcher()["spec"]

    assert place.real.nodes.zone(spec["nodeName"]) == "b"
    assert (spec["priorityClassName"], spec["priority"]) == ("vms", 700)
    assert spec["terminationGracePeriodSeconds"] >= 77
    assert spec["nodeSelector"]["cpu-model.node.kubevirt.io/Nehalem"] == "true"
    assert differences_beside_the_defaults(place) == []


def differences_beside_the_defaults(place: Place) -> list[str]:
    """Where the VMI differs from what KubeVirt alone makes of the VM; hotplug and its drift checks compare both."""
    fields = [".".join(row.default.path) for row in ROWS if row.stands_in == VMIS]
    return [each for each in differences(place, "web") if not any(field in each for field in fields)]


@each_row
def test_what_the_owner_writes_stands_in_every_way_of_writing(new_place: NewPlace, apart: Place, row: Row) -> None:
    place = new_place(row.annotations)
    names = {way: way.lower().replace(" ", "-") for way in WAYS}
    for where, (way, name) in itertools.product((place, apart), names.items()):
        first = manifest(name, template=SMALL)
        write(where, way, first)
        write(where, way, manifest(name, template=SMALL | row.own, run="Always"), first)

    assert [name for name in names.values() if not row.keeps(row.value(place, name))] == []
    for name in names.values():
        assert restarts_alike(place, apart, name)


@each_row
def test_what_the_owner_writes_later_stands_and_the_default_returns_after_it(new_place: NewPlace, row: Row) -> None:
    """By a migration where KubeVirt takes the field over into a running VM, else by a restart."""
    place = new_place(row.annotations)
    without, own = (manifest(template=template, run="Always") for template in (SMALL, SMALL | row.own))
    follow = move if row.stands_in == PODS else restart
    write(place, "server-side apply", without)
    assert row.holds(row.value(place))

    write(place, "server-side apply", own, without)
    assert needs_no_restart(place) == (row.stands_in == PODS)
    follow(place)
    assert row.keeps(row.value(place))

    write(place, "server-side apply", without, own)
    assert needs_no_restart(place) == (row.stands_in == PODS)
    follow(place)
    assert row.holds(row.value(place))
    assert needs_no_restart(place)


def test_the_same_manifest_again_changes_nothing(new_place: NewPlace, apart: Place) -> None:
    """Who replaces a VM takes out of it what virt-api wrote; that needs a restart, with defaults and without them."""
    place = new_place(ALL)
    names = {way: way.lower().replace(" ", "-") for way in WAYS}
    for where, (way, name) in itertools.product((place, apart), names.items()):
        write(where, way, manifest(name, template=SMALL, run="Always"))
    before = {name: place.running(name)["spec"] for name in names.values()}

    for where, (way, name) in itertools.product((place, apart), names.items()):
        same = manifest(name, template=SMALL, run="Always")
        apart.running(name)
        write(where, way, same, same)

    for name in names.values():
        assert restarts_alike(place, apart, name)
    assert {name: place.running(name)["spec"] for name in names.values()} == before
    move(place, names["replace"])
    assert lacking(place, names["replace"]) == []


def test_clones_and_restored_vms_get_them(new_place: NewPlace) -> None:
    place = new_place(SIZE | ALL)
    write(place, "replace", manifest())
    take_snapshot(place)
    place.patch(VMS, "web", {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}}})
    restore(place)
    clone(place)

    for name in ("web", "copy"):
        place.patch(VMS, name, {"spec": {"runStrategy": "Always"}})
        assert lacking(place, name) == []
        assert needs_no_restart(place, name)


def test_a_pools_vms_get_them_and_its_template_replaces_them(new_place: NewPlace) -> None:
    place = new_place(SIZE | ALL)
    pool(place, "Always")
    assert lacking(place, "web-0") == []
    assert needs_no_restart(place, "web-0")

    change_pool(place)

    restart(place, "web-0")
    assert lacking(place, "web-0") == [rows.GRACE_PERIOD.name]
    assert place.get(VMIS, "web-0")["spec"]["terminationGracePeriodSeconds"] == 17


def test_vmis_without_a_vm_get_them(new_place: NewPlace) -> None:
    place = new_place(SIZE | ALL)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"domain": {"devices": {}}}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    place.make(obj("VirtualMachineInstanceReplicaSet", "web", spec=spec))
    place.make(obj("VirtualMachineInstance", "alone", spec={"domain": {"devices": {}}}))

    def both() -> list[str]:
        found = [vmi["metadata"]["name"] for vmi in place.admin.list(VMIS, place.namespace)]
        return found if len(found) == 2 else []

    names = eventually(both, what="both VMIs")
    assert {name: lacking(place, name) for name in names} == {name: [] for name in names}


@each_row
def test_a_vm_that_runs_when_it_appears(new_place: NewPlace, row: Row) -> None:
    """Its next pod gets what can only help it, everything at its next start; it stays migratable in between."""
    place = new_place(SIZE)
    place.vm()
    before = row.value(place)
    announce(place, row)
    assert needs_no_restart(place)

    move(place)

    if row.default in (rows.TOLERATIONS, rows.PREFERRED_AFFINITY):
        assert row.holds(row.value(place))
    elif row.stands_in == VMIS:
        assert row.value(place) == before
    else:
        assert row.value(place) is ABSENT or not row.default.is_value(row.value(place), row.annotation[1])
        assert row.default.annotation not in marks(place.get(VMIS))
    assert needs_no_restart(place)
    restart(place)
    assert row.holds(row.value(place))


UNMET = {
    rows.NODE_SELECTOR: {"zone": "nowhere"},
    rows.REQUIRED_AFFINITY: {
        REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{**IN_B, "values": ["nowhere"]}]}]}
    },
}


@limiting
@pytest.mark.parametrize("had_one", [False, True], ids=["appears", "changes"])
def test_a_default_that_no_node_meets_strands_no_vm_that_runs(new_place: NewPlace, row: Row, *, had_one: bool) -> None:
    place = new_place(SIZE | (row.annotations if had_one else {}))
    place.vm()
    place.running()
    announce(place, row, json.dumps(UNMET[row.default]))

    move(place)
    move(place)

    # One that starts now waits for such a node.
    place.vm("new")
    eventually(lambda: place.unschedulable("new"), what="the scheduler to find no node")


def test_a_default_that_is_withdrawn_lets_vms_go_where_they_like(new_place: NewPlace) -> None:
    place = new_place(SIZE | ALL)
    place.vm()
    assert lacking(place) == []
    for row in ROWS:
        if row.default in LIMITS:
            announce(place, row, "off")

    with cordoned(place, [name for name in ZONES if ZONES[name] == "b"]):
        move(place)

    assert place.real.nodes.zone(place.running()["status"]["nodeName"]) == "a"


@pytest.mark.parametrize("mode", ["audit", "warn"])
def test_modes_that_only_watch_write_nothing(real: RunningKubeVirt, server: WebhookServer, mode: str) -> None:
    labels = server.labels(mode, [f"{DOMAIN}/defaults"])
    place = make_place(real, labels, ALL)
    vmi = place.make(obj("VirtualMachineInstance", "alone", spec=copy.deepcopy(SMALL)))
    place.vm(template=SMALL)

    for name in ("alone", "web"):
        pod = place.launcher(name)
        assert marks(place.get(VMIS, name)) | marks(pod) == set()
        spec = pod["spec"]
        assert "zone" not in spec["nodeSelector"]
        assert DEDICATED not in spec["tolerations"]
        assert "priorityClassName" not in place.get(VMIS, name)["spec"]
        assert "Nehalem" not in json.dumps([spec, place.get(VMIS, name)["spec"]])
    assert bool(vmi.warnings) == (mode == "warn")


def test_cpu_and_memory_are_plugged_in_as_without_them(new_place: NewPlace) -> None:
    place = new_place(ALL)
    place.vm(template={"domain": {"devices": {}, "cpu": {"sockets": 1}, "memory": {"guest": "1Gi"}}})
    assert lacking(place) == []

    grown = {"cpu": {"sockets": 2}, "memory": {"guest": "2Gi"}}
    place.patch(VMS, "web", {"spec": {"template": {"spec": {"domain": grown}}}})

    def plugged() -> bool:
        domain = place.get(VMIS)["spec"]["domain"]
        return (domain["cpu"]["sockets"], domain["memory"]["guest"]) == (2, "2Gi")

    eventually(plugged, what="virt-controller to plug CPU and memory in")
    assert needs_no_restart(place)
    assert lacking(place) == []


def test_volumes_are_attached_on_a_node_that_a_default_toleration_opens(new_place: NewPlace) -> None:
    toleration = next(row for row in ROWS if row.default == rows.TOLERATIONS)
    place = new_place(toleration.annotations)
    dedicated = [name for name in ZONES if ZONES[name] == "b"]
    taint = {key: DEDICATED[key] for key in ("key", "value", "effect")}
    for name in dedicated:
        place.admin.patch("v1/nodes", name, {"spec": {"taints": [taint]}})
    try:
        with cordoned(place, [name for name in ZONES if name not in dedicated]):
            place.vm(template=hotplugged(place, "web", "kubernetes.io/os", "linux"))
            node = place.running()["status"]["nodeName"]
            eventually(lambda: attachments(place, node), what="the volume to be attached")
            move(place)
            other = place.running()["status"]["nodeName"]
            eventually(lambda: attachments(place, other), what="the volume to be attached on the other node")
    finally:
        for name in dedicated:
            place.admin.patch("v1/nodes", name, {"spec": {"taints": None}})
    assert {node, other} == set(dedicated)


def test_a_vm_from_another_cluster_keeps_the_cpu_that_it_has(new_place: NewPlace) -> None:
    """KubeVirt looks for nodes with the CPU of its host only where its model is that of its host."""
    place = new_place(SIZE | ALL)
    place.real.configure(developerConfiguration={"featureGates": ["Snapshot", "DecentralizedLiveMigration"]})
    eventually(lambda: place.vm(run="WaitAsReceiver"), what="virt-api to take VMs that are received")
    is_waiting = lambda vmi: vmi["status"].get("phase") == "WaitingForSync"
    vmi = place.admin.wait(VMIS, "web", place.namespace, until=is_waiting, what="the VMI to wait for its source")

    assert lookup(vmi, rows.CPU_MODEL.path) == "host-model"
    assert rows.CPU_MODEL.annotation not in marks(vmi)
    assert vmi["spec"]["priorityClassName"] == "vms"
