"""By which profiles the VMs of a plan are placed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bench.placement.profiles import SPREAD_FILE
from tests import builders
from tests.forecast.clusters import Json, filler, node, snapshot, vm
from tests.forecast.test_present_state import of
from webhook.cli.explain import from_files
from webhook.forecast import drain, loss, update
from webhook.forecast.movers import OUTDATED
from webhook.forecast.profiles import profiles_in
from webhook.forecast.report import VmPlan
from webhook.forecast.snapshot import ClusterObjects
from webhook.k8s.types.core import ConfigMap
from webhook.placement.profiles import ASSUMED_PROFILES, SHIPPED, SHIPPED_PROFILES, Profile
from webhook.placement.running_pods import Service

IMAGE = "registry.example/virt-launcher:v1"


def config_map(**data: str) -> ConfigMap:
    return ConfigMap(data=data)


def listing(found: Json, image: str = IMAGE) -> Json:
    found["status"]["images"] = [{"names": [image], "sizeBytes": 900_000_000}]
    return found


def plan(nodes: list[Json], *, scheduler: str = "", pods: Any = (), profiles: Any = SHIPPED_PROFILES) -> VmPlan:
    """The drain of node a, with one VM whose pod has the launcher's image."""
    vmi, pod = vm("web", "a", labels={"app": "web"})
    pod["spec"]["schedulerName"] = scheduler or "default-scheduler"
    pod["spec"]["containers"][0]["image"] = IMAGE
    world = snapshot([node("a"), *nodes], [(vmi, pod)], pods=pods)
    return of(drain.plan(msgspec.structs.replace(world, profiles=profiles), ["a"]))


def test_a_vm_goes_where_its_share_is_free_and_not_where_most_memory_is() -> None:
    nodes = [node("large", memory="64Gi"), node("small", memory="16Gi")]
    assert plan(nodes, pods=[filler("full", "large", "40Gi")]).to == "small"


@pytest.mark.parametrize(
    ("scheduler", "to"), [("default-scheduler", "listing"), ("kubevirt", "roomy"), ("another", "roomy")]
)
def test_images_count_for_the_stock_scheduler_alone(scheduler: str, to: str) -> None:
    nodes = [listing(node("listing")), node("roomy", memory="9Gi")]
    assert plan(nodes, scheduler=scheduler).to == to


def test_images_of_volumes_count() -> None:
    vmi, pod = vm("web", "a")
    pod["spec"]["volumes"] = [{"name": "disk", "image": {"reference": "disk:v1"}}]
    nodes = [node("a"), listing(node("listing"), "disk:v1"), node("roomy", memory="9Gi")]
    assert of(drain.plan(snapshot(nodes, [(vmi, pod)]), ["a"])).to == "listing"


def test_the_scheduler_of_the_vm_counts_before_that_of_its_pod() -> None:
    vmi, pod = vm("web", "a", schedulerName="kubevirt")
    pod["spec"]["containers"][0]["image"] = IMAGE
    nodes = [node("a"), listing(node("listing")), node("roomy", memory="9Gi")]
    assert of(drain.plan(snapshot(nodes, [(vmi, pod)]), ["a"])).to == "roomy"


def test_a_profile_that_fills_nodes_sends_vms_to_full_ones() -> None:
    packing = {"kubevirt": Profile.of(yaml.safe_load((SPREAD_FILE.parent / "pack.yaml").read_text())["profiles"][0])}
    pods = [filler("one", "full", "4Gi")]
    nodes = [node("empty"), node("full")]
    assert [
        plan(nodes, scheduler="kubevirt", pods=pods, profiles=each).to for each in (packing, {"kubevirt": SHIPPED})
    ] == [
        "full",
        "empty",
    ]


def test_pods_of_services_are_spread() -> None:
    services = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"selector": {"app": "web"}}}
    pods = [filler("other", "b", "1Mi", app="web")]
    world = snapshot(
        [node("a"), node("b", memory="9Gi"), node("c")], [vm("web", "a", labels={"app": "web"})], pods=pods
    )
    assert of(drain.plan(world, ["a"])).to == "b"
    world = msgspec.structs.replace(world, services=(msgspec.convert(services, Service),))
    assert of(drain.plan(world, ["a"])).to == "c"


def test_what_a_profile_scores_that_is_not_known_is_a_gap() -> None:
    load_aware = Profile.of({"plugins": {"score": {"enabled": [{"name": "LoadVariationRiskBalancing"}]}}})
    found = plan([node("b")], scheduler="kubevirt", profiles={"kubevirt": load_aware})
    assert any("LoadVariationRiskBalancing" in gap for gap in found.gaps)


@pytest.mark.parametrize(
    ("scheduler", "found", "assumed"),
    [
        ("default-scheduler", {}, ""),
        ("kubevirt", {"kubevirt": SHIPPED}, ""),
        ("kubevirt", profiles_in([]), "the shipped one is assumed"),
        ("another", profiles_in([]), "the stock one without ImageLocality is assumed"),
    ],
)
def test_a_profile_that_was_not_found_is_a_gap(scheduler: str, found: Any, assumed: str) -> None:
    gaps = [gap for gap in plan([node("b")], scheduler=scheduler, profiles=found).gaps if "profile" in gap]
    assert [assumed in gap for gap in gaps] == ([True] if assumed else [])


class TestSchedulersThatAreDown:
    DOWN = {"kubevirt": "Lease a/b has not been renewed for 63 s"}
    INJECTED = {"kubevirt-webhook.github.io/injected-scheduler": "kubevirt"}

    @pytest.mark.parametrize(
        ("injected", "mode", "expected"),
        [
            # kubevirt-webhook sets its pods back: the stock scheduler prefers the node with the image.
            (True, "enforce", ("moves", "migrates", "listing")),
            # In other modes nothing is taken back; and who named it waits, as without kubevirt-webhook.
            (True, "warn", ("blocks", "scheduler-down", "")),
            (False, "enforce", ("blocks", "scheduler-down", "")),
        ],
    )
    def test_what_was_injected_falls_back_and_what_was_chosen_waits(
        self, injected: bool, mode: str, expected: tuple[str, str, str]
    ) -> None:
        vmi, pod = vm("web", "a", schedulerName="kubevirt")
        owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web", "controller": True}
        vmi["metadata"] |= {"annotations": self.INJECTED if injected else {}, "ownerReferences": [owner]}
        pod["spec"] |= {"schedulerName": "kubevirt"}
        pod["spec"]["containers"][0]["image"] = IMAGE
        world = snapshot(
            [node("a"), listing(node("listing")), node("roomy", memory="9Gi")],
            [(vmi, pod)],
            namespace={"labels": {"kubevirt-webhook.github.io/scheduling": mode}},
            settings=builders.settings(),
            owners=[{"metadata": {"name": "web", "namespace": "shop", "uid": "vm"}, "spec": {"runStrategy": "Always"}}],
        )
        world = msgspec.structs.replace(world, schedulers_down=self.DOWN)

        found = of(drain.plan(world, ["a"]))
        lost = loss.plan(world, ["a"]).vms

        assert (found.outcome, found.code, found.to) == expected
        assert ("63 s" in found.reason) == (found.outcome == "blocks")
        assert [each.code == "scheduler-down" for each in lost] == [found.outcome == "blocks"]


def test_an_update_places_by_scores_too() -> None:
    nodes = [node("a"), node("large", memory="64Gi"), node("small", memory="16Gi")]
    world = snapshot(
        nodes,
        [vm("web", "a")],
        pods=[filler("full", "large", "40Gi")],
        updates={"workloadUpdateMethods": ["LiveMigrate"]},
    )
    assert [each.to for each in update.plan(world).vms] == ["small"]


class TestLaunchersThatAreReplaced:
    """Target pods have the launcher of now, so what scores is its image, and no longer the old one."""

    NEW = "registry.example/virt-launcher:v2"
    ASSUMED = "All nodes list the image of the new launchers, which is not known, or none does."

    def world(self, *, known: bool, outdated: bool = True) -> ClusterObjects:
        nodes = [node("a"), listing(node("old")), listing(node("new", memory="7Gi"), self.NEW), node("z", memory="9Gi")]
        vms = [vm("web", "a")]
        if outdated:
            vms[0][0]["metadata"]["labels"][OUTDATED] = ""
        vms += [vm("db", "z", "1Mi", condition={"type": "LiveMigratable", "status": "False"})] if known else []
        for (_, pod), image in zip(vms, (IMAGE, self.NEW), strict=False):
            pod["spec"]["containers"][0]["image"] = image
        return snapshot(nodes, vms, updates={"workloadUpdateMethods": ["LiveMigrate"]})

    @pytest.mark.parametrize("outdated_only", [False, True])
    @pytest.mark.parametrize("known", [False, True])
    def test_in_an_update(self, *, known: bool, outdated_only: bool) -> None:
        found = update.plan(self.world(known=known), outdated_only=outdated_only)
        (web,) = (each for each in found.vms if each.name == "web")
        is_known = known and outdated_only
        assert (web.to, self.ASSUMED in found.assumptions) == ("new" if is_known else "z", not is_known)

    @pytest.mark.parametrize(
        ("known", "outdated", "to"),
        [(False, True, "z"), (True, True, "new"), (True, False, "old"), (False, False, "old")],
    )
    def test_in_a_drain(self, *, known: bool, outdated: bool, to: str) -> None:
        found = drain.plan(self.world(known=known, outdated=outdated), ["a"])
        assert (of(found).to, self.ASSUMED in found.assumptions) == (to, to == "z")


def test_profiles_in_config_maps() -> None:
    own = "kind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: vms}, {schedulerName: odd, plugins: []}, 1]\n"
    found = profiles_in([config_map(a=own, b="{", c="[1]", d="kind: Other"), ConfigMap()])
    assert {*found} == {"vms", "kubevirt"}
    assert profiles_in([config_map(a=SPREAD_FILE.read_text())]) == SHIPPED_PROFILES
    extended = "kind: KubeSchedulerConfiguration\nextenders: [{prioritizeVerb: x}]\nprofiles: [{schedulerName: vms}]\n"
    assert profiles_in([config_map(a=extended)])["vms"].has_scoring_extender
    # A list where it was asked for nothing keeps the profiles of before.
    assert profiles_in([]) == ASSUMED_PROFILES


def test_files_may_have_the_second_scheduler(tmp_path: Path) -> None:
    data = {"config.yaml": (SPREAD_FILE.parent / "pack.yaml").read_text()}
    metadata = {"name": "kubevirt-scheduler", "namespace": "kubevirt-scheduler"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}}
    objects = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, service]
    (tmp_path / "cluster.yaml").write_text(
        yaml.safe_dump_all([*objects, {"apiVersion": "v1", "kind": "Node", **node("a")}])
    )
    found = from_files(tmp_path)
    assert found.profiles["kubevirt"].fills
    assert [each.meta.name for each in found.services] == ["web"]
