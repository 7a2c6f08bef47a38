"""The real kube-scheduler with the shipped configurations, and with the mistakes that `scheduler lint` finds."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from tests.install.schedulers.configurations import configuration, profile
from webhook.cli.data import directory
from webhook.install.schedulers import successors
from webhook.install.schedulers.lint import LintTarget, lint
from webhook.install.schedulers.render import Variant
from webhook.install.schedulers.render import configuration as configuration_for
from webhook.k8s.documents import Document
from webhook.placement.profiles import PLUGINS

from .conftest import OwnPlane
from .support.kube import Json
from .support.migrations import REQUIRED
from .support.objects import has_condition, launcher_pod, make_node, obj
from .support.pki import kubeconfig
from .support.placing import SPACE, await_nodes, create, place, placed, remove_pods
from .support.plane import ControlPlane, HeldLease
from .support.processes import GARBAGE, StartError
from .support.workloads import PODS

TRIED = "tried"


def tried(written: Json, code: str, *, is_the_clusters: bool = False) -> Json:
    """A configuration of whose mistakes one is meant."""
    target = LintTarget(is_the_clusters=is_the_clusters)
    assert code in [problem.code for problem in lint(Document(written, "f.yaml", 1), target)]
    return written


def start(plane: ControlPlane, written: Json, name: str = TRIED) -> None:
    """Runs a configuration without its Lease, which these tests do not cover."""
    plane.start_scheduler(name, {key: value for key, value in written.items() if key != "leaderElection"})


def is_untouched(plane: ControlPlane, name: str) -> bool:
    pod = plane.admin.get(PODS, name, SPACE)
    return "nodeName" not in pod["spec"] and not pod.get("status", {}).get("conditions")


def end(plane: ControlPlane, *names: str) -> None:
    """End schedulers, by default the one that is tried, and remove all pods."""
    for name in names or (TRIED,):
        plane.stop_scheduler(name, grace=0)
    remove_pods(plane.admin)


NODES = 4
NAMES = [f"node-{number}" for number in range(NODES)]
SIZE = {"cpu": "16", "memory": "64Gi", "devices.kubevirt.io/kvm": "110"}
CLUSTERS = {"profiles": [{"schedulerName": "default-scheduler"}]}
LAUNCHER = {"names": ["registry.example/kubevirt/virt-launcher:v1"], "sizeBytes": 600_000_000}
SOFT = {"key": "nodeutilization.descheduler.kubernetes.io/overutilized", "effect": "PreferNoSchedule"}
DRAINED = {"key": "drained", "value": "yes", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def plane(module_plane: OwnPlane) -> ControlPlane:
    started = module_plane()
    for name in NAMES:
        make_node(started.admin, name, allocatable=SIZE)
    return started


@contextmanager
def running(plane: ControlPlane, written: Json) -> Iterator[None]:
    """A configuration at work; its pods go with it, and nodes have no taints afterwards."""
    start(plane, written)
    try:
        yield
    finally:
        for name in NAMES:
            plane.admin.patch("v1/nodes", name, {"spec": {"taints": None, "unschedulable": None}})
        end(plane)


def test_each_mistake_is_tried_with_the_real_kube_scheduler() -> None:
    page = (directory("manifests").parent / "docs" / "schedulers.md").read_text()
    section = page.partition("## Check a scheduler configuration")[2].partition("\n## ")[0]
    codes = set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE))
    tests = Path(__file__).read_text()

    assert codes
    assert {code for code in codes if f'"{code}"' not in tests} == set()


@pytest.mark.parametrize(("variant", "nodes"), [("spread", NODES), ("pack", 1)])
def test_the_shipped_configurations_do_what_they_are_named_after(
    plane: ControlPlane, variant: Variant, nodes: int
) -> None:
    page = (directory("manifests").parent / "docs" / "schedulers.md").read_text()
    assert f"manifests/scheduler/{variant}.yaml" in page
    with running(plane, yaml.safe_load((directory("manifests") / "scheduler" / f"{variant}.yaml").read_text())):
        found = place(plane.admin, NODES * 3)
        assert len(found) == nodes
        assert max(found.values()) - min(found.values()) <= 1
        if variant == "spread":
            # Soft taints of the descheduler steer VMs away even from an empty node.
            remove_pods(plane.admin)
            plane.admin.patch("v1/nodes", NAMES[0], {"spec": {"taints": [SOFT]}})
            await_nodes(plane.admin, NAMES[0])
            assert place(plane.admin, NODES * 3).keys() == {*NAMES[1:]}

    # In the cluster's own scheduler both profiles place pods.
    written = yaml.safe_load(configuration_for(directory("manifests"), variant, "cluster"))
    # The path where kubeadm keeps its own, in the pod of the cluster's scheduler.
    assert written.pop("clientConnection")["kubeconfig"]
    with running(plane, written):
        create(plane.admin, "vm")
        plane.admin.create(PODS, launcher_pod("other"), "default")
        assert placed(plane.admin, "vm")
        assert placed(plane.admin, "other")


OTHER_QUEUE = {"queueSort": {"enabled": [{"name": "Other"}], "disabled": [{"name": "*"}]}}


@pytest.mark.parametrize(
    ("code", "written"),
    [
        ("stale-api-version", configuration(apiVersion="kubescheduler.config.k8s.io/v1beta3")),
        ("duplicate-profile", configuration(profile(), profile())),
        ("differing-queue-sort", configuration(profile(), profile("other", plugins=OTHER_QUEUE))),
    ],
)
def test_the_scheduler_does_not_start(plane: ControlPlane, code: str, written: Json) -> None:
    said = "must be the same for all profiles" if code == "differing-queue-sort" else "."
    with pytest.raises(StartError, match=said):
        start(plane, tried(written, code))


APART = {"topologyKey": "kubernetes.io/os", "labelSelector": {"matchLabels": {"apart": "yes"}}}
FILTERS: dict[str, Json] = {
    # The only topology is taken by the first pod.
    "InterPodAffinity": {"affinity": {"podAntiAffinity": {REQUIRED: [APART]}}, "labels": {"apart": "yes"}},
    "NodeAffinity": {"nodeSelector": {"no-node": "has-this"}},
    "NodeUnschedulable": {},
    "TaintToleration": {},
    # Last: it leaves nodes fuller than they are.
    "NodeResourcesFit": {"requests": {"cpu": "1000"}},
}


def test_without_a_filter_vms_go_where_they_must_not(plane: ControlPlane) -> None:
    """A profile without each of the filters, named after it."""
    profiles = []
    for plugin in FILTERS:
        plugins: Any = {"multiPoint": {"disabled": [{"name": plugin}, {"name": "ImageLocality"}]}}
        profiles.append(profile(plugin.lower(), plugins=plugins))
        tried(configuration(profile(plugins=plugins)), "filter-off")
    with running(plane, configuration(*profiles)):
        for plugin, options in FILTERS.items():
            for name in NAMES:
                taints = [DRAINED] if plugin == "TaintToleration" else None
                spec = {"unschedulable": plugin == "NodeUnschedulable", "taints": taints}
                plane.admin.patch("v1/nodes", name, {"spec": spec})
            await_nodes(plane.admin, NAMES[0], plugin.lower())
            assert place(plane.admin, 2, prefix=plugin.lower(), scheduler=plugin.lower(), **options).total() == 2


@pytest.mark.control("scheduling-waits")
@pytest.mark.parametrize("ignorable", [False, True])
def test_an_extender_that_is_away_holds_up_all_pods_unless_it_is_ignorable(
    plane: ControlPlane, ignorable: bool
) -> None:
    away = {"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter", "ignorable": ignorable, "httpTimeout": "1s"}
    written = configuration(extenders=[away])
    with running(plane, written if ignorable else tried(written, "extender-not-ignorable")):
        create(plane.admin, "extended")
        if ignorable:
            assert placed(plane.admin, "extended")
            return
        is_held_up = lambda pod: has_condition(pod, "PodScheduled", "False")
        plane.admin.wait(PODS, "extended", "default", until=is_held_up, what="the scheduler to miss the extender")
        assert "nodeName" not in plane.admin.get(PODS, "extended", "default")["spec"]


def test_a_pod_whose_profile_is_not_there_is_looked_at_by_nobody(plane: ControlPlane) -> None:
    with running(plane, tried(configuration(profile("vms")), "no-profile")):
        create(plane.admin, "unknown")
        create(plane.admin, "seen", scheduler="vms")
        placed(plane.admin, "seen")
        assert is_untouched(plane, "unknown")

    # Without the default profile, those wait that name no scheduler.
    with running(plane, tried(configuration(profile()), "default-profile-missing", is_the_clusters=True)):
        create(plane.admin, "named-none", scheduler=None)
        create(plane.admin, "vm")
        placed(plane.admin, "vm")
        assert is_untouched(plane, "named-none")


@pytest.fixture
def two(plane: ControlPlane) -> Iterator[list[str]]:
    names = ["one", "two"]
    yield names
    end(plane, *names)


def assert_both_place(plane: ControlPlane, names: list[str], scheduler: str | None) -> None:
    """Each of two schedulers places pods while the other one is frozen, so that neither waits for a Lease."""
    for number, frozen in enumerate(names):
        with ExitStack() as thawing:
            process = plane.scheduler(frozen)
            process.pause()
            thawing.callback(process.resume)
            create(plane.admin, f"pod-{number}", scheduler=scheduler)
            placed(plane.admin, f"pod-{number}")


def test_a_second_default_profile_places_the_pods_of_the_first(plane: ControlPlane, two: list[str]) -> None:
    start(plane, CLUSTERS, two[0])
    start(plane, tried(configuration(profile(), profile("default-scheduler")), "default-profile-twice"), two[1])

    assert_both_place(plane, two, None)


def test_without_leader_election_all_replicas_place_pods(plane: ControlPlane, two: list[str]) -> None:
    written = tried(configuration(leaderElection={"leaderElect": False}), "no-leader-election")
    for name in two:
        start(plane, written, name)

    assert_both_place(plane, two, "kubevirt")
    assert plane.admin.list("coordination.k8s.io/v1/leases", "kubevirt-scheduler") == []


def test_with_the_clusters_lease_a_second_scheduler_places_nothing_or_the_cluster_does_not(
    plane: ControlPlane, two: list[str]
) -> None:
    lease = HeldLease("kube-system", "kube-scheduler")
    written = tried(configuration(leaderElection={"leaderElect": True}), "lease-clash")
    plane.start_scheduler(two[0], CLUSTERS, lease=lease)
    plane.start_scheduler(two[1], {"profiles": written["profiles"]}, lease=lease, wait=False)
    create(plane.admin, "vm")
    create(plane.admin, "other", scheduler=None)
    placed(plane.admin, "other")
    assert is_untouched(plane, "vm")

    plane.scheduler(two[0]).kill()
    placed(plane.admin, "vm")
    plane.scheduler(two[0]).start()
    create(plane.admin, "another", scheduler=None)
    create(plane.admin, "vm-again")
    placed(plane.admin, "vm-again")
    assert is_untouched(plane, "another")


@pytest.mark.parametrize("is_on", [True, False])
def test_image_locality_piles_vms_up_on_the_node_that_lists_the_launcher(plane: ControlPlane, is_on: bool) -> None:
    plane.admin.patch("v1/nodes", "node-2", {"status": {"images": [LAUNCHER]}}, subresource="status")
    written = tried(configuration(profile(plugins={})), "image-locality-on") if is_on else configuration()
    with running(plane, written):
        assert (place(plane.admin, NODES)["node-2"] == NODES) is is_on
    plane.admin.patch("v1/nodes", "node-2", {"status": {"images": []}}, subresource="status")


@pytest.mark.parametrize("lost", [True, False])
def test_without_default_constraints_the_pods_of_a_service_are_not_spread(plane: ControlPlane, lost: bool) -> None:
    selector = {"app": "web"}
    plane.admin.make(obj("Service", "web", spec={"selector": selector, "ports": [{"port": 80}]}), "default")
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "PodTopologySpreadArgs"}
    args = {"defaultingType": "List", "defaultConstraints": []} if lost else {"defaultingType": "System"}
    written = configuration(profile(pluginConfig=[{"name": "PodTopologySpread", "args": {**kind, **args}}]))
    with running(plane, tried(written, "default-constraints-lost") if lost else written):
        # All but one node are half full.
        for number in range(1, NODES):
            create(plane.admin, f"large-{number}", requests={"cpu": "8", "memory": "32Gi"})
            placed(plane.admin, f"large-{number}")
        assert (len(place(plane.admin, 6, labels=selector)) == 1) is lost
    plane.admin.delete("v1/services", "web", "default")


def test_if_few_nodes_are_scored_vms_miss_the_emptiest_node(own_plane: OwnPlane) -> None:
    """At least 100 nodes are always looked at: of 130, by eight pods each node at most seven times.

    There are three times as many pods, since an attempt that is repeated shifts where the next one begins.
    """
    plane = own_plane()
    make_node(plane.admin, "empty", allocatable={"cpu": "1k", "memory": "4Ti"})
    for number in range(129):
        make_node(plane.admin, f"node-{number}", allocatable=SIZE)
    for percentage in (1, 100):
        written = configuration(percentageOfNodesToScore=percentage)
        start(plane, tried(written, "few-nodes-scored") if percentage == 1 else written)
        found = place(plane.admin, 24, requests={"cpu": "2", "memory": "8Gi"})
        end(plane)

        assert (found["empty"] == 24) is (percentage == 100)


MUTATIONS = 30
STRICT = ("invalid-field", "unknown-plugin")
ARGUMENTS: dict[str, Json] = {
    "DefaultPreemption": {"minCandidateNodesPercentage": 10},
    "InterPodAffinity": {"hardPodAffinityWeight": 1},
    "NodeAffinity": {
        "addedAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}
            ]
        }
    },
    "NodeResourcesBalancedAllocation": {"resources": [{"name": "cpu", "weight": 1}]},
    "NodeResourcesFit": {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 1}]}},
    "PodTopologySpread": {
        "defaultingType": "List",
        "defaultConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"}],
    },
    "VolumeBinding": {"bindTimeoutSeconds": 5},
}


def rich() -> Json:
    """A configuration with most fields, and the arguments of each plugin that has a type for them."""
    written: Json = yaml.safe_load(configuration_for(directory("manifests"), "spread"))
    written["profiles"][0]["pluginConfig"] = [
        {"name": name, "args": args} for name, args in copy.deepcopy(ARGUMENTS).items()
    ]
    extender = {"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter", "httpTimeout": "1s", "ignorable": True}
    return written | {
        "leaderElection": {"leaderElect": False, "leaseDuration": "15s", "resourceLock": "leases"},
        "extenders": [extender | {"managedResources": [{"name": "example.com/a"}]}],
        "parallelism": 16,
        "podMaxBackoffSeconds": 10,
    }


def mutated(random: Random) -> Json:
    """The configuration with a field misspelled, of another type, added, or with a plugin of another name."""
    written = rich()
    objects: list[Json] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            objects.append(value)
        for below in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(below)

    walk({key: each for key, each in written.items() if key not in ("apiVersion", "kind", "clientConnection")})
    objects[0] = written
    place = random.choice(objects)
    keys = [key for key in place if key not in ("apiVersion", "kind", "clientConnection")]
    key = random.choice(keys)
    match random.choice(["misspell", "case", "add", "type", "plugin", "null"]):
        case "misspell":
            place[key[:-2] + key[-1:]] = place.pop(key)
        case "case":
            place[key[0].swapcase() + key[1:]] = place.pop(key)
        case "add":
            place["example"] = 1
        case "type":
            place[key] = {"a": 1} if isinstance(place[key], str | list) else [1]
        case "null":
            place[key] = None if key not in ("name", "profiles") else place[key]
        case _:
            point = random.choice(["score", "filter", "multiPoint"])
            name = random.choice(["ImageLocalty", "imageLocality", "NodeAffinity"])
            part = random.choice(["enabled", "disabled"])
            written["profiles"][0]["plugins"] = {point: {part: [{"name": name}]}}
    return written


def validated(kube_scheduler: Path, written: Json, directory: Path) -> subprocess.CompletedProcess[str]:
    """It validates the configuration and builds all plugins, writes what it has understood, and ends."""
    (directory / "kubeconfig").write_text(kubeconfig("http://127.0.0.1:1", None, {}))
    written["clientConnection"] = {"kubeconfig": str(directory / "kubeconfig")}
    (directory / "config.yaml").write_text(yaml.safe_dump(written))
    options = ("--secure-port=0", f"--config={directory}/config.yaml", f"--write-config-to={directory}/out.yaml")
    return subprocess.run(
        [kube_scheduler, *options], capture_output=True, text=True, env=GARBAGE | os.environ, check=False
    )


def test_every_plugin_that_is_listed_exists_and_none_that_is_gone(kube_scheduler: Path, tmp_path: Path) -> None:
    every = validated(kube_scheduler, rich(), tmp_path)
    assert every.returncode == 0, every.stderr[-400:]
    for name in PLUGINS:
        done = validated(kube_scheduler, with_plugin(name, "enabled"), tmp_path)
        # One plugin cannot be enabled twice, and some need what others have; but each of them is there.
        assert "does not exist" not in done.stderr, name
    for name in ("NodeResourcesLeastAllocated", "SelectorSpread", "EBSLimits", "LeastRequestedPriority", "Dynamic"):
        done = validated(kube_scheduler, with_plugin(name, "enabled"), tmp_path)
        assert done.returncode, name
        assert "does not exist" in done.stderr, name
    # All at once: a disabled plugin that is gone has no effect, and kube-scheduler does not say so.
    gone = [{"name": name} for name in (*successors.PLUGINS, *successors.ELSEWHERE)]
    written = rich()
    written["profiles"][0]["plugins"] = {"score": {"disabled": gone}}
    done = validated(kube_scheduler, written, tmp_path)
    assert done.returncode == 0, done.stderr[-400:]


def with_plugin(name: str, part: str) -> Json:
    written = rich()
    written["profiles"][0]["plugins"] = {"multiPoint": {part: [{"name": name}]}}
    return written


# kube-scheduler's own: arguments of other plugins are decoded by what has these plugins.
@pytest.mark.parametrize("path", [path for path in successors.FIELDS if "args" not in path])
def test_the_real_scheduler_refuses_fields_that_are_gone(
    path: tuple[str, ...], kube_scheduler: Path, tmp_path: Path
) -> None:
    written = rich()
    holder: Any = written
    for key in path[:-1]:
        holder = holder[key][0] if key == "profiles" else holder[key]
    holder[path[-1]] = {} if path[-1] in ("plugins", "unreserve", "algorithmSource") else "x"
    done = validated(kube_scheduler, written, tmp_path)
    assert "strict decoding error" in done.stderr or "unknown field" in done.stderr, done.stderr[-400:]


def test_errors_are_what_the_real_scheduler_refuses(kube_scheduler: Path, tmp_path: Path) -> None:
    random, refused = Random(28), []
    for number in range(MUTATIONS):
        written = mutated(random) if number else rich()
        done = validated(kube_scheduler, written, tmp_path)
        problems = lint(Document(written, "f.yaml", 1), LintTarget(is_the_clusters=True))
        found = [each.text for each in problems if each.code in STRICT and each.severity == "error"]
        strict = ("strict decoding error", "cannot unmarshal", "does not exist")
        # What it rejects for another reason, for example a score of no weight, is not of these two rules.
        if done.returncode and not any(word in done.stderr for word in strict):
            continue
        assert bool(done.returncode) == bool(found), (done.stderr[-400:], found, json.dumps(written))
        refused.append(bool(done.returncode))
    assert refused[0] is False
    assert refused.count(True) > MUTATIONS // 3
    assert refused.count(False) > 5
