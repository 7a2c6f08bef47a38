from __future__ import annotations

from typing import Any

import pytest

from tests.kubevirt.plain import as_json
from tests.kubevirt.samples import applied
from webhook.kubevirt.rejection import Conflicts
from webhook.kubevirt.webhooks import deny

EVERYTHING: dict[str, Any] = {
    "cpu": {
        "guest": 4,
        "model": "Haswell",
        "dedicatedCPUPlacement": True,
        "isolateEmulatorThread": True,
        "numa": {"guestMappingPassthrough": {}},
        "realtime": {"mask": "0-3"},
        "maxSockets": 8,
    },
    "memory": {"guest": "4Gi", "hugepages": {"pageSize": "2Mi"}, "maxGuest": "8Gi", "overcommitPercent": 15},
    "nodeSelector": {"a": "b"},
    "schedulerName": "s",
    "ioThreads": {"supplementalPoolThreadCount": 2},
    "ioThreadsPolicy": "auto",
    "launchSecurity": {"snp": {}},
    "gpus": [{"name": "g", "deviceName": "d"}],
    "hostDevices": [{"name": "h", "deviceName": "d"}],
}


def test_everything_is_copied() -> None:
    spec, conflicts = applied({}, EVERYTHING)

    assert not conflicts
    assert spec == {
        "nodeSelector": {"a": "b"},
        "schedulerName": "s",
        "domain": {
            "cpu": {
                "sockets": 4,
                "cores": 1,
                "threads": 1,
                "maxSockets": 8,
                "model": "Haswell",
                "dedicatedCpuPlacement": True,
                "isolateEmulatorThread": True,
                "numa": {"guestMappingPassthrough": {}},
                "realtime": {"mask": "0-3"},
            },
            "memory": {"guest": "4Gi", "hugepages": {"pageSize": "2Mi"}, "maxGuest": "8Gi"},
            "resources": {"requests": {"memory": "3650722304"}},
            "ioThreads": {"supplementalPoolThreadCount": 2},
            "ioThreadsPolicy": "auto",
            "launchSecurity": {"snp": {}},
            "devices": {"gpus": [{"name": "g", "deviceName": "d"}], "hostDevices": [{"name": "h", "deviceName": "d"}]},
        },
    }


CONFLICTS = [
    ({"nodeSelector": {"a": "b"}}, ["nodeSelector"]),
    ({"nodeSelector": {}}, ["nodeSelector"]),
    ({"schedulerName": "s"}, ["schedulerName"]),
    ({"domain": {"resources": {"requests": {"cpu": "0"}}}}, ["domain.resources.requests.cpu"]),
    ({"domain": {"resources": {"limits": {"cpu": "1"}}}}, ["domain.resources.limits.cpu"]),
    (
        {
            "domain": {
                "cpu": {
                    "realtime": {},
                    "numa": {},
                    "isolateEmulatorThread": True,
                    "dedicatedCpuPlacement": True,
                    "model": "m",
                    "threads": 1,
                    "cores": 1,
                    "sockets": 1,
                }
            }
        },
        [
            f"domain.cpu.{name}"
            for name in (
                "sockets",
                "cores",
                "threads",
                "model",
                "dedicatedCPUPlacement",
                "isolateEmulatorThread",
                "numa",
                "realtime",
            )
        ],
    ),
    ({"domain": {"cpu": {"sockets": 0, "model": "", "dedicatedCpuPlacement": False, "maxSockets": 1}}}, []),
    # Only the first of the memory fields counts.
    ({"domain": {"memory": {"guest": "1Gi", "maxGuest": "1Gi"}}}, ["domain.memory.guest"]),
    ({"domain": {"memory": {"hugepages": {}, "maxGuest": "1Gi"}}}, ["domain.memory.hugepages"]),
    ({"domain": {"memory": {"maxGuest": "1Gi"}}}, ["domain.memory.maxGuest"]),
    (
        {"domain": {"resources": {"requests": {"memory": "1"}, "limits": {"memory": "1"}}}},
        ["domain.resources.requests.memory"],
    ),
    ({"domain": {"resources": {"limits": {"memory": "1"}}}}, ["domain.resources.limits.memory"]),
    ({"domain": {"ioThreads": {"supplementalPoolThreadCount": 0}}}, ["domain.ioThreads.supplementalPoolThreadCount"]),
    ({"domain": {"ioThreads": {}}}, []),
    ({"domain": {"ioThreadsPolicy": "auto"}}, ["domain.ioThreadsPolicy"]),
    ({"domain": {"launchSecurity": {}}}, ["domain.launchSecurity"]),
    ({"domain": {"devices": {"gpus": [{"name": "x"}]}}}, ["domain.devices.gpus"]),
    ({"domain": {"devices": {"gpus": []}}}, []),
    ({"domain": {"devices": {"hostDevices": [{"name": "x"}]}}}, ["domain.devices.hostDevices"]),
    (
        {"domain": {"devices": {"gpus": [{"name": "x"}]}, "cpu": {"cores": 1}}, "schedulerName": "s"},
        ["schedulerName", "domain.cpu.cores", "domain.devices.gpus"],
    ),
]


@pytest.mark.parametrize(("template", "paths"), CONFLICTS)
def test_conflicts_in_kubevirts_order(template: dict[str, Any], paths: list[str]) -> None:
    _, conflicts = applied(template, EVERYTHING, {"preferredSubdomain": "x"})

    assert [conflict.field for conflict in conflicts] == [f"spec.template.spec.{path}" for path in paths]


@pytest.mark.parametrize(("template", "paths"), CONFLICTS)
def test_what_an_instancetype_leaves_out_is_free(template: dict[str, Any], paths: list[str]) -> None:
    _, conflicts = applied(template, {})
    sized = ("resources", "guest", "cpu.sockets", "cpu.cores", "cpu.threads")

    assert {conflict.field.removeprefix("spec.template.spec.") for conflict in conflicts} == {
        path for path in paths if any(word in path for word in sized)
    }


def test_annotations() -> None:
    annotations = {"same": "1", "mine": "1", "other": "1"}
    _, conflicts = applied({}, {"annotations": {"new": "1", "same": "1", "other": "2"}}, annotations=annotations)

    assert annotations == {"same": "1", "mine": "1", "other": "1", "new": "1"}
    assert [conflict.field for conflict in conflicts] == ["annotations.other"]


def test_a_preference_waits_for_an_instancetype_without_conflicts() -> None:
    preferred = {"preferredSubdomain": "x"}

    assert "subdomain" not in applied({"schedulerName": "s"}, EVERYTHING, preferred)[0]
    assert applied({}, EVERYTHING, preferred)[0]["subdomain"] == "x"
    assert applied({"schedulerName": "s"}, None, preferred)[0]["subdomain"] == "x"


def test_sentences() -> None:
    _, conflicts = applied({"schedulerName": "s", "domain": {"cpu": {"cores": 1}}}, EVERYTHING)
    error = Conflicts(conflicts)

    assert str(error) == (
        "VM field(s) spec.template.spec.schedulerName, spec.template.spec.domain.cpu.cores conflicts with selected "
        "instance type"
    )
    assert error.in_vmi().what == (
        "VMI conflicts with instancetype spec in fields: "
        "[spec.template.spec.schedulerName, spec.template.spec.domain.cpu.cores]"
    )
    assert as_json(conflicts[0]) == {
        "reason": "FieldValueInvalid",
        "message": "VM field(s) spec.template.spec.schedulerName conflicts with selected instance type",
        "field": "spec.template.spec.schedulerName",
    }
    assert deny(conflicts * 6).message.endswith(", and 2 more validation errors")
    assert "more" not in deny(conflicts * 5).message
    assert deny([*(conflicts * 5), conflicts[0]]).message.endswith(", and 1 more validation errors")


def test_an_overcommit_of_one_percent_counts() -> None:
    spec, _ = applied({"domain": {}}, {"memory": {"guest": "100M", "overcommitPercent": 1}})

    assert spec["domain"]["resources"] == {"requests": {"memory": "99M"}}
