from __future__ import annotations

from typing import Any

from tests.placement.samples import expression, expressions, node, vmi
from webhook.placement.eligibility import eligibility_notes
from webhook.placement.machines import PersistentVolume
from webhook.placement.nodes import convert_to_view

NODES = [node("n1", {"zone": "a"}), node("n2", {"zone": "b"})]


def volume(*terms: Any) -> PersistentVolume:
    return convert_to_view(
        PersistentVolume, {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}, "volume"
    )


def test_nothing_to_say() -> None:
    assert eligibility_notes(vmi(), NODES) == ()
    assert (
        eligibility_notes(
            vmi({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}), NODES
        )
        == ()
    )
    soft = {"whenUnsatisfiable": "ScheduleAnyway"}
    assert eligibility_notes(vmi({"topologySpreadConstraints": [soft, None]}), NODES) == ()


def test_what_depends_on_other_pods() -> None:
    required: Any = {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}
    spec = {
        "affinity": {"podAffinity": required, "podAntiAffinity": required},
        "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}],
    }

    near, away, spread = eligibility_notes(vmi(spec), NODES)
    assert "affinity" in near
    assert "anti-affinity" in away
    assert "spread" in spread


def test_volumes_that_few_nodes_reach() -> None:
    volumes = {
        "root": volume(expressions(expression("zone", "In", "a"))),
        "data": volume(expressions(expression("zone", "Exists"))),
        "free": PersistentVolume(),
    }

    (note,) = eligibility_notes(vmi(), NODES, volumes=volumes)
    assert '"root"' in note
    assert "1/2" in note


def test_resources() -> None:
    free = {"n1": {"memory": 1000}, "n2": {}, "elsewhere": {}}

    (note,) = eligibility_notes(vmi(), NODES, requests={"memory": 500, "cpu": 0}, free=free)
    assert "1/2" in note
    assert "memory" in note
    assert eligibility_notes(vmi(), NODES, requests={"memory": 500}) == ()
