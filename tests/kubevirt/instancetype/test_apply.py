"""What the recorded answers do not show of instancetypes (tests/vectors)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubevirt.plain import as_json
from tests.kubevirt.samples import applied
from webhook.kubevirt.rejection import Conflicts
from webhook.kubevirt.webhooks import deny

WANTED: dict[str, Any] = {
    "cpu": {"guest": 4, "model": "Haswell", "dedicatedCPUPlacement": True},
    "memory": {"guest": "4Gi", "hugepages": {"pageSize": "2Mi"}, "maxGuest": "8Gi", "overcommitPercent": 15},
    "schedulerName": "s",
    "gpus": [{"name": "g", "deviceName": "d"}],
}


@pytest.mark.parametrize(
    ("template", "paths"),
    [
        (
            {"domain": {"cpu": {"model": "m", "dedicatedCpuPlacement": True}}},
            ["cpu.model", "cpu.dedicatedCPUPlacement"],
        ),
        # Only the first of the memory fields counts.
        ({"domain": {"memory": {"guest": "1Gi", "maxGuest": "1Gi"}}}, ["memory.guest"]),
        ({"domain": {"memory": {"hugepages": {}, "maxGuest": "1Gi"}}}, ["memory.hugepages"]),
        ({"domain": {"devices": {"gpus": [{"name": "x"}]}, "cpu": {"cores": 1}}}, ["cpu.cores", "devices.gpus"]),
        ({"domain": {"cpu": {"sockets": 0, "model": "", "maxSockets": 1}, "devices": {"gpus": []}}}, []),
    ],
)
def test_conflicts_in_kubevirts_order(template: dict[str, Any], paths: list[str]) -> None:
    spec, conflicts = applied(template, WANTED, {"preferredSubdomain": "x"})
    assert [conflict.field for conflict in conflicts] == [f"spec.template.spec.domain.{path}" for path in paths]
    # A preference waits for an instancetype without conflicts.
    assert ("subdomain" in spec) is not bool(paths)


def test_sentences_and_an_overcommit_of_one_percent() -> None:
    _, conflicts = applied({"schedulerName": "s", "domain": {"cpu": {"cores": 1}}}, WANTED)
    paths = "spec.template.spec.schedulerName, spec.template.spec.domain.cpu.cores"
    sentence = f"VM field(s) {paths} conflicts with selected instance type"
    assert str(Conflicts(conflict.field for conflict in conflicts)) == sentence
    assert as_json(conflicts[0]) == {
        "reason": "FieldValueInvalid",
        "message": "VM field(s) spec.template.spec.schedulerName conflicts with selected instance type",
        "field": "spec.template.spec.schedulerName",
    }
    assert deny(conflicts * 6).message.endswith(", and 2 more validation errors")
    assert "more" not in deny(conflicts * 5).message
    assert deny([*(conflicts * 5), conflicts[0]]).message.endswith(", and 1 more validation errors")
    spec, _ = applied({"domain": {}}, {"memory": {"guest": "100M", "overcommitPercent": 1}})
    assert spec["domain"]["resources"] == {"requests": {"memory": "99M"}}
