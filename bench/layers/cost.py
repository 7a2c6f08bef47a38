"""What one scheduling attempt costs kubevirt-webhook: from the bytes of a request to those of the answer."""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any, Final, cast

from bench.layers.catalog import SEED, make_images, make_vms, pod
from webhook.images.index import LayerIndex
from webhook.images.manifests import ImageReference, Layer, digest_of, parse_reference
from webhook.images.registry.fetch_queue import PullScope
from webhook.server.answers import TrafficObserver
from webhook.server.layer_scores.extender import Extender

_PLATFORM: Final = "linux/amd64"
_REGISTRY: Final = "registry.example"
_LISTED: Final = 50
# On all nodes, and those of them that VMs use.
_IMAGES: Final = 200
_USED: Final = 40


@dataclass(frozen=True, slots=True)
class AttemptCost:
    """Milliseconds of processor time for one request.

    Attributes:
        nodes: nodes whose names the request has.
        request: bytes of the request.
        median: half of the requests took less.
        p99: 99 of 100 requests took less.
        unchanged: the median where no node has changed since the last request for the same image.
    """

    nodes: int
    request: int
    median: float
    p99: float
    unchanged: float


class _KnownLayers:
    """All manifests, in memory."""

    def __init__(self, layers: dict[str, tuple[Layer, ...]]) -> None:
        self._layers = layers

    def is_listed(self, reference: ImageReference) -> bool:
        return reference.registry == _REGISTRY

    def layers(
        self, reference: ImageReference, platform: str, scope: PullScope | None = None
    ) -> tuple[Layer, ...] | None:
        return self._layers[reference.repository]


class _Nobody(TrafficObserver):
    def on_crash(self, path: str, error: BaseException) -> None:
        raise error


def measure_cost(nodes: int, requests: int) -> AttemptCost:
    """The cost in a cluster of so many nodes, each of which lists as many images as kubelets do.

    Before each request a node has pulled an image in the place of another, as where each pod that is placed needs one.
    Most images have been asked for before.
    """
    dice = random.Random(SEED)  # noqa: S311 - not for secrets
    images = make_images(_IMAGES)
    layers = {
        image.name: tuple(Layer(digest_of(name.encode()), size) for name, size in image.layers.items())
        for image in images
    }
    digests = {image.name: digest_of(image.name.encode()) for image in images}
    names = {digest: name for name, digest in digests.items()}
    index = LayerIndex()
    hosts = [f"node-{number:04}.region.example.com" for number in range(nodes)]

    listed = {host: dice.sample(list(digests.values()), _LISTED) for host in hosts}

    def put(host: str) -> None:
        for image in index.put(host, _PLATFORM, listed[host]):
            index.learn(image, layers[names[image.digest]])

    for host in hosts:
        put(host)
    extender = Extender(index, cast("Any", _KnownLayers(layers)), ["kubevirt"], _Nobody())
    bodies = [
        json.dumps({"Pod": pod(vm, _REGISTRY, "kubevirt"), "Nodes": None, "NodeNames": hosts}).encode()
        for vm in make_vms(requests, images[:_USED])
    ]
    for body in bodies[: 10 * _USED]:
        extender.prioritize(body)
    assert parse_reference(f"{_REGISTRY}/{images[0].name}:v1")
    # As the server does once it has started.
    gc.collect()
    gc.freeze()
    taken: list[float] = []
    unchanged: list[float] = []
    for body in bodies:
        host = dice.choice(hosts)
        listed[host] = [*listed[host][1:], dice.choice(list(names))]
        put(host)
        for times in (taken, unchanged):
            began = time.thread_time_ns()
            extender.prioritize(body)
            times.append((time.thread_time_ns() - began) / 1e6)
    gc.unfreeze()
    p99 = statistics.quantiles(taken, n=100)[98]
    return AttemptCost(nodes, len(bodies[0]), statistics.median(taken), p99, statistics.median(unchanged))
