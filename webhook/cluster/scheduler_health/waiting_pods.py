"""What a scheduler's pods show about its health. Pure: the times come in with the observations.

A scheduler that runs writes a ``PodScheduled`` condition into every pod that it tries. A pod without one shows that no
process serves the scheduler's name, even where a Lease is renewed. But any user who may create pods can name any
scheduler in them, so a pod is evidence only where no tenant can make it wait:

* KubeVirt made it: it looks like a virt-launcher pod, and the VMI that owns it lists it in its status. Other users
  cannot have a pod listed without a VMI of their own.
* Nothing keeps an available scheduler from trying it: no gate, claim or group (``PreEnqueue``); where volumes may still
  have to be made (``PreBind``), only after the time that a scheduler waits for them.
* It is small enough for a condition to fit into it: the API server would not store a larger one.
* Its namespace has opted in.

One pod is never enough: a namespace's own scheduling needs two pods of different VMs in it, that of all namespaces
needs pods of two namespaces. So tenants can at most harm themselves. And a scheduler that has tried any pod a moment
ago is available, however many others wait for their turn.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from webhook.k8s.pods import PendingPod
from webhook.k8s.views import Object, ObjectMeta
from webhook.kubevirt.launcher import NotLauncher, vmi_owner
from webhook.kubevirt.views import ActiveVmi

UNNOTICED_SECONDS: Final = 30.0

# kube-scheduler's bindTimeoutSeconds: for so long it may wait for volumes before the pod shows a condition.
VOLUME_SECONDS: Final = 600.0

# A virt-launcher pod has 10 to 30 kB. One near etcd's limit of 1.5 MB has no room for a condition.
LARGEST_POD_BYTES: Final = 256 * 1024

# Pods that are remembered of one namespace, and of all. More would say nothing else.
MOST_PER_NAMESPACE: Final = 100
MOST: Final = 5_000

_ENOUGH: Final = 2


class Waiting(Object, frozen=True):
    """What is kept of a pod that no scheduler has tried yet.

    Attributes:
        vmi: the name of the VMI that owns it.
        owner: the UID of that VMI; empty: the pod cannot be evidence.
        since: monotonic seconds from which its wait counts.
        patience: seconds that it may wait before it is evidence.
    """

    vmi: str = ""
    owner: str = ""
    since: float = 0.0
    patience: float = UNNOTICED_SECONDS

    @classmethod
    def of(cls, pod: PendingPod, since: float) -> Waiting:
        """What counts of a pod as evidence."""
        meta, spec = pod.meta, pod.spec
        kept = ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid)
        owner = vmi_owner(pod)
        if isinstance(owner, NotLauncher) or spec is None or spec.is_gated:
            return cls(metadata=kept, since=since)
        patience = UNNOTICED_SECONDS + (VOLUME_SECONDS if spec.has_claims else 0.0)
        return cls(metadata=kept, vmi=(owner.name or "")[:253], owner=owner.uid or "", since=since, patience=patience)

    @property
    def uid(self) -> str:
        """The pod's UID; empty where it has none."""
        return self.meta.uid or ""

    @property
    def namespace(self) -> str:
        """The pod's namespace; empty where it has none."""
        return self.meta.namespace or ""


class WaitingPods:
    """The pods that name a scheduler and that it has not tried.

    Args:
        opted_in: whether a namespace has opted in.
    """

    def __init__(self, opted_in: Callable[[str], bool]) -> None:
        self._opted_in: Final = opted_in
        self._waiting: Final[dict[str, Waiting]] = {}
        self._per_namespace: Final[Counter[str]] = Counter()
        self._tried_at = -math.inf
        # Those that have waited too long: first to be checked against their VMI, then evidence.
        self._due: Final[list[tuple[float, str]]] = []  # a heap
        self._unchecked: Final[dict[str, Waiting]] = {}
        self._evidence: Final[dict[str, Waiting]] = {}
        self._owners: Final[dict[str, Counter[str]]] = {}  # of the evidence: namespace -> owner -> pods

    def __len__(self) -> int:
        return len(self._waiting)

    def observe_waiting(self, pod: Waiting) -> None:
        """A pod waits; the first sight of it stands."""
        full = len(self._waiting) >= MOST or self._per_namespace[pod.namespace] >= MOST_PER_NAMESPACE
        if full or pod.uid in self._waiting:
            return
        self._waiting[pod.uid] = pod
        self._per_namespace[pod.namespace] += 1
        if pod.owner:
            heapq.heappush(self._due, (pod.since + pod.patience, pod.uid))
            if len(self._due) > 2 * MOST:
                # Pods that came and went would stay here for as long as they might have waited.
                self._due[:] = [entry for entry in self._due if entry[1] in self._waiting]
                heapq.heapify(self._due)

    def observe_attempt(self, uid: str, now: float) -> None:
        """A scheduler has written a condition into a pod, or has bound it; of pods not remembered it proves nothing."""
        if uid in self._waiting:
            self._tried_at = max(self._tried_at, now)
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """A pod has left Pending, has been deleted, or has been tried."""
        pod = self._waiting.pop(uid, None)
        if pod is None:
            return
        self._per_namespace[pod.namespace] -= 1
        if not self._per_namespace[pod.namespace]:
            del self._per_namespace[pod.namespace]
        self._unchecked.pop(uid, None)
        if self._evidence.pop(uid, None):
            owners = self._owners[pod.namespace]
            owners[pod.owner] -= 1
            if not owners[pod.owner]:
                del owners[pod.owner]
            if not owners:
                del self._owners[pod.namespace]

    def unchecked_pods(self, now: float, most: int) -> list[Waiting]:
        """Pods that have waited too long and whose VMIs have not been read yet, the namespaces in turn.

        Args:
            now: monotonic seconds.
            most: how many pods at most.
        """
        self._take_due(now)
        by_namespace: dict[str, list[Waiting]] = {}
        for pod in self._unchecked.values():
            if pod.namespace in by_namespace or self._opted_in(pod.namespace):
                by_namespace.setdefault(pod.namespace, []).append(pod)
        chosen: list[Waiting] = []
        turn = 0
        while len(chosen) < most and by_namespace:
            by_namespace = {name: pods for name, pods in by_namespace.items() if turn < len(pods)}
            chosen += [pods[turn] for pods in by_namespace.values()]
            turn += 1
        return chosen[:most]

    def record_check(self, uid: str, *, listed: bool) -> None:
        """What the VMI of a pod says: whether it lists the pod."""
        pod = self._unchecked.pop(uid, None)
        if pod is not None and listed:
            self._evidence[uid] = pod
            self._owners.setdefault(pod.namespace, Counter())[pod.owner] += 1

    def evidence(self, now: float, namespace: str = "") -> str | None:
        """Why no process can be serving the scheduler's name, a clause without names; None if nothing says so.

        Args:
            now: monotonic seconds.
            namespace: whose own pods count too; empty: none.
        """
        self._take_due(now)
        if now - self._tried_at <= UNNOTICED_SECONDS:
            return None
        if namespace in self._owners and len(self._owners[namespace]) >= _ENOUGH and self._opted_in(namespace):
            return _clause(self._evidence_in(namespace), 1, now)
        agreeing = [each for each in self._owners if self._opted_in(each)]
        if len(agreeing) < _ENOUGH:
            return None
        return _clause((pod for each in agreeing for pod in self._evidence_in(each)), len(agreeing), now)

    def witnesses(self) -> list[str]:
        """The pods that are evidence, as ``NAMESPACE/NAME``: for logs only, since tenants may not see each other's."""
        return sorted(f"{pod.namespace}/{pod.meta.name}" for pod in self._evidence.values())

    def _evidence_in(self, namespace: str) -> Iterable[Waiting]:
        return (pod for pod in self._evidence.values() if pod.namespace == namespace)

    def _take_due(self, now: float) -> None:
        while self._due and self._due[0][0] < now:
            pod = self._waiting.get(heapq.heappop(self._due)[1])
            if pod is not None and pod.uid not in self._evidence:
                self._unchecked[pod.uid] = pod


def _clause(pods: Iterable[Waiting], namespaces: int, now: float) -> str:
    waits = [now - pod.since for pod in pods]
    where = "this namespace" if namespaces == 1 else f"{namespaces} namespaces"
    return f"{len(waits)} virt-launcher pods in {where} have not been tried by it, one of them for {max(waits):.0f}s"


def is_listed(pod: Waiting, vmi: ActiveVmi | None) -> bool:
    """Whether a VMI is the owner of a pod and says so."""
    return vmi is not None and vmi.meta.uid == pod.owner and pod.uid in vmi.active_pods
