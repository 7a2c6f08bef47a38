"""The roles that docs/migration.md offers: they are as the code requires them, and grant nothing else."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import yaml

from webhook import names
from webhook.placement.machines import CLAIMS, VOLUMES
from webhook.policies.migration.virtualmachineinstancemigrations import PIN_RESOURCE, PIN_VERB
from webhook.server.page.views import PATH

DIRECTORY = Path(__file__).parents[2] / "manifests" / "roles"
ROLES: dict[str, Any] = {
    role["metadata"]["name"]: role for role in yaml.safe_load_all((DIRECTORY / "migrate.yaml").read_text())
}
BINDING, FOR_ADMINS = yaml.safe_load_all((DIRECTORY / "bindings.yaml").read_text())


def grants(name: str) -> set[tuple[str, str, str]]:
    return granted(ROLES[name])


def granted(role: Any) -> set[tuple[str, str, str]]:
    parts = [[rule[key] for key in ("apiGroups", "resources", "verbs")] for rule in role["rules"]]
    return {(group, resource, verb) for each in parts for group, resource, verb in product(*each)}


def test_the_right_to_choose_nodes_is_the_one_that_is_asked_for() -> None:
    assert grants("kubevirt-webhook:choose-nodes") == {(names.DOMAIN, PIN_RESOURCE, PIN_VERB)}


def test_migrating_is_making_migrations_and_nothing_that_hides_who_asks() -> None:
    assert {(group, resource) for group, resource, _ in grants("kubevirt-webhook:migrate")} == {
        (names.KUBEVIRT_GROUP, "virtualmachineinstancemigrations")
    }


def test_explaining_only_reads() -> None:
    for name in ("kubevirt-webhook:explain", "kubevirt-webhook:explain-nodes"):
        assert {verb for _, _, verb in grants(name)} <= {"get", "list"}


def test_the_page_is_got_and_no_resource_with_it() -> None:
    role = yaml.safe_load((DIRECTORY / "page.yaml").read_text())

    assert role["rules"] == [{"nonResourceURLs": [PATH], "verbs": ["get"]}]


def test_pull_secrets_are_read_by_name_in_one_namespace() -> None:
    role, binding = yaml.safe_load_all((DIRECTORY / "pull-secrets.yaml").read_text())
    assert (role["kind"], binding["kind"], binding["roleRef"]["name"]) == (
        "Role",
        "RoleBinding",
        role["metadata"]["name"],
    )
    assert granted(role) == {("", "secrets", "get")}
    assert all(rule["resourceNames"] for rule in role["rules"])


def test_volumes_are_only_read_by_name() -> None:
    """As the placement of a VM reads them: it lists no claims, and no Secret comes with a volume."""
    role, binding = yaml.safe_load_all((DIRECTORY / "volumes.yaml").read_text())

    assert granted(role) == {(each.group, each.plural, "get") for each in (CLAIMS, VOLUMES)}
    assert (binding["roleRef"]["name"], binding["subjects"][0]["name"]) == (
        role["metadata"]["name"],
        "kubevirt-webhook",
    )


def test_no_role_says_everything() -> None:
    assert len(ROLES) == 4
    for name, role in ROLES.items():
        assert (role["apiVersion"], role["kind"]) == ("rbac.authorization.k8s.io/v1", "ClusterRole")
        assert not any("*" in part for grant in grants(name) for part in grant)


def test_the_example_binds_kubevirts_role_in_one_namespace() -> None:
    assert (BINDING["kind"], BINDING["roleRef"]["name"]) == ("RoleBinding", "kubevirt.io:migrate")
    assert [subject["kind"] for subject in BINDING["subjects"]] == ["Group"]


def test_admins_get_what_migrating_takes() -> None:
    assert FOR_ADMINS["metadata"]["labels"] == {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}
    virtctl = {("subresources.kubevirt.io", "virtualmachines/migrate", "update")}
    assert granted(FOR_ADMINS) == grants("kubevirt-webhook:migrate") | virtctl
