"""Whether the pods that budgets keep in the plan of a drain are those whose eviction the API server denies."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec

from webhook.forecast import drain
from webhook.forecast.snapshot import ClusterObjects, PodDisruptionBudget
from webhook.k8s.types.core import NodeWithoutImages
from webhook.placement.machines import LauncherPod

from .conftest import NewNamespace
from .support.access import Access
from .support.kube import Json, Kube, denial, eventually
from .support.objects import obj
from .support.workloads import PODS

BUDGETS, NODE, OTHER_NODE = "policy/v1/poddisruptionbudgets", "node-a", "node-b"
DENIED = 429
POLICIES = (None, "IfHealthyBudget", "AlwaysAllow")


def run(kube: Kube, namespace: str, name: str, app: str, on: str, phase: str, ready: str) -> None:
    """Have a pod run as a kubelet would report it; an empty ``ready``: it has not yet."""
    made = obj("Pod", name, spec={"nodeName": on, "containers": [{"name": "c", "image": "x"}]})
    made["metadata"]["labels"] = {"app": app}
    kube.create(PODS, made, namespace)
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}] if ready else []}
    kube.patch(PODS, name, {"status": status}, namespace, subresource="status")


def budget(app: str, policy: str | None) -> Json:
    spec: Json = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    if policy:
        spec["unhealthyPodEvictionPolicy"] = policy
    return obj("PodDisruptionBudget", app, "policy/v1", spec=spec)


def kept(kube: Kube, namespace: str) -> set[str]:
    """The pods that the plan of a drain says are kept, by what the API server has now."""

    def read(path: str, view: Any) -> tuple[Any, ...]:
        return tuple(msgspec.convert(each, view) for each in kube.list(path, namespace))

    node = msgspec.convert({"metadata": {"name": NODE}}, NodeWithoutImages)
    objects = ClusterObjects(nodes=(node,), pods=read(PODS, LauncherPod), budgets=read(BUDGETS, PodDisruptionBudget))
    return {each.name for each in drain.plan(objects, [NODE]).steps[0].blocked_pods}


def is_denied(kube: Kube, namespace: str, name: str) -> bool:
    eviction = obj("Eviction", name, "policy/v1")
    error = denial(lambda: kube.create(PODS, eviction, namespace, name=name, subresource="eviction", dryRun="All"))
    assert error is None or error.status == DENIED, error
    return error is not None


def test_who_is_kept_is_whose_eviction_is_denied(plane: Access, new_namespace: NewNamespace) -> None:
    kube, namespace = plane.admin, new_namespace()
    names: list[str] = []
    for phase, ready, policy, has_peer in product(("Pending", "Running"), ("True", "False", ""), POLICIES, (0, 1)):
        names.append(name := f"app-{len(names)}")
        run(kube, namespace, name, name, NODE, phase, ready)
        if has_peer:
            run(kube, namespace, f"{name}-peer", name, OTHER_NODE, "Running", "True")
        kube.create(BUDGETS, budget(name, policy), namespace)
    # This one is ready, has no peer, and is being deleted; no kubelet ends it.
    run(kube, namespace, "deleted", "deleted", NODE, "Running", "True")
    kube.create(BUDGETS, budget("deleted", None), namespace)
    kube.delete(PODS, "deleted", namespace, gracePeriodSeconds="3600")
    names.append("deleted")

    def agreed() -> bool:
        # The disruption controller needs a moment.
        said = kept(kube, namespace)
        denials = {name for name in names if is_denied(kube, namespace, name)}
        return said == denials and 0 < len(said) < len(names)

    eventually(agreed, what="the plan to keep the pods that the API server does not evict")
    assert "deleted" not in kept(kube, namespace)
