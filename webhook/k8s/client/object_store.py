"""Where an informer keeps its objects, by name: up to a number, or up to so many bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from webhook.k8s.views import Object

V = TypeVar("V", bound=Object)

ObjectName = tuple[str, str]  # namespace (empty for cluster-wide kinds), name


class ObjectStore(Protocol[V]):
    """Where a `webhook.k8s.client.reflector.Reflector` keeps its objects; each list begins with a new one."""

    def get(self, name: ObjectName) -> V | None:
        """The object of a name; None where it is not kept."""

    def put(self, name: ObjectName, view: V) -> bool:
        """Keep an object in the place of another one of its name; False, and neither is kept, where it is too much."""

    def drop(self, name: ObjectName) -> V | None:
        """Forget an object that is gone; returns what was kept of it."""

    def reject(self, name: ObjectName) -> None:
        """Forget an object that is there and is not to be kept."""

    def names(self) -> Iterable[ObjectName]:
        """The names of what is kept."""

    def __iter__(self) -> Iterator[V]: ...

    def __len__(self) -> int: ...


class CountLimitedStore(ObjectStore[V]):
    """Keeps objects up to a number.

    Args:
        most: objects; what comes beyond is not kept.
    """

    def __init__(self, most: int = sys.maxsize) -> None:
        self._most: Final = most
        self._kept: Final[dict[ObjectName, V]] = {}

    def get(self, name: ObjectName) -> V | None:
        """What is kept of an object; None where nothing is."""
        return self._kept.get(name)

    def put(self, name: ObjectName, view: V) -> bool:
        """Keep an object under a name; False where the store is full and the name is not in it yet."""
        if name not in self._kept and len(self._kept) >= self._most:
            return False
        self._kept[name] = view
        return True

    def drop(self, name: ObjectName) -> V | None:
        """Remove an object, which the API server has deleted.

        Returns:
            What was kept of it; None where nothing was.
        """
        return self._kept.pop(name, None)

    def reject(self, name: ObjectName) -> None:
        """Remove an object that exists but cannot be kept, for example because it is too large."""
        self._kept.pop(name, None)

    def names(self) -> Iterable[ObjectName]:
        """The names of all objects that are kept."""
        return self._kept

    def __iter__(self) -> Iterator[V]:
        return iter(self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)


class ByteLimitedStore(ObjectStore[V], Generic[V]):
    """Keeps objects up to a number of bytes, in all and for each namespace: tenants write them.

    Args:
        cost: the bytes that an object takes.
        in_all: bytes at most.
        a_namespace: bytes at most; cluster-wide objects share one such part.

    Attributes:
        size: the bytes of what is kept.
    """

    def __init__(self, cost: Callable[[V], int], in_all: int, a_namespace: int) -> None:
        self._cost: Final = cost
        self._in_all: Final = in_all
        self._a_namespace: Final = a_namespace
        self._kept: Final[dict[str, dict[str, V]]] = {}
        self._sizes: Final[dict[str, int]] = {}
        self._incomplete: Final[set[str]] = set()
        self.size = 0

    def get(self, name: ObjectName) -> V | None:
        """What is kept of an object; None where nothing is."""
        kept = self._kept.get(name[0])
        return kept.get(name[1]) if kept else None

    def all_of(self, namespace: str) -> list[V] | None:
        """The objects of a namespace, by name; None where one of them was not kept."""
        if namespace in self._incomplete:
            return None
        kept = self._kept.get(namespace) or {}
        return [kept[name] for name in sorted(kept)]

    def put(self, name: ObjectName, view: V) -> bool:
        """Keep an object under a name; False where its namespace or the whole store has no bytes left.

        The namespace then counts as incomplete.
        """
        self.drop(name)
        namespace, cost = name[0], self._cost(view)
        taken = self._sizes.get(namespace, 0) + cost
        if taken > self._a_namespace or self.size + cost > self._in_all:
            self._incomplete.add(namespace)
            return False
        self._kept.setdefault(namespace, {})[name[1]] = view
        self._sizes[namespace] = taken
        self.size += cost
        return True

    def drop(self, name: ObjectName) -> V | None:
        """Remove an object, which the API server has deleted, and free its bytes.

        Returns:
            What was kept of it; None where nothing was.
        """
        namespace = name[0]
        kept = self._kept.get(namespace) or {}
        view = kept.pop(name[1], None)
        if view is None:
            return None
        cost = self._cost(view)
        self.size -= cost
        self._sizes[namespace] -= cost
        if not kept:
            del self._kept[namespace], self._sizes[namespace]
        return view

    def reject(self, name: ObjectName) -> None:
        """Remove an object that exists but cannot be kept; its namespace counts as incomplete."""
        self.drop(name)
        self._incomplete.add(name[0])

    def names(self) -> Iterable[ObjectName]:
        """The names of all objects that are kept, namespace by namespace."""
        return ((namespace, name) for namespace, kept in self._kept.items() for name in kept)

    def __iter__(self) -> Iterator[V]:
        return (view for kept in self._kept.values() for view in kept.values())

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))


def report_changes(
    former: ObjectStore[V], fresh: ObjectStore[V], report: Callable[[V | None, V | None], None]
) -> Iterator[None]:
    """Report the changes from one copy to another; each step is about one object.

    Args:
        former: the copy until now.
        fresh: the copy from now on.
        report: gets what there was of an object, and what there is; None for nothing.
    """
    for name in former.names():
        if fresh.get(name) is None:
            report(former.get(name), None)
        yield
    for name in fresh.names():
        old, view = former.get(name), fresh.get(name)
        if old != view:
            report(old, view)
        yield
