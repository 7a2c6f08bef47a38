"""Whether what is said of a target pod and the quotas of its namespace is what the API server does with the pod."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from webhook.placement.demand import target_pod_demand
from webhook.placement.machines import LauncherPod, Vmi
from webhook.placement.quota import LimitRange, QuotaReview, ResourceQuota, review_quotas, usage_of

from .conftest import NewNamespace
from .support.access import Access
from .support.kube import Json, Kube, denial, eventually
from .support.migrations import guest
from .support.objects import obj
from .support.workloads import PODS, VMIS, launcher_of

QUOTAS, RANGES = "v1/resourcequotas", "v1/limitranges"
PRIORITY = "system-node-critical"
FORBIDDEN = 403
AMOUNTS = {
    **{name: ["512Mi", "1Gi", "3000Mi", "4Gi"] for name in ("memory", "requests.memory", "limits.memory")},
    **{name: ["100m", "150m", "1", "2500m"] for name in ("cpu", "requests.cpu", "limits.cpu")},
    **{name: ["0", "1", "2"] for name in ("pods", "count/pods", "requests.devices.kubevirt.io/kvm")},
    "requests.ephemeral-storage": ["10M", "100M"],
}


class QuotaDice(random.Random):
    def range(self) -> Json:
        item: Json = {"type": "Container", "default": {"memory": self.choice(["3Gi", "4Gi"])}}
        if self.random() < 0.5:
            item["default"]["cpu"] = "2"
        if self.random() < 0.5:
            item["defaultRequest"] = {"ephemeral-storage": "20M"}
        return obj("LimitRange", "all", spec={"limits": [item]})

    def quota(self, name: str) -> Json:
        hard = {each: self.choice(AMOUNTS[each]) for each in self.sample(sorted(AMOUNTS), self.randint(1, 3))}
        spec: Json = {"hard": hard}
        match self.randrange(5):
            case 0:
                spec["scopes"] = [self.choice(["NotTerminating", "NotBestEffort", "Terminating"])]
            case 1:
                required: Json = {"scopeName": "PriorityClass", "operator": self.choice(["In", "NotIn", "Exists"])}
                if required["operator"] != "Exists":
                    required["values"] = [PRIORITY]
                spec["scopeSelector"] = {"matchExpressions": [required]}
        return obj("ResourceQuota", name, spec=spec)

    def used(self, hard: Json) -> Json:
        return {each: self.choice(["0", "0", *AMOUNTS[each][:2]]) for each in hard}

    def launcher(self, vmi: Json, priority: str) -> Json:
        """What KubeVirt renders, both as source and as target."""
        pod = launcher_of(vmi)
        memory = str(vmi["spec"]["domain"]["memory"]["guest"])
        requests = {"cpu": "100m", "memory": memory, "devices.kubevirt.io/kvm": "1", "ephemeral-storage": "50M"}
        limits = {"devices.kubevirt.io/kvm": "1"} | ({"memory": memory, "cpu": "1"} if self.random() < 0.3 else {})
        pod["spec"]["containers"] = [
            {"name": "compute", "image": "x", "resources": {"requests": requests, "limits": limits}}
        ]
        if self.random() < 0.5:
            log = {"requests": {"cpu": "5m", "memory": "35M"}, "limits": {"cpu": "15m", "memory": "60M"}}
            console = {"name": "guest-console-log", "image": "x", "restartPolicy": "Always", "resources": log}
            pod["spec"]["initContainers"] = [console]
        if priority:
            pod["spec"]["priorityClassName"] = priority
        return pod


def predicted(kube: Kube, namespace: str, pod: Json, vmi: Json) -> QuotaReview:
    def read(path: str, view: Any) -> Sequence[Any]:
        return [msgspec.convert(each, view) for each in kube.list(path, namespace)]

    source, machine = msgspec.convert(pod, LauncherPod), msgspec.convert(vmi, Vmi)
    usage = usage_of(source, target_pod_demand(machine, source).requests, read(RANGES, LimitRange))
    return review_quotas(read(QUOTAS, ResourceQuota), usage)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_said_of_quotas_is_what_the_api_server_does(
    plane: Access, new_namespace: NewNamespace, seed: int
) -> None:
    dice, kube = QuotaDice(seed), plane.admin
    namespace = new_namespace()
    vmi = guest("web", model="host-passthrough")
    vmi["spec"]["domain"]["memory"] = {"guest": dice.choice(["512Mi", "1Gi", "2Gi"])}
    made = plane.kubevirt_controller.create(VMIS, vmi, namespace)
    if dice.random() < 0.5:
        kube.create(RANGES, dice.range(), namespace)
    rendered = dice.launcher(made, dice.choice(["", PRIORITY]))
    source = rendered | {"spec": rendered["spec"] | {"nodeName": "node-a"}}
    present = plane.kubevirt_controller.create(PODS, source, namespace)
    if dice.random() < 0.3 and kube.list(RANGES, namespace):
        kube.delete(RANGES, "all", namespace)
    for number in range(dice.randint(1, 2)):
        quota = kube.create(QUOTAS, dice.quota(f"q{number}"), namespace)
        hard = quota["spec"]["hard"]
        status = {"status": {"hard": hard, "used": dice.used(hard)}}
        kube.patch(QUOTAS, quota["metadata"]["name"], status, namespace, subresource="status")
    said = predicted(kube, namespace, present, made)

    def answer() -> str:
        error = denial(lambda: plane.kubevirt_controller.create(PODS, rendered, namespace, dryRun="All"))
        assert error is None or error.status == FORBIDDEN, error
        return error.message if error else ""

    def agreed() -> bool:
        # The quota controller replaces the usage that was written above, sooner or later.
        said, denial = predicted(kube, namespace, present, made), answer()
        quotas = len(kube.list(QUOTAS, namespace))
        return bool(denial) == bool(said.problem) and (quotas > 1 or said.problem in denial)

    # The API server learns of quotas and LimitRanges by a watch.
    assert not said.gaps
    eventually(agreed, what=f"{said} to be what the API server says, which is {answer()!r}")
