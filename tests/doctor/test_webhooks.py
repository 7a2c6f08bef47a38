from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import MUTATING, VALIDATING, Change, Check, DoctorWorld, both, forbid, remove, sets
from webhook.doctor.installation import DEPLOYMENTS
from webhook.doctor.webhooks import check_order, check_selectors, check_webhooks
from webhook.install.registration import NOT_YET
from webhook.k8s.resources import NAMESPACES
from webhook.kubevirt.resources import KUBEVIRTS

FIRST = "MutatingWebhookConfiguration kubevirt-webhook"
LAST = "MutatingWebhookConfiguration zz-kubevirt-webhook"
VALIDATES = "ValidatingWebhookConfiguration kubevirt-webhook"
REST_OF_A_TRIAL = "; ".join(f"warning {name}-local: leftover" for name in (FIRST, LAST, VALIDATES))
VIRT_HANDLER = {"matchLabels": {"kubevirt.io": "virt-handler"}}
VMS = [{"apiGroups": ["kubevirt.io"], "operations": ["*"], "resources": ["*"]}]
SECRETS = [{"apiGroups": [""], "operations": ["*"], "resources": ["secrets"]}]


def alter(*entries: int, **fields: Any) -> Change:
    return lambda world: [world.entries()[entry].update(fields) for entry in entries]


@pytest.mark.parametrize(
    ("check", "change", "expected"),
    [
        (check_webhooks, lambda _: None, ""),
        (check_webhooks, both(sets(url="https://localhost:8443"), DoctorWorld.register), ""),
        (check_webhooks, remove(VALIDATING, "kubevirt-webhook"), f"failure {VALIDATES}: configuration-missing"),
        (check_webhooks, lambda it: it.entries().pop(0), f"failure {LAST}: entries-missing"),
        (check_webhooks, lambda it: it.entries().append({"name": "x.example.com"}), f"warning {LAST}: entries-foreign"),
        (
            check_webhooks,
            lambda it: it.set("scheduling", virtual_machines=False),
            f"failure {FIRST}: entries-switched-off",
        ),
        (check_webhooks, lambda it: it.entries("kubevirt-webhook").reverse(), f"warning {FIRST}: entries-misordered"),
        (check_webhooks, alter(1, matchConditions=[NOT_YET]), f"failure {LAST}: entries-inactive"),
        (check_webhooks, lambda it: it.register(suffix="-local"), REST_OF_A_TRIAL),
        (check_webhooks, forbid(MUTATING), "unknown MutatingWebhookConfigurations: unreadable"),
        (check_order, lambda it: it.foreign("zzz-stork"), "warning pods: pods-changed-after"),
        # One that never sees launcher pods.
        (check_order, lambda it: it.foreign("zzz-stork", objectSelector=VIRT_HANDLER), ""),
        (check_order, remove(MUTATING, "virt-api-mutator"), "warning VMs: kubevirt-mutator-missing"),
        (check_order, forbid(MUTATING), "unknown webhook configurations: unreadable"),
    ],
)
async def test_what_is_wrong(world: DoctorWorld, check: Check, change: Change, expected: str) -> None:
    assert "; ".join(await world.problems(check, change)) == expected


@pytest.mark.parametrize(
    ("field", "value", "verdict"),
    [
        *(("failurePolicy", "Fail", "failure"), ("timeoutSeconds", 30, "warning")),
        *(("namespaceSelector", {}, "failure"), ("objectSelector", None, "failure"), ("rules", [], "failure")),
        *(("matchConditions", None, "failure"), ("clientConfig", {"url": "https://elsewhere"}, "failure")),
        *(("sideEffects", "NoneOnDryRun", "warning"), ("reinvocationPolicy", "Never", "warning")),
    ],
)
async def test_a_changed_field(world: DoctorWorld, field: str, value: Any, verdict: str) -> None:
    found = await world.run(check_webhooks, alter(0, 1, **{field: value}))
    findings = [finding for finding in found if finding.verdict != "ok"]
    assert [(finding.verdict, finding.code) for finding in findings] == [(verdict, f"field-differs:{field}")]
    assert "pods.scheduling.enforce, pods.scheduling.observe" in findings[0].found


def written_by(*managers: str, annotations: Any = None) -> Change:
    """A Deployment with these field managers; a controller writes the status."""
    entries = [{"manager": each} for each in managers]
    entries.append({"manager": "kube-controller-manager", "subresource": "status"})
    return lambda it: it.deployment(metadata={"managedFields": entries, "annotations": annotations})


@pytest.mark.parametrize(
    ("change", "todo"),
    [
        (written_by("kubevirt-webhook-install"), 'run "kubevirt-webhook install"'),
        (
            written_by("helm", annotations={"meta.helm.sh/release-name": "virt"}),
            'run "helm upgrade virt charts/kubevirt-webhook --namespace kubevirt-webhook --reuse-values"',
        ),
        (written_by("kubectl"), "apply the installation again with the tool that made it (kubectl)"),
        (
            remove(DEPLOYMENTS, "kubevirt-webhook", "kubevirt-webhook"),
            'run "kubevirt-webhook install", or apply the installation again with the tool that made it',
        ),
    ],
)
async def test_what_lacks_is_brought_back_by_the_tool_that_made_the_installation(
    world: DoctorWorld, change: Change, todo: str
) -> None:
    findings = await world.run(check_webhooks, change, remove(MUTATING, LAST.split()[1]))
    assert {finding.todo for finding in findings if finding.verdict != "ok"} == {todo}


UNMATCHED = "ok namespaceSelectors: excluded-not-matched"
MATCHED = [f"failure {LAST}: excluded-matched"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _: None, [UNMATCHED]),
        # Entries that match the same namespaces share a sentence.
        (alter(0, 1, namespaceSelector={}), MATCHED),
        (forbid(KUBEVIRTS), ["unknown KubeVirt's namespace: unreadable", UNMATCHED]),
        (forbid(MUTATING), ["unknown webhook configurations: unreadable"]),
        (forbid(NAMESPACES), ["unknown namespaces: unreadable"]),
    ],
)
async def test_what_selectors_match(world: DoctorWorld, change: Change, expected: list[str]) -> None:
    assert await world.told(check_selectors, change) == expected


@pytest.mark.parametrize("name", ["kube-system", "kubevirt", "kubevirt-webhook"])
async def test_a_selector_without_the_exclusion_matches_who_opted_in(world: DoctorWorld, name: str) -> None:
    assert await world.told(check_selectors, lambda it: it.opt_in(name, scheduling="enforce")) == [UNMATCHED]

    del world.entries()[0]["namespaceSelector"]["matchExpressions"][1]
    (finding,) = await world.run(check_selectors)

    assert (finding.subject, finding.code) == (LAST, "excluded-matched")
    assert finding.found.endswith(f": {name}")


@pytest.mark.parametrize("selector", [None, {}, {"matchExpressions": [{"key": "a", "operator": "Near"}]}])
async def test_kubevirts_namespace_is_found_by_its_object(world: DoctorWorld, selector: Any) -> None:
    world.kubevirt("virtual")
    world.namespace("virtual")
    gone = remove(KUBEVIRTS, "kubevirt", "kubevirt")
    (finding,) = await world.run(check_selectors, gone, alter(0, namespaceSelector=selector))
    assert finding.found.endswith("kube-system, kubevirt, kubevirt-webhook, virtual")
    assert "kubevirt: {namespace: virtual}" in finding.todo


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _: None, ["ok VMs: vms-first", "ok pods: pods-alone"]),
        (lambda it: it.foreign("a-policy", rules=VMS), ["ok VMs: vms-changed-before", "ok pods: pods-alone"]),
        # Other schedulers have the first say; what changes Secrets is no scheduler.
        (
            both(lambda it: it.foreign("stork-webhooks-cfg"), lambda it: it.foreign("zzz-secrets", rules=SECRETS)),
            ["ok VMs: vms-first", "ok pods: pods-last"],
        ),
    ],
)
async def test_the_order_of_calls(world: DoctorWorld, change: Change, expected: list[str]) -> None:
    assert (await world.told(check_order, change))[:2] == expected


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        *(({}, True), ({"failurePolicy": "Fail", "timeoutSeconds": 15}, True), ({"failurePolicy": "Ignore"}, False)),
        *(({"timeoutSeconds": 5}, False), ({"rules": VMS}, True)),
        ({"rules": [{"apiGroups": ["*"], "operations": ["UPDATE"], "resources": ["*"]}]}, False),
        ({"rules": None}, False),
    ],
)
async def test_who_else_can_hold_requests_up(world: DoctorWorld, entry: dict[str, object], told: bool) -> None:
    world.foreign("m-policy", **entry)
    assert ("ok others: others-slow" in await world.told(check_order)) is told


BY_AKS = [
    {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
    {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
]


@pytest.mark.parametrize("added", [BY_AKS, BY_AKS[::-1], [{"key": "control-plane", "operator": "DoesNotExist"}]])
async def test_what_aks_adds_to_a_selector_is_no_failure(world: DoctorWorld, added: list[Any]) -> None:
    selector = world.entries()[0]["namespaceSelector"]
    selector["matchExpressions"] = [*added, *reversed(selector["matchExpressions"])]
    (finding,) = [each for each in await world.run(check_webhooks) if each.verdict != "ok"]
    assert (finding.verdict, finding.subject, finding.code) == ("warning", LAST, "changed-by-aks")
    assert "pods.scheduling.enforce" in finding.found
    assert "kubernetes.azure.com/managedby" in finding.todo


async def test_a_selector_that_lacks_an_expression_is_a_failure_in_aks_too(world: DoctorWorld) -> None:
    world.entries()[0]["namespaceSelector"]["matchExpressions"][1:] = BY_AKS
    assert await world.problems(check_webhooks) == [f"failure {LAST}: field-differs:namespaceSelector"]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"timeoutSeconds": 5}, True),
        *(({"failurePolicy": "Ignore"}, False), ({"rules": SECRETS}, False)),
        ({"clientConfig": {"service": {"namespace": "demo", "name": "admission"}}}, False),
    ],
)
async def test_a_webhook_whose_namespace_was_deleted_denies(
    world: DoctorWorld, entry: dict[str, Any], told: bool
) -> None:
    gone = {"service": {"namespace": "kai-scheduler", "name": "admission"}}
    world.foreign("kai-admission", **({"clientConfig": gone} | entry))
    findings = [each for each in await world.run(check_order) if each.code == "service-gone"]
    assert [(each.verdict, each.subject) for each in findings] == told * [
        ("failure", "MutatingWebhookConfiguration kai-admission")
    ]
    assert all("kubectl delete mutatingwebhookconfiguration/kai-admission" in each.todo for each in findings)
