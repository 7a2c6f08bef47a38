"""A scheduler extender on a listener of its own: it scores nodes by the layers of a pod's images that they have.

kube-scheduler calls it once for each pod that it places, for the pods of all its profiles, and waits for the answer. So
the answer comes from memory alone. Nodes that are left out count
as nodes with score 0 (``prioritizeNodes`` in pkg/scheduler/schedule_one.go).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import chain, islice
from typing import Final

import msgspec
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from webhook.images.index import LayerIndex
from webhook.images.manifests import parse_reference
from webhook.images.objects import ScoredPod, decode_arguments
from webhook.images.registry.fetch_queue import PullScope
from webhook.images.registry.images import Images
from webhook.server.answers import (
    Overload,
    OverloadError,
    RequestDenied,
    TrafficObserver,
    errors_to_answers,
    response,
    text,
)
from webhook.server.bodies import RequestBody
from webhook.server.guard import PATIENCE_SECONDS, Limits, guard_of
from webhook.server.listener import Listener

PATH: Final = "/v1/layers/prioritize"
# A pod, and the names of nodes: 5,000 names of the greatest length have 1.3 MB.
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
# A scheduler sends one request after the other.
LIMITS: Final = Limits(
    keep_alive_seconds=120.0,
    lifetime_seconds=300.0,
    abort_seconds=float("inf"),
    body_bytes=MAX_BODY_BYTES,
    reserved_bytes=4 * MAX_BODY_BYTES,
)
# Of one pod and platform, the first ones: kube-scheduler waits while they are added up.
MAX_LAYERS: Final = 512
_NOTHING: Final = b"[]"
_HINT: Final = "set urlPrefix to {}, verb {}".format(*PATH.rsplit("/", 1))


@dataclass(eq=False, repr=False)
class Extender:
    """Answers kube-scheduler.

    Args:
        index: the layers on nodes.
        images: the layers of images.
        schedulers: pods of these schedulers are scored; all others get no scores at once.
        traffic: gets exceptions.
        clients: names that a client's certificate may have; empty: no certificate is needed.
        pull_secrets: whether the pull secrets of pods may be read.

    Attributes:
        results: requests by result: ``scored``, ``no-scores`` (no node has a layer, or no layer is known),
            ``other-scheduler`` and ``rejected``.
    """

    index: LayerIndex
    images: Images
    schedulers: Collection[str]
    traffic: TrafficObserver
    _: KW_ONLY
    clients: Collection[str] = ()
    pull_secrets: bool = False

    def __post_init__(self) -> None:
        self.results = {"scored": 0, "no-scores": 0, "other-scheduler": 0, "rejected": 0}

    def listener(self) -> Listener:
        """The listener; make it inside the running loop."""
        errors = errors_to_answers(self.traffic, _HINT, self._reject, path=PATH)
        application = web.Application(middlewares=[errors, self._check])
        application.router.add_post(PATH, self._prioritize)
        return Listener(application, LIMITS)

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Deny what is none of kube-scheduler's requests."""
        name = guard_of(request).client_name
        if self.clients and not (name and name in self.clients):
            why = "the client has no certificate of layers.clientNames; see the extender's tlsConfig"
            raise RequestDenied(403, why)
        if hdrs.CONTENT_ENCODING in request.headers:
            raise RequestDenied(415, "the body is encoded; send JSON as it is")
        return await handler(request)

    async def _prioritize(self, request: web.Request) -> web.Response:
        """The scores. If there are none, kube-scheduler goes on without them where the extender is ignorable."""
        until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        with RequestBody(request, guard_of(request)) as body:
            try:
                data = await body.read(until)
            except OverloadError as error:
                hint = "; set nodeCacheCapable: true" if error.overload is Overload.TOO_LARGE else ""
                raise RequestDenied(error.overload.status, f"{error.overload.sentence}{hint}") from None
            return response(200, self.prioritize(data))

    def prioritize(self, body: bytes) -> bytes:
        """The scores of nodes for a pod, a HostPriorityList as JSON.

        Raises:
            RequestDenied: the body is not one, or has whole nodes.
        """
        try:
            arguments = decode_arguments(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise RequestDenied(400, "the body is not valid ExtenderArgs; send what kube-scheduler sends") from None
        pod = arguments.pod
        if pod.scheduler_name not in self.schedulers:
            self.results["other-scheduler"] += 1
            return _NOTHING
        names = arguments.node_names
        if names is None:
            raise RequestDenied(400, "NodeNames is missing; set nodeCacheCapable: true for the extender")
        layer_sizes = self._pod_layer_sizes(pod)
        try:
            answer = self.index.answer(layer_sizes, names) if layer_sizes else _NOTHING
        except msgspec.DecodeError:
            raise RequestDenied(400, "NodeNames has other values than names; send what kube-scheduler sends") from None
        self.results["no-scores" if answer == _NOTHING else "scored"] += 1
        return answer

    def _pod_layer_sizes(self, pod: ScoredPod) -> dict[str, dict[str, int]]:
        """The sizes of the pod's layers, by digest, for each platform; what is not known counts for nothing."""
        scope = PullScope(pod.meta.namespace or "", pod.pull_secrets if self.pull_secrets else ())
        references = [reference for image in pod.images() if (reference := parse_reference(image))]
        listed = [reference for reference in references if self.images.is_listed(reference)]
        layer_sizes: dict[str, dict[str, int]] = {}
        for platform in self.index.platforms:
            if pod.architecture and not platform.endswith(f"/{pod.architecture}"):
                continue
            image_layers = (self.images.layers(reference, platform, scope) or () for reference in listed)
            layers = islice(chain.from_iterable(image_layers), MAX_LAYERS)
            if sizes := {layer.digest: layer.size for layer in layers}:
                layer_sizes[platform] = sizes
        return layer_sizes

    async def _reject(self, status: int, sentence: str, headers: Mapping[str, str]) -> web.Response:
        if status != 500:
            self.results["rejected"] += 1
        return text(status, sentence, headers)
