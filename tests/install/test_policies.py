"""The policies as the settings have them; tests/e2e shows what a real API server makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.install.memory import HEALTH_CHECK
from webhook import names
from webhook.errors import InputError
from webhook.install.policies import policies
from webhook.policies.migration.admission_policies import NAME as MIGRATION_POLICY
from webhook.policies.scheduling.admission_policies import NAME as SCHEDULER_POLICY
from webhook.settings_file import parse


def made(text: str = "", schedulers: str = HEALTH_CHECK) -> dict[tuple[str, str], Any]:
    found = policies(parse(f"{schedulers}{text}".encode(), "settings"))
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def expressions(text: str = "") -> set[str]:
    spec = made(text)["ValidatingAdmissionPolicy", MIGRATION_POLICY]["spec"]
    return {one["expression"] for one in spec["validations"]}


def test_every_binding_has_its_policy() -> None:
    for found, expected in (
        (made(), {SCHEDULER_POLICY, MIGRATION_POLICY}),
        # Without a scheduler there is none to write.
        (made("scheduling: {spread: hostname}", "schedulers: {}\n"), {MIGRATION_POLICY}),
    ):
        assert {name for kind, name in found if kind.endswith("Policy")} == expected
        assert {one["spec"]["policyName"] for (kind, _), one in found.items() if kind.endswith("Binding")} == expected


def test_reserved_keys_are_the_settings_matter() -> None:
    assert len(expressions("migration: {reservedKeys: allow}")) == len(expressions()) - 1


def test_the_right_to_choose_nodes_is_asked_of_the_api_server() -> None:
    (asked,) = expressions("migration: {requireRight: true, viaVirtctl: deny}") - expressions()
    assert ".resource('migrationtargets').namespace(request.namespace).check('use')" in asked
    assert "username" not in asked
    (asked,) = expressions("kubevirt: {namespace: virt}\nmigration: {requireRight: true}") - expressions()
    assert "request.userInfo.username == 'system:serviceaccount:virt:kubevirt-apiserver'" in asked


@pytest.mark.control("account-of-kubevirts-name")
def test_an_account_that_any_tenant_can_have_is_nobodys() -> None:
    with pytest.raises(InputError, match=r"kubevirt\.namespace"):
        made("migration: {requireRight: true}")


@pytest.mark.parametrize(("text", "operator"), [("", "In"), ("scheduling: {clusterWide: true}", "NotIn")])
def test_namespaces_are_chosen_as_by_the_webhooks(text: str, operator: str) -> None:
    binding = made(text)["MutatingAdmissionPolicyBinding", SCHEDULER_POLICY]
    opted, excluded = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert (opted["key"], opted["operator"]) == (names.policy_label(names.SCHEDULING), operator)
    assert "kube-system" in excluded["values"]
