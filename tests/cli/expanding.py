"""`expand` over objects in files, and over the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from click.testing import Result

from tests.cli.runner import run
from tests.kubevirt.samples import instancetype, preference, vm

EXAMPLES = Path(__file__).parents[2] / "examples"
CLUSTER: list[str | Path] = ["--cluster-from", EXAMPLES / "cluster"]
BOTH = vm(instancetype={"name": "u1"}, preference={"name": "linux"})
MATCHED = [BOTH, instancetype(), preference(devices={"preferredDiskBus": "virtio"})]
KUBEVIRT = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
    "spec": {"configuration": {"cpuModel": "Haswell"}},
    "status": {"phase": "Deployed"},
}


def expand(*objects: Any, options: tuple[str | Path, ...] = ()) -> Result:
    return run("expand", "-f", "-", *options, stdin=yaml.safe_dump_all(objects))


def example(name: str, *options: str) -> Result:
    return run("expand", "-f", EXAMPLES / "vms" / f"{name}.yaml", *CLUSTER, *options)
