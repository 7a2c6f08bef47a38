"""A cluster of files, and objects to put into them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests import builders
from tests.builders import Json
from webhook import names
from webhook.cli.write import dump
from webhook.cluster.files import FilesCluster
from webhook.errors import InputError
from webhook.facts import SchedulerHealth, SchedulerKey

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()
INSTANCETYPES = "instancetype.kubevirt.io/v1beta1"


def made(api_version: str, kind: str, name: str, namespace: str | None = None, **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **parts.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def kubevirts(kind: str, name: str, namespace: str = "ns", **parts: Any) -> dict[str, Any]:
    return made("kubevirt.io/v1", kind, name, namespace, **parts)


def opted_in(namespace: str, mode: str = "enforce") -> dict[str, Any]:
    return made("v1", "Namespace", namespace, metadata={"labels": {names.policy_label("scheduling"): mode}})


def launcher_pod(namespace: str, owner: str = "a", number: int = 0, **spec: Any) -> Json:
    """A launcher pod that waits for a scheduler; keywords go into its spec."""
    kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "controller": True}
    meta = {
        "name": f"virt-launcher-{owner}-{number}",
        "namespace": namespace,
        "uid": f"{namespace}-{owner}-{number}",
        "labels": {"kubevirt.io": "virt-launcher"},
        "ownerReferences": [kind | {"name": owner, "uid": f"vmi-{namespace}-{owner}"}],
    }
    return {"metadata": meta, "spec": {"schedulerName": "kubevirt", **spec}, "status": {"phase": "Pending"}}


def stuck(namespace: str, owner: str = "web", **changes: Any) -> list[Any]:
    """A namespace that has opted in, a VMI, and its launcher pod, which waits; keywords change the pod."""
    launcher: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod"} | launcher_pod(namespace, owner)
    launcher["metadata"]["creationTimestamp"] = "2026-01-31T11:59:00Z"
    uid, (reference,) = launcher["metadata"]["uid"], launcher["metadata"]["ownerReferences"]
    for part, change in changes.items():
        launcher[part] = launcher[part] | change if part != "status" else change
    status = {"activePods": {uid: ""}}
    vmi = kubevirts("VirtualMachineInstance", owner, namespace, metadata={"uid": reference["uid"]}, status=status)
    return [opted_in(namespace), vmi, launcher][owner == "b" :]


LEASE = made("coordination.k8s.io/v1", "Lease", "kubevirt-scheduler", "kubevirt-scheduler")
LEASE["spec"] = {"holderIdentity": "scheduler-0_1", "renewTime": "2020-01-01T00:00:00.000000Z"}


def cluster(tmp_path: Path, *objects: Any, **settings: Any) -> FilesCluster:
    # PyYAML writes the name "n" without quotes, which is false to kubectl.
    (tmp_path / "objects.yaml").write_text(dump([made("v1", "Node", "n1"), *objects]))
    return FilesCluster.load(tmp_path, builders.settings(**settings), clock=lambda: NOW)


def rejection(path: Path) -> list[str]:
    with pytest.raises(InputError) as refused:
        FilesCluster.load(path, builders.settings())
    return str(refused.value).replace(f"{path}/", "").split("\n")


def health(cluster: FilesCluster, name: str = "kubevirt", namespace: str = "") -> SchedulerHealth:
    found = cluster.peek(SchedulerKey(name, namespace))
    assert isinstance(found, SchedulerHealth)
    return found
