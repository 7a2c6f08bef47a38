"""The roles that docs/migration.md offers: they exist as the code asks for them, and grant nothing beyond."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from webhook import names
from webhook.policies.migration.virtualmachineinstancemigrations import PIN_RESOURCE, PIN_VERB

ROLES: dict[str, Any] = {
    role["metadata"]["name"]: role
    for role in yaml.safe_load_all((Path(__file__).parents[2] / "manifests" / "roles" / "migrate.yaml").read_text())
}


def grants(name: str) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in ROLES[name]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_right_to_choose_nodes_is_the_one_that_is_asked_for() -> None:
    assert grants("kubevirt-webhook:choose-nodes") == {(names.DOMAIN, PIN_RESOURCE, PIN_VERB)}


def test_migrating_is_making_migrations_and_nothing_that_hides_who_asks() -> None:
    assert {(group, resource) for group, resource, _ in grants("kubevirt-webhook:migrate")} == {
        (names.KUBEVIRT_GROUP, "virtualmachineinstancemigrations")
    }


def test_explaining_only_reads() -> None:
    for name in ("kubevirt-webhook:explain", "kubevirt-webhook:explain-nodes"):
        assert {verb for _, _, verb in grants(name)} <= {"get", "list"}


def test_no_role_says_everything() -> None:
    assert len(ROLES) == 4
    for name, role in ROLES.items():
        assert (role["apiVersion"], role["kind"]) == ("rbac.authorization.k8s.io/v1", "ClusterRole")
        assert not any("*" in part for grant in grants(name) for part in grant)
