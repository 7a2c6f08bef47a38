from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.admission.audit_schema import valid
from tests.builders import known, launcher_pod, vm, vmi
from tests.cluster.fake_apiserver import FakeApiServer, FakeClock, running
from tests.policies.instancetypes import world as sizes
from tests.review.memory import MemoryCluster
from tests.server.background.drift.world import NAMESPACE_LABELS, settings, stored
from tests.waiting import until
from webhook import names
from webhook.admission.audit import DriftRecord
from webhook.facts import NamespaceKey
from webhook.k8s.client.resources import NAMESPACES, POLICY_REPORTS, UNSTRUCTURED_PODS
from webhook.k8s.client.transport import connect
from webhook.k8s.views import Namespace, ObjectMeta
from webhook.kubevirt.resources import UNSTRUCTURED_VMS
from webhook.server.background.drift.policy_reports import NAME, Reports
from webhook.server.background.drift.scanner import DriftScanner
from webhook.settings.snapshot import DriftSettings, InstancetypeSettings, Settings

PODS = ("scheduling", "pods")
VMS = ("scheduling", "virtualmachines")


class ScannedCluster(MemoryCluster):
    waits = False

    def waiting_for(self) -> tuple[str, ...]:
        return ("pods",) if self.waits else ()


class ScannerCase:
    """A drift scanner in front of a fake API server, with facts in memory."""

    def __init__(self, server: FakeApiServer, transport: Any) -> None:
        self.server = server
        self.clock = FakeClock()
        self.records: list[DriftRecord] = []
        self.settings: Settings = settings()
        there = Namespace(ObjectMeta(name="demo", labels=dict(NAMESPACE_LABELS)))
        self.cluster = ScannedCluster(
            sizes.facts([sizes.instancetype(), sizes.preference()]) | known(vmi()) | {NamespaceKey("demo"): there}
        )
        self.transport = transport
        self.drift_scan = DriftScanner(
            transport,
            self.cluster,
            lambda: self.settings,
            self._keep,
            Reports(transport),
            clock=self.clock,
        )

    def _keep(self, record: DriftRecord) -> None:
        valid(record)
        self.records.append(record)

    def pod(self, name: str = "virt-launcher-web01-abcde", **spec: Any) -> None:
        self.server.put(UNSTRUCTURED_PODS, name, "demo", **stored(launcher_pod(**spec), name))


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[ScannerCase]:
    async with running(FakeApiServer()) as server:
        server.put(NAMESPACES, "demo", metadata={"labels": NAMESPACE_LABELS})
        server.put(NAMESPACES, "other")
        transport = await connect(server.kubeconfig(tmp_path / "kubeconfig"))
        try:
            yield ScannerCase(server, transport)
        finally:
            await transport.close()


@asynccontextmanager
async def looking(case: ScannerCase) -> AsyncIterator[None]:
    task = asyncio.create_task(case.drift_scan.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


# -- one round ---------------------------------------------------------------------------------------------------------


async def test_a_pod_on_the_default_scheduler_whose_vmi_chose_none(case: ScannerCase) -> None:
    case.pod(nodeName="node-a")
    await case.drift_scan.look()

    assert case.drift_scan.found[PODS] == 1
    (record,) = case.records
    assert (record.object.kind, record.object.name) == ("Pod", "virt-launcher-web01-abcde")
    assert (record.decision, record.reasons[0].code) == ("would-patch", "scheduler-injected")
    assert record.created == "2026-11-21T15:00:00Z"
    assert ("spec", "schedulerName") in [change.path for change in record.changes]


async def test_a_restored_etcd_is_scanned_at_once_and_reported_anew(case: ScannerCase) -> None:
    case.pod(nodeName="node-a")
    case.settings = msgspec.structs.replace(settings(), unenforced=DriftSettings(every_seconds=1e9))
    async with looking(case):
        await until(lambda: case.drift_scan.rounds["finished"] == 1)
        assert len(case.records) == 1
        for act in case.cluster.restored:
            act("namespaces were at resourceVersion 9, which etcd has not reached")
        await until(lambda: case.drift_scan.rounds["finished"] == 2)
    assert len(case.records) == 2


async def test_what_is_as_it_should_be(case: ScannerCase) -> None:
    case.pod(schedulerName="kubevirt")
    case.server.put(UNSTRUCTURED_VMS, "web01", "demo", **stored(vm("kubevirt", mark="kubevirt")))
    await case.drift_scan.look()

    assert case.drift_scan.found[PODS] == case.drift_scan.found[VMS] == 0
    assert case.records == []


async def test_a_round_after_round_tells_of_an_object_once(case: ScannerCase) -> None:
    case.pod()
    await case.drift_scan.look()
    await case.drift_scan.look()
    assert len(case.records) == 1
    case.server.remove(UNSTRUCTURED_PODS, "virt-launcher-web01-abcde", "demo")
    await case.drift_scan.look()
    assert case.drift_scan.found[PODS] == 0
    case.pod()
    await case.drift_scan.look()
    assert len(case.records) == 2


async def test_vms_without_the_scheduler_and_without_the_defaults(case: ScannerCase) -> None:
    case.settings = settings(instancetypes=InstancetypeSettings(default_instancetype="u1.small"))
    case.server.put(UNSTRUCTURED_VMS, "bare", "demo", **stored(sizes.vm(), "bare"))
    await case.drift_scan.look()

    assert case.drift_scan.found[VMS] == case.drift_scan.found["instancetypes", "virtualmachines"] == 1
    assert {record.reasons[0].code for record in case.records} == {"scheduler-injected", "defaults-injected"}


async def test_what_kubevirt_writes_into_a_vm_is_no_finding(case: ScannerCase) -> None:
    """Machine type, architecture and firmware: what its mutator leaves in the VM that it was sent."""
    case.settings = settings(instancetypes=InstancetypeSettings(default_instancetype="u1.small"))
    filled = sizes.vm({"machine": {"type": "q35"}, "firmware": {"uuid": "u"}}, template={"architecture": "amd64"}) | {
        "status": {"instancetypeRef": {"name": "u1.small", "controllerRevisionRef": {"name": "r"}}}
    }
    marks = {names.INJECTED_INSTANCETYPE_ANNOTATION: sizes.SMALL_MARK, names.INJECTED_SCHEDULER_ANNOTATION: "kubevirt"}
    filled["spec"]["instancetype"] = {**sizes.SMALL, "revisionName": "r"}
    owners = sizes.vm({"cpu": {"cores": 2}, "machine": {"type": "q35"}}, template={"architecture": "amd64"})
    owners["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"
    case.server.put(UNSTRUCTURED_VMS, "ours", "demo", **stored(filled, "ours", annotations=marks))
    case.server.put(UNSTRUCTURED_VMS, "owners", "demo", **stored(owners, "owners"))
    await case.drift_scan.look()

    assert case.records == []


async def test_only_namespaces_that_enforce_are_listed(case: ScannerCase) -> None:
    case.server.put(UNSTRUCTURED_PODS, "elsewhere", "other", **stored(launcher_pod(), "elsewhere"))
    await case.drift_scan.look()

    assert not [asked for asked in case.server.asked if "/namespaces/other" in asked.path]


async def test_reports_follow(case: ScannerCase) -> None:
    case.server.serve(POLICY_REPORTS)
    case.pod()
    await case.drift_scan.look()
    assert ("demo", NAME) in case.server.held(POLICY_REPORTS)
    looked = DriftSettings(every_seconds=600.0, policy_reports=False)
    case.settings = msgspec.structs.replace(case.settings, unenforced=looked)
    case.server.remove(UNSTRUCTURED_PODS, "virt-launcher-web01-abcde", "demo")
    await case.drift_scan.look()
    assert ("demo", NAME) in case.server.held(POLICY_REPORTS), "switched off, they stay as they are"
    case.settings = settings()
    await case.drift_scan.look()
    assert case.server.held(POLICY_REPORTS) == {}


# -- rounds ------------------------------------------------------------------------------------------------------------


async def test_the_first_round_waits_for_answers_that_can_be_trusted(case: ScannerCase) -> None:
    case.cluster.waits = True
    async with looking(case):
        await until(lambda: len(case.clock.slept) > 20)
        assert case.server.asked == []
        case.cluster.waits = False
        await until(lambda: case.drift_scan.rounds["finished"] == 1)
        began = case.clock.now()
        await until(lambda: case.drift_scan.rounds["finished"] == 2)
        assert 500 < case.clock.now() - began < 700


async def test_nothing_is_done_while_it_is_switched_off(case: ScannerCase) -> None:
    case.settings = msgspec.structs.replace(case.settings, unenforced=DriftSettings())
    async with looking(case):
        await until(lambda: len(case.clock.slept) > 1000)

    assert case.server.asked == []


@pytest.mark.parametrize(
    ("path", "code"),
    [(NAMESPACES.path(), 403), (UNSTRUCTURED_PODS.path("demo"), 403), (UNSTRUCTURED_VMS.path("demo"), 500)],
    ids=["namespaces", "pods", "VMs"],
)
async def test_a_failure_is_a_line_and_the_last_numbers_stay(
    case: ScannerCase, path: str, code: int, caplog: pytest.LogCaptureFixture, golden: Callable[[str], None]
) -> None:
    case.server.serve(UNSTRUCTURED_VMS)
    case.pod()
    await case.drift_scan.look()
    case.server.fail(path, code)
    async with looking(case):
        await until(lambda: case.drift_scan.rounds["failed"])
        assert case.drift_scan.found[PODS] == 1
        await until(lambda: case.drift_scan.rounds["finished"])

    golden(caplog.messages[0])
    assert "SECRET" not in caplog.messages[0]


async def test_lists_that_are_none(
    case: ScannerCase, caplog: pytest.LogCaptureFixture, golden: Callable[[str], None]
) -> None:
    case.server.put(UNSTRUCTURED_PODS, "odd", "demo", **stored(launcher_pod(), "odd") | {"spec": "SECRET"})
    async with looking(case):
        await until(lambda: case.drift_scan.rounds["failed"])

    golden(caplog.messages[0])


async def test_a_server_that_is_gone_and_one_that_is_silent(
    case: ScannerCase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.server.background.drift.scanner._LIST_SECONDS", 0.01)
    case.server.hang(NAMESPACES.path(), asyncio.Event())
    async with looking(case):
        await until(lambda: case.drift_scan.rounds["failed"] == 1)
        await case.transport.close()
        await until(lambda: case.drift_scan.rounds["failed"] == 2)

    assert "timed out" in caplog.messages[0]
    assert "closed" in caplog.messages[1]


async def test_a_bug_ends_a_round_and_not_the_look_out(
    case: ScannerCase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("webhook.server.background.drift.scanner.candidates.enforced_policies", lambda *_: 1 / 0)
        async with looking(case):
            await until(lambda: case.drift_scan.rounds["failed"] == 2)

    assert "internal error" in caplog.messages[0]


async def test_a_bug_in_a_policy_is_logged_and_is_no_finding(
    case: ScannerCase, caplog: pytest.LogCaptureFixture
) -> None:
    del case.cluster.facts[NamespaceKey("demo")]
    case.cluster.peeked.discard(NamespaceKey("demo"))
    case.pod()
    await case.drift_scan.look()

    assert case.records == []
    assert any("internal error" in message for message in caplog.messages)


async def test_what_can_not_be_told_is_no_finding_where_it_is_denied_either(case: ScannerCase) -> None:
    case.settings = settings(instancetypes=InstancetypeSettings(failure_policy="Fail"))
    name = str(sizes.SMALL["name"])
    case.cluster.facts |= sizes.facts([], unreadable=[("VirtualMachineClusterInstancetype", name)])
    there = Namespace(ObjectMeta(name="demo", labels=dict(NAMESPACE_LABELS)))
    case.cluster.facts[NamespaceKey("demo")] = there
    obj = stored(sizes.vm(instancetype=sizes.SMALL, template={"schedulerName": "kubevirt"}), "web01")
    case.server.put(UNSTRUCTURED_VMS, "web01", "demo", **obj)

    await case.drift_scan.look()

    assert case.records == []
    assert case.drift_scan.rounds["failed"] == 0


# -- depth -------------------------------------------------------------------------------------------------------------


class Deepening:
    """A transport whose answers hold, for a word in them, what a fake API server could not encode."""

    def __init__(self, transport: Any, levels: int) -> None:
        self._transport = transport
        self._deep = b'{"a":' * levels + b"1" + b"}" * levels

    async def get(self, *arguments: Any, **limits: Any) -> Any:
        status, body = await self._transport.get(*arguments, **limits)
        return status, body.replace(b'"@deep@"', self._deep)


@pytest.mark.parametrize("levels", [200, *range(930, 990, 4), 1100, 9_000])
async def test_one_object_of_any_depth_hides_no_other(case: ScannerCase, levels: int) -> None:
    case.settings = settings(instancetypes=InstancetypeSettings(allowed=("small",)))
    case.drift_scan._transport = Deepening(case.transport, levels)  # type: ignore[misc,assignment]
    deep = sizes.vm(instancetype=sizes.SMALL)
    deep["spec"]["template"]["metadata"] = "@deep@"
    case.server.put(UNSTRUCTURED_VMS, "deep", "demo", **stored(deep, "deep"))
    case.server.put(UNSTRUCTURED_VMS, "plain", "demo", **stored(sizes.vm(instancetype=sizes.SMALL), "plain"))

    await case.drift_scan.look()

    found = {record.object.name: record.reasons[0].code for record in case.records if "/validate/" in record.endpoint}
    assert found == {"deep": "invalid-object", "plain": "instancetype-not-allowed"}
