"""Deschedulers of other platforms, by their pods and policies, and the VMs that one of them has moving."""

from __future__ import annotations

from typing import Any

import pytest

from tests.doctor.world import Change, DoctorWorld, both, forbid, put
from webhook.doctor.neighbors import check_neighbors
from webhook.k8s.resources import CONFIG_MAPS, PODS
from webhook.placement.machines import PLACED_VMIS

GATE = "--feature-gates=EvictionsInBackground=true"
# As in the add-on of Harvester 1.9, and in the profile that Deckhouse makes of Descheduler/virtualization.
HARVESTERS = "maxNoOfPodsToEvictPerNode: 5\nprofiles:\n- pluginConfig:\n  - args:\n      evictLocalStoragePods: true\n"
DECKHOUSES = "profiles:\n- name: virtualization\n  pluginConfig:\n  - args: {evictLocalStoragePods: true}\n"
SPARING = "profiles:\n- name: ProfileName\n  pluginConfig:\n  - name: DefaultEvictor\n"
DISABLED = "podProtections:\n  defaultDisabled:\n  - PodsWithLocalStorage\nmaxNoOfPodsToEvictTotal: 9\n"


def descheduler(
    policy: str | None, *args: str, namespace: str = "kube-system", name: str = "descheduler", label: str = "app"
) -> Change:
    spec: dict[str, Any] = {"containers": [{"name": "descheduler", "args": [*args]}]}
    spec["volumes"] = [{"name": "tmp", "emptyDir": {}}, {"name": "policy", "configMap": {"name": "policy"}}]
    pod = put(PODS, name, namespace, metadata={"labels": {label: "descheduler"}}, spec=spec)
    change = both(lambda world: world.namespace(namespace), pod)
    stored = put(CONFIG_MAPS, "policy", namespace, data={"policy.yaml": policy})
    return both(change, stored) if policy is not None else change


HARVESTER = both(
    lambda it: it.namespace("harvester-system"),
    descheduler(HARVESTERS, "--descheduling-interval=5m", GATE, label="app.kubernetes.io/name"),
)
DECKHOUSE = descheduler(DECKHOUSES, "--descheduling-interval", "15m", GATE, namespace="d8-descheduler")


def audited(world: DoctorWorld) -> None:
    world.opt_in("shop", eviction="audit")


def vmi(name: str, source: str | None = "descheduler", marked: str | None = "a") -> Change:
    annotations = {"kubevirt.io/eviction-source": source} if source else {}
    status = {"phase": "Running", "nodeName": "a", "evacuationNodeName": marked}
    return put(PLACED_VMIS, name, "shop", metadata={"annotations": annotations}, status=status)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (HARVESTER, "warning descheduler-unpaced"),
        (both(HARVESTER, audited), "ok descheduler"),
        (DECKHOUSE, "warning descheduler-unpaced"),
        (both(DECKHOUSE, lambda it: it.set("eviction", cluster_wide=True)), "ok descheduler"),
        (descheduler(DISABLED, GATE, namespace="desched"), "warning descheduler-unpaced"),
        # Deckhouse before 1.76.13, and every other without the gate, which is off by default.
        (both(descheduler(DECKHOUSES, namespace="d8-descheduler"), audited), "warning descheduler-not-in-background"),
        (descheduler(SPARING, GATE), "ok descheduler-spares-vms"),
        (descheduler(None, GATE), "ok descheduler-without-policy"),
        (both(HARVESTER, DECKHOUSE), "warning descheduler-unpaced; warning descheduler-unpaced"),
        # Replicas, and what a CronJob leaves behind, are one.
        (both(descheduler(SPARING), descheduler(SPARING, name="another")), "ok descheduler-spares-vms"),
        (both(DECKHOUSE, forbid(CONFIG_MAPS, "d8-descheduler", "policy")), "unknown unreadable"),
        (lambda it: it.namespace("d8-virtualization"), "warning deckhouse-virtualization"),
        (both(lambda it: it.namespace("d8-virtualization"), DECKHOUSE), "warning deckhouse-virtualization"),
        # A tenant's pod, which has a whole page to show.
        (descheduler(SPARING, f"--descheduling-interval={'9' * 9999}"), "ok descheduler-spares-vms"),
    ],
)
async def test_what_a_descheduler_does_to_vms(world: DoctorWorld, change: Change, expected: str) -> None:
    found = await world.run(check_neighbors, change)
    assert "; ".join(f"{each.verdict} {each.code}" for each in found) == expected
    assert max(len(each.found) for each in found) < 400


async def test_vms_that_a_descheduler_has_moving_are_named(world: DoctorWorld) -> None:
    # The second was drained, the third has moved: KubeVirt leaves the annotation where it is.
    vmis = both(vmi("web"), both(vmi("drained", source=None), vmi("moved", marked=None)))
    found = await world.run(check_neighbors, both(both(HARVESTER, audited), vmis))

    assert [(each.verdict, each.code) for each in found] == [("ok", "descheduler"), ("ok", "round-in-flight")]
    assert "shop/web" in found[1].found
    assert "drained" not in found[1].found
    assert "moved" not in found[1].found.partition("them: ")[2]


async def test_vms_are_looked_at_only_where_there_is_a_descheduler(world: DoctorWorld) -> None:
    assert [each.code for each in await world.run(check_neighbors, vmi("web"))] == ["none"]
    found = await world.run(check_neighbors, both(HARVESTER, forbid(PLACED_VMIS)))
    assert [each.code for each in found] == ["descheduler-unpaced", "unreadable"]


async def test_a_pod_with_many_volumes_costs_few_reads(world: DoctorWorld) -> None:
    """A tenant's pod may name thousands, of what another one may have filled, and the same one thousands of times."""

    def volumes(prefix: str, number: int) -> list[dict[str, Any]]:
        return [{"name": f"{prefix}-{at}", "configMap": {"name": f"{prefix}-{at}"}} for at in range(number)]

    same = [{"name": f"same-{at}", "configMap": {"name": "policy"}} for at in range(500)]
    spec = {"containers": [], "volumes": [*same, {"name": "odd", "configMap": {"name": "../a?b"}}, *volumes("v", 500)]}
    pod = put(PODS, "descheduler", "kube-system", metadata={"labels": {"app": "descheduler"}}, spec=spec)
    stored = put(CONFIG_MAPS, "policy", "kube-system", data={"policy.yaml": SPARING})

    found = await world.run(check_neighbors, both(lambda it: it.namespace("kube-system"), both(pod, stored)))

    assert [each.code for each in found] == ["descheduler-spares-vms"]
    asked = [each for each in world.server.asked if "/namespaces/kube-system/configmaps" in each.path]
    assert len(asked) <= 10
