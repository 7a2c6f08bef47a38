"""The two reviews: a VM that gets defaults, and a VMI that is filled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from webhook import names
from webhook.settings.model import Settings
from webhook.settings_file import default_settings

HERE: Final = Path(__file__).parent
CLUSTER: Final = HERE / "cluster"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class InstancetypesCase:
    """One kind of review.

    Attributes:
        name: for the report.
        plural: of the object's kind.
        object: as the API server sends it, with what kubectl and the API server add to what people write.
        body: the review.
        goal: CPU µs that it may take.
    """

    name: str
    plural: str
    object: dict[str, Any]
    body: bytes
    goal: float

    @property
    def path(self) -> str:
        """The path of the endpoint."""
        return f"/mutate/{names.INSTANCETYPES}/{self.plural}/enforce"

    @classmethod
    def of(cls, name: str, plural: str, file: str, goal: float) -> InstancetypesCase:
        """The CREATE of an object in a YAML file."""
        written = yaml.safe_load((HERE / "objects" / file).read_text())
        sent = _applied(written)
        return cls(name, plural, sent, json.dumps(_review(plural, sent)).encode(), goal)


def cases() -> tuple[InstancetypesCase, ...]:
    """All of them."""
    return (
        InstancetypesCase.of("VM, defaults injected", "virtualmachines", "vm.yaml", 180.0),
        InstancetypesCase.of("VMI, filled", "virtualmachineinstances", "vmi.yaml", 250.0),
    )


def settings() -> Settings:
    """The settings: all defaults; the namespace selects the rest."""
    return default_settings()


def _applied(written: dict[str, Any]) -> dict[str, Any]:
    """An object as `kubectl apply` and the API server make it."""
    metadata = written["metadata"]
    managed = {
        "manager": "kubectl-client-side-apply",
        "operation": "Update",
        "apiVersion": written["apiVersion"],
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields({"metadata": metadata, "spec": written["spec"]}),
    }
    annotations = metadata["annotations"] | {LAST_APPLIED: json.dumps(written) + "\n"}
    return {**written, "metadata": {**metadata, "annotations": annotations, "managedFields": [managed]}}


def _fields(value: Any) -> dict[str, Any]:
    return {f"f:{key}": _fields(item) for key, item in value.items()} if isinstance(value, dict) else {}


def _review(plural: str, sent: dict[str, Any]) -> dict[str, Any]:
    group, version = sent["apiVersion"].split("/")
    kind = {"group": group, "version": version, "kind": sent["kind"]}
    resource = {"group": group, "version": version, "resource": plural}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": sent["metadata"]["name"],
            "namespace": sent["metadata"]["namespace"],
            "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "object": sent,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldValidation": "Strict"},
        },
    }
