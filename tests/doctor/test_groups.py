from __future__ import annotations

import json
from typing import Any

import pytest

from tests.doctor.world import Change, DoctorWorld, both, put
from tests.policies.groups.world import APART, APART_BY_ZONE, HOSTS, TOGETHER, section
from webhook import names
from webhook.k8s.resources import NAMESPACES, NODES
from webhook.placement.groups import GROUP_LABEL
from webhook.placement.machines import PLACED_VMIS
from webhook.placement.nodes import HOSTNAME, ZONE
from webhook.policies.groups.checks import check_groups
from webhook.policies.groups.settings import GROUPS_ANNOTATION

OK = ["ok groups: groups-valid"]
GROUP = "Group db of namespace vms"


def node(name: str, zone: str = "x", **more: Any) -> Change:
    spec = {"unschedulable": True} if more.pop("cordoned", False) else {}
    labels = {HOSTNAME: name, ZONE: zone, "kubevirt.io/schedulable": "true", **more}
    return put(NODES, name, metadata={"labels": labels}, spec=spec)


def vm(name: str, on: str, group: str = "db", namespace: str = "vms", phase: str = "Running") -> Change:
    metadata = {"labels": {GROUP_LABEL: group}}
    return put(PLACED_VMIS, name, namespace, metadata=metadata, status={"phase": phase, "nodeName": on})


def place(rules: Any, mode: str = "enforce", name: str = "vms") -> Change:
    metadata = {"labels": {names.policy_label("groups"): mode}}
    if rules is not None:
        metadata["annotations"] = {GROUPS_ANNOTATION: rules if isinstance(rules, str) else json.dumps({"db": rules})}
    return put(NAMESPACES, name, metadata=metadata)


THREE = both(node("a"), node("b"), node("c", "y"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (place(APART), OK),
        (both(place(APART), vm("1", "a"), vm("2", "b")), OK),
        (both(place(APART), vm("1", "a"), vm("2", "a")), [f"warning {GROUP}: group-rule-broken"]),
        # Four on three nodes; three, while one is drained; what has ended is gone.
        (
            both(place(APART), *(vm(str(n), on) for n, on in enumerate(["a", "b", "c", ""]))),
            [f"warning {GROUP}: group-too-large"],
        ),
        (
            both(place(APART), *(vm(on, on) for on in "abc"), node("c", "y", cordoned=True)),
            [f"warning {GROUP}: group-too-large"],
        ),
        (both(place(APART), *(vm(on, on) for on in "abc"), vm("d", "a", phase="Failed")), OK),
        (both(place(APART_BY_ZONE), vm("1", "a"), vm("2", "c")), OK),
        (both(place(APART_BY_ZONE), vm("1", "a"), vm("2", "b")), [f"warning {GROUP}: group-rule-broken"]),
        (both(place(TOGETHER), vm("1", "a"), vm("2", "a")), OK),
        (both(place(TOGETHER), vm("1", "a"), vm("2", "b")), [f"warning {GROUP}: group-rule-broken"]),
        (both(place(HOSTS), vm("1", "a"), node("d", license="oracle")), [f"warning {GROUP}: group-rule-broken"]),
        # A restart would take down the one that runs.
        (both(place(HOSTS), vm("1", "a"), vm("2", "")), [f"warning {GROUP}: group-without-nodes"]),
        (both(place(HOSTS), vm("1", "d"), node("d", license="oracle")), OK),
        (
            both(place({**APART, **HOSTS}), vm("1", "d"), vm("2", ""), node("d", license="oracle")),
            [f"warning {GROUP}: group-too-large"],
        ),
        (both(place(APART), vm("1", "a", "dbs")), ["warning Namespace vms: group-without-rule"]),
        # Before it is enforced is when an admin looks.
        (both(place(APART, "audit"), vm("1", "a"), vm("2", "a")), [f"warning {GROUP}: group-rule-broken"]),
        (both(place(APART, "off"), vm("1", "a"), vm("2", "a"), vm("3", "a", "dbs")), OK),
        (both(place({"apart": {}}), vm("1", "a"), vm("2", "a")), OK),
    ],
)
async def test_groups(world: DoctorWorld, change: Change, expected: list[str]) -> None:
    THREE(world)
    change(world)
    assert await world.told(check_groups) == expected


async def test_a_group_that_spans_namespaces_is_one(world: DoctorWorld) -> None:
    world.set("groups", rules=section({**APART, "namespaces": ["vms", "more"]}).rules)
    both(THREE, place(None), place(None, name="more"), vm("1", "a"), vm("2", "a", namespace="more"))(world)
    (finding,) = await world.run(check_groups)
    assert (finding.code, finding.subject) == ("group-rule-broken", "Group db")
    assert "vms/1" in finding.found
    assert "more/2" in finding.found
