"""A cluster of files, and objects to put into them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import builders
from webhook import names
from webhook.cluster.files import FilesCluster
from webhook.errors import InputError
from webhook.facts import SchedulerHealth, SchedulerKey

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()


def made(api_version: str, kind: str, name: str, namespace: str | None = None, **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **parts.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def pod(name: str, *, scheduler: str = "kubevirt", created: str | None = "2026-01-31T11:59:00Z", **parts: Any) -> Any:
    spec = {"schedulerName": scheduler, **parts.pop("spec", {})}
    metadata = {"creationTimestamp": created, **parts.pop("metadata", {})}
    return made("v1", "Pod", name, "vms", metadata=metadata, spec=spec, **{"status": {"phase": "Pending"}, **parts})


def stuck(namespace: str, owner: str = "web", **changes: Any) -> list[Any]:
    """A namespace that has opted in, a VMI, and its launcher pod, which waits; keywords are those of `pod`."""
    uid = f"uid-of-{namespace}-{owner}"
    reference = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": owner, "uid": uid}
    marks = {"labels": {"kubevirt.io": "virt-launcher"}, "ownerReferences": [reference | {"controller": True}]}
    launcher = pod(
        f"virt-launcher-{owner}",
        **changes | {"metadata": {"uid": f"pod-{uid}", **marks, **changes.get("metadata", {})}},
    )
    launcher["metadata"]["namespace"] = namespace
    status = {"activePods": {f"pod-{uid}": ""}}
    vmi = made("kubevirt.io/v1", "VirtualMachineInstance", owner, namespace, metadata={"uid": uid}, status=status)
    label = {names.policy_label("scheduling"): "enforce"}
    return [made("v1", "Namespace", namespace, metadata={"labels": label}), vmi, launcher][owner == "b" :]


LEASE = made(
    "coordination.k8s.io/v1",
    "Lease",
    "kubevirt-scheduler",
    "kubevirt-scheduler",
    spec={"holderIdentity": "scheduler-0_1", "renewTime": "2020-01-01T00:00:00.000000Z"},
)


def cluster(tmp_path: Path, *objects: Any, **settings: Any) -> FilesCluster:
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all([made("v1", "Node", "n1"), *objects]))
    return FilesCluster.load(tmp_path, builders.settings(**settings), clock=lambda: NOW)


def rejection(path: Path) -> list[str]:
    with pytest.raises(InputError) as refused:
        FilesCluster.load(path, builders.settings())
    return str(refused.value).replace(f"{path}/", "").split("\n")


def health(cluster: FilesCluster, name: str = "kubevirt", namespace: str = "") -> SchedulerHealth:
    found = cluster.peek(SchedulerKey(name, namespace))
    assert isinstance(found, SchedulerHealth)
    return found
