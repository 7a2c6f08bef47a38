"""The profiles of schedulers, as their configurations have them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from bench.placement.profiles import SPREAD_FILE
from webhook.placement.profiles import (
    FIT,
    IMAGES,
    OTHER,
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
    with pytest.raises(msgspec.ValidationError):
        Profile.of({"plugins": []})


def test_which_profile_a_scheduler_has() -> None:
    found = [profile_of(SHIPPED_PROFILES, name) for name in ("", "default-scheduler", "kubevirt", "another")]
    assert found == [STOCK, STOCK, SHIPPED, OTHER]
