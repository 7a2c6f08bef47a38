from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.doctor.world import Change, DoctorWorld, both, forbid, put
from webhook.doctor.deschedulers import KUBE_DESCHEDULERS
from webhook.doctor.neighbors import check_neighbors
from webhook.k8s.resources import CONFIG_MAPS, NODES_WITH_IMAGES, PODS

OPERATOR = "openshift-kube-descheduler-operator"


def controller(label: str, namespace: str = "kube-system", **container: Any) -> Change:
    metadata = {"labels": {"app.kubernetes.io/name": label}}
    spec = {"containers": [{"name": "controller", **container}]}
    return put(PODS, label, namespace, metadata=metadata, spec=spec, status={"phase": "Running"})


def env(value: str) -> Mapping[str, Any]:
    return {"env": [{"name": "OTHER", "value": "Ignore"}, {"name": "PREFERENCE_POLICY", "value": value}]}


BOUGHT = put(NODES_WITH_IMAGES, "bought", metadata={"labels": {"karpenter.sh/nodepool": "default"}})
KARPENTER, AUTOSCALER = controller("karpenter"), controller("gcp-cluster-autoscaler")


def spread(value: str) -> Change:
    return lambda world: world.set("scheduling", spread=value)


def policy(text: str) -> Change:
    data = {"policy.yaml": text}
    return both(lambda world: world.namespace(OPERATOR), put(CONFIG_MAPS, "cluster", OPERATOR, data=data))


AWARE = policy("- name: KubevirtMigrationAware")


def descheduler(mode: str = "Automatic", by: str = "virt-platform-autopilot", **limits: int) -> Change:
    """OpenShift's descheduler as virt-platform-autopilot sets it."""
    spec = {"mode": mode, "evictionLimits": limits or None}
    labels = {"platform.kubevirt.io/managed-by": by}
    live = put(KUBE_DESCHEDULERS, "cluster", OPERATOR, metadata={"labels": labels}, spec=spec)
    return both(policy("profiles: []"), live)


OWNED_UNPACED = "ok cool-down; warning autopilot-unpaced"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (spread("hostname"), "ok none"),
        (both(BOUGHT, spread("off")), "ok karpenter"),
        (both(BOUGHT, spread("zone")), "ok karpenter"),
        # None of its pods is visible, where a cloud runs it.
        (both(BOUGHT, spread("hostname")), "warning hostname-buys-nodes"),
        (both(KARPENTER, spread("both")), "warning hostname-buys-nodes"),
        (both(controller("karpenter", **env("Respect")), spread("hostname")), "warning hostname-buys-nodes"),
        (both(controller("karpenter", **env("Ignore")), spread("hostname")), "ok karpenter"),
        (both(controller("karpenter", args=["--preference-policy=Ignore"]), spread("hostname")), "ok karpenter"),
        (both(controller("karpenter", args=["--preference-policy", "Ignore"]), spread("hostname")), "ok karpenter"),
        # A tenant's pod, which says so of itself, or has a whole page to show.
        (both(KARPENTER, controller("a-karpenter", **env("Ignore")), spread("both")), "warning hostname-buys-nodes"),
        (both(controller("karpenter", **env("x" * 9999)), spread("both")), "warning hostname-buys-nodes"),
        (both(AUTOSCALER, spread("hostname")), "ok cluster-autoscaler"),
        (both(KARPENTER, AUTOSCALER), "ok karpenter; ok cluster-autoscaler"),
        (lambda it: it.namespace(OPERATOR), "ok no-descheduler"),
        (policy("profiles: []"), "ok cool-down"),
        (both(policy("profiles: []"), lambda it: it.set("eviction", cool_down_seconds=0)), "warning no-cool-down"),
        (AWARE, "warning two-cool-downs"),
        (both(AWARE, lambda it: it.set("eviction", cool_down_seconds=0)), "ok cool-down"),
        (both(policy(""), forbid(CONFIG_MAPS, OPERATOR, "cluster")), "unknown unreadable"),
        (descheduler(total=5, node=1), OWNED_UNPACED),
        (descheduler(), OWNED_UNPACED),
        (
            both(descheduler(total=5, node=1), lambda it: it.opt_in("shop", eviction="audit")),
            "ok cool-down; ok autopilot",
        ),
        (both(descheduler(), lambda it: it.set("eviction", cluster_wide=True)), "ok cool-down; ok autopilot"),
        (descheduler("Predictive", total=5, node=2), "ok cool-down; ok autopilot"),
        (descheduler(by="somebody"), "ok cool-down"),
        (both(descheduler(), forbid(KUBE_DESCHEDULERS, OPERATOR, "cluster")), "ok cool-down; unknown unreadable"),
        (forbid(PODS), "unknown unreadable"),
    ],
)
async def test_who_else_buys_nodes_or_moves_vms(world: DoctorWorld, change: Change, expected: str) -> None:
    found = await world.run(check_neighbors, change)
    assert "; ".join(f"{each.verdict} {each.code}" for each in found) == expected
