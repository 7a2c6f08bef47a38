from __future__ import annotations

from typing import Any

from tests.placement.samples import expression, expressions, node, vmi
from webhook.placement.advice import notes
from webhook.placement.reading import read
from webhook.placement.volumes import PersistentVolume

NODES = [node("n1", {"zone": "a"}), node("n2", {"zone": "b"})]


def volume(*terms: Any) -> PersistentVolume:
    return read(PersistentVolume, {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}, "volume")


def test_nothing_to_say() -> None:
    assert notes(vmi(), NODES) == ()
    assert (
        notes(vmi({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}), NODES)
        == ()
    )
    soft = {"whenUnsatisfiable": "ScheduleAnyway"}
    assert notes(vmi({"topologySpreadConstraints": [soft, None]}), NODES) == ()


def test_what_depends_on_other_pods() -> None:
    required: Any = {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}
    spec = {
        "affinity": {"podAffinity": required, "podAntiAffinity": required},
        "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}],
    }

    assert notes(vmi(spec), NODES) == (
        "the VM must be near other pods, which is not judged here",
        "the VM must stay away from other pods, which is not judged here",
        "the VM's pods must be spread, which is not judged here",
    )


def test_volumes_that_few_nodes_reach() -> None:
    volumes = {
        "root": volume(expressions(expression("zone", "In", "a"))),
        "data": volume(expressions(expression("zone", "Exists"))),
        "free": PersistentVolume(),
    }

    assert notes(vmi(), NODES, volumes=volumes) == ('the volume "root" can be reached from 1 of the 2 eligible nodes',)


def test_resources() -> None:
    free = {"n1": {"memory": 1000}, "n2": {}, "elsewhere": {}}

    assert notes(vmi(), NODES, requests={"memory": 500, "cpu": 0}, free=free) == (
        "1 of the 2 eligible nodes have less memory left now than the VM requests",
    )
    assert notes(vmi(), NODES, requests={"memory": 500}) == ()
