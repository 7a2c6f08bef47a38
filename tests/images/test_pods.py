"""Which images of a pod a node may have to pull."""

from __future__ import annotations

import json
from typing import Any

from webhook.images.pods import MAX_IMAGES, ScoredPod, decode_arguments

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
    assert len(many.images()) == MAX_IMAGES
    assert len(many.pull_secrets) == 8


def test_secrets_that_cannot_exist_are_not_kept_in_mind() -> None:
    """The API server takes any name of a pull secret, a megabyte of it too."""
    names = ["x" * 254, "../x", "pull"]
    assert pod(imagePullSecrets=[{"name": name} for name in names]).pull_secrets == ("pull",)


def test_the_architecture_is_the_one_that_kubevirt_selects() -> None:
    assert pod(nodeSelector={"kubernetes.io/arch": "arm64"}).architecture == "arm64"
