from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.builders import changed
from tests.golden_files import Golden
from tests.install.memory import InstallMemory, Json
from webhook.errors import InputError
from webhook.install import registration
from webhook.install.registration import (
    NOT_YET,
    Registration,
    RegistrationTarget,
    advise,
    configurations,
    during_rollout,
)
from webhook.k8s.client.api import ApiConnectionError
from webhook.k8s.types.meta import ApiStatus
from webhook.policies.eviction.settings import EvictionSettings
from webhook.policies.headroom.settings import HeadroomSettings
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.policies.migration.settings import MigrationSettings
from webhook.policies.registry import POLICIES
from webhook.settings.model import MatchExpression, NamespaceSelector, Settings

DOMAIN = "kubevirt-webhook.github.io"
IN_CLUSTER = RegistrationTarget()
VM_RULES = f"virtualmachines.instancetypes.{{}}.{DOMAIN}"
MIGRATION_RULES = f"virtualmachineinstancemigrations.migration.enforce.{DOMAIN}"


def made(**sections: Any) -> Settings:
    return changed(builders.settings(), **sections)


def entries(settings: Settings | None = None, target: RegistrationTarget = IN_CLUSTER, kind: str = "") -> Json:
    return {
        entry["name"]: entry
        for configuration in configurations(settings or builders.settings(), target)
        for entry in configuration.get("webhooks", ())
        if configuration["kind"].startswith(kind)
    }


def entry(resource: str, stage: str = "enforce", **settings: Any) -> Json:
    found: Json = entries(builders.settings(**settings))[f"{resource}.scheduling.{stage}.{DOMAIN}"]
    return found


def conditions(entry: Json) -> dict[str, str]:
    return {each["name"]: each["expression"] for each in entry.get("matchConditions", ())}


def test_three_configurations_sort_around_kubevirts_own() -> None:
    made = configurations(builders.settings())
    names = [(each["kind"], each["metadata"]["name"]) for each in made]

    assert names == [
        ("MutatingWebhookConfiguration", "kubevirt-webhook"),
        ("MutatingWebhookConfiguration", "zz-kubevirt-webhook"),
        ("ValidatingWebhookConfiguration", "kubevirt-webhook"),
    ]
    assert names[0][1] < "virt-api-mutator" < "virt-launcher-pod-mutator" < names[1][1] > "stork-webhook"
    # Pods alone are seen last. What validates is called at once.
    are_pods = [{entry["rules"][0]["resources"][0][:4] == "pods" for entry in each["webhooks"]} for each in made]
    assert are_pods[:2] == [{False}, {True}]


def test_pods_come_last_and_again() -> None:
    pods = entry("pods")
    assert pods["reinvocationPolicy"] == "IfNeeded"
    assert pods["objectSelector"] == {"matchLabels": {"kubevirt.io": "virt-launcher"}}
    created = {"apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    assert pods["rules"] == [{"apiGroups": [""], **created, "scope": "Namespaced"}]
    assert entry("virtualmachines")["reinvocationPolicy"] == "Never"


def test_no_entry_has_an_empty_part() -> None:
    """The API server stores none, so that kubectl would find a difference each time."""
    assert [name for name, entry in entries().items() if not all(entry.values())] == []


@pytest.mark.control("outage-blocks-the-cluster")
def test_what_every_entry_promises() -> None:
    same = {"sideEffects": "None", "timeoutSeconds": 3, "matchPolicy": "Equivalent", "admissionReviewVersions": ["v1"]}
    for name, each in entries().items():
        # Only where no drain can be held up: migrations that add a selector.
        validates = name == MIGRATION_RULES and each["matchConditions"][0]["name"] == "adds-a-selector"
        assert each.items() >= {**same, "failurePolicy": "Fail" if validates else "Ignore"}.items()
        assert "caBundle" not in each["clientConfig"]
        (rule,) = each["rules"]
        resource, policy, *_ = name.split(".")
        assert "objectSelector" not in each or resource in ("pods", "virtualmachineinstances")
        assert rule["resources"] == ["pods/eviction" if "eviction" in (policy, resource[:-1]) else resource]
    # Events are a side effect.
    assert {each["sideEffects"] for each in entries(made(events=True)).values()} == {"NoneOnDryRun"}


@pytest.mark.parametrize(
    ("stage", "settings", "operator", "values"),
    [
        ("enforce", {}, "In", ["enforce"]),
        ("observe", {}, "In", ["warn", "audit"]),
        ("enforce", {"cluster_wide": True}, "NotIn", ["off", "warn", "audit"]),
    ],
)
def test_opting_in(stage: str, settings: Json, operator: str, values: list[str]) -> None:
    first = entry("pods", stage, **settings)["namespaceSelector"]["matchExpressions"][0]
    assert first == {"key": f"{DOMAIN}/scheduling", "operator": operator, "values": values}


@pytest.mark.control("outage-blocks-the-cluster", "takeover-lies")
def test_namespaces_that_are_never_matched() -> None:
    """And more selectors from the settings."""
    more = NamespaceSelector(match_expressions=(MatchExpression(key="team", operator="Exists"),))
    settings = builders.settings(cluster_wide=True)
    webhooks = changed(settings.webhooks, namespace_selector=more)
    for each in entries(changed(settings, webhooks=webhooks)).values():
        _, excluded, *_, last = each["namespaceSelector"]["matchExpressions"]
        assert (excluded["key"], excluded["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        assert {"kube-system", "kubevirt", "kubevirt-webhook"} <= set(excluded["values"])
        assert last == {"key": "team", "operator": "Exists"}


def test_resources_that_are_switched_off_are_not_asked_about() -> None:
    def asked(settings: Settings) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name in entries(settings):
            resource, policy, *_ = name.split(".")
            found.setdefault(policy, set()).add(resource)
        return found

    everything = {policy.name: {each.segment for each in policy.endpoints} for policy in POLICIES}
    assert everything["instancetypes"] == {"virtualmachines", "virtualmachineinstances"}
    watching = changed(builders.settings(), headroom=HeadroomSettings(enabled=True))
    assert asked(watching) == everything | {"scheduling": {"pods", "virtualmachines"}}
    del everything["headroom"]
    assert asked(builders.settings()) == everything | {"scheduling": {"pods", "virtualmachines"}}

    other = builders.settings(virtual_machines=False, virtual_machine_instances=True)
    off = InstancetypeSettings(virtual_machines=False, virtual_machine_instances=False)
    del everything["instancetypes"]
    assert asked(changed(other, instancetypes=off)) == everything | {"scheduling": {"pods", "virtualmachineinstances"}}


def test_service_and_url() -> None:
    path = "/mutate/scheduling/pods/enforce"
    service = {"namespace": "kubevirt-webhook", "name": "kubevirt-webhook", "port": 443, "path": path}
    assert entry("pods")["clientConfig"]["service"] == service
    target = RegistrationTarget("https://localhost:8443/", b"PEM", "-local", only_ignore=True)
    assert entries(target=target)[f"pods.scheduling.enforce.{DOMAIN}"]["clientConfig"] == {
        "url": f"https://localhost:8443{path}",
        "caBundle": base64.b64encode(b"PEM").decode(),
    }
    assert configurations(builders.settings(), target)[1]["metadata"]["name"] == "zz-kubevirt-webhook-local"


@pytest.mark.control("takeover-lies")
def test_the_account_is_exact_where_kubevirt_is_known() -> None:
    made_by = conditions(entry("pods", kubevirt_namespace="cnv"))["made-by-kubevirt"]
    assert '"system:serviceaccount:cnv:kubevirt-controller"' in made_by


def test_evictions_are_denied_before_kubevirt_hears_of_them() -> None:
    mutating = configurations(made(eviction=EvictionSettings(requesters=("a/b", "c"))))[1]
    found = next(each for each in mutating["webhooks"] if each["name"].startswith("pods.eviction.enforce."))

    assert (mutating["kind"], mutating["metadata"]["name"]) == ("MutatingWebhookConfiguration", "zz-kubevirt-webhook")
    assert (found["reinvocationPolicy"], found["failurePolicy"]) == ("Never", "Ignore")
    assert found["clientConfig"]["service"]["path"] == "/mutate/eviction/pods/enforce"
    # The object is the Eviction, which has none of its pod's labels.
    assert "objectSelector" not in found
    assert list(conditions(found)) == ["of-a-launcher-pod", "requested-by", "not-by-kubevirt"]
    requested = 'object.metadata.annotations["requested-by"] in ["a/b", "c"]'
    assert conditions(found)["requested-by"].endswith(requested)
    # Pods that copy disks have other names.
    mutating = configurations(made(eviction=EvictionSettings(protect_transfers_seconds=1)))[1]
    found = next(each for each in mutating["webhooks"] if each["name"].startswith("pods.eviction.enforce."))
    assert list(conditions(found)) == ["requested-by", "not-by-kubevirt"]


def failing(policy: Any, kubevirt_namespace: str = "") -> Settings:
    place = {"failure_policy": policy, "kubevirt_namespace": kubevirt_namespace}
    return changed(
        builders.settings(),
        instancetypes=changed(InstancetypeSettings(), **place),
        migration=changed(MigrationSettings(), **place),
    )


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
def test_an_admin_chooses_what_becomes_of_requests_while_nobody_answers(policy: str) -> None:
    every = entries(failing(policy))
    fails = {name for name, each in entries(failing(policy), kind="V").items() if each["failurePolicy"] == "Fail"}

    assert every.keys() == entries().keys()
    assert fails == ({VM_RULES.format("enforce"), MIGRATION_RULES} if policy == "Fail" else set())
    only_ignore = entries(failing(policy), RegistrationTarget(only_ignore=True), "V")
    mutating = entries(failing(policy), kind="M")
    assert {each["failurePolicy"] for each in (*only_ignore.values(), *mutating.values())} == {"Ignore"}


@pytest.mark.control("allow-list-while-down")
def test_kubevirts_own_updates_pass_where_nobody_answers() -> None:
    def exempt(settings: Settings, stage: str = "enforce") -> str | None:
        return conditions(entries(settings, kind="V")[VM_RULES.format(stage)]).get("no-update-by-kubevirt")

    assert exempt(builders.settings()) is exempt(failing("Fail"), "observe") is None
    accounts = '["system:serviceaccount:cnv:kubevirt-controller", "system:serviceaccount:cnv:kubevirt-apiserver"]'
    for place, part in (("cnv", accounts), ("", 'endsWith(":kubevirt-controller")')):
        expression = exempt(failing("Fail", place)) or ""
        assert part in expression
        assert expression.startswith('request.operation == "CREATE" || ')
        assert expression.endswith("object.spec.instancetype == oldObject.spec.instancetype))")


# -- registering -------------------------------------------------------------------------------------------------------

FIRST, LAST, CHECKING = (
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{name}kubevirt-webhook"
    for kind, name in (("mutating", ""), ("mutating", "zz-"), ("validating", ""))
)


async def denial(api: InstallMemory) -> str:
    """Why the configurations cannot be registered."""
    with pytest.raises(InputError) as caught:
        await Registration(api).register(configurations(builders.settings()))
    return str(caught.value)


async def registered(api: InstallMemory) -> Registration:
    made = Registration(api)
    await made.register(configurations(builders.settings()))
    return made


@pytest.fixture
def api() -> InstallMemory:
    return InstallMemory()


async def test_registers_and_takes_back(api: InstallMemory) -> None:
    made = await registered(api)
    assert api.objects.keys() == {FIRST, LAST, CHECKING}
    assert await made.unregister() == []
    assert api.objects == {}
    assert await made.unregister() == []


async def test_refuses_to_overwrite_and_leaves_nothing_behind(api: InstallMemory, golden: Golden) -> None:
    api.put(CHECKING, {"metadata": {"name": "kubevirt-webhook", "uid": "foreign"}})
    golden(await denial(api))
    assert {path: found["metadata"]["uid"] for path, found in api.objects.items()} == {CHECKING: "foreign"}


HERE = RegistrationTarget(url="https://192.0.2.1:8443", ca_bundle=b"new", suffix="-local", only_ignore=True)


@pytest.mark.parametrize(
    ("url", "is_replaced"),
    [("https://192.0.2.1:8443", True), ("https://192.0.2.1:8444", False), ("https://192.0.2.2:8443", False)],
)
async def test_what_a_killed_server_left_is_replaced_if_this_one_has_its_url(
    api: InstallMemory, url: str, is_replaced: bool
) -> None:
    former = Registration(api)
    await former.register(configurations(builders.settings(), msgspec.structs.replace(HERE, url=url, ca_bundle=b"old")))
    before = set(api.objects)
    made = Registration(api)
    if is_replaced:
        await made.register(configurations(builders.settings(), HERE))
        assert len(made.replaced) == 3
        bundles = {one["clientConfig"]["caBundle"] for each in api.objects.values() for one in each["webhooks"]}
        assert bundles == {base64.b64encode(b"new").decode()}
        return
    with pytest.raises(InputError) as caught:
        await made.register(configurations(builders.settings(), HERE))
    assert set(api.objects) == before
    # One command removes all three.
    assert all(f"configuration/{path.rpartition('/')[2]}" in caught.value.fix for path in before)


async def test_refusal_of_the_api_server_is_told(api: InstallMemory, golden: Golden) -> None:
    api.answers["POST", LAST] = 403, {"message": "forbidden: no rights"}
    golden(await denial(api))
    assert api.objects == {}


@pytest.mark.parametrize("theirs", [False, True])
async def test_creation_without_an_answer_is_taken_back_if_it_happened(
    api: InstallMemory, theirs: bool, golden: Golden
) -> None:
    def lose(path: str) -> None:
        if api.wrote[-1] == f"POST {LAST}":
            if theirs:
                api.objects[path]["webhooks"][0]["clientConfig"] = {"url": "https://elsewhere"}
            raise ApiConnectionError("no answer")

    api.then = lose
    golden(await denial(api))
    assert api.objects.keys() == ({LAST} if theirs else set())


@pytest.mark.parametrize("is_executed", [False, True])
async def test_a_creation_that_times_out_in_etcd_is_tried_again(
    api: InstallMemory, is_executed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep(_: float) -> None:
        api.answers.clear()
        if is_executed:
            api.put(LAST, next(one for one in configurations(builders.settings()) if one["metadata"]["name"][0] == "z"))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    api.answers["POST", LAST] = 500, {"message": "etcdserver: request timed out"}
    made = await registered(api)
    assert api.objects.keys() == {FIRST, LAST, CHECKING}
    assert await made.unregister() == []
    assert api.objects == {}


async def test_what_a_failed_registration_leaves_behind_is_told(api: InstallMemory, golden: Golden) -> None:
    api.answers = {("POST", LAST): (403, {"message": "forbidden: no rights"}), ("DELETE", FIRST): (500, b"not json")}
    golden(await denial(api))


async def test_what_somebody_replaced_is_not_ours_to_delete(api: InstallMemory) -> None:
    made = await registered(api)
    api.objects[FIRST]["metadata"]["uid"] = "foreign"
    assert await made.unregister() == []
    assert api.objects.keys() == {FIRST}


async def test_what_can_not_be_deleted_is_told(api: InstallMemory, golden: Golden) -> None:
    made = await registered(api)
    api.answers["DELETE", "kubevirt-webhook"] = 500, b"not json"
    problems = await made.unregister()
    assert len(problems) == 3
    golden("\n".join(problems))


@pytest.mark.parametrize(
    "url",
    [
        *("http://h", "h:8443", "https://", "https://[::1", "https://h:99999", "https://héllo:8443"),
        *("https://h:9/pre", "https://h?x=1", "https://u:p@h"),
    ],
)
def test_urls_that_nobody_can_call(url: str, golden: Golden) -> None:
    with pytest.raises(InputError) as caught:
        registration.check_url(url)
    golden(str(caught.value))


@pytest.mark.parametrize("url", ["https://localhost:8443", "https://h/", "https://[::1]:8443", "https://10.0.0.1"])
def test_urls_that_can_be_called(url: str) -> None:
    registration.check_url(url)


def staged(name: str, bundle: str = "", **more: Any) -> Json:
    config = {"url": f"https://localhost/{name}", **({"caBundle": bundle} if bundle else {})}
    return {"name": name, "clientConfig": config, "matchConditions": [{"name": "c", "expression": "true"}], **more}


def configuration(*entries: Json) -> Json:
    return {"kind": "K", "metadata": {"name": "n"}, **({"webhooks": list(entries)} if entries else {})}


def test_what_stays_stays_as_it_was_what_goes_is_gone_what_comes_matches_nothing() -> None:
    new = {**staged("comes"), "matchConditions": [NOT_YET]}
    wanted = configuration(staged("stays", timeoutSeconds=2), staged("comes"))
    live = configuration(staged("goes", "PEM"), staged("stays", "PEM", timeoutSeconds=1))

    assert during_rollout(wanted, live) == configuration(staged("stays", timeoutSeconds=1), new)
    assert live["webhooks"][1]["clientConfig"]["caBundle"] == "PEM"
    # The first time nothing matches, and one without entries is left without.
    for first in (None, configuration()):
        assert during_rollout(configuration(staged("comes")), first) == configuration(new)
    assert during_rollout(configuration(), live) == during_rollout(configuration(), None) == configuration()


def test_uncallable() -> None:
    wanted = configuration(staged("one"), staged("two"), staged("three"))
    assert registration.uncallable(wanted, None) == ["one", "two", "three"]
    live = configuration(staged("one", "PEM"), staged("two"))
    assert registration.uncallable(wanted, live) == ["two", "three"]
    assert registration.uncallable(configuration(), None) == []


@pytest.mark.parametrize(
    ("status", "message", "another_account"),
    [
        *((status, 'deployments.apps is forbidden: User "x" cannot', True) for status in (401, 403)),
        (403, 'pods "a" is forbidden: exceeded quota: small, requested: pods=1', False),
    ],
)
def test_what_an_account_may_not_needs_another_one_and_what_admission_denies_does_not(
    status: int, message: str, another_account: bool
) -> None:
    advice = advise(status, ApiStatus(message=message), "patch it")
    assert advice
    assert ("account" in advice) is another_account
    # What an answer does not show is not made up.
    assert advise(500, ApiStatus(message="etcd is away"), "patch it") == ""
