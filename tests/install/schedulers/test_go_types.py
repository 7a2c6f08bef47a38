"""Schemas of Go's types; tests/e2e/test_scheduler_traps.py compares them with the real kube-scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.install.schedulers.go_types import schemas


def below(schema: Any, *path: str) -> Any:
    for name in path:
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    return schema


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        ("KubeSchedulerConfiguration", "parallelism", {"type": "integer", "format": "int32"}),
        ("KubeSchedulerConfiguration", "clientConnection qps", {"type": "number"}),
        ("KubeSchedulerConfiguration", "extenders [] httpTimeout", {"type": "string"}),
        ("KubeSchedulerConfiguration", "extenders [] tlsConfig caData", {"type": "string"}),
        (
            "KubeSchedulerConfiguration",
            "profiles [] pluginConfig [] args",
            {"x-kubernetes-preserve-unknown-fields": True},
        ),
        # Embedded.
        ("KubeSchedulerConfiguration", "enableProfiling", {"type": "boolean"}),
        ("PodTopologySpreadArgs", "apiVersion", {"type": "string"}),
        ("LoadVariationRiskBalancingArgs", "metricProvider address", {"type": "string"}),
        ("LowRiskOverCommitmentArgs", "riskLimitWeights", {"type": "object"}),
    ],
)
def test_the_schema_of_a_field(kind: str, path: str, expected: dict[str, Any]) -> None:
    found = below(schemas()[kind], *path.split())
    assert found["nullable"] is True
    assert {name: found[name] for name in found if name not in ("nullable", "additionalProperties")} == expected
