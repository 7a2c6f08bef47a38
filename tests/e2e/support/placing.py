"""Launcher pods in the namespace ``default``, and the nodes that a scheduler gives them."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping
from typing import Any

from .kube import Json, Kube, KubeObject
from .objects import launcher_pod
from .workloads import PODS

SPACE = "default"


def create(kube: Kube, name: str, *, query: Mapping[str, str] | None = None, **options: Any) -> None:
    """A launcher pod of a VM of 1 GiB.

    Args:
        query: of the request.
        options: ``scheduler``, and ``labels``, ``requests`` and fields of its ``container`` beside those that it has;
            others replace fields of its spec.
    """
    pod = launcher_pod(name, scheduler=options.pop("scheduler", "kubevirt"))
    kvm = {"devices.kubevirt.io/kvm": "1"}
    requests = {"cpu": "100m", "memory": "1Gi", **kvm, **options.pop("requests", {})}
    pod["spec"]["containers"][0] |= {"resources": {"requests": requests, "limits": kvm}, **options.pop("container", {})}
    pod["metadata"]["labels"] |= options.pop("labels", {})
    kube.create(PODS, {**pod, "spec": pod["spec"] | options}, SPACE, **(query or {}))


def placed(kube: Kube, name: str) -> str:
    found = kube.wait(PODS, name, SPACE, until=lambda pod: pod["spec"].get("nodeName"), what=f"a node for {name}")
    return str(found["spec"]["nodeName"])


def looked_at(kube: Kube, name: str, namespace: str = SPACE) -> KubeObject:
    """A pod, once a scheduler has looked at it: it has a node, or a condition that says why it has none."""
    is_done = lambda pod: pod["spec"].get("nodeName") or pod["status"].get("conditions")
    return kube.wait(PODS, name, namespace, until=is_done, what=f"the scheduler to look at {name}")


def place(kube: Kube, count: int, prefix: str = "vm", **options: Any) -> Counter[str]:
    """How many pods each node gets, of pods that come one after the other; ``options`` as for `create`."""
    found: Counter[str] = Counter()
    for number in range(count):
        create(kube, f"{prefix}-{number}", **options)
        found[placed(kube, f"{prefix}-{number}")] += 1
    return found


def place_one(kube: Kube, pod: Json) -> str:
    kube.create(PODS, pod, SPACE)
    return placed(kube, pod["metadata"]["name"])


def remove_pods(kube: Kube) -> None:
    kube.delete_all(PODS, SPACE, gracePeriodSeconds="0")


def await_nodes(kube: Kube, node: str, scheduler: str = "kubevirt") -> None:
    """Returns once a scheduler knows of all changes of nodes until now; it learns of pods by another watch."""
    mark = secrets.token_hex(4)
    kube.patch("v1/nodes", node, {"metadata": {"labels": {"mark": mark}}})
    create(kube, mark, scheduler=scheduler, nodeSelector={"mark": mark}, tolerations=[{"operator": "Exists"}])
    placed(kube, mark)
    kube.delete(PODS, mark, SPACE, gracePeriodSeconds="0")
