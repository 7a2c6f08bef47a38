"""A cluster of three nodes in which VM shop/web01 is about to start, with room for it or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.builders import Json, changed
from tests.builders import launcher_pod as launcher
from tests.builders import review as review_of
from tests.forecast.clusters import node, vm
from tests.placement.headroom.fleets import headroom
from tests.policies.decisions import answered, deciding
from webhook.admission.decision import Decision
from webhook.facts import NOT_READ, Facts, HeadroomKey, Key, ListKey, VerdictKey, uncached_key
from webhook.placement.headroom.headroom import Headroom
from webhook.placement.headroom.pods import KnownVm
from webhook.placement.quota import QUOTAS
from webhook.policies.headroom.settings import HeadroomSettings

PATH = "/validate/headroom/pods/enforce"
QUOTAS_OF_DEMO = ListKey(QUOTAS, "demo")


def starting_pod(memory: str = "1Gi", **metadata: Any) -> Json:
    """The launcher pod of VM demo/web01 at CREATE."""
    pod = launcher(containers=[{"name": "compute", "resources": {"requests": {"cpu": "100m", "memory": memory}}}])
    pod["metadata"] |= {"name": "virt-launcher-web01-abcde"} | metadata
    return pod


def cluster(full: bool = False, *, strategy: str = "Always", vms: int = 2) -> Headroom:
    """Two nodes can hold what runs on the three, and no more if they are full."""
    nodes = [node(name) for name in "abc"]
    size = "2500Mi" if full else "1Gi"
    found = headroom(nodes, [vm(f"{place}{number}", place, size) for place in "abc" for number in range(vms)])
    found.put_vm(("demo", "web01"), KnownVm(strategy))
    return found


def facts(found: Headroom | None = None, *quotas: Any) -> dict[Key[Any], object]:
    return {HeadroomKey(): found or cluster(), QUOTAS_OF_DEMO: quotas}


def review(pod: Json | None = None, **request: Any) -> Json:
    return review_of(pod or starting_pod(), **request)


def decide(
    known: Mapping[Key[Any], object], body: Json | None = None, *, verified: bool = True, **settings: Any
) -> Decision:
    section = changed(HeadroomSettings(), **{"enabled": True} | settings)
    found = judging(Facts.of(known, verified=verified))
    decision, _ = answered(deciding(PATH, body or review(), found, section), again(known))
    return decision


def again(known: Mapping[Key[Any], object]) -> dict[Key[Any], object]:
    """What is read once more, which has not changed meanwhile."""
    return {uncached_key(key): fact for key, fact in known.items()}


def judging(found: Facts) -> Facts:
    """Facts of which those of starts are decided at once."""
    found._peek = decided
    return found


class Answers(dict[Key[Any], object]):
    """Facts, and the verdicts on starts."""

    def __missing__(self, key: Key[Any]) -> object:
        found = decided(key)
        if found is NOT_READ:
            raise KeyError(key)
        return found


def decided(key: Key[Any]) -> object:
    """The verdict on a start; of another fact, nothing."""
    return key.judge() if isinstance(key, VerdictKey) else NOT_READ
