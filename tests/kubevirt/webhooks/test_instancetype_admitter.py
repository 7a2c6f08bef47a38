from __future__ import annotations

import pytest

from tests.kubevirt import samples
from webhook.kubevirt.go_json.structs import Json
from webhook.kubevirt.webhooks import admit_instancetype, admit_preference

OVERCOMMIT = "spec.memory.overcommitPercent"
RATIO = "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads"


@pytest.mark.parametrize(
    ("memory", "messages"),
    [
        ({"overcommitPercent": 0, "hugepages": {}}, []),
        ({"overcommitPercent": 100}, []),
        (
            {"overcommitPercent": 1, "hugepages": {}},
            [f"{OVERCOMMIT} and spec.memory.hugepages should not be requested together."],
        ),
        ({"overcommitPercent": -15}, [f"{OVERCOMMIT} '-15': must be in range between 0 and 100."]),
        (
            {"overcommitPercent": 150, "hugepages": {}},
            [
                f"{OVERCOMMIT} '150': must be in range between 0 and 100.",
                f"{OVERCOMMIT} and spec.memory.hugepages should not be requested together.",
            ],
        ),
    ],
)
def test_instancetypes(memory: Json, messages: list[str]) -> None:
    answer = admit_instancetype(samples.instancetype(memory={"guest": "1Gi", **memory}))

    assert [cause.what for cause in answer.causes] == messages
    assert {cause.field for cause in answer.causes} <= {OVERCOMMIT}
    assert answer.is_allowed is not bool(messages)


def test_a_deprecated_field() -> None:
    answer = admit_instancetype(samples.instancetype(launchSecurity={}))

    assert answer.is_allowed
    assert answer.warnings == [
        "launchSecurity is deprecated and will be removed in a future release. Use preference instead."
    ]


@pytest.mark.parametrize(
    ("spec", "message", "field"),
    [
        ({}, "", ""),
        ({"cpu": {"preferredCPUTopology": "cores"}}, "", ""),
        ({"cpu": {"preferredCPUTopology": "foo"}}, "unknown preferredCPUTopology foo", "spec.cpu.preferredCPUTopology"),
        ({"cpu": {"spreadOptions": {"across": "foo"}}}, "", ""),
        ({"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 0}}}, "", ""),
        (
            {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "foo"}}},
            "across foo is not supported",
            "spec.cpu.spreadOptions.across",
        ),
        (
            {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads", "ratio": 3}}},
            RATIO,
            "spec.cpu.spreadOptions.ratio",
        ),
        (
            {
                "cpu": {"preferredCPUTopology": "preferSpread", "spreadOptions": {"across": "CoresThreads"}},
                "preferSpreadSocketToCoreRatio": 3,
            },
            RATIO,
            "spec.cpu.spreadOptions.ratio",
        ),
        ({"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads"}}}, "", ""),
    ],
)
def test_preferences(spec: Json, message: str, field: str) -> None:
    answer = admit_preference(samples.preference(**spec))

    assert (answer.message, [cause.field for cause in answer.causes]) == (message, [field] if field else [])


def test_a_deprecated_name() -> None:
    assert admit_preference(samples.preference(cpu={"preferredCPUTopology": "preferAny"})).warnings == [
        "PreferredCPUTopology preferAny is deprecated for removal in a future release, please use any instead"
    ]
