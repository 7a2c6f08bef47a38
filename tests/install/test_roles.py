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


def load(name: str) -> list[Any]:
    return list(yaml.safe_load_all((Path(__file__).parents[2] / "manifests" / "roles" / f"{name}.yaml").read_text()))


ROLES: dict[str, Any] = {role["metadata"]["name"].partition(":")[2]: role for role in load("migrate")}


def granted(role: Any) -> set[tuple[str, str, str]]:
    parts = [[rule[key] for key in ("apiGroups", "resources", "verbs")] for rule in role["rules"]]
    return {(group, resource, verb) for each in parts for group, resource, verb in product(*each)}


def test_each_role_grants_what_its_name_says() -> None:
    assert ROLES.keys() == {"choose-nodes", "migrate", "explain", "explain-nodes"}
    assert granted(ROLES["choose-nodes"]) == {(names.DOMAIN, PIN_RESOURCE, PIN_VERB)}
    # Nothing that hides who asks.
    migrations = (names.KUBEVIRT_GROUP, "virtualmachineinstancemigrations")
    assert {grant[:2] for grant in granted(ROLES["migrate"])} == {migrations}
    for name in ("explain", "explain-nodes"):
        assert {verb for _, _, verb in granted(ROLES[name])} <= {"get", "list"}


def test_no_role_says_everything() -> None:
    for role in ROLES.values():
        assert (role["apiVersion"], role["kind"]) == ("rbac.authorization.k8s.io/v1", "ClusterRole")
        assert role["metadata"]["name"].startswith("kubevirt-webhook:")
        assert not any("*" in part for grant in granted(role) for part in grant)


def test_the_page_is_got_and_no_resource_with_it() -> None:
    (role,) = load("page")
    assert role["rules"] == [{"nonResourceURLs": [PATH], "verbs": ["get"]}]


def test_pull_secrets_are_read_by_name_in_one_namespace() -> None:
    role, binding = load("pull-secrets")

    assert (role["kind"], binding["kind"], binding["roleRef"]["name"]) == (
        "Role",
        "RoleBinding",
        role["metadata"]["name"],
    )
    assert granted(role) == {("", "secrets", "get")}
    assert all(rule["resourceNames"] for rule in role["rules"])


def test_volumes_are_only_read_by_name() -> None:
    """As the placement of a VM reads them: it lists no claims, and no Secret comes with a volume."""
    role, binding = load("volumes")

    assert granted(role) == {(each.group, each.plural, "get") for each in (CLAIMS, VOLUMES)}
    assert (binding["roleRef"]["name"], binding["subjects"][0]["name"]) == (
        role["metadata"]["name"],
        "kubevirt-webhook",
    )


def test_the_example_binds_kubevirts_role_in_one_namespace_and_admins_get_what_migrating_takes() -> None:
    binding, for_admins = load("bindings")

    assert (binding["kind"], binding["roleRef"]["name"]) == ("RoleBinding", "kubevirt.io:migrate")
    assert [subject["kind"] for subject in binding["subjects"]] == ["Group"]
    assert for_admins["metadata"]["labels"] == {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}
    virtctl = {("subresources.kubevirt.io", "virtualmachines/migrate", "update")}
    assert granted(for_admins) == granted(ROLES["migrate"]) | virtctl
