from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests import builders
from tests.install.memory import InstallMemory
from webhook.errors import InputError
from webhook.install.registration import (
    NOT_YET,
    Registration,
    RegistrationTarget,
    advise,
    check_url,
    configurations,
    stage,
    uncallable,
)
from webhook.k8s.client.api import ApiConnectionError
from webhook.k8s.types.meta import ApiStatus
from webhook.settings.model import EvictionSettings, InstancetypeSettings, MigrationSettings, Settings

IN_CLUSTER = RegistrationTarget()
LABEL = "kubevirt-webhook.github.io/scheduling"


def entries(settings: Settings | None = None, target: RegistrationTarget = IN_CLUSTER) -> dict[str, dict[str, Any]]:
    return {
        entry["name"]: entry
        for configuration in configurations(settings or builders.settings(), target)
        for entry in configuration.get("webhooks", ())
    }


def entry(resource: str, stage: str = "enforce", **settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = entries(builders.settings(**settings))[
        f"{resource}.scheduling.{stage}.kubevirt-webhook.github.io"
    ]
    return found


def test_three_configurations_sort_around_kubevirts_own() -> None:
    names = [(c["kind"], c["metadata"]["name"]) for c in configurations(builders.settings())]

    assert names == [
        ("MutatingWebhookConfiguration", "kubevirt-webhook"),
        ("MutatingWebhookConfiguration", "zz-kubevirt-webhook"),
        ("ValidatingWebhookConfiguration", "kubevirt-webhook"),
    ]
    mutating = [name for kind, name in names if kind.startswith("Mutating")]
    assert mutating[0] < "virt-api-mutator" < "virt-launcher-pod-mutator" < mutating[1]
    assert mutating[1] > "stork-webhook"


def test_pods_come_last_and_again() -> None:
    pods = entry("pods")

    assert pods["reinvocationPolicy"] == "IfNeeded"
    assert pods["objectSelector"] == {"matchLabels": {"kubevirt.io": "virt-launcher"}}
    created = {"apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    assert pods["rules"] == [{"apiGroups": [""], **created, "scope": "Namespaced"}]
    assert entry("virtualmachines")["reinvocationPolicy"] == "Never"


def test_events_are_a_side_effect() -> None:
    settings = msgspec.structs.replace(builders.settings(), events=True)
    found = [entry for manifest in configurations(settings) for entry in manifest.get("webhooks", ())]

    assert {entry["sideEffects"] for entry in found} == {"NoneOnDryRun"}


def test_what_every_entry_promises() -> None:
    for name, each in entries().items():
        # Only where no drain can be held up: migrations that add a selector.
        refusing = name == "virtualmachineinstancemigrations.migration.enforce.kubevirt-webhook.github.io"
        validates = refusing and each["matchConditions"][0]["name"] == "adds-a-selector"
        assert each["failurePolicy"] == ("Fail" if validates else "Ignore")
        assert each["sideEffects"] == "None"
        assert each["timeoutSeconds"] == 3
        assert each["matchPolicy"] == "Equivalent"
        assert each["admissionReviewVersions"] == ["v1"]
        assert "caBundle" not in each["clientConfig"]
        assert "objectSelector" not in each or each["rules"][0]["resources"] == ["pods"]
        (rule,) = each["rules"]
        resource, policy, *_ = name.split(".")
        assert rule["resources"] == ["pods/eviction" if policy == "eviction" else resource]


@pytest.mark.parametrize(
    ("stage", "settings", "operator", "values"),
    [
        ("enforce", {}, "In", ["enforce"]),
        ("observe", {}, "In", ["warn", "audit"]),
        ("enforce", {"cluster_wide": True}, "NotIn", ["off", "warn", "audit"]),
    ],
)
def test_opting_in(stage: str, settings: dict[str, Any], operator: str, values: list[str]) -> None:
    first = entry("pods", stage, **settings)["namespaceSelector"]["matchExpressions"][0]

    assert first == {"key": LABEL, "operator": operator, "values": values}


def test_namespaces_that_are_never_matched() -> None:
    for each in entries(builders.settings(cluster_wide=True)).values():
        excluded = each["namespaceSelector"]["matchExpressions"][1]
        assert (excluded["key"], excluded["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        assert {"kube-system", "kubevirt", "kubevirt-webhook"} <= set(excluded["values"])


def test_more_selectors_from_the_settings() -> None:
    more = {"key": "team", "operator": "Exists"}
    settings = builders.settings()
    webhooks = msgspec.structs.replace(settings.webhooks, namespace_selector=(more,))

    for each in entries(msgspec.structs.replace(settings, webhooks=webhooks)).values():
        assert each["namespaceSelector"]["matchExpressions"][-1] == more


def test_resources_that_are_switched_off_are_not_asked_about() -> None:
    def asked(settings: Settings) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name in entries(settings):
            resource, policy, *_ = name.split(".")
            found.setdefault(policy, set()).add(resource)
        return found

    both = {"virtualmachines", "virtualmachineinstances"}
    others = {"migration": {"pods", "virtualmachineinstancemigrations"}, "eviction": {"pods"}}
    assert asked(builders.settings()) == {"scheduling": {"pods", "virtualmachines"}, "instancetypes": both, **others}

    other = builders.settings(virtual_machines=False, virtual_machine_instances=True)
    off = InstancetypeSettings(virtual_machines=False, virtual_machine_instances=False)
    other = msgspec.structs.replace(other, instancetypes=off)
    assert asked(other) == {"scheduling": {"pods", "virtualmachineinstances"}, **others}


def test_service_and_url() -> None:
    assert entry("pods")["clientConfig"]["service"] == {
        "namespace": "kubevirt-webhook",
        "name": "kubevirt-webhook",
        "port": 443,
        "path": "/mutate/scheduling/pods/enforce",
    }
    target = RegistrationTarget("https://localhost:8443/", b"PEM", "-local", only_ignore=True)
    by_url = entries(target=target)["pods.scheduling.enforce.kubevirt-webhook.github.io"]
    assert by_url["clientConfig"] == {
        "url": "https://localhost:8443/mutate/scheduling/pods/enforce",
        "caBundle": base64.b64encode(b"PEM").decode(),
    }
    assert configurations(builders.settings(), target)[1]["metadata"]["name"] == "zz-kubevirt-webhook-local"


def test_the_account_is_exact_where_kubevirt_is_known() -> None:
    conditions = {c["name"]: c["expression"] for c in entry("pods", kubevirt_namespace="cnv")["matchConditions"]}

    assert '"system:serviceaccount:cnv:kubevirt-controller"' in conditions["made-by-kubevirt"]


def test_evictions_are_vetoed_before_kubevirt_hears_of_them() -> None:
    settings = msgspec.structs.replace(builders.settings(), eviction=EvictionSettings(requesters=("a/b", "c")))
    mutating = configurations(settings)[1]
    found = next(each for each in mutating["webhooks"] if each["name"].startswith("pods.eviction.enforce."))

    assert (mutating["kind"], mutating["metadata"]["name"]) == ("MutatingWebhookConfiguration", "zz-kubevirt-webhook")
    assert (found["reinvocationPolicy"], found["failurePolicy"]) == ("Never", "Ignore")
    assert found["clientConfig"]["service"]["path"] == "/mutate/eviction/pods/enforce"
    assert found["rules"][0]["resources"] == ["pods/eviction"]
    # The object is the Eviction, which has none of its pod's labels.
    assert "objectSelector" not in found
    conditions = {one["name"]: one["expression"] for one in found["matchConditions"]}
    assert list(conditions) == ["of-a-launcher-pod", "requested-by", "not-by-kubevirt"]
    assert conditions["requested-by"].endswith('object.metadata.annotations["requested-by"] in ["a/b", "c"]')


_VM_RULES = "virtualmachines.instancetypes.{}.kubevirt-webhook.github.io"
_MIGRATION_RULES = "virtualmachineinstancemigrations.migration.enforce.kubevirt-webhook.github.io"


def validating(settings: Settings, target: RegistrationTarget = IN_CLUSTER) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in configurations(settings, target)[2]["webhooks"]}


def failing(policy: Any, **changes: Any) -> Settings:
    return msgspec.structs.replace(
        builders.settings(**changes),
        instancetypes=InstancetypeSettings(failure_policy=policy),
        migration=MigrationSettings(failure_policy=policy),
    )


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
def test_an_admin_chooses_what_becomes_of_requests_while_nobody_answers(policy: str) -> None:
    every = entries(failing(policy))
    fails = {name for name, each in validating(failing(policy)).items() if each["failurePolicy"] == "Fail"}

    assert fails == ({_VM_RULES.format("enforce"), _MIGRATION_RULES} if policy == "Fail" else set())
    assert all(
        each["failurePolicy"] == "Ignore"
        for each in validating(failing(policy), RegistrationTarget(only_ignore=True)).values()
    )
    mutating = [each for manifest in configurations(failing(policy))[:2] for each in manifest["webhooks"]]
    assert {each["failurePolicy"] for each in mutating} == {"Ignore"}
    assert set(every) == set(entries())


def test_kubevirts_own_updates_pass_where_nobody_answers() -> None:
    def exempt(settings: Settings, stage: str = "enforce") -> str | None:
        conditions = validating(settings)[_VM_RULES.format(stage)]["matchConditions"]
        return {each["name"]: each["expression"] for each in conditions}.get("no-update-by-kubevirt")

    assert exempt(builders.settings()) is None
    assert exempt(failing("Fail"), "observe") is None
    known, unknown = exempt(failing("Fail", kubevirt_namespace="cnv")), exempt(failing("Fail"))
    assert known
    assert unknown
    assert '["system:serviceaccount:cnv:kubevirt-controller", "system:serviceaccount:cnv:kubevirt-apiserver"]' in known
    assert 'endsWith(":kubevirt-controller")' in unknown
    for expression in (known, unknown):
        assert expression.startswith('request.operation == "CREATE" || ')
        assert expression.endswith("object.spec.instancetype == oldObject.spec.instancetype))")


MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
FIRST, LAST, CHECKING = (
    f"{MUTATING}/kubevirt-webhook",
    f"{MUTATING}/zz-kubevirt-webhook",
    f"{VALIDATING}/kubevirt-webhook",
)


async def denial(api: InstallMemory) -> str:
    """Why the configurations cannot be registered."""
    with pytest.raises(InputError) as caught:
        await Registration(api).register(configurations(builders.settings()))
    return str(caught.value)


async def test_registers_and_takes_back() -> None:
    api = InstallMemory()
    registration = Registration(api)
    await registration.register(configurations(builders.settings()))

    assert api.objects.keys() == {FIRST, LAST, CHECKING}
    assert await registration.unregister() == []
    assert api.objects == {}
    assert await registration.unregister() == []


async def test_refuses_to_overwrite_and_leaves_nothing_behind(golden: Callable[[str], None]) -> None:
    api = InstallMemory()
    api.put(CHECKING, {"metadata": {"name": "kubevirt-webhook", "uid": "foreign"}})

    golden(await denial(api))
    assert {path: found["metadata"]["uid"] for path, found in api.objects.items()} == {CHECKING: "foreign"}


async def test_refusal_of_the_api_server_is_told(golden: Callable[[str], None]) -> None:
    api = InstallMemory()
    api.answers["POST", LAST] = 403, {"message": "forbidden: no rights"}

    golden(await denial(api))
    assert api.objects == {}


@pytest.mark.parametrize("theirs", [False, True])
async def test_creation_without_an_answer_is_taken_back_if_it_happened(
    theirs: bool, golden: Callable[[str], None]
) -> None:
    def lose(path: str) -> None:
        if api.wrote[-1] == f"POST {LAST}":
            if theirs:
                api.objects[path]["webhooks"][0]["clientConfig"] = {"url": "https://elsewhere"}
            raise ApiConnectionError("no answer")

    api = InstallMemory()
    api.then = lose

    golden(await denial(api))
    assert api.objects.keys() == ({LAST} if theirs else set())


async def test_what_a_failed_registration_leaves_behind_is_told(golden: Callable[[str], None]) -> None:
    api = InstallMemory()
    api.answers = {("POST", LAST): (403, {"message": "forbidden: no rights"}), ("DELETE", FIRST): (500, b"not json")}

    golden(await denial(api))


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "h:8443",
        "https://",
        "https://[::1",
        "https://h:99999",
        "https://héllo:8443",
        "https://h:9/pre",
        "https://h?x=1",
        "https://u:p@h",
    ],
)
def test_urls_that_nobody_can_call(url: str, golden: Callable[[str], None]) -> None:
    with pytest.raises(InputError) as caught:
        check_url(url)
    golden(str(caught.value))


@pytest.mark.parametrize("url", ["https://localhost:8443", "https://h/", "https://[::1]:8443", "https://10.0.0.1"])
def test_urls_that_can_be_called(url: str) -> None:
    check_url(url)


async def test_what_somebody_replaced_is_not_ours_to_delete() -> None:
    api = InstallMemory()
    registration = Registration(api)
    await registration.register(configurations(builders.settings()))
    api.objects[FIRST]["metadata"]["uid"] = "foreign"

    assert await registration.unregister() == []
    assert api.objects.keys() == {FIRST}


async def test_what_can_not_be_deleted_is_told(golden: Callable[[str], None]) -> None:
    api = InstallMemory()
    registration = Registration(api)
    await registration.register(configurations(builders.settings()))
    api.answers["DELETE", "kubevirt-webhook"] = 500, b"not json"

    problems = await registration.unregister()
    assert len(problems) == 3
    golden("\n".join(problems))


def staged(name: str, bundle: str = "", **more: Any) -> dict[str, Any]:
    config = {"url": f"https://localhost/{name}", **({"caBundle": bundle} if bundle else {})}
    return {"name": name, "clientConfig": config, "matchConditions": [{"name": "c", "expression": "true"}], **more}


def configuration(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "K", "metadata": {"name": "n"}, **({"webhooks": list(entries)} if entries else {})}


def test_what_stays_stays_as_it_was_what_goes_is_gone_what_comes_matches_nothing() -> None:
    wanted = configuration(staged("stays", timeoutSeconds=2), staged("comes"))
    live = configuration(staged("goes", "PEM"), staged("stays", "PEM", timeoutSeconds=1))

    assert stage(wanted, live) == configuration(
        staged("stays", timeoutSeconds=1), {**staged("comes"), "matchConditions": [NOT_YET]}
    )
    assert live["webhooks"][1]["clientConfig"]["caBundle"] == "PEM"


def test_the_first_time_nothing_matches() -> None:
    for live in (None, configuration()):
        (only,) = stage(configuration(staged("comes")), live)["webhooks"]
        assert only["matchConditions"] == [NOT_YET]


def test_one_without_entries_is_left_without() -> None:
    assert stage(configuration(), configuration(staged("goes"))) == configuration()
    assert stage(configuration(), None) == configuration()


def test_uncallable() -> None:
    wanted = configuration(staged("one"), staged("two"), staged("three"))

    assert uncallable(wanted, None) == ["one", "two", "three"]
    assert uncallable(wanted, configuration(staged("one", "PEM"), staged("two"))) == ["two", "three"]
    assert uncallable(configuration(), None) == []


@pytest.mark.parametrize("status", [401, 403])
def test_an_account_without_a_permission_needs_another_account(status: int) -> None:
    assert "account" in advise(status, ApiStatus(message='deployments.apps is forbidden: User "x" cannot'), "patch it")


@pytest.mark.parametrize(
    "message",
    [
        'pods "a" is forbidden: exceeded quota: small, requested: pods=1',
        'admission webhook "x" denied the request: no',
        'ValidatingAdmissionPolicy "x" with binding "y" denied request: no',
        'pods "a" is forbidden: violates PodSecurity "restricted:latest"',
    ],
)
def test_what_admission_denies_needs_no_other_account(message: str) -> None:
    advice = advise(403, ApiStatus(message=message), "patch it")

    assert advice
    assert "account" not in advice


def test_what_an_answer_does_not_show_is_not_made_up() -> None:
    assert advise(500, ApiStatus(message="etcd is away"), "patch it") == ""
