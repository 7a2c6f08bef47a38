"""Shows how NodeResourcesBalancedAllocation makes small pods pile up on nodes that are in use already.

``python -m hack.balanced_allocation`` starts etcd, kube-apiserver and the stock kube-scheduler, creates equal empty
nodes and equal small pods, and counts where the pods go: by the default profile, and by one that differs from it in
nothing but NodeResourcesBalancedAllocation. Nothing else distinguishes the nodes: they list no images, have no taints
and run no other pods. It also prints the scores of an empty and of a used node, as the scheduler logged them.

``--kubernetes 1.34`` does the same with the kube-scheduler of that version.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hack.controlplane import build, bundles
from tests.e2e.support.kube import Kube, eventually
from tests.e2e.support.plane import ControlPlane, HeldLease
from tests.e2e.support.processes import StartError

PLUGIN = "NodeResourcesBalancedAllocation"
PROFILES = ("default-scheduler", "without-balanced-allocation")
NAMESPACE = "default"
SCORE = re.compile(r'"Plugin scored node for pod" pod="([^"]+)" plugin="([^"]+)" node="([^"]+)" score=(\d+)')


class AllocationPlane(ControlPlane):
    """A bare control plane whose scheduler logs every score."""

    def __init__(self, directory: Path, binaries: Path, scheduler: Path) -> None:
        flags = ["--disable-admission-plugins=TaintNodesByCondition"]
        super().__init__(directory, binaries, definitions=(), apiserver_flags=flags)
        self._scheduler = scheduler

    @property
    def scheduler_log(self) -> Path:
        """What the scheduler logged."""
        return self.directory / "logs" / "kube-scheduler-stock.log"

    def _scheduler_command(self, name: str, config: Mapping[str, Any], lease: HeldLease | None, port: int) -> list[str]:
        _, *arguments = super()._scheduler_command(name, config, lease, port)
        return [str(self._scheduler), *arguments, "--v=10"]


def main() -> int:
    """Print what happened; the exit code is 2 where the machine cannot build Kubernetes, 1 where something failed."""
    options = _parser().parse_args()
    try:
        binaries = build.ensure(os.environ)
        scheduler = binaries
        if options.kubernetes:
            scheduler = build.ensure(os.environ, bundle=bundles.older_control_plane(options.kubernetes))
        with (
            tempfile.TemporaryDirectory(prefix="balanced-allocation-") as directory,
            AllocationPlane(Path(directory), binaries, scheduler / "kube-scheduler") as plane,
        ):
            _show(plane, options)
    except build.UnavailableError as reason:
        print(f"balanced_allocation: {reason}", file=sys.stderr)
        return 2
    except (bundles.BuildError, StartError, AssertionError) as error:
        print(f"balanced_allocation: {error}", file=sys.stderr)
        return 1
    return 0


def balance(cpu: float, memory: float) -> int:
    """The plugin's balancedResourceScore of a node of which these shares are requested; the same since 1.22."""
    return int((1 - abs(cpu - memory) / 2) * 100)


def score(before: tuple[float, float], after: tuple[float, float]) -> int:
    """The plugin's score since 1.36: how the pod changes the balance, from two whole numbers.

    Until 1.35 the score is ``balance(*after)`` alone.
    """
    return 50 + (50 + balance(*after) - balance(*before)) // 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.balanced_allocation", description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--kubernetes",
        metavar="VERSION",
        choices=bundles.older_versions(),
        help=f"the kube-scheduler of another version ({', '.join(bundles.older_versions())})",
    )
    parser.add_argument("--nodes", metavar="N", type=int, default=10, help="nodes (default: 10)")
    parser.add_argument("--pods", metavar="N", type=int, default=40, help="pods (default: 40)")
    parser.add_argument("--node-cpus", metavar="N", type=int, default=64, help="CPUs of a node (default: 64)")
    parser.add_argument("--cpu", metavar="M", type=int, default=105, help="CPU of a pod, in thousandths (default: 105)")
    parser.add_argument("--memory", metavar="MIB", type=int, default=450, help="memory of a pod (default: 450)")
    return parser


def _show(plane: AllocationPlane, options: argparse.Namespace) -> None:
    without = {"score": {"disabled": [{"name": PLUGIN}]}}
    plane.start_scheduler(
        "stock", {"profiles": [{"schedulerName": PROFILES[0]}, {"schedulerName": PROFILES[1], "plugins": without}]}
    )
    nodes = _create_nodes(plane.admin, options)
    version = re.search(r'version="(v[^"]+)"', plane.scheduler_log.read_text())
    shape = f"{options.node_cpus} CPUs and {4 * options.node_cpus} GiB"
    print(f"kube-scheduler {version[1] if version else '?'}: {options.nodes} empty nodes of {shape};")
    print(f"{options.pods} pods that request {options.cpu}m CPU and {options.memory} MiB each")
    for profile in PROFILES:
        counts = _place(plane.admin, profile, nodes, options)
        print(f"\n{profile}: standard deviation {statistics.pstdev(counts):.1f}, {counts.count(0)} nodes empty")
        print(f"  pods on the nodes: {' '.join(map(str, sorted(counts, reverse=True)))}")
    _show_scores(plane.scheduler_log.read_text())
    _show_arithmetic(options)


def _create_nodes(kube: Kube, options: argparse.Namespace) -> list[str]:
    names = [f"node-{number:03}" for number in range(1, options.nodes + 1)]
    resources = {"cpu": str(options.node_cpus), "memory": f"{4 * options.node_cpus}Gi", "pods": "250"}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]
    status = {"capacity": resources, "allocatable": resources, "conditions": conditions}
    for name in names:
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        kube.create("v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        kube.patch("v1/nodes", name, {"status": status}, subresource="status")
    return names


def _place(kube: Kube, profile: str, nodes: list[str], options: argparse.Namespace) -> list[int]:
    """Create the pods, count them on each node once they are bound, and delete them."""
    requests = {"cpu": f"{options.cpu}m", "memory": f"{options.memory}Mi"}
    for number in range(1, options.pods + 1):
        container = {"name": "main", "image": "registry.example/main:v1", "resources": {"requests": requests}}
        spec = {"schedulerName": profile, "automountServiceAccountToken": False, "containers": [container]}
        metadata = {"name": f"{profile}-{number:03}"}
        kube.create("v1/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, NAMESPACE)
    bound = eventually(lambda: _bound(kube, options.pods), what="all pods to be bound", timeout=120)
    kube.delete_all("v1/pods", NAMESPACE, gracePeriodSeconds="0")
    counts = Counter(bound)
    return [counts[node] for node in nodes]


def _bound(kube: Kube, pods: int) -> list[str] | None:
    nodes = [node for pod in kube.list("v1/pods", NAMESPACE) if (node := pod["spec"].get("nodeName"))]
    return nodes if len(nodes) == pods else None


def _show_scores(log: str) -> None:
    """The scores of the second pod: one node has the first pod, all others are empty."""
    pod = f"{NAMESPACE}/{PROFILES[0]}-002"
    by_node: dict[str, dict[str, int]] = {}
    for logged, plugin, node, points in SCORE.findall(log):
        if logged == pod:
            by_node.setdefault(node, {})[plugin] = int(points)
    kinds = Counter(tuple(sorted(scores.items())) for scores in by_node.values())
    print(f"\nThe scheduler's own log of the scores (--v=10) of {pod}:")
    for scores, count in kinds.most_common():
        listed = ", ".join(f"{plugin} {points}" for plugin, points in scores if points)
        print(f"  {count} nodes: {listed}; in all {sum(points for _, points in scores)}")


def _show_arithmetic(options: argparse.Namespace) -> None:
    cpu = options.cpu / (1000 * options.node_cpus)
    memory = options.memory / (1024 * 4 * options.node_cpus)
    print(f"\nThe arithmetic of {PLUGIN}, until 1.35 (after) and since 1.36 (score):")
    for pods in (0, 1, 2, 5, 10):
        before, after = (pods * cpu, pods * memory), ((pods + 1) * cpu, (pods + 1) * memory)
        balances = f"before {balance(*before)}, after {balance(*after)}"
        print(f"  {pods:2} pods on the node: {balances}, score {score(before, after)}")


if __name__ == "__main__":
    sys.exit(main())
