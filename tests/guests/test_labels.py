"""Nodes' labels as a real virt-handler writes them, held to what `explain migration` requires of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support.kube import Json, KubeObject, eventually
from tests.e2e.support.objects import is_unschedulable
from tests.e2e.support.workloads import PODS
from webhook.names import MIGRATION, policy_label

from .support import NAMESPACE, OTHER, Guests

MODEL = "cpu-model.node.kubevirt.io/"
HOST_MODEL = "host-model-cpu.node.kubevirt.io/"
MIGRATION_MODEL = "cpu-model-migration.node.kubevirt.io/"
# virt-handler leaves the labels of such a node as they are.
SKIP = "node-labeller.kubevirt.io/skip-node"
KINDS = (
    *("nodes", "namespaces", "pods", "runtimeclasses", "resourcequotas", "limitranges"),
    *("kubevirts", "virtualmachines", "virtualmachineinstances", "virtualmachineinstancemigrations"),
)


def labels_of(guests: Guests, node: str) -> dict[str, str]:
    return dict(guests.admin.get("v1/nodes", node)["metadata"]["labels"])


def with_prefix(labels: Mapping[str, str], prefix: str) -> list[str]:
    """What follows a prefix in the keys of labels."""
    return sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))


def variants(node: Mapping[str, Any]) -> dict[str, Json]:
    """Copies of a node, each without one of its labels, or with another value of it, by what they differ in."""
    metadata, labels = node["metadata"], node["metadata"]["labels"]
    changes = {f"without {key}": {each: labels[each] for each in labels if each != key} for key in labels}
    changes |= {f"other {key}": {**labels, key: "another"} for key in labels}
    made = {}
    for number, (change, its) in enumerate(changes.items()):
        name = f"variant-{number}"
        kept = {field: metadata[field] for field in ("annotations", "creationTimestamp")}
        made[change] = {**node, "metadata": {**kept, "name": name, "uid": name, "labels": its}}
    return made


def explain_variants(guests: Guests, name: str, copies: Mapping[str, Json], directory: Path) -> dict[str, bool]:
    """Whether `explain migration` takes each of these nodes for a guest."""
    cluster = json.loads(guests.kubectl("get", "--all-namespaces", "-o", "json", ",".join(KINDS)).stdout)
    cluster["items"] += copies.values()
    (directory / "cluster.json").write_text(json.dumps(cluster))
    command = ("explain", "migration", f"{NAMESPACE}/{name}", f"--cluster-from={directory}", "-o", "json")
    done = subprocess.run([sys.executable, "-m", "webhook", *command], capture_output=True, check=False)
    answer = json.loads(done.stdout)
    assert answer["gaps"] == []
    eligible = set(answer["eligible"]["names"])
    return {change: node["metadata"]["name"] in eligible for change, node in copies.items()}


def target_of(guests: Guests, name: str) -> KubeObject:
    """The pod that KubeVirt made for the migration of a guest that has not moved before."""
    return eventually(lambda: guests.launchers(name)[1:], what=f"a target pod of {name}")[0]


@pytest.mark.parametrize("model", ["host-model", "named", "feature"])
def test_explain_requires_the_labels_that_the_target_pod_does(guests: Guests, model: str, tmp_path: Path) -> None:
    labels = labels_of(guests, "node-1")
    named = "Westmere"
    assert named in with_prefix(labels, MODEL)
    cpu = {
        "host-model": {"model": "host-model"},
        "named": {"model": named},
        "feature": {"model": named, "features": [{"name": "aes", "policy": "require"}]},
    }
    # Its owner chose a CPU, so no default gives it memory.
    guests.start("web", domain={"cpu": cpu[model], "memory": {"guest": "256Mi"}})
    source = guests.node_of("web")
    copies = variants(guests.admin.get("v1/nodes", OTHER[source]))
    explained = explain_variants(guests, "web", copies, tmp_path)

    made = guests.migrate("web")
    selector = target_of(guests, "web")["spec"]["nodeSelector"]
    guests.wait_migrated(made)

    assert guests.node_of("web") == OTHER[source]
    taken = {change: selector.items() <= node["metadata"]["labels"].items() for change, node in copies.items()}
    assert explained == taken
    assert len(set(taken.values())) > 1
    print(f"{len(labels)} labels on a node; a target pod requires {len(selector)}")


@pytest.fixture
def apart(guests: Guests) -> Iterator[Guests]:
    """A namespace without the policy for migrations, and nodes whose labels get back what a test takes out."""
    off = {"metadata": {"labels": {policy_label(MIGRATION): None}}}
    guests.admin.patch("v1/namespaces", NAMESPACE, off)
    before = {node: labels_of(guests, node) for node in OTHER}
    yield guests
    for node, labels in before.items():
        back = {"metadata": {"labels": labels, "annotations": {SKIP: None}}}
        guests.admin.patch("v1/nodes", node, back)


def test_a_node_that_is_not_eligible_is_one_that_kubevirt_does_not_take(apart: Guests) -> None:
    guests = apart
    guests.start("web")
    source = guests.node_of("web")
    (model,) = with_prefix(labels_of(guests, source), HOST_MODEL)
    assert guests.explain("migration", f"{NAMESPACE}/web")["eligible"]["names"] == [OTHER[source]]

    taken = {"metadata": {"annotations": {SKIP: "true"}, "labels": {f"{MIGRATION_MODEL}{model}": None}}}
    guests.admin.patch("v1/nodes", OTHER[source], taken)

    assert guests.explain("migration", f"{NAMESPACE}/web")["eligible"]["names"] == []
    guests.migrate("web")
    pod = target_of(guests, "web")

    name = pod["metadata"]["name"]
    guests.admin.wait(PODS, name, NAMESPACE, until=is_unschedulable, what="the scheduler to find no node")
    assert guests.node_of("web") == source
