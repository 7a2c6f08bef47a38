"""What the oracle lets a review know."""

from __future__ import annotations

from typing import Any

from webhook.facts import Facts, Key, ObjectKey, from_memory, uncached_key
from webhook.kubevirt.resources import CLUSTER_INSTANCETYPES, VMIS

from .model import _LazyFacts

SIZE: Key[Any] = ObjectKey(CLUSTER_INSTANCETYPES, "", "u1.small")
UNCACHED = uncached_key(SIZE)
VMI: Key[Any] = ObjectKey(VMIS, "demo", "web")


def test_what_a_store_has_said_stays_beside_what_the_api_server_says_later() -> None:
    """A policy decides by the one and, before it denies, again by the other."""
    facts: Facts = _LazyFacts.knowing({SIZE: "before", VMI: "read", UNCACHED: "now"}, 0.0)
    assert facts.informer_keys() == [SIZE]
    assert from_memory(facts.all(SIZE, VMI)) == ("before", "read")
    assert from_memory(facts.uncached().all(SIZE, VMI)) == ("now", "read")


def test_what_the_api_server_has_said_serves_whoever_asks_later() -> None:
    facts: Facts = _LazyFacts.knowing({UNCACHED: "now"}, 0.0)
    assert (from_memory(facts.get(SIZE)), facts.informer_keys()) == ("now", [])
