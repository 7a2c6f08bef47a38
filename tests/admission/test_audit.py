"""The schema of audit lines; that real records keep to it is shown where they are made."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError

from tests.admission.audit_schema import STRICT, describe, record, valid
from webhook.admission import audit
from webhook.admission.audit import schema, timestamp
from webhook.admission.decision import Change, Reason

WEB = audit.AuditedObject("VirtualMachine", "demo", "web01")
NOW = timestamp(1_700_000_000.25)


def test_every_field_is_described() -> None:
    Draft202012Validator.check_schema(schema())
    for name, record_type in schema()["$defs"].items():
        assert record_type["description"], name
        for field, described in record_type["properties"].items():
            assert described.get("description"), (name, field)


def test_the_kinds_of_records_are_told_apart() -> None:
    fidelity = audit.FidelityRecord(audit.SCHEMA, NOW, "u", WEB, [audit.DifferingField("spec.hostname", None)], 1)
    change = Change(("spec", "schedulerName"), None, "kubevirt", "scheduler-injected")
    reasons = [Reason("scheduler-injected", "the VM chose none")]
    created = "2026-11-21T15:00:00Z"
    endpoint = "/mutate/scheduling/virtualmachines/enforce"
    found = audit.DriftRecord(audit.SCHEMA, NOW, "u", endpoint, WEB, created, "would-patch", reasons, [change], None)
    assert [valid(one)["kind"] for one in (record(), fidelity, found)] == ["decision", "fidelity", "drift"]
    audit.NoAudit().write(record())


@pytest.mark.parametrize(
    "change",
    [
        *({"decision": "perhaps"}, {"mode": "strict"}, {"time": "yesterday"}, {"durationMs": -1}, {"kind": "other"}),
        *({"reasons": []}, {"reasons": [{"code": "Two Words", "text": ""}]}, {"freshness": {"namespaces": "old"}}),
        *({"schema": "kubevirt-webhook.github.io/audit/v9"}, {"extra": 1}),
        *({missing: ...} for missing in ("time", "uid", "durationMs", "user")),
    ],
)
def test_what_is_no_record(change: dict[str, Any]) -> None:
    line = {name: value for name, value in (valid(record()) | change).items() if value is not ...}
    assert not STRICT.is_valid(line)
    with pytest.raises(ValidationError):
        describe(line)


def test_the_documented_schema_is_the_one_that_we_print() -> None:
    kept = Path(__file__).parents[2] / "docs" / "audit.schema.json"
    assert msgspec.json.decode(kept.read_bytes()) == schema(), "print it anew"


@given(st.floats(-1e9, 4e9) | st.integers(0, 4 * 10**9).map(float) | st.integers(0, 10**9).map(lambda n: n + 0.9999999))
def test_a_timestamp_is_that_of_datetime(wall: float) -> None:
    """The whole second is formatted once for many records."""
    whole = datetime.fromtimestamp(wall, UTC).isoformat(timespec="microseconds")
    assert timestamp(wall) == whole.replace("+00:00", "Z")
