"""MigrationPolicies, and how a migration ends by them (pkg/virt-controller/watch/migration/migrationpolicy.go, 1.9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from webhook.k8s.quantity import nanos
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object, View
from webhook.kubevirt.config import ClusterConfig


class Selectors(View, frozen=True):
    """``spec.selectors`` of a MigrationPolicy: labels that a VMI and its namespace must have."""

    namespace_selector: dict[str, str] | None = None
    virtual_machine_instance_selector: dict[str, str] | None = None


class MigrationPolicySpec(View, frozen=True):
    """``spec`` of a MigrationPolicy, as far as it decides over times."""

    selectors: Selectors | None = None
    bandwidth_per_migration: str | int | float | None = None
    completion_timeout_per_gib: int | None = msgspec.field(default=None, name="completionTimeoutPerGiB")
    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    experimental: dict[str, Any] | None = None


class MigrationPolicy(Object, frozen=True):
    """A MigrationPolicy (migrations.kubevirt.io/v1alpha1)."""

    spec: MigrationPolicySpec | None = None


MIGRATION_POLICIES: Final = Resource(
    "migrations.kubevirt.io", "v1alpha1", "migrationpolicies", "MigrationPolicy", False, MigrationPolicy
)


class MigrationRules(msgspec.Struct, frozen=True):
    """What decides how long a migration may take.

    Attributes:
        bandwidth: bytes per second that it may copy; 0: as many as it can.
        timeout_seconds_per_gib: 0: it is never ended.
        allows_post_copy: past its time it is switched to post-copy, which has no end of its own.
        allows_disruption: past its time the guest is paused, for as long again.
        detects_stalls: deadlines of the experimental stall detection replace these.
        policy: the name of the MigrationPolicy; empty: the cluster's configuration alone.
    """

    bandwidth: int
    timeout_seconds_per_gib: int
    allows_post_copy: bool = False
    allows_disruption: bool = False
    detects_stalls: bool = False
    policy: str = ""

    def longest(self, size: int | None) -> int | None:
        """How many seconds KubeVirt lets so many bytes be copied; None: it sets no end, or the size is not known.

        It counts whole gigabytes, 10**9 (pkg/virt-launcher/virtwrap/live-migration-source.go).
        """
        if not self.timeout_seconds_per_gib or size is None or self.detects_stalls:
            return None
        if self.allows_post_copy and self.allows_disruption:
            return None
        # A guest that is paused gets the same time again.
        return self.timeout_seconds_per_gib * -(-size // 10**9) * (2 if self.allows_disruption else 1)


def match_policy(
    policies: Iterable[MigrationPolicy], labels: Mapping[str, str] | None, namespace: Mapping[str, str] | None
) -> MigrationPolicy | None:
    """The policy that applies to a VMI: the one with most labels, then with most of the VMI's, then the first by name.

    The labels are the VMI's and those of its namespace. Without any of the VMI's, KubeVirt looks at no selector, and
    every policy that has selectors matches.
    """
    best: tuple[tuple[int, int], MigrationPolicy] | None = None
    for policy in sorted(policies, key=lambda each: each.meta.name or ""):
        selectors = policy.spec.selectors if policy.spec else None
        if selectors is None:
            continue
        own = (selectors.virtual_machine_instance_selector or {}) if labels else {}
        around = (selectors.namespace_selector or {}) if labels else {}
        if own.items() <= (labels or {}).items() and around.items() <= (namespace or {}).items():
            score = (len(own) + len(around), len(own))
            if best is None or score > best[0]:
                best = (score, policy)
    return best[1] if best else None


def migration_rules(configuration: ClusterConfig, policy: MigrationPolicy | None = None) -> MigrationRules:
    """The rules of a migration: the cluster's configuration with what a policy sets (applyMigrationPolicySpec)."""
    limit = configuration.migration_bandwidth
    spec = (policy.spec if policy else None) or MigrationPolicySpec()
    disruption = configuration.allow_workload_disruption
    if disruption is None:
        disruption = configuration.allow_post_copy
    # Of a policy that says nothing else, disruption follows post-copy.
    override = next((each for each in (spec.allow_workload_disruption, spec.allow_post_copy) if each is not None), None)
    own = None if spec.bandwidth_per_migration is None else nanos(spec.bandwidth_per_migration)
    timeout = spec.completion_timeout_per_gib
    return MigrationRules(
        bandwidth=(limit.value if limit else 0) if own is None else -(-own // 10**9),
        timeout_seconds_per_gib=configuration.migration_timeout_seconds_per_gib if timeout is None else timeout,
        allows_post_copy=configuration.allow_post_copy if spec.allow_post_copy is None else spec.allow_post_copy,
        allows_disruption=disruption if override is None else override,
        detects_stalls=configuration.detects_stalls or bool((spec.experimental or {}).get("stallDetector") is not None),
        policy=(policy.meta.name or "") if policy else "",
    )
