"""The fields of a node that the index keeps.

Which images of a pod a node may have to pull."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.images.test_manifests import digest
from webhook.images import objects
from webhook.images.objects import ScoredPod, decode_arguments, images_of
from webhook.k8s.types.core import Node

REGISTRIES = {"quay.io", "docker.io"}


def node(*images: list[str], annotation: str = "", **status: Any) -> Node:
    info = {"architecture": "arm64", "operatingSystem": "linux"}
    written = {
        "metadata": {"name": "a", "annotations": {objects.IMAGES_ANNOTATION: annotation} if annotation else None},
        "spec": {"podCIDRs": ["203.0.113.0/24"]},
        "status": {"images": [{"names": names} for names in images], "nodeInfo": info, **status},
    }
    return msgspec.json.decode(json.dumps(written).encode(), type=Node)


FULL = [[f"quay.io/i{number}:1"] for number in range(objects.KUBELET_LIMIT)]


def test_images_are_known_by_their_digests() -> None:
    found = node(
        *([f"quay.io/disk@{digest(1)}", "quay.io/disk:40"], ["quay.io/only-a-tag:1"]),
        *([f"docker.io/library/fedora@{digest(2)}"], [f"other.example/disk@{digest(3)}"]),
        ["<none>@<none>", "<none>:<none>"],
        addresses=[{"type": "InternalIP", "address": "10.0.0.1"}, {}],
    )
    kept = images_of(found, REGISTRIES)
    assert [reference.digest for reference in kept.references] == [digest(1), digest(2)]
    assert (kept.platform, kept.addresses, kept.is_cut) == ("linux/arm64", ("10.0.0.1", "203.0.113.0/24"), False)


@pytest.mark.parametrize(
    ("images", "is_cut"), [(FULL, True), (FULL[1:], False), ([*FULL, ["quay.io/one-more:1"]], False)]
)
def test_a_node_that_lists_fifty_images_probably_has_more(images: list[list[str]], is_cut: bool) -> None:
    assert images_of(node(*images), ()).is_cut is is_cut


@pytest.mark.control("many-images")
def test_the_annotation_of_a_runtime_adds_images_within_bounds() -> None:
    found = node(*FULL, annotation=f"quay.io/disk@{digest(7)}\nquay.io/disk@{digest(8)} junk")
    kept = images_of(found, REGISTRIES)
    assert [reference.digest for reference in kept.references] == [digest(7), digest(8)]
    assert not kept.is_cut
    found = node(*([f"quay.io/disk@{digest(number)}"] for number in range(objects.MAX_NODE_IMAGES * 2)))
    assert len(images_of(found, REGISTRIES).references) == objects.MAX_NODE_IMAGES


def test_a_node_may_have_no_status() -> None:
    bare = msgspec.json.decode(b'{"metadata": {"name": "a"}}', type=Node)
    assert images_of(bare, REGISTRIES).platform == "linux/amd64"


LAUNCHER = "quay.io/kubevirt/virt-launcher:v1.9.0"
DISK = "quay.io/containerdisks/fedora:40"


def pod(labels: dict[str, str] | None = None, **spec: Any) -> ScoredPod:
    written = {"metadata": {"namespace": "shop", "labels": labels or {}}, "spec": spec}
    return decode_arguments(json.dumps({"Pod": written, "Nodes": None, "NodeNames": ["a"]}).encode()).pod


def containers(**images: str) -> list[dict[str, str]]:
    return [{"name": name, "image": image} for name, image in images.items()]


def test_disks_kernels_and_sidecars_count_and_the_launcher_does_not() -> None:
    found = pod(
        {"kubevirt.io": "virt-launcher"},
        containers=containers(compute=LAUNCHER, disk=DISK, sidecar="quay.io/hook:1"),
        initContainers=containers(binary=LAUNCHER, disk=DISK, kernel="quay.io/kernel:6", console=LAUNCHER),
        volumes=[{"name": "x", "emptyDir": {}}, {"name": "y", "image": {"reference": "quay.io/volume:1"}}],
    )
    assert found.images() == [DISK, "quay.io/hook:1", "quay.io/kernel:6", "quay.io/volume:1"]


def test_of_other_pods_all_containers_count() -> None:
    assert pod(containers=containers(compute=LAUNCHER)).images() == [LAUNCHER]


def test_a_pod_may_have_nothing() -> None:
    empty = decode_arguments(b'{"Pod": {}}').pod
    assert (empty.images(), empty.scheduler_name, empty.architecture, empty.pull_secrets) == ([], "", "", ())
    assert pod(containers=[{"name": "x"}], volumes=[{"image": {}}], imagePullSecrets=[{}]).images() == []


@pytest.mark.control("many-images")
def test_what_one_pod_may_ask_for_is_bounded() -> None:
    many = pod(
        containers=containers(**{f"c{number}": f"quay.io/i{number}" for number in range(500)}),
        imagePullSecrets=[{"name": f"s{number}"} for number in range(500)],
    )
    assert (len(many.images()), len(many.pull_secrets)) == (objects.MAX_POD_IMAGES, 8)


@pytest.mark.control("many-layers")
def test_secrets_that_cannot_exist_are_not_kept_in_mind() -> None:
    """The API server takes any name of a pull secret, a megabyte of it too."""
    names = ["x" * 254, "../x", "pull"]
    assert pod(imagePullSecrets=[{"name": name} for name in names]).pull_secrets == ("pull",)


def test_the_architecture_is_the_one_that_kubevirt_selects() -> None:
    assert pod(nodeSelector={"kubernetes.io/arch": "arm64"}).architecture == "arm64"
