"""Pods on the nodes of a test, those that would have them go, and a webhook that decides about each DELETE."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from .access import Access
from .foreign_webhook import ForeignWebhook
from .kube import Json, Kube, KubeError, KubeObject, eventually
from .loopback import LoopbackServer
from .objects import has_condition, launcher_pod, make_node, obj
from .pki import ADMIN
from .workloads import PODS

SPACE = "default"
LAUNCHER = {"kubevirt.io": "virt-launcher"}
TAINT = "example.com/maintenance"
ALLOWED: Json = {"allowed": True}


def later(seconds: int = 0) -> Json:
    """A denial; with ``seconds``, one that says when to ask again."""
    details = {"details": {"retryAfterSeconds": seconds}} if seconds else {}
    return {"allowed": False, "status": {"code": 429, "reason": "TooManyRequests", "message": "not yet", **details}}


class Asked(NamedTuple):
    """A DELETE that the API server asked about, at a time of `time.monotonic`."""

    at: float
    pod: str
    user: str
    grace: int | None


class Deletions(ForeignWebhook):
    """Answers the DELETEs of launcher pods by others than the admin, by ``decide``, which may be replaced."""

    kind = "ValidatingWebhookConfiguration"
    operation = "DELETE"
    fields: ClassVar[Json] = {
        "objectSelector": {"matchLabels": LAUNCHER},
        "failurePolicy": "Ignore",
        "timeoutSeconds": 30,
    }

    def __init__(self, access: Access, decide: Callable[[str], Json]) -> None:
        super().__init__(access, SPACE)
        self._kube = access.admin
        self.decide = decide
        self.seen: list[Asked] = []

    def answer(self, request: Json) -> Json:
        user = request["userInfo"]["username"]
        if user == ADMIN.user:
            return ALLOWED
        asked = Asked(time.monotonic(), request["name"], user, (request.get("options") or {}).get("gracePeriodSeconds"))
        self.seen.append(asked)
        return self.decide(asked.pod)

    def probe(self) -> None:
        with contextlib.suppress(KubeError):  # it is there already
            self._kube.create(PODS, launcher_pod("probe", scheduler="nobody"), SPACE)
        self._kube.delete(PODS, "probe", SPACE, dryRun="All")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing listens where the API server calls."""
        self._server.__exit__()
        try:
            yield
        finally:
            self._server = LoopbackServer(self._answer, self._access.pki.serving("again"))
            self._server.__enter__()

    def since(self, begin: float, pod: str = "") -> list[Asked]:
        return [each for each in self.seen if each.at >= begin and pod in ("", each.pod)]


class Nodes:
    """Nodes of 4 CPUs each, without a kubelet, and the pods on them."""

    def __init__(self, kube: Kube, *names: str, space: str = SPACE) -> None:
        self.kube = kube
        self.space = space
        for name in names:
            make_node(kube, name, allocatable={"cpu": "4"})
        kube.create("scheduling.k8s.io/v1/priorityclasses", obj("PriorityClass", "high", value=1_000_000))

    def run(self, name: str, node: str, cpu: str = "3", labels: Mapping[str, str] = LAUNCHER, **spec: Any) -> None:
        """A pod that runs, by default a VM's."""
        self.kube.create(PODS, requesting_pod(name, cpu, labels, nodeName=node, **spec), self.space)
        self._patch(name, "Running")

    def ask(self, name: str = "preemptor", cpu: str = "3", **spec: Any) -> float:
        """A pod of high priority without a node; returns the time."""
        begin = time.monotonic()
        self.kube.create(
            PODS, requesting_pod(name, cpu, {"app": "batch"}, priorityClassName="high", **spec), self.space
        )
        return begin

    def end(self, name: str) -> float:
        """What happens to a VM's pod once its guest runs elsewhere; returns the time."""
        self._patch(name, "Succeeded")
        return time.monotonic()

    def get(self, name: str) -> KubeObject:
        return self.kube.get(PODS, name, self.space)

    def has(self, name: str) -> bool:
        return any(pod["metadata"]["name"] == name for pod in self.kube.list(PODS, self.space))

    def is_ending(self, name: str) -> bool:
        """Whether its kubelet, if there were one, would end it."""
        return "deletionTimestamp" in self.get(name)["metadata"]

    def bury(self, name: str) -> None:
        """What a kubelet does at the end of a pod."""
        self.kube.delete(PODS, name, self.space, gracePeriodSeconds="0")

    def bound(self, name: str = "preemptor") -> float:
        """The time at which a pod is on a node."""
        eventually(lambda: self.get(name)["spec"].get("nodeName"), what=f"a node for {name}", timeout=60)
        return time.monotonic()

    def nominated(self, name: str = "preemptor") -> str:
        """The node where a scheduler makes room for a pod; empty: none."""
        return str(self.get(name)["status"].get("nominatedNodeName", ""))

    def is_target(self, name: str) -> bool:
        return has_condition(self.get(name), "DisruptionTarget")

    def taint(self, node: str) -> float:
        taints = [{"key": TAINT, "effect": "NoExecute"}]
        self.kube.patch("v1/nodes", node, {"spec": {"taints": taints}})
        return time.monotonic()

    def _patch(self, name: str, phase: str) -> None:
        self.kube.patch(PODS, name, {"status": {"phase": phase}}, self.space, subresource="status")


def requesting_pod(name: str, cpu: str, labels: Mapping[str, str], **spec: Any) -> Json:
    pod = launcher_pod(name)
    pod["metadata"]["labels"] = dict(labels)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    pod["spec"] = {key: value for key, value in pod["spec"].items() if key not in ("nodeSelector", "readinessGates")}
    pod["spec"] |= spec
    return pod
