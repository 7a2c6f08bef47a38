"""What is said without the installed settings, held against what each of many settings comes to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from tests import builders
from tests.attacks.world import NAMESPACE, WORLDS, AttackWorld
from tests.builders import Json, changed
from tests.review.memory import MemoryCluster
from webhook import names
from webhook.admission.audit import NoAudit
from webhook.admission.reasons import common
from webhook.facts import NamespaceKey
from webhook.forecast import certain as certainty
from webhook.forecast.additions import additions_by
from webhook.forecast.certain import CertainReviewer, is_uncertain
from webhook.policies.registry import BY_NAME
from webhook.policies.sizes.policy import SIZES
from webhook.review.reviewer import Evaluation, Reviewer
from webhook.settings.model import Settings
from webhook.settings_file import default_settings

# Namespaces by what their label of the policy says, and whether they have annotations that replace settings.
MODES: Final = (names.ENFORCE, names.AUDIT, names.OFF, "")
INSTALLED: Final = builders.settings()
UNKNOWN: Final = default_settings().standing_in("they cannot be read")


def settings_of(world: AttackWorld) -> Iterator[Settings]:
    """Settings that may be installed: the built-in ones and the world's, each for all namespaces or not."""
    policy = world.endpoint.policy
    for own in ({}, world.settings):
        for everywhere in (False, True):
            section: Any = changed(INSTALLED.policy(policy), cluster_wide=everywhere, **own)
            yield changed(INSTALLED, **{policy: section})


def objects_of(world: AttackWorld, mode: str, *, is_annotated: bool) -> Json:
    objects = world.objects()
    metadata = objects[NAMESPACE]["metadata"]
    labels = {names.policy_label(world.endpoint.policy): mode} if mode else {}
    annotations = metadata["annotations"] if is_annotated else {}
    return objects | {NAMESPACE: {"metadata": {**metadata, "labels": labels, "annotations": annotations}}}


def evaluated(reviewer: Reviewer | CertainReviewer, world: AttackWorld, objects: Json) -> Evaluation:
    return asyncio.run(reviewer.evaluate(world.endpoint, world.body(objects), 1e9))


def cluster_of(world: AttackWorld, objects: Json) -> MemoryCluster:
    facts = world.known(objects)
    return MemoryCluster(facts | {NamespaceKey("demo", uncached=True): facts[NamespaceKey("demo")]})


def of(world: AttackWorld, objects: Json, settings: Settings) -> Evaluation:
    reviewer = Reviewer(cluster_of(world, objects), lambda: settings, NoAudit(), additions=additions_by)
    return evaluated(reviewer, world, objects)


def certain(world: AttackWorld, objects: Json, settings: Settings = UNKNOWN) -> Evaluation:
    return evaluated(CertainReviewer(cluster_of(world, objects), settings), world, objects)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode or "no label")
@pytest.mark.parametrize("is_annotated", [True, False], ids=["annotated", "plain"])
def test_what_is_certain_holds_by_all_settings(world: AttackWorld, mode: str, *, is_annotated: bool) -> None:
    objects = objects_of(world, mode, is_annotated=is_annotated)
    said = certain(world, objects)
    assert said.decision.code != common.BUG
    for settings in settings_of(world):
        real = of(world, objects, settings)
        if said.decision.denial:
            assert said.decision.denial == real.decision.denial
        assert {*map(repr, said.decision.changes)} <= {*map(repr, real.decision.changes)}
        if not is_uncertain(said.decision.reasons):
            assert said.decision == real.decision
            assert (said.mode, said.label, said.patch) == (real.mode, real.label, real.patch)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_known_settings_are_those_that_count(world: AttackWorld) -> None:
    objects = objects_of(world, names.ENFORCE, is_annotated=True)
    for settings in settings_of(world):
        assert msgspec.json.encode(certain(world, objects, settings).decision) == msgspec.json.encode(
            of(world, objects, settings).decision
        )


def test_a_denial_by_an_annotation_may_depend_on_a_setting_beside_it_unless_its_policy_says_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The policy that says nothing about it is the one whose author has not thought of it."""
    denied = []
    for world in WORLDS:
        objects = objects_of(world, names.ENFORCE, is_annotated=True)
        is_of_vms = (world.endpoint.policy, world.endpoint.resource) == (SIZES, "virtualmachines")
        if is_of_vms and certain(world, objects).decision.denial:
            denied.append((world, objects))
    assert denied
    policy = msgspec.structs.replace(BY_NAME[SIZES], annotations_decide=False)
    monkeypatch.setattr(certainty, "BY_NAME", {**BY_NAME, SIZES: policy})
    for world, objects in denied:
        said = certain(world, objects).decision
        assert said.denial is None
        assert is_uncertain(said.reasons)
