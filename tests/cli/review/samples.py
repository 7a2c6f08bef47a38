"""Manifests to review over the cluster of the examples, and results to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests import builders
from tests.cli.runner import EXAMPLES
from webhook.cli.review.result import Result

HOSTILE = 'a\x1b[2J\u202e"<b>&]]>\n::error::x%0A,:\ufffe'


def result(decision: str = "allowed", code: str = "scheduler-injected", text: str = "why", **fields: Any) -> Result:
    evaluation = {
        "policy": "scheduling",
        "endpoint": "/mutate/scheduling/virtualmachines/enforce",
        "mode": "enforce",
        "decision": decision,
        "reasons": [{"code": code, "text": text}],
        "changes": [],
    }
    known: dict[str, Any] = {"file": "apps/vm.yaml", "line": 7, "kind": "VirtualMachine", "namespace": "shop"}
    known |= {"name": "web", "operation": "CREATE", "user": "alice", "decision": decision, "judgements": [evaluation]}
    return Result(**(known | fields))


def every() -> list[Result]:
    return [
        result("patched"),
        result("would-deny", "instancetype-denied"),
        result("allowed", warnings=["take care", "twice"]),
        result("denied", "instancetype-denied", message="denied: because"),
        result("error", "namespace-unreadable"),
        result("skipped", "out-of-scope"),
        result("skipped", message="not called", judgements=[], matched=False),
    ]


POOL = {
    "apiVersion": "pool.kubevirt.io/v1beta1",
    "kind": "VirtualMachinePool",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "virtualMachineTemplate": {"metadata": {"labels": {"app": "web"}}, "spec": builders.vm()["spec"]},
    },
}
CLUSTER: list[str | Path] = ["--cluster-from", EXAMPLES / "cluster", "--config", EXAMPLES / "settings.yaml"]


def manifest(tmp_path: Path, obj: Any, name: str = "object.yaml") -> Path:
    path = tmp_path / name
    path.write_text(yaml.safe_dump_all(obj) if isinstance(obj, list) else yaml.safe_dump(obj))
    return path


def vm(**spec: Any) -> dict[str, Any]:
    result = builders.vm(**spec)
    result["metadata"]["namespace"] = "shop"
    return result


SECRET = "hunter2"
