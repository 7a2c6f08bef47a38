from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests import builders
from tests.builders import known, namespace
from webhook.admission.reasons import common
from webhook.errors import Unavailable
from webhook.facts import Facts, KubeVirtKey, NamespaceKey
from webhook.kubevirt.config import KubeVirtInstall
from webhook.names import Mode, Stage
from webhook.review.endpoints import ENDPOINTS
from webhook.review.scope import Scope, of_namespace
from webhook.settings.model import InstancetypeSettings, MigrationSettings, Settings

EXCLUDED = frozenset({"kube-system"})


def scope(
    stage: Stage = "enforce",
    where: str = "demo",
    cluster_wide: bool = False,
    facts: dict[Any, object] | None = None,
    **more: Any,
) -> Scope:
    there = facts if facts is not None else known(**more)
    return of_namespace("scheduling", stage, where, Facts.of(there), cluster_wide, EXCLUDED)


@pytest.mark.parametrize(
    ("label", "stage", "mode"),
    [
        *(("enforce", "enforce", "enforce"), ("warn", "observe", "warn"), ("audit", "observe", "audit")),
        # Either copy of the namespace may be old: never more than the path allows, never more than the label says.
        *(("enforce", "observe", "audit"), ("warn", "enforce", "warn"), ("audit", "enforce", "audit")),
        *((label, stage, "off") for label in ("off", None) for stage in ("enforce", "observe")),
        ("Enforce", "enforce", "off"),
        ("", "enforce", "off"),
    ],
)
def test_mode_by_label_and_path(label: str | None, stage: Stage, mode: Mode) -> None:
    found = scope(stage, mode=label)
    assert (found.mode, found.reason is None) == (mode, mode != "off")


def test_cluster_wide_enforces_where_no_label_says_otherwise() -> None:
    for label, mode in ((None, "enforce"), ("off", "off"), ("warn", "warn")):
        assert scope(cluster_wide=True, mode=label).mode == mode


def test_parameters_are_the_annotations() -> None:
    found = scope(scheduler_name="batch")
    assert found.parameters == {"kubevirt-webhook.github.io/scheduler-name": "batch"}


@pytest.mark.parametrize("where", ["kube-system", "kubevirt"])
def test_excluded_namespaces(where: str) -> None:
    found = scope(where=where, cluster_wide=True)
    assert (found.mode, found.reason and found.reason.code) == ("off", common.EXCLUDED_NAMESPACE)


def test_objects_without_a_namespace() -> None:
    assert scope(where="").mode == "off"


def test_namespace_that_has_just_opted_in_is_read_again() -> None:
    facts = known() | {NamespaceKey("demo"): namespace(None)}
    assert scope(facts=facts).mode == "enforce"


@pytest.mark.parametrize(("read", "said"), [(None, "it does not exist"), (Unavailable("too slow"), "too slow")])
def test_unreadable_namespace_is_asked_for_once(read: Any, said: str) -> None:
    """A watched copy never says so: the API server did."""
    facts = known() | {NamespaceKey("demo"): read}
    del facts[NamespaceKey("demo", fresh=True)]
    found = scope(facts=facts)
    assert found.reason
    assert (found.mode, found.reason.code, said in found.reason.text) == ("off", common.NAMESPACE_UNREADABLE, True)


def test_where_kubevirt_runs_may_be_unknown() -> None:
    facts = known() | {KubeVirtKey(): Unavailable("forbidden")}
    assert scope(facts=facts).mode == "enforce"
    assert scope(facts=known() | {KubeVirtKey(): KubeVirtInstall(frozenset({"demo"}))}).mode == "off"


def test_vms_get_their_instancetype_before_their_scheduler() -> None:
    policies = [
        e.policy for e in ENDPOINTS if (e.resource, e.verb, e.stage) == ("virtualmachines", "mutate", "enforce")
    ]
    assert policies == ["instancetypes", "scheduling"]


def test_faults_of_ours_stand_in_the_way_where_an_admin_wants_it_only() -> None:
    usual = builders.settings()
    strict, lax = (
        msgspec.structs.replace(
            usual,
            instancetypes=InstancetypeSettings(failure_policy=policy),
            migration=MigrationSettings(failure_policy=policy),
        )
        for policy in ("Fail", "Ignore")
    )

    def refusing(settings: Settings) -> set[str]:
        return {endpoint.path for endpoint in ENDPOINTS if endpoint.fails_closed(settings)}

    migrations = {f"/validate/migration/virtualmachineinstancemigrations/{s}" for s in ("enforce", "observe")}
    vms = {f"/validate/instancetypes/virtualmachines/{s}" for s in ("enforce", "observe")}
    # It matches only migrations with an added selector, which no drain has.
    assert (refusing(usual), refusing(strict), refusing(lax)) == (migrations, migrations | vms, set())
