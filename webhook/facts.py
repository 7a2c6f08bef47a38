"""What one review may know about the cluster, and how a policy reads it without waiting.

A policy is a plain function. When it needs a fact that has not been read, `Facts.get` raises `NotRead`; the Reviewer
reads it and runs the policy again. Policies are deterministic and every answer is remembered for the whole review, so a
replay takes the same way up to the new fact: conditions are written once and no policy awaits anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from webhook.admission.step_budget import StepBudget
from webhook.admission.wire import UserInfo
from webhook.errors import Unavailable
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Namespace, Object
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.types.views import VirtualMachineInstance
from webhook.placement.index import NodeIndex

T = TypeVar("T")
V = TypeVar("V", bound=Object)

NOT_READ: Final = object()


class Key(msgspec.Struct, Generic[T], frozen=True):
    """Names one fact of type ``T``. Subclasses are values: equal fields, equal key."""


class ObjectKey(Key[V], frozen=True):
    """One object: from an informer that has it, else, or if ``fresh``, from the API server itself."""

    resource: Resource[V]
    namespace: str
    name: str
    fresh: bool = False


class NamespaceKey(Key[Namespace], frozen=True):
    """A namespace from the informer, or, where that lacks it or if ``fresh``, from the API server itself."""

    name: str
    fresh: bool = False


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
    """All nodes, from the informer: for hints and explanations."""


class ListKey(Key[tuple[V, ...]], frozen=True):
    """The objects of one namespace, or of all, that carry a label; from where an `ObjectKey`'s come.

    Attributes:
        namespace: empty: all namespaces.
        label: ``KEY=VALUE``; empty: whatever their labels.
    """

    resource: Resource[V]
    namespace: str
    label: str = ""
    fresh: bool = False


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


class NotRead(BaseException):
    """A policy needs facts that have not been read. A BaseException, so that no ``except Exception`` swallows it.

    Args:
        keys: the facts to read.
    """

    def __init__(self, keys: tuple[Key[Any], ...]) -> None:
        super().__init__(keys)
        self.keys: Final = keys


class Facts:
    """The facts of one review: each is read at most once, and a later answer never replaces an earlier one.

    Args:
        now: Unix time of the review in seconds; policies have no clock of their own.
        peek: answers a key at once, from memory, or with `NOT_READ`.
        verified: whether the caller has proved that it is the API server, or is the user of this process. Else the user
            of the request is only what the caller claims, and no permission of that user shows anything to the caller.

    Attributes:
        remembered: the keys that were answered from memory.
        budget: the steps that the review may take, in all its rounds.
    """

    __slots__ = ("_peek", "_values", "budget", "now", "remembered", "verified")

    def __init__(
        self, now: float = 0.0, peek: Callable[[Key[Any]], object] = lambda _: NOT_READ, *, verified: bool = True
    ) -> None:
        self.now: Final = now
        self.verified: Final = verified
        self._values: dict[Key[Any], object] = {}
        self._peek = peek
        self.remembered: Final[list[Key[Any]]] = []
        self.budget: Final = StepBudget()

    @classmethod
    def of(cls, values: Mapping[Key[Any], object], now: float = 0.0, *, verified: bool = True) -> Facts:
        """Facts known beforehand, for tests; asking for any other raises `NotRead`."""
        facts = cls(now, verified=verified)
        facts._values.update(values)
        return facts

    def get(self, key: Key[T]) -> T | None | Unavailable:
        """The fact, None if the API server said 404, or why it is not to be had.

        Raises:
            NotRead: it has not been read yet; for the Reviewer alone to handle.
        """
        values = self._values
        value: Any = values.get(key, NOT_READ)
        if value is NOT_READ:
            value = self._peek(key)
            if value is NOT_READ:
                raise NotRead((key,))
            values[key] = value
            self.remembered.append(key)
        # No `cast`, which is a call.
        fact: T | None | Unavailable = value
        return fact

    def has_read(self, key: Key[Any]) -> bool:
        """Whether a fact was read for this review, and not answered from memory."""
        return key in self._values and key not in self.remembered

    def informer_keys(self) -> list[ObjectKey[Any] | ListKey[Any]]:
        """The objects and lists that were answered from memory, and so may be a moment old."""
        return [key for key in self.remembered if isinstance(key, ObjectKey | ListKey) and not key.fresh]

    def fresh(self) -> Facts:
        """These facts, with objects and lists read from the API server instead of from memory."""
        return _FreshFacts(self)

    def need(self, *keys: Key[Any]) -> None:
        """Declare several facts at once, to be read concurrently; `NotRead` where some have not been read yet."""
        missing: list[Key[Any]] = []
        for key in keys:
            try:
                self.get(key)
            except NotRead as not_read:
                missing += not_read.keys
        if missing:
            raise NotRead(tuple(dict.fromkeys(missing)))

    def learn(self, key: Key[T], value: T | None | Unavailable) -> None:
        """Remember what was read. The first answer stands: a replay must not see the world change."""
        self._values.setdefault(key, value)


class _FreshFacts(Facts):
    """Facts of a review that never come from an informer. What was read for the review is not read again."""

    __slots__ = ("_facts",)

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts.now, verified=facts.verified)
        self._facts = facts

    def get(self, key: Key[T]) -> T | None | Unavailable:
        facts = self._facts
        return facts.get(uncached_key(key) if isinstance(key, ObjectKey | ListKey) and not facts.has_read(key) else key)

    def fresh(self) -> Facts:
        return self


def uncached_key(key: Key[T]) -> Key[T]:
    """The key of an object or list, to be read from the API server itself instead of from an informer."""
    return msgspec.structs.replace(key, fresh=True)
