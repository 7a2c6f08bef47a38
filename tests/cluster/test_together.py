"""Manifests that are applied together, over what a cluster has."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import yaml

from tests.kubevirt.samples import instancetype
from webhook.cluster.files import FilesCluster
from webhook.cluster.source import Cluster
from webhook.cluster.together import AppliedTogether
from webhook.errors import Unavailable
from webhook.facts import NOT_READ, Key, KubeVirtKey, ListKey, NamespaceKey, NodesKey, ObjectKey
from webhook.k8s.types.meta import Namespace
from webhook.k8s.yaml_documents import parse_documents
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.resources import UNSTRUCTURED, VMIS
from webhook.settings_file import default_settings


def files(*objects: Any) -> FilesCluster:
    return FilesCluster.of(parse_documents(yaml.safe_dump_all(objects), "a.yaml"), default_settings())


def namespace(name: str, **labels: str) -> Any:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def kubevirt(phase: str) -> Any:
    metadata = {"name": "kubevirt", "namespace": "kubevirt"}
    return {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": metadata, "status": {"phase": phase}}


CLUSTER_INSTANCETYPES = UNSTRUCTURED["VirtualMachineClusterInstancetype"]
SIZE = ObjectKey(CLUSTER_INSTANCETYPES, "", "u1")
SIZES = ListKey(CLUSTER_INSTANCETYPES, "")


def test_manifests_come_before_the_cluster_and_namespaces_keep_their_labels() -> None:
    below = files(instancetype(cpu={"guest": 8}), instancetype(name="u2"), namespace("shop", a="1", b="1"))
    together = AppliedTogether(files(instancetype(cpu={"guest": 2}), namespace("shop", b="2", c="2")), below)

    assert together.peek(SIZE) != below.peek(SIZE)
    listed = together.peek(SIZES)
    assert isinstance(listed, tuple)
    assert sorted(each.meta.name for each in listed) == ["u1", "u2"]
    shop = together.peek(NamespaceKey("shop"))
    assert isinstance(shop, Namespace)
    assert shop.meta.labels == {"a": "1", "b": "2", "c": "2"}
    # What no manifest has is the cluster's.
    assert together.peek(ObjectKey(CLUSTER_INSTANCETYPES, "", "u2")) == below.peek(
        ObjectKey(CLUSTER_INSTANCETYPES, "", "u2")
    )
    assert (together.peek(NamespaceKey("none")), together.answers_at_once) == (None, True)
    assert together.peek(NodesKey()) is below.peek(NodesKey())


def test_only_a_kubevirt_in_use_counts() -> None:
    below = files()
    assert AppliedTogether(files(kubevirt("")), below).peek(KubeVirtKey()) is below.peek(KubeVirtKey()) is None
    assert isinstance(AppliedTogether(files(kubevirt("Deployed")), below).peek(KubeVirtKey()), KubeVirtInstall)


class Slow(Cluster):
    """Has nothing in memory, and answers each question by the same."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def peek(self, key: Key[Any]) -> object:
        return NOT_READ

    async def read(self, key: Key[Any], deadline: float) -> Any:
        return self.answer


def ask(cluster: Cluster, key: Key[Any]) -> Any:
    return asyncio.run(cluster.read(key, 0))


def test_what_must_be_waited_for_is_waited_for() -> None:
    there = msgspec.convert(namespace("shop", a="1"), Namespace)
    together = AppliedTogether(files(namespace("shop", b="2"), instancetype()), Slow(there))
    assert (together.peek(NamespaceKey("shop")), together.answers_at_once) == (NOT_READ, False)
    read = ask(together, NamespaceKey("shop"))
    assert isinstance(read, Namespace)
    assert read.meta.labels == {"a": "1", "b": "2"}
    # An object of its own kind needs nothing of the cluster; what it cannot read is not known.
    assert together.peek(SIZE) is not NOT_READ
    unknown = AppliedTogether(files(namespace("shop", b="2")), Slow(Unavailable("not listed")))
    assert ask(unknown, ObjectKey(VMIS, "shop", "a")) == Unavailable("not listed")
    alone = ask(unknown, NamespaceKey("shop"))
    assert isinstance(alone, Namespace)
    assert alone.meta.labels == {"b": "2"}
