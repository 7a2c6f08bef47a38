"""Images that share layers, and VMs that use them, by chance but always the same."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SEED: Final = 14
FAMILIES: Final = 5
_LAUNCHER: Final = "registry.example/kubevirt/virt-launcher:v1"


@dataclass(frozen=True, slots=True)
class CatalogImage:
    """An image of a VM's disk.

    Attributes:
        name: its repository.
        layers: the sizes of its layers in MiB, by name; equal names are equal layers.
    """

    name: str
    layers: Mapping[str, int]

    @property
    def size(self) -> int:
        """MiB of all layers."""
        return sum(self.layers.values())


@dataclass(frozen=True, slots=True)
class CatalogVm:
    """A VM.

    Attributes:
        name: of its pod.
        image: the image of its disk.
        millis: CPU that its pod requests, in thousandths.
        memory: MiB that its pod requests.
    """

    name: str
    image: CatalogImage
    millis: int
    memory: int


def make_images(count: int) -> list[CatalogImage]:
    """Images in families: those of a family share an operating system, and some of them what is installed on it."""
    dice = random.Random(SEED)  # noqa: S311 - not for secrets
    systems = [dice.randrange(250, 700) for _ in range(FAMILIES)]
    stacks = [[dice.randrange(80, 400) for _ in range(3)] for _ in range(FAMILIES)]
    images = []
    for number in range(count):
        family = number % FAMILIES
        layers = {f"system-{family}": systems[family]}
        for stack in dice.sample(range(3), dice.choice([0, 1, 1, 2])):
            layers[f"stack-{family}-{stack}"] = stacks[family][stack]
        layers[f"own-{number}"] = dice.randrange(20, 300)
        images.append(CatalogImage(f"disks/image-{number:02}", layers))
    return images


def make_vms(count: int, images: list[CatalogImage]) -> list[CatalogVm]:
    """VMs in the order in which they come; a few images are in frequent use, most are not."""
    dice = random.Random(SEED + 1)  # noqa: S311 - not for secrets
    popularity = [1 / rank for rank in range(1, len(images) + 1)]
    dice.shuffle(popularity)
    chosen = dice.choices(images, popularity, k=count)
    sizes = dice.choices([(100, 1), (200, 2), (200, 4), (400, 8), (800, 16)], [2, 4, 4, 2, 1], k=count)
    return [
        CatalogVm(f"vm-{number:03}", image, cpus, 1024 * memory + 300)
        for number, (image, (cpus, memory)) in enumerate(zip(chosen, sizes, strict=True))
    ]


def pod(vm: CatalogVm, registry: str, scheduler: str) -> dict[str, object]:
    """The launcher pod of a VM, as far as a scheduler looks at it."""
    devices = {"devices.kubevirt.io/kvm": "1"}
    requests = {"cpu": f"{vm.millis}m", "memory": f"{vm.memory}Mi", **devices}
    image = f"{registry}/{vm.image.name}:v1"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": vm.name, "labels": {"kubevirt.io": "virt-launcher"}},
        "spec": {
            "schedulerName": scheduler,
            "automountServiceAccountToken": False,
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "initContainers": [
                {"name": "container-disk-binary", "image": _LAUNCHER},
                {"name": "volumedisk-init", "image": image},
            ],
            "containers": [
                {"name": "compute", "image": _LAUNCHER, "resources": {"requests": requests, "limits": devices}},
                {"name": "volumedisk", "image": image},
            ],
        },
    }
