"""All checks together."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.fake_apiserver import FakeApiServer
from tests.doctor.world import CONFIGURED, MANIFESTS, MUTATING, NS, DirectApi, DoctorWorld, forbid, lines, outline
from tests.golden_files import Golden
from webhook import doctor
from webhook.cluster.directory import KINDS as KINDS_OF_FILES
from webhook.cluster.files import FilesCluster
from webhook.cluster.reader import FileReader, Reader
from webhook.doctor import webhooks
from webhook.doctor.checks import examine
from webhook.doctor.deployment import BUDGETS, FLOW
from webhook.doctor.installation import DEPLOYMENTS, SECRETS
from webhook.doctor.kubevirt import PLUGINS
from webhook.doctor.permissions import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from webhook.doctor.report import Report
from webhook.errors import InputError, InputErrors
from webhook.findings import Finding
from webhook.k8s.client.api import Transport
from webhook.k8s.resources import CONFIG_MAPS, LEASES, NAMESPACES, NODES_WITH_IMAGES, PODS, Resource
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.policies.registry import POLICIES

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


async def test_a_trial_is_no_broken_installation(
    world: DoctorWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`serve --register` was reported as an installation that lacks everything."""
    for resource, name in CONFIGURED:
        world.server.remove(resource, name)
    monkeypatch.setattr(webhooks, "_CONNECT_SECONDS", 0.01)
    world.url = "https://192.0.2.1:8443"
    world.register(suffix="-local", only_ignore=True)
    world.url = ""
    found = (await world.examine()).findings

    trial = [each for each in found if each.code == "trial"]
    assert [each.verdict for each in trial] == ["warning"] * 3
    assert "https://192.0.2.1:8443" in trial[0].found
    assert not {"webhooks", "certificates", "deployment", "rights"} & {each.check for each in found[3:]}
    in_files = (await world.examine_files(world.write(tmp_path / "dump"))).findings
    # Nobody asks whether the server of a dump's cluster runs.
    assert ["Ctrl-C" in each.todo for each in in_files if each.code == "trial"] == [True] * 3
    assert "deployment" not in {each.check for each in in_files}


async def test_a_trial_whose_server_was_killed_is_told_with_the_command_that_removes_it(world: DoctorWorld) -> None:
    for resource, name in CONFIGURED:
        world.server.remove(resource, name)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world.url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        world.register(suffix="-local", only_ignore=True)
        world.url = ""
        running = [each for each in (await world.examine()).findings if each.code == "trial"]
    killed = [each for each in (await world.examine()).findings if each.code == "trial"]

    assert all("Ctrl-C" in each.todo and "kubectl" not in each.todo for each in running)
    assert all("connection refused" in each.found and "Ctrl-C" not in each.todo for each in killed)
    assert {each.todo.count("webhookconfiguration/") for each in killed} == {3}


async def test_without_any_installation_that_alone_fails(world: DoctorWorld, golden: Golden) -> None:
    for resource, name in CONFIGURED:
        world.server.remove(resource, name)
    partly = (await world.examine()).findings
    world.server.remove(DEPLOYMENTS, NS, NS)
    found = (await world.examine(given=False)).findings

    assert "not-installed" not in {each.code for each in partly}
    assert (found[0].code, [each.verdict for each in found].count("failure")) == ("not-installed", 1)
    assert not {"webhooks", "certificates", "deployment", "rights", "settings"} & {each.check for each in found[1:]}
    # Nothing is called that is not there.
    (first,) = [each for each in found if each.code == "vms-first"]
    assert "would call kubevirt-webhook" in first.found
    assert not [each for each in (*partly, *found) if "the API server calls" in each.found]
    golden(f"{found[0].subject}: {found[0].found}\n{found[0].todo}")
    # A server elsewhere has no Deployment here, and what is denied may be there.
    world.url = "https://192.0.2.1:8443"
    assert "not-installed" not in {each.code for each in (await world.examine()).findings}
    world.url = ""
    world.server.fail(DEPLOYMENTS.path(NS, NS), 403, times=9)
    assert "not-installed" not in {each.code for each in (await world.examine()).findings}


async def test_where_all_is_well_only_the_service_is_unknown(world: DoctorWorld) -> None:
    report = await world.examine()

    assert [line for line in outline(report.findings) if not line.startswith("ok ")] == [
        f"unknown Service {NS}/{NS}: served-not-checked"
    ]
    assert report.verdict == "unknown"
    assert all(bool(finding.todo) == (finding.verdict != "ok") for finding in report.findings)
    # It only reads, and every list once.
    assert {asked.method for asked in world.server.asked if "subjectaccessreviews" not in asked.path} == {"GET"}
    assert len(world.server.requests(NAMESPACES.path())) == 1
    of_policies = {each.check for policy in POLICIES for check in policy.checks for each in await world.run(check)}
    # Their texts are held by the tests of each.
    world.found.clear()
    assert {finding.check for finding in report.findings} - of_policies == {
        *("webhooks", "selectors", "certificates", "rights", "deployment", "schedulers", "order", "kubevirt", "opt-in"),
        *("effect", "relabelling", "nodes", "spread", "neighbors", "clock", "evacuations", "cpu-models"),
    }, "checks of webhook/doctor/checks.py that say something of a cluster in which all is well"


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
    assert missing == {
        *(f"list on {kind}webhookconfigurations.admissionregistration.k8s.io" for kind in ("mutating", "validating")),
        *("list on namespaces", "list on nodes"),
        *(f"list on {each} in all namespaces" for each in ("kubevirts.kubevirt.io", "pods")),
        *("get on leases.coordination.k8s.io in namespace kubevirt-scheduler", f"list on pods in namespace {NS}"),
        "list on clusterroles.rbac.authorization.k8s.io",
        "list on deployments.apps in namespace kubevirt-scheduler",
        *(f"get on {each} in namespace {NS}" for each in ("deployments.apps", "poddisruptionbudgets.policy")),
        *(f"get on {each}.flowcontrol.apiserver.k8s.io" for each in ("prioritylevelconfigurations", "flowschemas")),
        "create on subjectaccessreviews.authorization.k8s.io",
    }
    assert {finding.code for finding in unknown if "grant" in finding.found} == {"unreadable"}


async def test_a_cluster_that_gives_no_answer(world: DoctorWorld, golden: Golden) -> None:
    world.server.url = "http://127.0.0.1:1"
    with pytest.raises(InputError) as caught:
        await world.examine()
    golden(str(caught.value))


# The settings of the cluster.
async def test_settings_come_from_the_cluster_or_its_files(world: DoctorWorld, tmp_path: Path) -> None:
    world.server.put(CONFIG_MAPS, NS, NS, data={"settings.yaml": "schedulers: {batch: {healthCheck: pods}}"})

    report = await world.examine(given=False)

    told = outline(report.findings)
    assert told[0] == f"ok ConfigMap {NS}/{NS}: settings-valid"
    assert "ok scheduler batch: available" in told
    report = await world.examine_files(world.write(tmp_path / "dump"), given=False)
    assert f"ConfigMap {NS}/{NS}: settings-valid" in codes(report.findings, "ok")
    assert "scheduler batch: needs-cluster" in codes(report.findings, "unknown")


async def test_a_mistake_in_the_clusters_settings_is_the_only_finding(world: DoctorWorld, golden: Golden) -> None:
    world.server.put(CONFIG_MAPS, NS, NS, data={"settings.yaml": "schedulerz: {}"})

    report = await world.examine(given=False)

    (finding,) = report.findings
    assert (finding.verdict, finding.code) == ("failure", "settings-invalid")
    golden(lines([finding]))


@pytest.mark.parametrize("data", [None, {}, {"other.yaml": "a: 1"}])
async def test_without_settings_the_defaults_are_taken_and_told(world: DoctorWorld, data: Any, golden: Golden) -> None:
    if data is not None:
        world.server.put(CONFIG_MAPS, NS, NS, data=data)

    report = await world.examine(given=False)

    assert outline(report.findings)[0] == f"warning ConfigMap {NS}/{NS}: settings-missing"
    golden(lines(one for one in report.findings if one.check == "settings"))


async def test_settings_that_may_not_be_read_are_unknown_and_compared_with_nothing(
    world: DoctorWorld, golden: Golden
) -> None:
    forbid(CONFIG_MAPS, NS, NS)(world)

    report = await world.examine(given=False)

    assert outline(report.findings)[0] == f"unknown ConfigMap {NS}/{NS}: settings-denied"
    assert not [one for one in report.findings if one.check == "webhooks"]
    golden(lines(one for one in report.findings if one.check == "settings"))


async def test_no_denied_request_ends_the_examination(world: DoctorWorld) -> None:
    """Whatever a user may not read, all other checks are made."""
    world.server.put(CONFIG_MAPS, NS, NS, data={"settings.yaml": "{}"})
    whole = await world.examine(given=False)
    paths = sorted({asked.path for asked in world.server.asked})
    assert len(paths) > 20
    for path in paths:
        world.server.fail(path, 403, times=1000)
        report = await world.examine(given=False)
        world.server.heal()
        assert {one.check for one in whole.findings} - {one.check for one in report.findings} <= {"webhooks"}, path


async def test_what_can_t_be_decoded_is_told_and_spoils_nothing_else(world: DoctorWorld, golden: Golden) -> None:
    world.server.put(MUTATING, "foreign", webhooks="all of them")
    world.server.put(NODES_WITH_IMAGES, "odd", status=7)

    report = await world.examine()

    malformed = [finding for finding in report.findings if finding.check == "objects"]
    assert outline(malformed) == ["unknown MutatingWebhookConfiguration: malformed", "unknown Node: malformed"]
    assert "ok MutatingWebhookConfiguration kubevirt-webhook: configuration-correct" in outline(report.findings)
    golden(lines(malformed))


# Objects from files.
GAPS = ("needs-cluster", "not-in-files")


def codes(findings: Iterable[Finding], verdict: str) -> list[str]:
    """``SUBJECT: CODE`` of those with a verdict."""
    return [line.removeprefix(f"{verdict} ") for line in outline(findings) if line.startswith(f"{verdict} ")]


def made(findings: Iterable[Finding]) -> list[Finding]:
    """Those of checks that were made."""
    return [finding for finding in findings if finding.code not in (*GAPS, "unreadable")]


async def test_files_lead_to_the_findings_of_the_cluster_that_they_are_from(
    world: DoctorWorld, tmp_path: Path, golden: Golden
) -> None:
    world.vm_node("big", cpus=64)
    world.vm("a", "big")
    live = (await world.examine()).findings
    report = await world.examine_files(world.write(tmp_path / "dump"))

    assert [finding for finding in made(report.findings) if finding not in live] == []
    lacking = {(finding.check, finding.code) for finding in live if finding not in report.findings}
    assert lacking == {
        ("rights", "permissions-granted"),
        ("effect", "metrics-healthy"),
        ("schedulers", "available"),
        ("clock", "clock-correct"),
        *(("spread", code) for code in ("balanced-allocation", "estimate", "even")),
        # Of empty lists, which files cannot hold.
        ("relabelling", "admins-only"),
        ("pools", "no-pools"),
        ("evacuations", "none"),
        ("names", "migratable"),
    }
    golden(lines(finding for finding in report.findings if finding.code in GAPS))
    assert report.verdict == "unknown"


@pytest.mark.parametrize("spec", [None, {"holderIdentity": ""}])
async def test_a_lease_without_a_holder_shows_in_files_too(world: DoctorWorld, tmp_path: Path, spec: Any) -> None:
    world.lease()
    world.server.put(LEASES, "another", "kubevirt-scheduler", spec={"holderIdentity": "one"})
    if spec is None:
        world.server.remove(LEASES, "kubevirt-scheduler", "kubevirt-scheduler")
    else:
        world.server.put(LEASES, "kubevirt-scheduler", "kubevirt-scheduler", spec=spec)

    report = await world.examine_files(world.write(tmp_path / "dump"))

    assert codes(report.findings, "failure") == ["scheduler kubevirt: unavailable"]


async def test_files_without_anything_of_an_installation_report_no_failure(tmp_path: Path, world: DoctorWorld) -> None:
    (tmp_path / "node.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: a}}")

    report = await world.examine_files(tmp_path / "node.yaml")

    assert codes(report.findings, "failure") + codes(report.findings, "warning") == []
    assert {finding.check for finding in report.findings if finding.verdict == "ok"} == {
        "nodes",
        "pinning",
        "cpu-models",
    }


async def test_faults_show_in_files_as_in_the_cluster(world: DoctorWorld, tmp_path: Path) -> None:
    world.deployment(ready=0)
    world.entries()[0]["failurePolicy"] = "Ignore" if world.entries()[0]["failurePolicy"] == "Fail" else "Fail"
    world.namespace("demo", labels={"kubevirt-webhook.github.io/scheduling": "enforced"})
    world.server.remove(SECRETS, "ca", NS)
    world.server.put(SECRETS, "another", NS)
    world.server.put(PLUGINS, NS, spec={"mutatingAdmissionWebhooks": 3})

    live = (await world.examine()).findings
    report = await world.examine_files(world.write(tmp_path / "dump"))

    faults = [finding for finding in live if finding.verdict in ("failure", "warning")]
    assert {finding.check for finding in faults} == {"deployment", "webhooks", "opt-in", "certificates"}
    assert [finding for finding in report.findings if finding.verdict in ("failure", "warning")] == faults
    assert f"Plugin {NS}: unreadable" in codes(report.findings, "unknown")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(changes=st.lists(st.tuples(KINDS, OBJECTS), min_size=1, max_size=4))
def test_any_objects_in_files_lead_to_findings_of_the_cluster(
    tmp_path: Path, changes: list[tuple[Any, dict[str, Any]]]
) -> None:
    """Nor does any object in a cluster end in a traceback."""

    async def look() -> tuple[Report, Report] | None:
        server = FakeApiServer()
        world = DoctorWorld(server, tmp_path / "kubeconfig")
        for (resource, name, namespace), fields in changes:
            server.put(resource, name, namespace, **fields)
        reader = Reader(cast("Transport", DirectApi(server)))
        live = await examine(reader, world.settings, MANIFESTS, clock=world.clock)
        assert len(live.findings) > 10
        try:
            files = FilesCluster.load(world.write(tmp_path / "dump"), world.settings)
        except InputErrors:
            return None  # Files are checked when they are read.
        return live, await examine(FileReader(files), world.settings, MANIFESTS, clock=world.clock)

    if (reports := asyncio.run(look())) is not None:
        live, report = reports
        assert [finding for finding in made(report.findings) if finding not in live.findings] == []


def test_whatever_a_check_reads_can_be_in_a_file() -> None:
    modules = [importlib.import_module(f"webhook.doctor.{each.name}") for each in pkgutil.iter_modules(doctor.__path__)]
    held = [value for module in modules for value in vars(module).values()]
    resources = [
        each
        for value in held
        for each in (value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value])
        if isinstance(each, Resource)
    ]

    assert len(resources) > 20
    for resource in resources:
        kind = KINDS_OF_FILES[resource.kind]
        assert (kind.group, kind.namespaced) == (resource.group, resource.namespaced)
        assert re.fullmatch(kind.versions, resource.version)
