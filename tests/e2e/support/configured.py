"""A kube-scheduler that runs a configuration which a test tries, and pods for it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from webhook.install.schedulers.lint import LintTarget, lint
from webhook.k8s.yaml_documents import Document

from .kube import Json, eventually
from .objects import launcher_pod
from .plane import ControlPlane
from .workloads import PODS

TRIED = "tried"


def tried(written: Json, code: str, *, is_the_clusters: bool = False) -> Json:
    """A configuration of whose mistakes one is meant."""
    target = LintTarget(is_the_clusters=is_the_clusters)
    assert code in [problem.code for problem in lint(Document(written, "f.yaml", 1), target)]
    return written


def start(plane: ControlPlane, written: Json, name: str = TRIED) -> None:
    """Runs a configuration without its Lease, which these tests do not cover."""
    plane.start_scheduler(name, {key: value for key, value in written.items() if key != "leaderElection"})


def create(plane: ControlPlane, name: str, *, scheduler: str | None = "kubevirt", **spec: Any) -> None:
    """A launcher pod of a VM of 1 GiB; ``spec`` replaces fields of its spec."""
    pod = launcher_pod(name, scheduler=scheduler)
    requests = {"cpu": "100m", "memory": "1Gi", "devices.kubevirt.io/kvm": "1", **spec.pop("requests", {})}
    pod["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": {"devices.kubevirt.io/kvm": "1"}}
    pod["metadata"]["labels"] |= spec.pop("labels", {})
    pod["spec"] |= spec
    plane.admin.create(PODS, pod, "default")


def node_of(plane: ControlPlane, name: str) -> str | None:
    """The node of a pod; None before it has one."""
    found: str | None = plane.admin.get(PODS, name, "default")["spec"].get("nodeName")
    return found


def placed(plane: ControlPlane, name: str) -> str:
    """The node of a pod, once it has one."""
    return eventually(partial(node_of, plane, name), what=f"a node for {name}") or ""


def place(plane: ControlPlane, count: int, prefix: str = "vm", **options: Any) -> Counter[str]:
    """How many pods each node gets, of pods that come one after the other; ``options`` as for ``create``."""
    found: Counter[str] = Counter()
    for number in range(count):
        create(plane, f"{prefix}-{number}", **options)
        found[placed(plane, f"{prefix}-{number}")] += 1
    return found


def is_untouched(plane: ControlPlane, name: str) -> bool:
    """Whether no scheduler has looked at a pod."""
    pod = plane.admin.get(PODS, name, "default")
    return pod["spec"].get("nodeName") is None and not pod.get("status", {}).get("conditions")


def end(plane: ControlPlane, *names: str) -> None:
    """End schedulers, by default the one that is tried, and remove all pods."""
    for name in names or (TRIED,):
        plane.stop_scheduler(name)
    for pod in plane.admin.list(PODS, "default"):
        plane.admin.delete(PODS, pod["metadata"]["name"], "default", options={"gracePeriodSeconds": 0})
