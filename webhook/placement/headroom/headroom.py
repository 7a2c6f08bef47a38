"""What headroom there is in a cluster: kept in step with nodes, pods and VMs, and asked before a VM starts.

A VM holds its room from the moment at which its start is admitted: by a reservation until its pod is seen, by its pod,
and, once that is gone, for as long as KubeVirt may take to start it again. So the place of a VM whose node is lost is
not given away, and its start is known as one that was admitted before.

`Headroom.peek` answers at once, where room shows the verdict or it is known. Where losses have to be simulated,
`Headroom.decide` takes longer, in slices, and whatever happens between them is taken in. One start is decided at a
time, and it holds its room meanwhile: so what is admitted by room in between leaves room for it, too.

Nothing here has a clock of its own, and nothing waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
from cachetools import LRUCache

from webhook.admission.step_budget import StepBudget, TooComplex, outside_budgets
from webhook.k8s.resources import NamespacedName
from webhook.k8s.types.core import NodeWithoutImages
from webhook.kubevirt.run_strategy import ALWAYS, RERUN_ON_FAILURE, StartedVm
from webhook.placement.headroom.layout import MOST_SCORED, POD, Key, Nodes, vm_key
from webhook.placement.headroom.losses import Losses, OutOfSteps, Slices, Steps
from webhook.placement.headroom.model import Doubts, Model
from webhook.placement.headroom.pods import KnownVm, PlacedPod, read_pod, read_vm
from webhook.placement.headroom.verdicts import Start, Verdict, judge_by_room, judge_by_simulation
from webhook.placement.quota import PodUsage
from webhook.placement.running_pods import RunningPod
from webhook.placement.scores import NEWEST, KubernetesVersion

# The steps of one answer, a second or two.
MAX_STEPS: Final = 1_000_000
# Those of an answer at once. Pods of all tenants make up how many it takes, so the review itself pays for none.
_STEPS_AT_ONCE: Final = 50_000
# Until the pod of an admitted start is seen. It may not be created: a quota may deny it.
RESERVED_SECONDS: Final = 30.0
# For which a VM's place is kept once its pod is gone, by its run strategy. KubeVirt waits up to 5 minutes before it
# starts one again that crashes at once, and up to 1,000 s before it tries again to create a pod that was denied.
_KEPT_SECONDS: Final = {ALWAYS: 1800.0, RERUN_ON_FAILURE: 600.0}
# Of one that its owner starts.
_KEPT_OTHERWISE: Final = 60.0
_SLICE: Final = 20
_UNKNOWN: Final = KnownVm(ALWAYS)
_MOST_CHANGES: Final = 100_000
_MOST_PODS_AT_ONCE: Final = 2000
# Starts that were denied, of those that were last. KubeVirt tries each again and again.
_MOST_DENIED: Final = 500


class _Claim(msgspec.Struct, frozen=True):
    """A VM that holds room without a pod.

    Attributes:
        pod: what it takes; None: that is not known.
        until: Unix time in seconds.
        has_run: whether it was admitted, or ran, before.
    """

    pod: PlacedPod | None
    until: float
    has_run: bool


class _Denial(msgspec.Struct, frozen=True):
    """A start that was denied.

    Attributes:
        state: the number of the state in which it was.
        pod: the VM's pod, without its name, which is another one at each attempt.
    """

    state: int
    pod: PlacedPod
    verdict: Verdict


class AskedStart:
    """A start that one review asks about; it is equal to no other.

    Args:
        pod: the VM's pod, which does not exist yet.
        is_dry_run: whether it will not be created.
    """

    def __init__(self, pod: PlacedPod, *, is_dry_run: bool) -> None:
        self.pod: Final = pod
        self.is_dry_run: Final = is_dry_run


class Headroom:
    """The nodes, pods and VMs of a cluster, and what they hold.

    Args:
        now: returns Unix time in seconds.
        version: that of kube-scheduler.

    Attributes:
        verdicts: how many starts were judged, by what was found out.
    """

    def __init__(self, now: Callable[[], float], version: KubernetesVersion = NEWEST) -> None:
        self._now: Final = now
        self._version: Final = version
        self._nodes: Final[dict[str, NodeWithoutImages]] = {}
        self._pods: Final[dict[NamespacedName, PlacedPod]] = {}
        self._vms: Final[dict[NamespacedName, KnownVm]] = {}
        self._pods_of: Final[dict[NamespacedName, set[NamespacedName]]] = {}
        self._by_namespace: Final[dict[str, set[NamespacedName]]] = {}
        self._claims: Final[dict[NamespacedName, _Claim]] = {}
        self._model: Model | None = None
        self._next: Model | None = None
        # How many have begun to be built.
        self._rebuilds = 0
        self._losses: Losses | None = None
        self._is_outdated = True
        # Counts what has changed, but for what the start holds that is being decided.
        self._state = 0
        self._deciding: NamespacedName | None = None
        self._denied: Final[LRUCache[NamespacedName, _Denial]] = LRUCache(_MOST_DENIED)
        self.verdicts: Final = Counter(dict.fromkeys(("kept", "broken", "no-room", "not-proven"), 0))

    # -- what there is -------------------------------------------------------------------------------------------------

    def put_node(self, node: NodeWithoutImages) -> None:
        """A node is there, or has changed."""
        self._nodes[node.meta.name or ""] = node
        self._change_nodes()

    def remove_node(self, name: str) -> None:
        """A node is gone."""
        if self._nodes.pop(name, None):
            self._change_nodes()

    def _change_nodes(self) -> None:
        self._is_outdated = True
        self._state += 1

    def put_pod(self, pod: PlacedPod) -> None:
        """A pod is there, or has changed."""
        before = self._pods.get(pod.name)
        if before == pod:
            return  # of all that changes about a pod, most takes no room
        self._state += 1
        if before and before.vm and before.of_vm != pod.of_vm:
            self.remove_pod(pod.name)
        self._pods[pod.name] = pod
        if pod.vm:
            self._pods_of.setdefault(pod.of_vm, set()).add(pod.name)
            self._by_namespace.setdefault(pod.name[0], set()).add(pod.of_vm)
            self._drop_claim(pod.of_vm)
        for model in self._models():
            model.put((POD, *pod.name), pod)

    def remove_pod(self, name: NamespacedName) -> None:
        """A pod is gone, or has ended; the VM that ran in it may start again."""
        pod = self._pods.pop(name, None)
        if pod is None:
            return
        self._state += 1
        for model in self._models():
            model.remove((POD, *name))
        if not pod.vm:
            return
        pods = self._pods_of[pod.of_vm]
        pods.discard(name)
        if pods:
            return
        del self._pods_of[pod.of_vm]
        of_namespace = self._by_namespace[name[0]]
        of_namespace.discard(pod.of_vm)
        if not of_namespace:
            del self._by_namespace[name[0]]
        vm = self._vms.get(pod.of_vm)
        if vm and not vm.is_stopped:
            seconds = _KEPT_SECONDS.get(vm.strategy, _KEPT_OTHERWISE)
            nowhere = msgspec.structs.replace(pod, node="")
            self._claim(pod.of_vm, _Claim(nowhere, self._now() + seconds, has_run=True))

    def put_vm(self, name: NamespacedName, vm: KnownVm) -> None:
        """A VirtualMachine is there, or has changed."""
        before = self._vms.get(name)
        self._vms[name] = vm
        if vm.is_stopped:
            self._drop_claim(name)
        if before is None or before.restarts != vm.restarts:
            self._notice(name)

    def remove_vm(self, name: NamespacedName) -> None:
        """A VirtualMachine is gone."""
        if self._vms.pop(name, None):
            self._drop_claim(name)
            self._notice(name)

    def begin(self) -> None:
        """All is there. VMs that are to run and have no pod may be about to start again: nobody has seen them end.

        Those whose start was denied, as they say themselves, are not.
        """
        until = self._now() + _KEPT_SECONDS[ALWAYS]
        for name, vm in self._vms.items():
            if vm.restarts and not vm.is_denied and name not in self._pods_of and name not in self._claims:
                self._claims[name] = _Claim(None, until, has_run=True)

    def rebuild(self) -> Iterator[None]:
        """Take changes of nodes in, in slices, so that others get their turn; what happens meanwhile is taken in, too.

        Nothing is yielded where no node has changed, and not too many pods have.
        """
        if not self._is_outdated and not self._is_worn:
            return
        self._is_outdated, is_done = False, False
        # Of several at once, the last to begin has all nodes, and alone is told of pods once it counts them.
        self._rebuilds += 1
        mine = self._rebuilds
        try:
            nodes = Nodes(self._nodes.values(), self._version)
            yield from nodes.load()
            model = Model(nodes, self._restarts)
            yield from model.load()
            if mine != self._rebuilds:
                return
            self._next = model
            names, claims = list(self._pods), list(self._claims)
            for count, name in enumerate(names):
                pod = self._pods.get(name)
                # Those without a node are assumed beside all that have one.
                if pod and pod.node:
                    model.put((POD, *name), pod)
                if count % _SLICE == 0:
                    yield
            for name in names:
                pod = self._pods.get(name)
                if pod and not pod.node:
                    model.put((POD, *name), pod)
                    yield
            for name in claims:
                claim = self._claims.get(name)
                if claim and claim.pod:
                    model.put(vm_key(name), claim.pod)
                    yield
            yield from model.count_changed()
            model.changes = 0
            is_done = True
            if mine == self._rebuilds:
                self._model, self._losses = model, None
                self._state += 1
        finally:
            if mine == self._rebuilds:
                self._next = None
                self._is_outdated = self._is_outdated or not is_done

    def prepare(self) -> Iterator[None]:
        """Find out beforehand what answers need, in slices."""
        if self._model:
            yield from self._model.prepare()

    def _models(self) -> list[Model]:
        return [each for each in (self._model, self._next) if each]

    @property
    def is_small(self) -> bool:
        """Whether the cluster is so small that changes of nodes are taken in before an answer, and else beside them."""
        return len(self._nodes) <= MOST_SCORED and len(self._pods) <= _MOST_PODS_AT_ONCE

    @property
    def is_ready(self) -> bool:
        """Whether an answer needs no more than a review may take."""
        return self._model is not None or self.is_small

    @property
    def _is_worn(self) -> bool:
        """Whether so much has changed that what is kept of pods that are gone should go."""
        return self._model is not None and self._model.changes > _MOST_CHANGES

    @property
    def _has_to_rebuild(self) -> bool:
        """Whether changes of nodes are to be taken in before an answer."""
        is_old = self._is_outdated or self._is_worn
        return self._model is None or (is_old and self.is_small and self._next is None)

    def _current(self) -> Model:
        if self._has_to_rebuild:
            self._is_outdated = True
            for _ in self.rebuild():
                pass
        assert self._model
        return self._model

    def _restarts(self, vm: NamespacedName) -> bool:
        known = self._vms.get(vm)
        return known is not None and known.restarts

    def _notice(self, vm: NamespacedName) -> None:
        self._state += 1
        keys: list[Key] = [(POD, *name) for name in self._pods_of.get(vm, ())]
        for model in self._models():
            model.notice((*keys, vm_key(vm)))

    # -- what VMs hold -------------------------------------------------------------------------------------------------

    def has_run(self, pod: PlacedPod) -> bool:
        """Whether a pod is not a VM's start: the VM has run a moment ago, or another pod of it is still there."""
        self._expire()
        others = self._pods_of.get(pod.of_vm, set()) - {pod.name}
        claim = self._claims.get(pod.of_vm)
        return bool(others) or (claim is not None and claim.has_run)

    def reserve(self, pod: PlacedPod, *, has_run: bool = False) -> None:
        """A pod is about to be created: its room is not free any more."""
        if pod.name in self._pods or not pod.vm or self._pods_of.get(pod.of_vm):
            return
        kept = self._claims.get(pod.of_vm)
        seconds = _KEPT_SECONDS[ALWAYS] if has_run else RESERVED_SECONDS
        until = max(self._now() + seconds, kept.until if kept and kept.has_run else 0)
        self._claim(pod.of_vm, _Claim(msgspec.structs.replace(pod, node=""), until, has_run))

    def release(self, pod: PlacedPod) -> None:
        """A pod that was about to be created will not be."""
        claim = self._claims.get(pod.of_vm)
        if claim and not claim.has_run:
            self._drop_claim(pod.of_vm)

    def usages(self, namespace: str) -> list[tuple[NamespacedName, PodUsage]]:
        """What the pod of each VM of a namespace counts for in its quotas, by the VM."""
        vms = sorted(self._by_namespace.get(namespace, ()))
        return [(vm, self._pods[name].usage) for vm in vms for name in sorted(self._pods_of[vm])[:1]]

    def reserved_usages(self, namespace: str, but: NamespacedName) -> list[PodUsage]:
        """What those pods of a namespace will count for that are about to be created, but that of one VM."""
        return [
            claim.pod.usage
            for name, claim in self._claims.items()
            if name[0] == namespace and name != but and claim.pod and not claim.has_run
        ]

    def _claim(self, vm: NamespacedName, claim: _Claim) -> None:
        self._state += 1
        self._set_claim(vm, claim)

    def _drop_claim(self, vm: NamespacedName) -> None:
        if vm in self._claims:
            self._state += 1
            self._set_claim(vm, None)

    def _set_claim(self, vm: NamespacedName, claim: _Claim | None) -> None:
        before = self._claims.pop(vm, None)
        if claim is not None:
            self._claims[vm] = claim
        for model in self._models():
            if claim and claim.pod:
                model.put(vm_key(vm), claim.pod)
            elif before:
                model.remove(vm_key(vm))

    def _expire(self) -> None:
        now = self._now()
        for vm in [vm for vm, claim in self._claims.items() if claim.until <= now]:
            self._drop_claim(vm)

    # -- the question --------------------------------------------------------------------------------------------------

    def peek(self, pod: PlacedPod) -> Verdict | None:
        """What the start of one more VM does, if that is known at once; ``pod`` does not exist yet."""
        self._expire()
        if pod.is_complex:
            return self._counted(Verdict("not-proven"))
        denial = self._denied.get(pod.of_vm)
        if denial and denial.state == self._state and denial.pod == _without_name(pod):
            return self._counted(denial.verdict)
        if self._has_to_rebuild:
            return None
        try:
            found = StepBudget(_STEPS_AT_ONCE).run(self._judge_by_room, pod)
        except TooComplex:
            return None
        if not isinstance(found, Verdict):
            return None
        # It may be denied for a start about which nothing is decided.
        return None if found.denies and self._deciding else self._counted(found)

    def decide(self, asked: AskedStart, most: int = MAX_STEPS) -> Slices[Verdict]:
        """What the start of one more VM does, in slices.

        It is what it does to the cluster at a moment between the first slice and the last. Meanwhile the VM holds its
        room, and goes on to hold it if its start is not denied. No other start can be decided at the same time.

        Args:
            asked: the start.
            most: the steps that the answer may take. `OutOfSteps`, thrown in, ends it as too many steps do.
        """
        assert self._deciding is None
        self._expire()
        pod = asked.pod
        self._deciding = vm = pod.of_vm
        before, held = self._claims.get(vm), None
        if not self._pods_of.get(vm):
            until = self._now() + RESERVED_SECONDS
            held = _Claim(msgspec.structs.replace(pod, node=""), until, has_run=False)
            self._set_claim(vm, held)
        try:
            verdict = yield from self._decide(pod, most)
            if held and self._claims.get(vm) is held:
                if verdict.denies or asked.is_dry_run:
                    self._set_claim(vm, before)
                else:
                    self._state += 1
            return self._counted(verdict)
        finally:
            self._deciding = None

    def give_up(self, asked: AskedStart) -> Verdict:
        """The verdict on a start for which there is no time."""
        if not asked.is_dry_run:
            self.reserve(asked.pod)
        return self._counted(Verdict("not-proven"))

    @outside_budgets
    def judge(self, pod: PlacedPod, most: int = MAX_STEPS) -> Verdict:
        """As `decide` for a dry run, at once."""
        verdict = self.peek(pod)
        if verdict is not None:
            return verdict
        deciding = self.decide(AskedStart(pod, is_dry_run=True), most)
        while True:
            try:
                next(deciding)
            except StopIteration as returned:
                verdict = returned.value
                assert isinstance(verdict, Verdict)
                return verdict

    def _decide(self, pod: PlacedPod, most: int) -> Slices[Verdict]:
        try:
            losses = yield from self._caught_up()
        except OutOfSteps:
            return Verdict("not-proven")
        # Until the next slice nothing changes: the room, and what is simulated, are of the same state.
        state, found = self._state, self._judge_by_room(pod)
        if isinstance(found, Verdict):
            return found
        for _ in losses.catch_up():
            pass
        steps = Steps(most)
        verdict = yield from steps.pay(judge_by_simulation(losses, self._start(pod), found, steps))
        if verdict.denies and not verdict.shortage:
            self._denied[pod.of_vm] = _Denial(state, _without_name(pod), verdict)
        return verdict

    def _caught_up(self) -> Slices[Losses]:
        """What losses are simulated with, as the model is when this returns."""
        while True:
            if self._has_to_rebuild:
                self._is_outdated = True
                yield from self.rebuild()
            assert self._model
            losses = self._losses
            if losses is None or not losses.follows(self._model):
                losses = self._losses = Losses(self._model)
            yield from losses.catch_up()
            if losses is self._losses and losses.follows(self._model) and not self._has_to_rebuild:
                return losses

    def _judge_by_room(self, pod: PlacedPod) -> Verdict | Doubts:
        model, own = self._current(), self._claims.get(pod.of_vm)
        key = vm_key(pod.of_vm)
        # An earlier attempt to start it, or what it holds while this is decided.
        model.remove(key)
        try:
            return judge_by_room(model, self._start(pod))
        finally:
            if own and own.pod:
                model.put(key, own.pod)

    def _start(self, pod: PlacedPod) -> Start:
        # One that has just been created, or switched on, may not be known yet as it is.
        known = self._vms.get(pod.of_vm, _UNKNOWN)
        return Start(vm_key(pod.of_vm), pod, (_UNKNOWN if known.is_stopped else known).restarts)

    def _counted(self, verdict: Verdict) -> Verdict:
        self.verdicts[verdict.kind] += 1
        return verdict


def _without_name(pod: PlacedPod) -> PlacedPod:
    return msgspec.structs.replace(pod, name=(pod.name[0], ""))


def of_objects(
    now: Callable[[], float],
    nodes: Iterable[NodeWithoutImages],
    pods: Iterable[PlacedPod],
    vms: Iterable[tuple[NamespacedName, KnownVm]],
    version: KubernetesVersion = NEWEST,
) -> Headroom:
    """The headroom of a cluster at one moment, of which no VM has just ended."""
    headroom = Headroom(now, version)
    for node in nodes:
        headroom.put_node(node)
    for name, vm in vms:
        headroom.put_vm(name, vm)
    for pod in pods:
        headroom.put_pod(pod)
    return headroom


def of_views(
    now: Callable[[], float],
    nodes: Iterable[NodeWithoutImages],
    pods: Iterable[RunningPod],
    vms: Iterable[StartedVm],
) -> Headroom:
    """The same, of the objects as they are read."""
    placed = (found for pod in pods if (found := read_pod(pod)))
    return of_objects(now, nodes, placed, (((vm.meta.namespace or "", vm.meta.name or ""), read_vm(vm)) for vm in vms))
