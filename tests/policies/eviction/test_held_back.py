"""Evictions of VMs whose migrations KubeVirt would let wait."""

from __future__ import annotations

import pytest

from tests.builders import Json, installed
from tests.policies.eviction.world import decide, facts, vmi
from webhook.admission.reasons import common, eviction
from webhook.facts import KubeVirtKey
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.releases.capabilities import parse_version
from webhook.kubevirt.releases.release import release_of
from webhook.kubevirt.rules import rules_of


@pytest.mark.parametrize(
    ("version", "code"), [("1.7", common.ELIGIBLE), ("1.8", eviction.HELD_BACK), ("1.9", eviction.HELD_BACK)]
)
@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"utilityVolumes": [{"name": "scratch"}]}, {}),
        ({}, {"changedBlockTracking": {"backupStatus": {"backupName": "nightly"}}}),
    ],
)
def test_a_vm_whose_migrations_kubevirt_holds_back(version: str, code: str, spec: Json, status: Json) -> None:
    """Since 1.8 its migration would wait, and take a place of the descheduler's meanwhile."""
    parsed = parse_version(version)
    assert parsed
    found = vmi(**status)
    found["spec"] |= spec
    known = facts(found) | {KubeVirtKey(): installed(ClusterConfig(rules=rules_of(release_of(parsed))))}

    assert decide(known).code == code


def test_a_completed_backup_holds_nothing_back() -> None:
    backup = {"backupName": "nightly", "completed": True}

    assert decide(facts(vmi(changedBlockTracking={"backupStatus": backup}))).code == common.ELIGIBLE
