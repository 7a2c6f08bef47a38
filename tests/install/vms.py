"""VMs that hold what was injected."""

from __future__ import annotations

from typing import Any

from webhook import names

Json = dict[str, Any]
VMS = "/apis/kubevirt.io/v1/namespaces/{}/virtualmachines/{}"
S, SIZE = names.INJECTED_SCHEDULER_ANNOTATION, names.INJECTED_INSTANCETYPE_ANNOTATION
TASTE = names.INJECTED_PREFERENCE_ANNOTATION


def vm(
    outer: Json | None = None, inner: Json | None = None, scheduler: Any = None, *, spread: Any = ..., **status: Any
) -> Json:
    template: Json = {"metadata": {"annotations": {**inner}} if inner is not None else {}, "spec": {"domain": {}}}
    if scheduler is not None:
        template["spec"]["schedulerName"] = scheduler
    if spread is not ...:
        template["spec"]["topologySpreadConstraints"] = spread
    metadata: Json = {"name": "web", "namespace": "shop"} | ({"annotations": {**outer}} if outer is not None else {})
    return {"metadata": metadata, "spec": {"template": template}, "status": status}
