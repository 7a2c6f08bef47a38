"""The policies as the settings have them; tests/e2e shows what a real API server makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from webhook import names
from webhook.errors import InputError
from webhook.install.policies import MIGRATION_POLICY, SCHEDULER_POLICY, policies
from webhook.settings.file import parse

HEALTH_CHECK = "schedulers: {kubevirt: {healthCheck: pods}}\n"


def made(text: str = "") -> dict[tuple[str, str], Any]:
    return {
        (one["kind"], one["metadata"]["name"]): one
        for one in policies(parse(f"{HEALTH_CHECK}{text}".encode(), "settings"))
    }


def expressions(text: str = "") -> list[str]:
    spec = made(text)["ValidatingAdmissionPolicy", MIGRATION_POLICY]["spec"]
    return [one["expression"] for one in spec["validations"]]


def test_every_binding_has_its_policy() -> None:
    found = made()
    policies_of = {name for kind, name in found if kind.endswith("Policy")}

    assert policies_of == {SCHEDULER_POLICY, MIGRATION_POLICY}
    bound = [one["spec"]["policyName"] for (kind, _), one in found.items() if kind.endswith("Binding")]
    assert set(bound) == policies_of


def test_without_a_scheduler_there_is_none_to_write() -> None:
    found = policies(parse(b"schedulers: {}\nscheduling: {spread: hostname}", "settings"))

    assert {one["kind"] for one in found} == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert SCHEDULER_POLICY not in {one["metadata"]["name"] for one in found}


def test_reserved_keys_are_the_settings_matter() -> None:
    with_them = expressions()

    assert len(expressions("migration: {reservedKeys: allow}")) == len(with_them) - 1


def test_the_right_to_choose_nodes_is_asked_of_the_api_server() -> None:
    deny = "migration: {requireRight: true, viaVirtctl: deny}"
    (asked,) = set(expressions(deny)) - set(expressions())
    assert ".resource('migrationtargets').namespace(request.namespace).check('use')" in asked
    assert "username" not in asked

    place = "kubevirt: {namespace: virt}\nmigration: {requireRight: true}"
    (asked,) = set(expressions(place)) - set(expressions())
    assert "request.userInfo.username == 'system:serviceaccount:virt:kubevirt-apiserver'" in asked


def test_an_account_that_any_tenant_can_have_is_nobodys() -> None:
    with pytest.raises(InputError, match=r"kubevirt\.namespace"):
        made("migration: {requireRight: true}")


@pytest.mark.parametrize(("text", "operator"), [("", "In"), ("scheduling: {clusterWide: true}", "NotIn")])
def test_namespaces_are_chosen_as_by_the_webhooks(text: str, operator: str) -> None:
    binding = made(text)["MutatingAdmissionPolicyBinding", SCHEDULER_POLICY]
    opted, excluded = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]

    assert (opted["key"], opted["operator"]) == (names.policy_label(names.SCHEDULING), operator)
    assert "kube-system" in excluded["values"]
