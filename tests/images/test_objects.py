"""The fields of a node that the index keeps.

Which images of a pod a node may have to pull."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from webhook.images.objects import (
    IMAGES_ANNOTATION,
    KUBELET_LIMIT,
    MAX_NODE_IMAGES,
    MAX_POD_IMAGES,
    ScoredPod,
    decode_arguments,
    images_of,
    references_of,
)
from webhook.k8s.types.core import Node

REGISTRIES = {"quay.io", "docker.io"}


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def node(*images: list[str], annotation: str = "", **status: Any) -> Node:
    info = {"architecture": "arm64", "operatingSystem": "linux"}
    written = {
        "metadata": {"name": "a", "annotations": {IMAGES_ANNOTATION: annotation} if annotation else None},
        "spec": {"podCIDRs": ["203.0.113.0/24"]},
        "status": {"images": [{"names": names} for names in images], "nodeInfo": info, **status},
    }
    return msgspec.json.decode(json.dumps(written).encode(), type=Node)


def test_images_are_known_by_their_digests() -> None:
    found = node(
        [f"quay.io/disk@{digest(1)}", "quay.io/disk:40"],
        ["quay.io/only-a-tag:1"],
        [f"docker.io/library/fedora@{digest(2)}"],
        [f"other.example/disk@{digest(3)}"],
        ["<none>@<none>", "<none>:<none>"],
    )
    assert [reference.digest for reference in references_of(found, REGISTRIES)] == [digest(1), digest(2)]


def test_what_is_kept_of_a_node() -> None:
    found = node([f"quay.io/disk@{digest(1)}"], addresses=[{"type": "InternalIP", "address": "10.0.0.1"}, {}])
    kept = images_of(found, list(references_of(found, REGISTRIES)))
    assert kept.platform == "linux/arm64"
    assert [reference.digest for reference in kept.references] == [digest(1)]
    assert kept.addresses == ("10.0.0.1", "203.0.113.0/24")
    assert not kept.is_cut


def test_a_node_that_lists_fifty_images_probably_has_more() -> None:
    full = [[f"quay.io/i{number}:1"] for number in range(KUBELET_LIMIT)]
    assert images_of(node(*full), []).is_cut
    assert not images_of(node(*full[1:]), []).is_cut
    assert not images_of(node(*full, ["quay.io/one-more:1"]), []).is_cut


def test_the_annotation_of_a_runtime_adds_images() -> None:
    full = [[f"quay.io/i{number}:1"] for number in range(KUBELET_LIMIT)]
    found = node(*full, annotation=f"quay.io/disk@{digest(7)}\nquay.io/disk@{digest(8)} junk")
    references = list(references_of(found, REGISTRIES))
    assert [reference.digest for reference in references] == [digest(7), digest(8)]
    assert not images_of(found, references).is_cut


def test_the_images_of_one_node_are_bounded() -> None:
    found = node(*([f"quay.io/disk@{digest(number)}"] for number in range(MAX_NODE_IMAGES * 2)))
    assert len(list(references_of(found, REGISTRIES))) == MAX_NODE_IMAGES


def test_a_node_may_have_no_status() -> None:
    bare = msgspec.json.decode(b'{"metadata": {"name": "a"}}', type=Node)
    assert images_of(bare, list(references_of(bare, REGISTRIES))).platform == "linux/amd64"


LAUNCHER = "quay.io/kubevirt/virt-launcher:v1.9.0"
DISK = "quay.io/containerdisks/fedora:40"


def pod(labels: dict[str, str] | None = None, **spec: Any) -> ScoredPod:
    written = {"metadata": {"namespace": "shop", "labels": labels or {}}, "spec": spec}
    return decode_arguments(json.dumps({"Pod": written, "Nodes": None, "NodeNames": ["a"]}).encode()).pod


def container(name: str, image: str) -> dict[str, str]:
    return {"name": name, "image": image}


def test_disks_kernels_and_sidecars_count_and_the_launcher_does_not() -> None:
    found = pod(
        {"kubevirt.io": "virt-launcher"},
        containers=[
            container("compute", LAUNCHER),
            container("volumedisk", DISK),
            container("hook-sidecar-0", "quay.io/hook:1"),
        ],
        initContainers=[
            container("container-disk-binary", LAUNCHER),
            container("volumedisk-init", DISK),
            container("volumekernel-boot-init", "quay.io/kernel:6"),
            container("guest-console-log", LAUNCHER),
        ],
        volumes=[{"name": "x", "emptyDir": {}}, {"name": "y", "image": {"reference": "quay.io/volume:1"}}],
    )
    assert found.images() == [DISK, "quay.io/hook:1", "quay.io/kernel:6", "quay.io/volume:1"]


def test_of_other_pods_all_containers_count() -> None:
    assert pod(containers=[container("compute", LAUNCHER)]).images() == [LAUNCHER]


def test_a_pod_may_have_nothing() -> None:
    empty = decode_arguments(b'{"Pod": {}}').pod
    assert (empty.images(), empty.scheduler_name, empty.architecture, empty.pull_secrets) == ([], "", "", ())
    assert pod(containers=[{"name": "x"}], volumes=[{"image": {}}], imagePullSecrets=[{}]).images() == []


def test_what_one_pod_may_ask_for_is_bounded() -> None:
    many = pod(
        containers=[container(f"c{number}", f"quay.io/i{number}") for number in range(500)],
        imagePullSecrets=[{"name": f"s{number}"} for number in range(500)],
    )
    assert len(many.images()) == MAX_POD_IMAGES
    assert len(many.pull_secrets) == 8


def test_secrets_that_cannot_exist_are_not_kept_in_mind() -> None:
    """The API server takes any name of a pull secret, a megabyte of it too."""
    names = ["x" * 254, "../x", "pull"]
    assert pod(imagePullSecrets=[{"name": name} for name in names]).pull_secrets == ("pull",)


def test_the_architecture_is_the_one_that_kubevirt_selects() -> None:
    assert pod(nodeSelector={"kubernetes.io/arch": "arm64"}).architecture == "arm64"
