"""The background scan: its rounds, and what it finds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.admission.audit_schema import valid
from tests.builders import changed, known, launcher_pod, vm, vmi
from tests.cluster.fake_apiserver import FakeClock
from tests.golden_files import Golden
from tests.policies.instancetypes import world as of_instancetypes
from tests.review.memory import MemoryCluster
from tests.server.conftest import ServedApi, working
from tests.server.drift_scan.conftest import NAMESPACE_LABELS, settings, stored
from tests.waiting import other_turns, until
from webhook import names
from webhook.admission.audit import DriftRecord
from webhook.facts import NamespaceKey
from webhook.k8s.resources import NAMESPACES, POLICY_REPORTS, UNSTRUCTURED_PODS
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.kubevirt.resources import UNSTRUCTURED_VMS
from webhook.policies.instancetypes.settings import InstancetypeSettings
from webhook.server.drift_scan import scanned_objects, scanner
from webhook.server.drift_scan.policy_reports import NAME, Reports
from webhook.server.drift_scan.scanner import DriftScanner
from webhook.settings.model import DriftSettings, Settings

DRIFTED_PODS = ("scheduling", "pods")
DRIFTED_VMS = ("scheduling", "virtualmachines")


class ScannerCase:
    """A drift scanner in front of a fake API server, with facts in memory."""

    def __init__(self, api: ServedApi) -> None:
        self.server, self.transport = api
        self.server.put(NAMESPACES, "demo", metadata={"labels": NAMESPACE_LABELS})
        self.server.put(NAMESPACES, "other")
        self.clock = FakeClock()
        self.records: list[DriftRecord] = []
        self.settings: Settings = settings()
        there = Namespace(ObjectMeta(name="demo", labels=dict(NAMESPACE_LABELS)))
        self.cluster = MemoryCluster(
            of_instancetypes.facts([of_instancetypes.instancetype(), of_instancetypes.preference()])
            | known(vmi())
            | {NamespaceKey("demo"): there}
        )
        self.drift_scan = DriftScanner(
            *(self.transport, self.cluster, lambda: self.settings, self._keep, Reports(self.transport)),
            clock=self.clock,
        )

    def _keep(self, record: DriftRecord) -> None:
        valid(record)
        self.records.append(record)

    def pod(self, name: str = "virt-launcher-web01-abcde", **spec: Any) -> None:
        self.server.put(UNSTRUCTURED_PODS, name, "demo", **stored(launcher_pod(**spec), name))


@pytest.fixture
def case(api: ServedApi) -> ScannerCase:
    return ScannerCase(api)


async def test_a_pod_on_the_default_scheduler_whose_vmi_chose_none(case: ScannerCase) -> None:
    case.pod(nodeName="node-a")
    await case.drift_scan.scan()
    assert case.drift_scan.counts[DRIFTED_PODS] == 1
    (record,) = case.records
    assert (record.object.kind, record.object.name) == ("Pod", "virt-launcher-web01-abcde")
    assert (record.decision, record.reasons[0].code) == ("would-patch", "scheduler-injected")
    assert record.created == "2026-11-21T15:00:00Z"
    assert ("spec", "schedulerName") in [change.path for change in record.changes]


@pytest.mark.control("large-objects-in-scans")
@pytest.mark.parametrize("reports", [True, False])
async def test_of_many_objects_one_at_a_time_is_in_memory_and_reviews_get_their_turn_after_each(
    case: ScannerCase, monkeypatch: pytest.MonkeyPatch, reports: bool
) -> None:
    """A tenant decides how many they are, and how large each is."""
    review, held, made = scanned_objects.review, [0], []

    class Held(bytes):
        def __init__(self, *_: object) -> None:
            made.append(turns[-1])
            held.append(held[-1] + 1)

        def __del__(self) -> None:
            held.append(held[-1] - 1)

    monkeypatch.setattr(scanner, "review", lambda *arguments: Held(review(*arguments)))
    case.settings = changed(settings(), drift_scan=DriftSettings(every_minutes=10, policy_reports=reports))
    for number in range(30):
        case.pod(f"virt-launcher-{number}-abcde")
    # What it takes is more than etcd keeps the moment of a list.
    case.server.page_hook = case.server.compact
    async with other_turns() as turns:
        await case.drift_scan.scan()
    assert (case.drift_scan.counts[DRIFTED_PODS], max(held) <= 2) == (30, True)
    assert len(made) == len(set(made)) == 30
    # So that neither the answer nor its decoding is one long turn.
    assert {asked.query["limit"] for asked in case.server.requests(UNSTRUCTURED_PODS.path("demo"))} == {"20"}


async def test_a_restored_etcd_is_scanned_at_once_and_reported_anew(case: ScannerCase) -> None:
    def restore() -> None:
        for act in case.cluster.restored:
            act("namespaces were at resourceVersion 9, which etcd has not reached")

    def audit(record: DriftRecord) -> None:
        case.records.append(record)
        if len(case.records) == 1:
            restore()

    case.drift_scan.audit = audit
    case.pod(nodeName="node-a")
    case.settings = changed(settings(), drift_scan=DriftSettings(every_minutes=1440))
    async with working(case.drift_scan.run()):
        await until(lambda: case.drift_scan.rounds["finished"] == 2)
        assert len(case.records) == 2, "it was restored during a round"
        restore()
        await until(lambda: case.drift_scan.rounds["finished"] == 3)
    assert len(case.records) == 3


async def test_what_is_as_it_should_be(case: ScannerCase) -> None:
    case.pod(schedulerName="kubevirt")
    case.server.put(UNSTRUCTURED_VMS, "web01", "demo", **stored(vm("kubevirt", mark="kubevirt")))
    case.server.put(UNSTRUCTURED_PODS, "elsewhere", "other", **stored(launcher_pod(), "elsewhere"))
    await case.drift_scan.scan()
    assert not [asked for asked in case.server.asked if "/namespaces/other" in asked.path]
    assert case.drift_scan.counts[DRIFTED_PODS] == case.drift_scan.counts[DRIFTED_VMS] == 0
    assert case.records == []


async def test_a_round_after_round_tells_of_an_object_once(case: ScannerCase) -> None:
    case.pod()
    for code in (403, 410, None, 403, None):
        if code:
            case.server.fail(UNSTRUCTURED_VMS.path("demo"), code)
        await case.drift_scan._round()
    assert (len(case.records), case.drift_scan.rounds["failed"]) == (1, 3)
    case.server.remove(UNSTRUCTURED_PODS, "virt-launcher-web01-abcde", "demo")
    await case.drift_scan.scan()
    assert case.drift_scan.counts[DRIFTED_PODS] == 0
    case.pod()
    await case.drift_scan.scan()
    case.server.remove(NAMESPACES, "demo")
    await case.drift_scan.scan()
    assert (len(case.records), case.drift_scan._recorded_keys) == (2, {})


async def test_vms_without_the_scheduler_and_without_the_defaults(case: ScannerCase) -> None:
    case.settings = settings(instancetypes=InstancetypeSettings(default_instancetype="u1.small"))
    case.server.put(UNSTRUCTURED_VMS, "bare", "demo", **stored(of_instancetypes.vm(), "bare"))
    await case.drift_scan.scan()
    assert case.drift_scan.counts[DRIFTED_VMS] == case.drift_scan.counts["instancetypes", "virtualmachines"] == 1
    assert {record.reasons[0].code for record in case.records} == {"scheduler-injected", "defaults-injected"}


async def test_what_kubevirt_writes_into_a_vm_is_no_drift(case: ScannerCase) -> None:
    """Machine type, architecture and firmware: what its mutator leaves in the VM that it was sent."""
    case.settings = settings(instancetypes=InstancetypeSettings(default_instancetype="u1.small"))
    filled = of_instancetypes.vm(
        {"machine": {"type": "q35"}, "firmware": {"uuid": "u"}}, template={"architecture": "amd64"}
    ) | {"status": {"instancetypeRef": {"name": "u1.small", "controllerRevisionRef": {"name": "r"}}}}
    marks = {
        names.INJECTED_INSTANCETYPE_ANNOTATION: of_instancetypes.SMALL_MARK,
        names.INJECTED_SCHEDULER_ANNOTATION: "kubevirt",
    }
    filled["spec"]["instancetype"] = {**of_instancetypes.SMALL, "revisionName": "r"}
    owners = of_instancetypes.vm({"cpu": {"cores": 2}, "machine": {"type": "q35"}}, template={"architecture": "amd64"})
    owners["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"
    case.server.put(UNSTRUCTURED_VMS, "ours", "demo", **stored(filled, "ours", annotations=marks))
    case.server.put(UNSTRUCTURED_VMS, "owners", "demo", **stored(owners, "owners"))
    await case.drift_scan.scan()
    assert case.records == []


async def test_reports_follow(case: ScannerCase) -> None:
    case.server.serve(POLICY_REPORTS)
    case.pod()
    await case.drift_scan.scan()
    assert ("demo", NAME) in case.server.held(POLICY_REPORTS)
    case.settings = changed(settings(), drift_scan=DriftSettings(every_minutes=10, policy_reports=False))
    case.server.remove(UNSTRUCTURED_PODS, "virt-launcher-web01-abcde", "demo")
    await case.drift_scan.scan()
    assert ("demo", NAME) in case.server.held(POLICY_REPORTS), "switched off, they stay as they are"
    case.settings = settings()
    await case.drift_scan.scan()
    assert case.server.held(POLICY_REPORTS) == {}


async def test_the_first_round_waits_for_answers_that_can_be_trusted(case: ScannerCase) -> None:
    case.cluster.waits = ("pods",)
    on, case.settings = case.settings, changed(case.settings, drift_scan=DriftSettings())
    async with working(case.drift_scan.run()):
        await until(lambda: len(case.clock.slept) > 20)
        case.cluster.waits = ()
        await until(lambda: len(case.clock.slept) > 1000)
        assert case.server.asked == [], "it is switched off"
        case.cluster.waits, case.settings = ("pods",), on
        await until(lambda: len(case.clock.slept) > 1020)
        assert case.server.asked == []
        case.cluster.waits = ()
        await until(lambda: case.drift_scan.rounds["finished"] == 1)
        began = case.clock.now()
        await until(lambda: case.drift_scan.rounds["finished"] == 2)
        assert 500 < case.clock.now() - began < 700


@pytest.mark.parametrize(
    ("path", "code"),
    [(NAMESPACES.path(), 403), (UNSTRUCTURED_PODS.path("demo"), 403), (UNSTRUCTURED_VMS.path("demo"), 500)],
    ids=["namespaces", "pods", "VMs"],
)
async def test_a_failure_is_a_line_and_the_last_numbers_stay(
    case: ScannerCase, path: str, code: int, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    case.server.serve(UNSTRUCTURED_VMS)
    case.pod()
    await case.drift_scan.scan()
    case.server.fail(path, code)
    async with working(case.drift_scan.run()):
        await until(lambda: case.drift_scan.rounds["failed"])
        assert case.drift_scan.counts[DRIFTED_PODS] == 1
        await until(lambda: case.drift_scan.rounds["finished"])
    golden(caplog.messages[0])
    assert "SECRET" not in caplog.messages[0]


async def test_a_list_that_is_none_a_server_that_is_silent_and_one_that_is_gone(
    case: ScannerCase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    case.server.put(UNSTRUCTURED_PODS, "odd", "demo", **stored(launcher_pod(), "odd") | {"spec": "SECRET"})
    async with working(case.drift_scan.run()):
        await until(lambda: case.drift_scan.rounds["failed"] == 1)
        monkeypatch.setattr("webhook.server.drift_scan.scanner._LIST_SECONDS", 0.01)
        case.server.hang(NAMESPACES.path(), asyncio.Event())
        await until(lambda: case.drift_scan.rounds["failed"] == 2)
        await case.transport.close()
        await until(lambda: case.drift_scan.rounds["failed"] == 3)
    golden(caplog.messages[0])
    assert [word in caplog.messages[at] for at, word in ((1, "timed out"), (2, "closed"))] == [True, True]


async def test_a_bug_ends_a_round_and_one_in_a_policy_is_no_drift(
    case: ScannerCase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("webhook.server.drift_scan.scanner.enforced_policies", lambda *_: 1 / 0)
        async with working(case.drift_scan.run()):
            await until(lambda: case.drift_scan.rounds["failed"] == 2)
    assert "internal error" in caplog.messages[0]
    caplog.clear()
    del case.cluster.facts[NamespaceKey("demo")]
    case.cluster.peeked.discard(NamespaceKey("demo"))
    case.pod()
    await case.drift_scan.scan()
    assert case.records == []
    assert any("internal error" in message for message in caplog.messages)


async def test_what_can_not_be_told_is_no_drift_where_it_is_denied_either(case: ScannerCase) -> None:
    case.settings = settings(instancetypes=InstancetypeSettings(failure_policy="Fail"))
    name = str(of_instancetypes.SMALL["name"])
    case.cluster.facts |= of_instancetypes.facts([], unreadable=[("VirtualMachineClusterInstancetype", name)])
    obj = stored(
        of_instancetypes.vm(instancetype=of_instancetypes.SMALL, template={"schedulerName": "kubevirt"}), "web01"
    )
    case.server.put(UNSTRUCTURED_VMS, "web01", "demo", **obj)
    await case.drift_scan.scan()
    assert (case.records, case.drift_scan.rounds["failed"]) == ([], 0)


class Deepening:
    """A transport whose answers hold, for a word in them, what a fake API server could not encode."""

    def __init__(self, transport: Any, levels: int) -> None:
        self._transport = transport
        self._deep = b'{"a":' * levels + b"1" + b"}" * levels

    async def get(self, *arguments: Any, **limits: Any) -> Any:
        status, body = await self._transport.get(*arguments, **limits)
        return status, body.replace(b'"@deep@"', self._deep)


@pytest.mark.control("deep-objects-in-scans")
@pytest.mark.parametrize("levels", [200, *range(930, 990, 4), 1100, 9_000])
async def test_one_object_of_any_depth_hides_no_other(case: ScannerCase, levels: int) -> None:
    case.settings = settings(instancetypes=InstancetypeSettings(allowed=("small",)))
    case.drift_scan.transport = Deepening(case.transport, levels)  # type: ignore[assignment]
    deep = of_instancetypes.vm(instancetype=of_instancetypes.SMALL)
    deep["spec"]["template"]["metadata"] = "@deep@"
    case.server.put(UNSTRUCTURED_VMS, "deep", "demo", **stored(deep, "deep"))
    case.server.put(
        UNSTRUCTURED_VMS, "plain", "demo", **stored(of_instancetypes.vm(instancetype=of_instancetypes.SMALL), "plain")
    )
    await case.drift_scan.scan()
    found = {record.object.name: record.reasons[0].code for record in case.records if "/validate/" in record.endpoint}
    assert found == {"deep": "invalid-object", "plain": "instancetype-not-allowed"}
