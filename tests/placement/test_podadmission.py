from __future__ import annotations

from typing import Any

import pytest

from tests.placement.samples import kubevirt, pod, vmi
from webhook.placement.nodes import convert_to_view
from webhook.placement.requirements import Origin
from webhook.placement.target_pods import RuntimeClass, namespace_labels, unexplained_labels, unexplained_labels_gap


def runtime_class(**scheduling: Any) -> RuntimeClass:
    return convert_to_view(RuntimeClass, {"handler": "kata", "scheduling": scheduling}, "runtimeclass")


def test_what_a_runtime_class_asks() -> None:
    found = runtime_class(nodeSelector={"kata": "yes"}, tolerations=[{"key": "kata", "operator": "Exists"}, None])

    assert [(label.origin, str(label.expression)) for label in found.labels] == [(Origin.RUNTIME_CLASS, "kata=yes")]
    assert [toleration.key for toleration in found.tolerations] == ["kata", None]
    for empty in (RuntimeClass(), runtime_class()):
        assert (empty.labels, empty.tolerations) == ((), ())


def test_what_the_present_pod_has_from_elsewhere() -> None:
    present = pod(
        **{
            "disk": "ssd",
            "zone": "a",
            "tier": "gold",
            "added": "1",
            "kata": "yes",
            "changed": "then",
            "unknown": "x",
            "kubernetes.io/arch": "amd64",
            "kubevirt.io/schedulable": "true",
            "cpu-model.node.kubevirt.io/X": "true",
            "cpumanager": "true",
        }
    )
    vm = vmi({"nodeSelector": {"disk": "ssd", "changed": "now"}})
    settings = kubevirt(nodeSelectors={"tier": "gold", "zone": "a"})
    labels = runtime_class(nodeSelector={"kata": "yes"}).labels

    assert unexplained_labels(present, vm, settings, {"added": "1"}, labels) == {"changed": "then", "unknown": "x"}
    assert unexplained_labels(pod(), vm, settings, {}) == {}


@pytest.mark.parametrize(
    ("annotation", "shown", "expected"),
    [
        ("env=prod", {"env": "prod"}, ["env=prod"]),
        (" env = prod , team=a", {"env": "prod", "team": "a", "x": "y"}, ["env=prod", "team=a"]),
        # The plugin is not switched on, or the annotation is younger than the pod.
        ("env=prod", {}, []),
        ("env=prod", {"env": "test"}, []),
        ("", {"env": "prod"}, []),
        (None, {"env": "prod"}, []),
        (",=,env", {"env": "prod"}, []),
    ],
)
def test_what_a_namespace_asks(annotation: str | None, shown: dict[str, str], expected: list[str]) -> None:
    found = namespace_labels(annotation, shown)

    assert [str(label.expression) for label in found] == expected
    assert {label.origin for label in found} <= {Origin.NAMESPACE}


def test_what_is_left_is_named() -> None:
    assert "a=1" in unexplained_labels_gap({"a": "1"})
    assert "e=1 and 2 more" in unexplained_labels_gap(dict.fromkeys("gfedcba", "1"))
