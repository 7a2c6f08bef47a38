"""What one review may know about the cluster, and how a policy reads it.

A policy is a coroutine that awaits facts and nothing else. It needs no event loop: whoever evaluates it drives it by
hand, by ``coroutine.send``. What is in memory is answered at once. For the rest the coroutine suspends with a batch of
keys, and goes on with their answers where it left off. `webhook.review.driver` answers batches from a cluster, and
`from_memory` drives a coroutine that finds everything in memory.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, overload

import msgspec

from webhook.admission.step_budget import StepBudget
from webhook.admission.wire import UserInfo
from webhook.errors import Unavailable
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Namespace, Object
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.types.views import VirtualMachineInstance
from webhook.placement.additions import NO_ADDITIONS, Additions
from webhook.placement.headroom.headroom import AskedStart, Headroom
from webhook.placement.headroom.verdicts import Verdict
from webhook.placement.index import NodeIndex
from webhook.placement.machines import LauncherPod, Vmi

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
V = TypeVar("V", bound=Object)

NOT_READ: Final = object()


class Unreadable(Exception):  # noqa: N818 - a state of affairs
    """A policy needs a fact that could not be read; it must not take that for the fact's absence.

    What no handler catches is answered as the endpoint's ``on_error`` says.

    Args:
        why: the cause as a clause.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Key(msgspec.Struct, Generic[T], frozen=True):
    """Names one fact of type ``T``. Subclasses are values: equal fields, equal key."""


class ObjectKey(Key[V], frozen=True):
    """One object; None: there is none. From an informer that has it, else, or if ``uncached``, from the API server."""

    resource: Resource[V]
    namespace: str
    name: str
    uncached: bool = False


class NamespaceKey(Key[Namespace], frozen=True):
    """A namespace from the informer, or, where that lacks it or if ``uncached``, from the API server itself.

    The informer keeps this server's labels and annotations alone. A policy that reads others asks for an `ObjectKey`.
    """

    name: str
    uncached: bool = False


class VmiKey(Key[VirtualMachineInstance], frozen=True):
    """A VMI whose UID the asker knows. Its scheduler choice cannot change, so it may come from a cache by UID.

    Whether the VMI of that name still has this UID is for the asker to compare.
    """

    namespace: str
    name: str
    uid: str


class KubeVirtKey(Key[KubeVirtInstall], frozen=True):
    """KubeVirt's installation in the cluster: where it runs, and its configuration; None where there is no KubeVirt."""


class NodesKey(Key[NodeIndex], frozen=True):
    """All nodes, from the informer; `Unavailable` while it is not up to date, since no other way would end in time.

    The index is the informer's own and goes on changing. So nothing that was taken from it may be held across an
    await: whoever decides by it reads everything else first, and then looks at it.
    """


class HeadroomKey(Key[Headroom], frozen=True):
    """What room there is for what any one node carries; `Unavailable` where it is not watched, or not up to date.

    It goes on changing, as `NodesKey` says of nodes.
    """


class VerdictKey(Key[Verdict], frozen=True):
    """What a VM's start does, where `Headroom.peek` does not know it: to find out takes a while.

    A start that is not denied holds its room from then on, unless `judge` gives the answer, which is the same at once.
    """

    headroom: Headroom
    start: AskedStart

    def judge(self) -> Verdict:
        """The verdict, for whoever answers no other question meanwhile."""
        return self.headroom.judge(self.start.pod)


class ListKey(Key[tuple[V, ...]], frozen=True):
    """The objects of one namespace, or of all, that carry a label; from where an `ObjectKey`'s come.

    Attributes:
        namespace: empty: all namespaces.
        label: ``KEY=VALUE``; empty: whatever their labels.
        field: ``PATH=VALUE`` of a field that the API server can select by; empty: whatever is in it. Only API servers
            know which: elsewhere it selects nothing, so whoever asks looks at the field, too.
    """

    resource: Resource[V]
    namespace: str
    label: str = ""
    uncached: bool = False
    field: str = ""


class AccessKey(Key[bool], frozen=True):
    """Whether RBAC lets a user do something, by a SubjectAccessReview of the API server.

    Attributes:
        user: the user's name, as the request has it.
        groups: the user's groups, as the request has them.
        uid: the user's UID, as the request has it.
        extra: the user's extra attributes; sorted, so that equal users are equal keys.
        verb: the verb as RBAC names it.
        group: the API group of the resource; empty: the core group.
        resource: the plural name of the resource.
        namespace: empty: all namespaces, or a cluster-scoped resource.
        name: the name of one object; empty: any.
        path: the path of a URL that is not a resource's; group and resource are empty then.
    """

    user: str
    groups: tuple[str, ...]
    uid: str
    extra: tuple[tuple[str, tuple[str, ...]], ...]
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    path: str = ""

    @classmethod
    def of(cls, user: UserInfo, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> AccessKey:
        """The key for the user of a request; arguments as the attributes."""
        extra = tuple(sorted((key, tuple(values)) for key, values in (user.extra or {}).items()))
        return cls(user.username, tuple(user.groups or ()), user.uid, extra, verb, group, resource, namespace, name)

    @classmethod
    def of_path(cls, user: UserInfo, verb: str, path: str) -> AccessKey:
        """The key for a verb on an absolute path of no resource, such as ``/metrics``."""
        return msgspec.structs.replace(cls.of(user, verb, "", ""), path=path)

    def __str__(self) -> str:
        of = f".{self.group}" if self.group else ""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.path or self.resource}{of}{where}"


class TokenKey(Key[UserInfo], frozen=True):
    """The user of a bearer token, by a TokenReview of the API server; None: the token is not valid.

    The token shows in no text of the key, which may end up in a log.
    """

    token: str

    def __repr__(self) -> str:
        return "TokenKey(...)"


class SchedulerHealth(msgspec.Struct, frozen=True):
    """The health of one declared scheduler.

    Attributes:
        state: ``unknown`` until the first answer, or when what is watched cannot be read.
        why: the evidence, as a clause.
    """

    state: Literal["available", "unavailable", "unknown"]
    why: str


class SchedulerKey(Key[SchedulerHealth], frozen=True):
    """The health of a scheduler by profile name; None if the settings do not declare it.

    Attributes:
        namespace: the namespace of the pods to place, whose own pods count more there; empty: the cluster as a whole.
    """

    name: str
    namespace: str = ""


# Keys that are read at the same time.
Batch: TypeAlias = tuple[Key[Any], ...]


@types.coroutine
def _answers(batch: Batch) -> Generator[Batch, Sequence[object], Sequence[object]]:
    """What a batch's keys are answered, in their order, by whoever drives the coroutine that awaits this."""
    return (yield batch)


# Awaits facts: what policies add to the launcher pods of a VMI, of which one may run already, in a namespace.
FindAdditions: TypeAlias = Callable[["Vmi", "LauncherPod | None", str, "Facts"], Awaitable[Additions]]


async def find_none(_vmi: Vmi, _pod: LauncherPod | None, _namespace: str, _facts: Facts) -> Additions:
    """What is added where there is no policy that adds anything."""
    return NO_ADDITIONS


class Facts:
    """The facts of one review: each is read once, unless `again`, and a later answer never replaces an earlier one.

    Args:
        now: Unix time of the review in seconds; policies have no clock of their own.
        peek: answers a key at once, from memory, or with `NOT_READ`.
        verified: whether the caller has proved that it is the API server, or is the user of this process. Else the user
            of the request is only what the caller claims, and no permission of that user shows anything to the caller.
        additions: what policies add to the pods of a VM, of whatever policies there are.

    Attributes:
        remembered: the keys that were answered from memory.
        budget: the steps that the review may take.
    """

    __slots__ = ("_is_uncached", "_peek", "_values", "additions", "budget", "now", "remembered", "verified")

    def __init__(
        self,
        now: float = 0.0,
        peek: Callable[[Key[Any]], object] = lambda _: NOT_READ,
        *,
        verified: bool = True,
        additions: FindAdditions = find_none,
    ) -> None:
        self.now: Final = now
        self.additions: Final = additions
        self.verified: Final = verified
        self.remembered: list[Key[Any]] = []
        self.budget = StepBudget()
        self._values: dict[Key[Any], object] = {}
        self._peek = peek
        self._is_uncached = False

    @classmethod
    def of(
        cls,
        values: Mapping[Key[Any], object],
        now: float = 0.0,
        *,
        verified: bool = True,
        additions: FindAdditions = find_none,
    ) -> Facts:
        """Facts known beforehand, as if they had been read for this review."""
        facts = cls(now, verified=verified, additions=additions)
        facts._learn(values.items())
        return facts

    async def get(self, key: Key[T]) -> T | None | Unavailable:
        """The fact, None if there is none (the key says what that means), or why it is not to be had."""
        if self._is_uncached:
            key = uncached_key(key)
        value: Any = self._known(key)
        if value is NOT_READ:
            self._learn(zip((key,), await _answers((key,)), strict=True))
            value = self._values[key]
        # An annotation tells the type: `cast` would be a call at each look-up.
        fact: T | None | Unavailable = value
        return fact

    @overload
    async def all(
        self, first: Key[T1], second: Key[T2], /
    ) -> tuple[T1 | None | Unavailable, T2 | None | Unavailable]: ...
    @overload
    async def all(
        self, first: Key[T1], second: Key[T2], third: Key[T3], /
    ) -> tuple[T1 | None | Unavailable, T2 | None | Unavailable, T3 | None | Unavailable]: ...
    @overload
    async def all(self, *keys: Key[T]) -> tuple[T | None | Unavailable, ...]: ...
    async def all(self, *keys: Key[Any]) -> tuple[Any, ...]:
        """Several facts in the order of their keys; those that are not in memory are read at the same time."""
        await self.prefetch(*keys)
        return tuple([await self.get(key) for key in keys])

    async def prefetch(self, *keys: Key[Any]) -> None:
        """Have several facts read at the same time that are looked at later, one by one."""
        if self._is_uncached:
            keys = tuple(map(uncached_key, keys))
        missing = tuple(dict.fromkeys(key for key in keys if self._known(key) is NOT_READ))
        if missing:
            self._learn(zip(missing, await _answers(missing), strict=True))

    async def again(self, key: Key[T]) -> T | None | Unavailable:
        """A fact as the API server has it now, where what this review has read before may have changed meanwhile."""
        answers: Sequence[Any] = await _answers((uncached_key(key),))
        answer: T | None | Unavailable = answers[0]
        return answer

    def uncached(self) -> Facts:
        """These facts, with objects and lists read from the API server instead of from memory.

        What was read for the review is not read again.
        """
        cls = type(self)
        facts = cls(self.now, self._peek, verified=self.verified, additions=self.additions)
        facts.remembered, facts.budget, facts._values = self.remembered, self.budget, self._values
        facts._is_uncached = True
        return facts

    def informer_keys(self) -> list[ObjectKey[Any] | ListKey[Any]]:
        """The objects and lists that were answered from memory, and so may be a moment old."""
        return [key for key in self.remembered if isinstance(key, ObjectKey | ListKey) and not key.uncached]

    def _known(self, key: Key[Any]) -> object:
        """The fact if it is in memory, else `NOT_READ`."""
        value = self._values.get(key, NOT_READ)
        if value is NOT_READ:
            value = self._peek(key)
            if value is not NOT_READ:
                self._values[key] = value
                self.remembered.append(key)
        return value

    def _learn(self, answers: Iterable[tuple[Key[Any], object]]) -> None:
        """Remember what was read; the first answer stands. What comes from the API server answers either key."""
        for key, value in answers:
            self._values.setdefault(key, value)
            if isinstance(key, ObjectKey | ListKey):
                self._values.setdefault(msgspec.structs.replace(key, uncached=not key.uncached), value)


def uncached_key(key: Key[T]) -> Key[T]:
    """The key of an object or list, to be read from the API server itself instead of from an informer; others as is."""
    return msgspec.structs.replace(key, uncached=True) if isinstance(key, ObjectKey | ListKey) else key


class NotInMemory(Exception):  # noqa: N818 - a state of affairs
    """A coroutine needs facts that are not in memory. Its driver raises this, so that the coroutine never sees it.

    Args:
        batch: the first of the batches that it needs.
    """

    def __init__(self, batch: Batch) -> None:
        super().__init__(f"not in memory: {', '.join(map(repr, batch))}")
        self.batch: Final = batch


def advance(coroutine: Coroutine[Any, Any, Any], answers: Sequence[object] | None = None) -> Batch:
    """Let a coroutine go on with the answers to its last batch, None at first, and return the batch that it needs next.

    Raises:
        StopIteration: it has returned; the value is what it has returned.
        RuntimeError: it awaits something else than facts, which is a bug. It has been closed.
    """
    batch: object = coroutine.send(answers)
    if not (isinstance(batch, tuple) and batch and all(isinstance(key, Key) for key in batch)):
        coroutine.close()
        raise RuntimeError(f"a policy awaits something that is not a fact: {batch!r}")
    return batch


def from_memory(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that finds in memory all facts that it needs; else a `NotInMemory`."""
    try:
        batch = advance(coroutine)
    except StopIteration as returned:
        result: T = returned.value
        return result
    coroutine.close()
    raise NotInMemory(batch)
