"""A scheduler extender on a listener of its own: it scores nodes by the layers of a pod's images that they have.

kube-scheduler calls it once for each pod that it places, for the pods of all its profiles, and waits for the answer. So
the answer comes from memory alone, without a task wherever the request has arrived whole. Nodes that are left out count
as nodes with score 0 (``prioritizeNodes`` in pkg/scheduler/schedule_one.go).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import KW_ONLY, dataclass
from itertools import chain, islice
from typing import Final

import msgspec

from webhook.images.index import LayerIndex
from webhook.images.manifests import parse_reference
from webhook.images.objects import ScoredPod, decode_arguments
from webhook.images.registry.images import Images, PullScope
from webhook.server.edge import Application, Limits, RequestDenied, Server, TrafficObserver, problem_of
from webhook.server.request import Answer, HttpRequest, Overload

PATH: Final = "/v1/layers/prioritize"
# A pod, and the names of nodes: 5,000 names of the greatest length have 1.3 MB.
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
# A scheduler sends one request after the other.
LIMITS: Final = Limits(
    keep_alive_seconds=120.0,
    lifetime_seconds=300.0,
    abort_seconds=float("inf"),
    body_bytes=MAX_BODY_BYTES,
    room_bytes=4 * MAX_BODY_BYTES,
)
# Of one pod and platform, the first ones: kube-scheduler waits while they are added up.
MAX_LAYERS: Final = 512
_NOTHING: Final = b"[]"


@dataclass(eq=False, repr=False)
class Extender(Application):
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

    def server(self) -> Server:
        """The server; make it inside the running loop."""
        return Server(self, LIMITS, clients=self.clients)

    def answer_from_head(self, request: HttpRequest) -> Answer | None:
        """Why the head of a request cannot belong to one of kube-scheduler's; None: it can."""
        head = request.head
        if request.connection.rejection:
            why = "the client has no certificate of layers.clientNames; see the extender's tlsConfig"
            return self._reject(403, why)
        if head.path != PATH:
            prefix, _, verb = PATH.rpartition("/")
            return self._reject(404, f"nothing is served at this path; set urlPrefix to {prefix}, verb {verb}")
        if head.method != "POST":
            return self._reject(405, "use POST")
        return self._reject(415, "the body is encoded; send JSON as it is") if head.is_encoded else None

    def answer_at_once(self, request: HttpRequest) -> Answer:
        """The answer to a request that has arrived whole, which is always at hand."""
        if answer := self.answer_from_head(request):
            return answer
        try:
            return Answer(200, self.prioritize(request.body))
        except Exception as error:  # noqa: BLE001 - the edge: what comes here would be a broken connection
            status, sentence, _ = problem_of(error, PATH, self.traffic)
            return Answer.text(status, sentence) if status == 500 else self._reject(status, sentence)

    async def answer(self, request: HttpRequest) -> Answer:
        """The same, for a request that had to wait for its body or its client."""
        return self.answer_at_once(request)

    def overloaded(self, request: HttpRequest, overload: Overload, prefix: bytes) -> Answer:
        """An HTTP error: kube-scheduler goes on without scores where the extender is ignorable."""
        hint = "; set nodeCacheCapable: true" if overload is Overload.TOO_LARGE else ""
        return self._reject(overload.status, f"{overload.sentence}{hint}")

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

    def _reject(self, status: int, sentence: str) -> Answer:
        self.results["rejected"] += 1
        return Answer.text(status, sentence)
