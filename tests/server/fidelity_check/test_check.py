from __future__ import annotations

import asyncio
import logging
import random
import re
from typing import Any

import pytest

from tests.admission.audit_schema import valid
from tests.cluster.fake_apiserver import FakeClock
from tests.golden_files import Golden
from tests.kubevirt import samples
from tests.kubevirt.vm.test_fidelity import running as running_vm
from tests.kubevirt.vm.test_fidelity import started
from tests.server.conftest import ServedApi, working
from tests.waiting import until
from webhook.admission.audit import FidelityRecord
from webhook.errors import Unavailable
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.resources import STORED_VMIS, STORED_VMS, UNSTRUCTURED
from webhook.policies.instancetypes.settings import FidelitySettings
from webhook.server.fidelity_check.check import FidelityCheck

REVISIONS = UNSTRUCTURED["ControllerRevision"]
VMS = STORED_VMS.path()


class FidelityCase:
    """A fidelity check in front of a fake API server."""

    def __init__(self, api: ServedApi) -> None:
        self.server, transport = api
        self.server.serve(STORED_VMS)
        self.clock = FakeClock()
        self.records: list[FidelityRecord] = []
        self.settings = FidelitySettings(sample=5, every_minutes=10)
        self.configuration: ClusterConfig | Unavailable | None = DEFAULTS
        reads = (lambda: self.configuration, lambda: self.settings, self.records.append)
        self.watch = FidelityCheck(transport, *reads, clock=self.clock, chance=random.Random(7))

    def put(self, name: str = "vm", **change: Any) -> None:
        """A VM with its VMI, whose spec gets ``change``, and what it was started with."""
        given = running_vm()
        given["metadata"] |= {"name": name, "uid": f"uid-of-{name}"}
        found = started(given)
        found["metadata"]["uid"] = f"uid-of-the-vmi-{name}"
        found["spec"] |= change
        for resource, item in ((STORED_VMS, given), (STORED_VMIS, found)):
            self.server.put(resource, name, "demo", **item)
        self.capture()

    def capture(self, **size: Any) -> None:
        its = samples.instancetype(**size)
        preferred = samples.preference(devices={"preferredDiskBus": "virtio"})
        for name, captured, label in (("it-1", its, "u1"), ("pref-1", preferred, "linux")):
            self.server.put(REVISIONS, name, "demo", **samples.revision(name, captured, label))


@pytest.fixture
def case(api: ServedApi) -> FidelityCase:
    return FidelityCase(api)


async def test_a_vmi_that_is_as_it_should_be_whatever_its_instancetype_is_now(case: FidelityCase) -> None:
    case.put()
    its = samples.instancetype(cpu={"guest": 64})
    case.server.put(UNSTRUCTURED[its["kind"]], "u1", **its)
    await case.watch.compare(5)
    assert case.watch.checked == {"same": 1, "different": 0, "skipped": 0}
    assert (case.watch.differing, case.records) == (0, [])
    assert not [asked for asked in case.server.asked if "instancetype.kubevirt.io" in asked.path]


async def test_a_vmi_that_differs_gets_a_record_without_values(case: FidelityCase) -> None:
    case.put(hostname="SECRET", terminationGracePeriodSeconds=7)

    await case.watch.compare(5)

    (record,) = case.records
    assert valid(record) == {
        "schema": "kubevirt-webhook.github.io/audit/v1alpha1",
        "time": record.time,
        "uid": "uid-of-the-vmi-vm",
        "object": {"kind": "VirtualMachine", "namespace": "demo", "name": "vm"},
        "differences": [
            {"path": "spec.hostname", "origin": None},
            {"path": "spec.terminationGracePeriodSeconds", "origin": None},
        ],
        "count": 2,
        "kind": "fidelity",
    }
    assert record.time.endswith("Z")
    assert (case.watch.checked["different"], case.watch.differing) == (1, 2)


async def test_what_differs_everywhere_is_cut_short(case: FidelityCase) -> None:
    case.put(nodeSelector={f"key-{number}": "x" for number in range(60)})
    await case.watch.compare(5)
    assert (len(case.records[0].differences), case.records[0].count) == (50, 60)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.generation", 9),
        ("status.instancetypeRef", None),
        ("status.instancetypeRef.controllerRevisionRef.name", "gone"),
        ("spec.template.spec.hostname", 7),
        ("", None),
    ],
    ids=["changed", "not captured", "revision lost", "malformed", "VMI gone"],
)
async def test_what_can_not_be_compared_is_skipped(case: FidelityCase, path: str, value: Any) -> None:
    case.put()
    if path:
        *way, last = path.split(".")
        place = case.server.held(STORED_VMS)["demo", "vm"]
        for name in way:
            place = place[name]
        place[last] = value
    else:
        case.server.remove(STORED_VMIS, "vm", "demo")
    await case.watch.compare(5)
    assert case.watch.checked == {"same": 0, "different": 0, "skipped": 1}


async def test_no_kubevirt_means_nothing_to_do(case: FidelityCase) -> None:
    case.configuration = None
    await case.watch.compare(5)
    assert case.server.asked == []


async def test_a_sample_is_taken_over_all_pages_and_of_started_vms_only(case: FidelityCase) -> None:
    for number in range(230):
        case.server.put(STORED_VMS, f"vm-{number:03}", "demo", status={"created": number % 2 == 0})
    for _ in range(10):
        await case.watch.compare(5)
    drawn = {int(found[1]) for asked in case.server.asked if (found := re.search(r"/vm-(\d+)$", asked.path))}
    assert all(number % 2 == 0 for number in drawn)
    assert (case.watch.checked["skipped"], max(drawn) >= 200) == (50, True)
    assert [asked.query.get("limit") for asked in case.server.requests(VMS)] == ["100"] * 30


async def test_a_round_takes_its_time(case: FidelityCase) -> None:
    for name in ("one", "two"):
        case.put(name)
    await case.watch.compare(5)
    assert case.clock.slept == [0.25] * 3


async def test_rounds_follow_the_settings(case: FidelityCase) -> None:
    case.put()
    case.settings = FidelitySettings(sample=0)
    async with working(case.watch.run()):
        await until(lambda: len(case.clock.slept) > 60)
        assert case.server.asked == []
        case.settings = FidelitySettings(sample=1, every_minutes=1)
        await until(lambda: case.watch.checked["same"] == 2)
        began = case.clock.now()
        await until(lambda: case.watch.checked["same"] == 3)
        assert case.clock.now() - began < 120
    assert case.watch.failed == 0


@pytest.mark.parametrize(
    ("path", "code"),
    [
        *((VMS, 403), (VMS, 410), (STORED_VMS.path("demo", "vm"), 403), (STORED_VMIS.path("demo", "vm"), 500)),
        (REVISIONS.path("demo", "it-1"), 403),
    ],
)
async def test_a_failure_is_a_line_and_the_next_round_begins_anew(
    case: FidelityCase, path: str, code: int, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    case.put()
    case.server.fail(path, code, "Expired" if code == 410 else "")
    async with working(case.watch.run()):
        await until(lambda: case.watch.checked["same"])
    (line,) = [record for record in caplog.records if record.name == "webhook.server.fidelity_check.check"]
    assert (case.watch.failed, line.levelno) == (1, logging.WARNING)
    golden(line.getMessage())
    assert "SECRET" not in line.getMessage()


async def test_settings_of_kubevirt_that_can_not_be_read_and_bugs_end_a_round(
    case: FidelityCase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.put()
    case.configuration = Unavailable("not listed yet")
    monkeypatch.setattr("webhook.server.fidelity_check.check.fidelity.revisions", lambda _: 1 / 0)
    async with working(case.watch.run()):
        await until(lambda: case.watch.failed)
        assert "not listed yet" in caplog.messages[0]
        case.configuration = DEFAULTS
        await until(lambda: "internal error" in caplog.messages[-1])
        failed = case.watch.failed
        await until(lambda: case.watch.failed > failed)


@pytest.mark.parametrize("trouble", ["no list", "the server is gone", "the list never comes"])
async def test_what_ends_a_round(
    case: FidelityCase, trouble: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    if trouble == "no list":
        case.server.put(STORED_VMS, "vm", "demo", status={"created": "SECRET"})
    elif trouble == "the server is gone":
        await case.watch.transport.close()
    else:
        monkeypatch.setattr("webhook.server.fidelity_check.check._LIST_SECONDS", 0.01)
        case.server.hang(VMS, asyncio.Event(), times=1000)
    async with working(case.watch.run()):
        await until(lambda: case.watch.failed)
    golden(caplog.messages[0])
