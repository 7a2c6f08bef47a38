"""Which MigrationPolicy applies, as migrationpolicy_test.go of KubeVirt 1.9 has it, and what it sets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.migrationpolicy import MigrationPolicy, MigrationRules, match_policy, migration_rules

VMI, SPACE = {"app": "web", "size": "l"}, {"team": "shop", "stage": "live"}


def policy(name: str, vmi: dict[str, str] | None = None, space: dict[str, str] | None = None, **spec: Any) -> Any:
    selectors = {"virtualMachineInstanceSelector": vmi, "namespaceSelector": space}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}, MigrationPolicy)


@pytest.mark.parametrize(
    ("policies", "wanted"),
    [
        ([], None),
        ([policy("a", {"app": "db"})], None),
        ([policy("a", {"app": "web"}, {"team": "lab"})], None),
        ([policy("a", {"app": "web"}), policy("b", {"app": "web"}, {"team": "shop"})], "b"),
        ([policy("a", space={"team": "shop"}), policy("b", {"app": "web"})], "b"),
        ([policy("b", {"app": "web"}), policy("a", {"size": "l"})], "a"),
        ([policy("a", {"app": "web"}), policy("b", space=SPACE)], "b"),
        ([msgspec.convert({"metadata": {"name": "a"}, "spec": {}}, MigrationPolicy)], None),
        ([policy("a")], "a"),
    ],
)
def test_the_most_detailed_policy_applies(policies: list[MigrationPolicy], wanted: str | None) -> None:
    found = match_policy(policies, VMI, SPACE)
    assert (found.meta.name if found else None) == wanted


def test_no_selector_counts_for_a_vmi_without_labels() -> None:
    """KubeVirt looks at selectors only where the VMI has labels, at those of namespaces as well."""
    assert match_policy([policy("a", {"app": "db"}, {"team": "lab"})], None, SPACE)


@pytest.mark.parametrize(
    ("cluster", "spec", "post_copy", "disruption"),
    [
        ({}, {}, False, False),
        ({"allowPostCopy": True}, {}, True, True),
        ({"allowPostCopy": True, "allowWorkloadDisruption": False}, {}, True, False),
        ({}, {"allowPostCopy": True}, True, True),
        ({"allowWorkloadDisruption": True}, {"allowPostCopy": False}, False, False),
        ({"allowPostCopy": True}, {"allowWorkloadDisruption": False}, True, False),
    ],
)
def test_disruption_follows_post_copy(cluster: Any, spec: Any, post_copy: bool, disruption: bool) -> None:
    found = migration_rules(ClusterConfig.of({"migrations": cluster}), policy("a", **spec))
    assert (found.allows_post_copy, found.allows_disruption) == (post_copy, disruption)


def test_a_policy_sets_what_it_names() -> None:
    cluster = ClusterConfig.of({"migrations": {"bandwidthPerMigration": "64Mi", "experimental": {"stallDetector": {}}}})
    assert migration_rules(cluster) == MigrationRules(64 * 2**20, 150, detects_stalls=True)
    found = migration_rules(ClusterConfig(), policy("a", bandwidthPerMigration="1Mi", completionTimeoutPerGiB=9))
    assert found == MigrationRules(2**20, 9, policy="a")
