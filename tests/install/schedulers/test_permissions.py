"""The second scheduler may do what a kube-scheduler of each version does, and no more."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.install.manifests import MANIFESTS
from webhook.install.schedulers.permissions import UPSTREAM_ROLES, Permission, granted, missing_reads, needed
from webhook.install.schedulers.render import VARIANTS

ROLES: dict[str, dict[str, list[Any]]] = yaml.safe_load(
    (MANIFESTS.parent / "tests" / "data" / "scheduler-roles.yaml").read_text()
)


def upstream(version: str) -> list[Any]:
    return [rule for role in UPSTREAM_ROLES for rule in ROLES[version][role]]


def shipped(variant: str = "spread") -> list[Any]:
    documents = yaml.safe_load_all((MANIFESTS / "rendered" / f"scheduler-{variant}.yaml").read_text())
    (role,) = (one for one in documents if one["kind"] == "ClusterRole")
    rules: list[Any] = role["rules"]
    return rules


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("version", ROLES)
def test_a_scheduler_of_each_version_has_all_that_it_needs(version: str, variant: str) -> None:
    """One that may not list a kind waits for it indefinitely, and places no pod."""
    assert needed(upstream(version)) - granted(shipped(variant)) == set()


def test_it_has_nothing_that_no_version_needs() -> None:
    assert granted(shipped()) - {each for version in ROLES for each in needed(upstream(version))} == set()


def test_the_newest_version_of_the_tests_is_recorded() -> None:
    assert {version.rpartition(".")[0] for version in ROLES} >= {f"v1.{minor}" for minor in range(30, 38)}


def test_what_a_newer_version_lists_is_missing_and_secrets_or_wildcards_never_are() -> None:
    future = [
        {"apiGroups": ["resource.k8s.io"], "resources": ["devicepools"], "verbs": ["get", "list", "watch", "update"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"], "resourceNames": ["one"]},
    ]

    assert missing_reads([*upstream("v1.37.2"), *future], shipped()) == [
        Permission("resource.k8s.io", "devicepools", "list"),
        Permission("resource.k8s.io", "devicepools", "watch"),
    ]
