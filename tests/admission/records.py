"""Audit records."""

from __future__ import annotations

from webhook.admission.audit import SCHEMA, AuditedObject, Record
from webhook.admission.decision import Change, Reason


def record(uid: str = "u") -> Record:
    return Record(
        SCHEMA,
        "2026-01-01T00:00:00.000000Z",
        uid,
        "/mutate/scheduling/pods/enforce",
        "CREATE",
        AuditedObject("Pod", "demo", "virt-launcher-web01-"),
        "system:serviceaccount:kubevirt:kubevirt-controller",
        False,
        "enforce",
        "patched",
        (Reason("scheduler-injected", "the VM chose none"),),
        (Change(("spec", "schedulerName"), "default-scheduler", "kubevirt", "scheduler-injected"),),
        None,
        0.125,
        {"namespaces": 12.5},
    )
