"""The profiles of schedulers, as their configurations have them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from bench.placement.profiles import SPREAD_FILE
from webhook.placement.profiles import (
    ASSUMED_OTHER,
    BALANCE,
    FIT,
    IMAGES,
    OTHER,
    POD_AFFINITY,
    SHIPPED,
    SHIPPED_PROFILES,
    SPREAD,
    STOCK,
    TAINTS,
    Profile,
    profile_of,
    profiles_of,
)


def shipped(variant: str) -> Any:
    ((_, profile),) = profiles_of(yaml.safe_load((SPREAD_FILE.parent / f"{variant}.yaml").read_text()))
    return profile


def scored(*disabled: str, point: str = "score", **enabled: int | None) -> Profile:
    listed = [{"name": name, "weight": weight} for name, weight in enabled.items()]
    return Profile.of({"plugins": {point: {"disabled": [{"name": name} for name in disabled], "enabled": listed}}})


def test_the_shipped_profile_is_the_one_of_the_manifest() -> None:
    assert Profile.of(shipped("spread")) == SHIPPED
    assert SHIPPED_PROFILES["kubevirt"] == SHIPPED


def test_variants() -> None:
    pack = Profile.of(shipped("pack"))
    assert (pack.fills, pack.weight(FIT), pack.weight(IMAGES), pack.unknown) == (True, 10, 0, ())
    assert Profile.of(shipped("load-aware")).unknown == ("LoadVariationRiskBalancing",)
    packing = Profile.of(shipped("load-aware-pack"))
    assert (packing.unknown, packing.weight(FIT)) == (("TargetLoadPacking",), 0)


def test_weights() -> None:
    assert Profile.of({}) == STOCK
    assert scored(IMAGES) == OTHER
    assert scored("*", NodeResourcesFit=None).weights == ((FIT, 1),)
    assert scored(SPREAD, PodTopologySpread=7).weight(SPREAD) == 7
    assert scored(TAINTS, point="multiPoint").weight(TAINTS) == 0
    assert scored(point="multiPoint", DefaultBinder=None, Own=4).unknown == ("Own",)
    assert scored(DynamicResources=2) == STOCK


def test_arguments() -> None:
    def arguments(plugin: str, **args: Any) -> Profile:
        return Profile.of({"pluginConfig": [{"name": plugin, "args": args}]})

    assert arguments(FIT, scoringStrategy={"type": "RequestedToCapacityRatio"}).unknown == (
        "NodeResourcesFit (RequestedToCapacityRatio)",
    )
    resources = [{"name": "cpu", "weight": 3}, {"name": "nvidia.com/gpu"}]
    assert arguments(FIT, scoringStrategy={"resources": resources}).resources == (("cpu", 3), ("nvidia.com/gpu", 1))
    assert not arguments(SPREAD, defaultingType="List").spreads_services
    assert arguments(SPREAD, defaultingType="List").unknown == ()
    with pytest.raises(msgspec.ValidationError):
        Profile.of({"plugins": []})


@pytest.mark.parametrize(
    ("plugin", "args", "named"),
    [
        ("NodeAffinity", {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}, "addedAffinity"),
        (POD_AFFINITY, {"hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": False}, ""),
        (POD_AFFINITY, {"hardPodAffinityWeight": 50}, "hardPodAffinityWeight"),
        (POD_AFFINITY, {"hardPodAffinityWeight": 0}, "hardPodAffinityWeight"),
        (POD_AFFINITY, {"ignorePreferredTermsOfExistingPods": True}, "ignorePreferredTermsOfExistingPods"),
        (SPREAD, {"defaultingType": "List", "defaultConstraints": [{"topologyKey": "zone"}]}, "defaultConstraints"),
        (SPREAD, {"defaultingType": "List", "defaultConstraints": []}, ""),
        (BALANCE, {"resources": [{"name": "memory", "weight": 5}, {"name": "cpu"}]}, ""),
        (BALANCE, {"resources": [{"name": "cpu"}, {"name": "memory"}, {"name": "nvidia.com/gpu"}]}, "resources"),
        (FIT, {"ignoredResources": ["example.com/licence"]}, "ignoredResources"),
        (FIT, {"ignoredResourceGroups": ["example.com"]}, "ignoredResourceGroups"),
        ("DefaultPreemption", {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100}, ""),
        ("DefaultPreemption", {"minCandidateNodesAbsolute": 5}, "minCandidateNodesAbsolute"),
        ("VolumeBinding", {"apiVersion": "v1", "kind": "VolumeBindingArgs", "bindTimeoutSeconds": 60}, ""),
        ("VolumeBinding", {"shape": [{"utilization": 0, "score": 1}]}, "shape"),
        # Arguments of a plugin that the profile does not name have no effect, and others are named themselves.
        ("Own", {"anything": 1}, ""),
    ],
)
def test_arguments_that_are_not_evaluated_are_named(plugin: str, args: Any, named: str) -> None:
    """docs/drain.md promises it, and that a plan is by nothing that is not true."""
    found = Profile.of({"pluginConfig": [{"name": plugin, "args": args}]})
    assert found.unknown == ((f"{plugin} ({named})",) if named else ())


def test_arguments_of_plugins_that_do_not_score_do_not_matter() -> None:
    config = [{"name": BALANCE, "args": {"resources": [{"name": "nvidia.com/gpu"}]}}]
    assert Profile.of({"plugins": {"score": {"disabled": [{"name": BALANCE}]}}, "pluginConfig": config}).unknown == ()


@pytest.mark.parametrize(
    ("plugins", "named"),
    [
        ({"filter": {"disabled": [{"name": TAINTS}]}}, ("TaintToleration (disabled as a filter)",)),
        ({"multiPoint": {"disabled": [{"name": SPREAD}]}}, ("PodTopologySpread (disabled as a filter)",)),
        ({"multiPoint": {"disabled": [{"name": SPREAD}]}, "filter": {"enabled": [{"name": SPREAD}]}}, ()),
        ({"multiPoint": {"disabled": [{"name": "NodePorts"}]}}, ()),
        ({"postFilter": {"disabled": [{"name": "*"}]}}, ("DefaultPreemption (disabled)",)),
        ({"filter": {"enabled": [{"name": "NodeResourceTopologyMatch"}]}}, ("NodeResourceTopologyMatch",)),
        ({"multiPoint": {"enabled": [{"name": "Own"}, {"name": "DefaultBinder"}]}}, ("Own",)),
        ({"bind": {"enabled": [{"name": "Own"}]}}, ()),
    ],
)
def test_filters_that_are_missing_and_plugins_of_others_are_named(plugins: Any, named: tuple[str, ...]) -> None:
    assert Profile.of({"plugins": plugins}).unknown == named


def test_extenders_are_named_and_those_that_score_are_known() -> None:
    layers = yaml.safe_load((SPREAD_FILE.parent / "layers.yaml").read_text())["extenders"]
    found = [Profile.of({}, each) for each in (layers, [{"filterVerb": "filter"}], [{"bindVerb": "bind"}], None)]
    assert [(each.unknown, each.has_scoring_extender) for each in found] == [
        (("extenders",), True),
        (("extenders",), False),
        ((), False),
        ((), False),
    ]
    with pytest.raises(msgspec.ValidationError):
        Profile.of({}, {"prioritizeVerb": "x"})


def test_which_profile_a_scheduler_has() -> None:
    found = [profile_of(SHIPPED_PROFILES, name) for name in ("", "default-scheduler", "kubevirt", "another")]
    assert found == [STOCK, STOCK, SHIPPED, ASSUMED_OTHER]
