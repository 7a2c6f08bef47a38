"""All checks together."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.fake_apiserver import FakeApiServer
from tests.doctor.world import CONFIGURED, MANIFESTS, MUTATING, NS, DirectApi, DoctorWorld, forbid, lines, outline
from webhook.cluster.reader import TimedTransport
from webhook.doctor.checks import examine
from webhook.doctor.deployment import BUDGETS, FLOW
from webhook.doctor.installation import CONFIG_MAPS, DEPLOYMENTS, SECRETS
from webhook.doctor.permissions import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from webhook.doctor.report import Report
from webhook.errors import InputError
from webhook.k8s.resources import LEASES, NAMESPACES, NODES_WITH_IMAGES, PODS
from webhook.kubevirt.resources import KUBEVIRTS

# Other people's objects.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
WORDS = st.text(max_size=5)
EXPRESSIONS = st.fixed_dictionaries(
    {"key": WORDS, "operator": st.sampled_from(["In", "Exists", "Gt", "Lt", "?"])},
    optional={"values": st.lists(WORDS, max_size=2)},
)
LABELS = {"matchLabels": JSON | st.dictionaries(WORDS, WORDS, max_size=2)}
SELECTORS = JSON | st.fixed_dictionaries(
    {}, optional=LABELS | {"matchExpressions": JSON | st.lists(EXPRESSIONS, max_size=2)}
)
ENTRIES = st.fixed_dictionaries(
    {"name": st.sampled_from(["x.example.com", "pods.scheduling.enforce.kubevirt-webhook.github.io"]) | JSON},
    optional={
        "clientConfig": JSON | st.fixed_dictionaries({"caBundle": st.text(max_size=9)}),
        **dict.fromkeys(("namespaceSelector", "objectSelector"), SELECTORS),
        **dict.fromkeys(("rules", "matchConditions", "failurePolicy", "timeoutSeconds"), JSON),
    },
)
OBJECTS = st.fixed_dictionaries({}, optional={"webhooks": JSON | st.lists(ENTRIES, max_size=3)}) | st.dictionaries(
    st.sampled_from(["spec", "status", "data", "rules", "subjects", "roleRef", "webhooks"]), JSON
)
KINDS = st.sampled_from(
    [
        *((resource, name, "") for resource, name in (*CONFIGURED[1:], (MUTATING, "other"))),
        *((resource, "scheduler", "kubevirt-scheduler") for resource in (DEPLOYMENTS, CONFIG_MAPS)),
        *((DEPLOYMENTS, NS, NS), (SECRETS, "ca", NS), (KUBEVIRTS, "kubevirt", "kubevirt")),
        *((PODS, "virt-launcher-a", "demo"), (NODES_WITH_IMAGES, "node-0", "")),
        *((CLUSTER_ROLES, "role", ""), (CLUSTER_ROLE_BINDINGS, "binding", "")),
    ]
)


async def test_a_trial_is_no_broken_installation(world: DoctorWorld) -> None:
    """`serve --register` was reported as an installation that lacks everything."""
    for resource, name in CONFIGURED:
        world.server.remove(resource, name)
    world.url = "https://192.0.2.1:8443"
    world.register(suffix="-local", only_ignore=True)
    world.url = ""
    found = (await world.examine()).findings

    trial = [each for each in found if each.code == "trial"]
    assert [each.verdict for each in trial] == ["warning"] * 3
    assert "https://192.0.2.1:8443:" in trial[0].found
    assert not {"webhooks", "certificates", "deployment", "rights"} & {each.check for each in found[3:]}


async def test_where_all_is_well_only_the_service_is_unknown(world: DoctorWorld) -> None:
    report = await world.examine()

    assert [line for line in outline(report.findings) if not line.startswith("ok ")] == [
        f"unknown Service {NS}/{NS}: served-not-checked"
    ]
    assert report.verdict == "unknown"
    assert {finding.check for finding in report.findings} == {
        *("webhooks", "selectors", "certificates", "rights", "deployment", "schedulers", "order"),
        *("kubevirt", "opt-in", "effect", "pools", "pinning", "relabelling", "nodes", "spread", "clock"),
    }
    assert all(bool(finding.todo) == (finding.verdict != "ok") for finding in report.findings)
    # It only reads, and every list once.
    assert {asked.method for asked in world.server.asked if "subjectaccessreviews" not in asked.path} == {"GET"}
    assert len(world.server.requests(NAMESPACES.path())) == 1


async def test_whoever_may_nothing_gets_to_know_which_rights_are_missing(world: DoctorWorld) -> None:
    world.forbids_reviews = True
    lists = (*dict(CONFIGURED), NAMESPACES, KUBEVIRTS, NODES_WITH_IMAGES, PODS, CLUSTER_ROLES)
    refused: list[tuple[Any, str, str]] = [
        *((resource, "", "") for resource in lists),
        *((DEPLOYMENTS, NS, NS), (DEPLOYMENTS, "kubevirt-scheduler", ""), (BUDGETS, NS, NS), (PODS, NS, "")),
        *((LEASES, "kubevirt-scheduler", "kubevirt-scheduler"), *((flow, "", NS) for flow in FLOW)),
    ]
    for each in refused:
        forbid(*each)(world)

    report = await world.examine()

    assert report.counts["failure"] == 0
    unknown = [finding for finding in report.findings if finding.verdict == "unknown"]
    missing = {finding.found.partition("grant ")[2] for finding in unknown if "grant" in finding.found}
    # A verb, the resource and its group, and the namespace where there is one.
    assert {tuple(re.split(" on | in namespace ", each)) for each in missing} == {
        ("list", "mutatingwebhookconfigurations.admissionregistration.k8s.io"),
        ("list", "validatingwebhookconfigurations.admissionregistration.k8s.io"),
        ("list", "namespaces"),
        ("list", "kubevirts.kubevirt.io"),
        ("list", "nodes"),
        ("list", "pods"),
        ("get", "leases.coordination.k8s.io", "kubevirt-scheduler"),
        ("list", "pods", NS),
        ("list", "clusterroles.rbac.authorization.k8s.io"),
        ("list", "deployments.apps", "kubevirt-scheduler"),
        ("get", "deployments.apps", NS),
        ("get", "poddisruptionbudgets.policy", NS),
        ("get", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"),
        ("get", "flowschemas.flowcontrol.apiserver.k8s.io"),
        ("create", "subjectaccessreviews.authorization.k8s.io"),
    }
    assert {finding.code for finding in unknown if "grant" in finding.found} == {"unreadable"}


async def test_an_empty_cluster_fails_and_says_how_to_install(world: DoctorWorld) -> None:
    for resource, name in CONFIGURED:
        world.server.remove(resource, name)
    world.server.remove(DEPLOYMENTS, NS, NS)

    report = await world.examine()

    failed = [line for line in outline(report.findings) if line.startswith("failure ")]
    assert f"failure Deployment {NS}/{NS}: missing" in failed
    assert sum(text.endswith(": configuration-missing") for text in failed) == 3
    assert report.verdict == "failure"


async def test_a_cluster_that_gives_no_answer(world: DoctorWorld, golden: Callable[[str], None]) -> None:
    world.server.url = "http://127.0.0.1:1"

    with pytest.raises(InputError) as caught:
        await world.examine()
    golden(str(caught.value))


# The settings of the cluster.
async def test_settings_come_from_the_cluster(world: DoctorWorld) -> None:
    world.server.put(CONFIG_MAPS, NS, NS, data={"settings.yaml": "schedulers: {batch: {healthCheck: pods}}"})

    report = await world.examine(given=False)

    told = outline(report.findings)
    assert told[0] == f"ok ConfigMap {NS}/{NS}: settings-valid"
    assert "ok scheduler batch: available" in told


async def test_a_mistake_in_the_clusters_settings_is_the_only_finding(
    world: DoctorWorld, golden: Callable[[str], None]
) -> None:
    world.server.put(CONFIG_MAPS, NS, NS, data={"settings.yaml": "schedulerz: {}"})

    report = await world.examine(given=False)

    (finding,) = report.findings
    assert (finding.verdict, finding.code) == ("failure", "settings-invalid")
    golden(lines([finding]))


@pytest.mark.parametrize("data", [None, {}, {"other.yaml": "a: 1"}])
async def test_without_settings_the_defaults_are_taken_and_told(
    world: DoctorWorld, data: Any, golden: Callable[[str], None]
) -> None:
    if data is not None:
        world.server.put(CONFIG_MAPS, NS, NS, data=data)

    report = await world.examine(given=False)

    assert outline(report.findings)[0] == f"warning ConfigMap {NS}/{NS}: settings-missing"
    golden(lines(one for one in report.findings if one.check == "settings"))


async def test_settings_that_may_not_be_read_must_be_given(world: DoctorWorld, golden: Callable[[str], None]) -> None:
    forbid(CONFIG_MAPS, NS, NS)(world)

    with pytest.raises(InputError) as caught:
        await world.examine(given=False)
    assert caught.value.where == f"ConfigMap {NS}/{NS}"
    golden(str(caught.value))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changes=st.lists(st.tuples(KINDS, OBJECTS), min_size=1, max_size=4))
def test_no_object_of_anybody_ends_in_a_traceback(tmp_path: Path, changes: list[tuple[Any, dict[str, Any]]]) -> None:
    async def look() -> Report:
        server = FakeApiServer()
        world = DoctorWorld(server, tmp_path / "kubeconfig")
        for (resource, name, namespace), fields in changes:
            server.put(resource, name, namespace, **fields)
        return await examine(cast("TimedTransport", DirectApi(server)), world.settings, MANIFESTS, clock=world.clock)

    report = asyncio.run(look())

    assert len(report.findings) > 10


async def test_what_can_t_be_decoded_is_told_and_spoils_nothing_else(
    world: DoctorWorld, golden: Callable[[str], None]
) -> None:
    world.server.put(MUTATING, "foreign", webhooks="all of them")
    world.server.put(NODES_WITH_IMAGES, "odd", status=7)

    report = await world.examine()

    malformed = [finding for finding in report.findings if finding.check == "objects"]
    assert outline(malformed) == ["unknown MutatingWebhookConfiguration: malformed", "unknown Node: malformed"]
    assert "ok MutatingWebhookConfiguration kubevirt-webhook: configuration-correct" in outline(report.findings)
    golden(lines(malformed))


async def test_lists_come_in_pages(world: DoctorWorld) -> None:
    for number in range(1200):
        world.node(f"many-{number}", 1)

    report = await world.examine()

    assert any(one.code == "all-reported" and "/1203 nodes " in one.found for one in report.findings)
    assert len(world.server.requests(NODES_WITH_IMAGES.path())) == 3


@pytest.mark.parametrize("answer", [b"no JSON", b'{"items": 5}'])
async def test_lists_that_are_none(world: DoctorWorld, answer: bytes, golden: Callable[[str], None]) -> None:
    world.server.answer(NODES_WITH_IMAGES.path(), lambda _: web.Response(body=answer))

    report = await world.examine()

    assert "unknown images: unreadable" in outline(report.findings)
    golden(lines(one for one in report.findings if one.check == "nodes"))
