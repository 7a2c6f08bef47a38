"""The minor version of Kubernetes that the tests run on, and what older ones lack."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

# What KUBERNETES=1.34 chooses; empty: the newest, which everything is written for.
OLDER = os.environ.get("KUBERNETES", "")


@dataclass(frozen=True)
class KubernetesFeature:
    """Something that tests need, and that no minor version before ``since`` has without a feature gate."""

    since: str
    what: str

    @property
    def is_there(self) -> bool:
        return not OLDER or _key(OLDER) >= _key(self.since)

    @property
    def why(self) -> str:
        return f"Kubernetes {OLDER} has no {self.what}, which came with {self.since}"


MUTATING_POLICIES = KubernetesFeature("1.36", "MutatingAdmissionPolicy of version v1")
DEVICES_AS_RESOURCES = KubernetesFeature("1.36", "devices that a pod requests as an extended resource")
BALANCE_BY_CHANGE = KubernetesFeature("1.36", "NodeResourcesBalancedAllocation that scores what a pod changes")
EVICTION_REQUESTS = KubernetesFeature("1.37", "EvictionRequests")
BALANCED_CALLS = KubernetesFeature("1.37", "calls of webhooks that are each sent to an endpoint of its own")
WEBHOOK_TOKENS = KubernetesFeature("1.37", "tokens of API servers for webhooks")


def lack(item: pytest.Item) -> str:
    """Why a test cannot run on this version, by its ``kubernetes`` mark; empty: it can."""
    needed = [feature for mark in item.iter_markers("kubernetes") for feature in mark.args]
    return next((feature.why for feature in needed if not feature.is_there), "")


def _key(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))
