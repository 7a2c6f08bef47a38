"""What the shipped admission policies cost the API server, by its own count, when an object grows that others write.

Time cannot be asserted, and grows faster than the count: to evaluate an expression that goes through a map takes the
square of the map's size. So a shipped policy goes through no map that others can fill, and its cost does not grow.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hack.controlplane.bundles import CEL_COST, Bundle
from webhook.install import policies
from webhook.install.registration import configurations
from webhook.settings.file import parse

from .support.kube import Json
from .support.manifests import MANIFESTS
from .support.manifests import parse as documents
from .support.migrations import migration
from .support.objects import obj
from .support.workloads import vm

DOMAIN = "kubevirt-webhook.github.io"
ACCOUNT = "system:serviceaccount:kubevirt-webhook:kubevirt-webhook"
N = 1000
SHIPPED = {
    one["metadata"]["name"]: one["spec"]
    for file in ("account.yaml", "validation.yaml")
    for one in documents((MANIFESTS / "base" / file).read_text())
    if one["kind"] == "ValidatingAdmissionPolicy"
}
PRINTED = {
    one["metadata"]["name"] + ("-mutating" if one["kind"].startswith("Mutating") else ""): one["spec"]
    for one in policies.policies(
        parse(
            b'{"schedulers": {"kubevirt": {"healthCheck": "off"}}, "kubevirt": {"namespace": "kubevirt"},'
            b' "migration": {"requireRight": true}}',
            "settings",
        )
    )
    if one["kind"] in ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
}
POLICIES = {**SHIPPED, **PRINTED}


@pytest.fixture(scope="session")
def cel_cost(built: Callable[[Bundle], Path]) -> Path:
    return built(CEL_COST) / "cel-cost"


def count(program: Path, policy: Json, requests: Sequence[Json]) -> list[Json]:
    """The cost and the values of a policy's expressions for each request."""
    given = json.dumps({"policy": policy, "requests": requests})
    done = subprocess.run([program], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[Json] = json.loads(done.stdout)
    return found


def many(number: int) -> dict[str, str]:
    return {f"example.com/key-{index}": "value" for index in range(number)}


def namespace(number: int, where: str) -> Json:
    """A namespace whose label changes, with many labels or annotations beside it."""
    old = obj("Namespace", "shop", **{"labels": {}, "annotations": {}, where: many(number)})
    new = copy.deepcopy(old)
    new["metadata"]["labels"][f"{DOMAIN}/scheduling"] = "off"
    return request("namespaces", new, old)


def machine(number: int, where: str) -> Json:
    new = vm()
    new["metadata"][where] = many(number) | {f"{DOMAIN}/instancetypes": "on"}
    new["spec"]["template"]["metadata"]["annotations"] = many(number)
    return request("virtualmachines", new, vm())


def instance(number: int, where: str) -> Json:
    new = obj("VirtualMachineInstance", "web", **{where: many(number)}, spec={"domain": {}})
    space = obj("Namespace", "shop", **{"annotations": {}, where: many(number)})
    return {**request("virtualmachineinstances", new), "namespace": space}


def selector(number: int, where: str) -> Json:
    """Of more keys than are looked at."""
    made = migration("web", many(number))
    made["metadata"] |= {"name": "away", "namespace": "shop", where: many(number)}
    return request("virtualmachineinstancemigrations", made)


def secret(number: int, where: str) -> Json:
    """Not by the account of the replicas, so that it matters what the policy costs others."""
    old = obj("Secret", "kubevirt-webhook-ca", type="Opaque")
    new = obj("Secret", "kubevirt-webhook-ca", **{where: many(number)}, type="Opaque")
    return request("secrets", new, old, user="admin")


def configuration(number: int, where: str) -> Json:
    (old, *_) = configurations(parse(b"{}", "settings"))
    new = copy.deepcopy(old)
    new["metadata"][where] = many(number)
    new["webhooks"] = [{**old["webhooks"][0], "name": f"a{index}"} for index in range(number)]
    return request("mutatingwebhookconfigurations", new, old, user="admin")


def request(resource: str, new: Json, old: Json | None = None, *, user: str = "owner") -> Json:
    operation = "UPDATE" if old else "CREATE"
    return {"operation": operation, "resource": resource, "user": user, "object": new, "oldObject": old}


GROWING = {
    "kubevirt-webhook-namespaces": namespace,
    "kubevirt-webhook-virtualmachines": machine,
    "kubevirt-webhook-account-secret": secret,
    "kubevirt-webhook-account-configurations": configuration,
    policies.MIGRATION_POLICY: selector,
    policies.SCHEDULER_POLICY: instance,
    f"{policies.SCHEDULER_POLICY}-mutating": instance,
}


def test_every_shipped_policy_is_counted() -> None:
    assert set(GROWING) == set(POLICIES)


@pytest.mark.builds(CEL_COST.name)
@pytest.mark.parametrize("where", ["labels", "annotations"])
@pytest.mark.parametrize("name", GROWING)
def test_the_cost_of_a_policy_does_not_grow_with_what_others_write(cel_cost: Path, name: str, where: str) -> None:
    once, twice = count(cel_cost, POLICIES[name], [GROWING[name](number, where) for number in (N, 2 * N)])

    assert once["values"] == twice["values"]
    assert not [value for value in once["values"] if "error" in value or "no such" in value]
    assert once["cost"] == twice["cost"]


@pytest.mark.builds(CEL_COST.name)
def test_a_policy_that_goes_through_a_map_is_found_out(cel_cost: Path) -> None:
    through = {"validations": [{"expression": "object.metadata.labels.exists(key, key == 'none')"}]}

    once, twice = count(cel_cost, through, [namespace(number, "labels") for number in (N, 2 * N)])

    assert twice["cost"] > 1.9 * once["cost"]


@pytest.mark.builds(CEL_COST.name)
def test_a_whole_configuration_is_compared_within_what_the_api_server_allows(cel_cost: Path) -> None:
    """With every entry and all conditions, by the account of the replicas: a millionth of a second a unit, and 10^7."""
    for made in configurations(parse(b"{}", "settings")):
        resource = f"{made['kind'].lower()}s"
        new = copy.deepcopy(made)
        for entry in new["webhooks"]:
            entry["clientConfig"]["caBundle"] = "eA=="
        (found,) = count(
            cel_cost, SHIPPED["kubevirt-webhook-account-configurations"], [request(resource, new, made, user=ACCOUNT)]
        )

        assert set(found["values"]) == {"true"}
        assert found["cost"] < 1_000_000
