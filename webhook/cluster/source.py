"""What the Reviewer needs of a cluster; `files` and `live` are the two sources of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from webhook.errors import Unavailable
from webhook.facts import Key, NamespaceKey
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Namespace

T = TypeVar("T")
# Answers a key before a deadline, in seconds of the running loop's clock.
Reader: TypeAlias = Callable[[Key[Any], float], Awaitable[object]]


class NodeReports(Protocol):
    """What keeps more of each node than placements need; `webhook.images.registry.node_layers.NodeLayers` is one."""

    @property
    def resource(self) -> Resource[Any]:
        """Nodes, as they are to be decoded."""

    def reduce(self, node: Any) -> Any:
        """What is kept of a node."""

    def put(self, name: str, node: Any) -> None:
        """A node is there, or what is kept of it has changed."""

    def remove(self, name: str) -> None:
        """A node is gone."""


class Cluster(Protocol):
    """Answers the keys of `webhook.facts`. None is the API server's 404, `Unavailable` is not knowing.

    Attributes:
        restores: how often etcd has turned out to have been restored from an older copy.
        answers_at_once: whether everything is in memory, so that no answer is waited for.
    """

    restores: int = 0
    answers_at_once: bool = False

    def on_restore(self, act: Callable[[str], None]) -> None:
        """Call this, with a clause about it, each time that etcd turns out to have been restored from an older copy."""
        del act  # unless there is an etcd

    def peek(self, key: Key[Any]) -> object:
        """The answer if it can be given at once from memory, else `webhook.facts.NOT_READ`. Never waits."""

    async def read(self, key: Key[T], deadline: float) -> T | None | Unavailable:
        """The answer, read if need be. Never raises for what goes wrong on the way.

        Past the deadline, in seconds of the running loop's clock, it is `Unavailable`.
        """

    def staleness(self) -> Mapping[str, float]:
        """Seconds since each watch was last up to date, by name; empty where nothing is watched."""
        return {}

    def ages(self, keys: Iterable[Key[Any]]) -> Mapping[str, float]:
        """Seconds since each watch was last up to date, by name, for those that answer these keys."""
        return {}

    def has_namespace(self, name: str) -> bool:
        """Whether a namespace is known to exist, from memory, so that its name is not made up."""
        return isinstance(self.peek(NamespaceKey(name)), Namespace)

    def namespaces(self) -> tuple[Namespace, ...]:
        """All namespaces that are in memory at this moment, for people who look around."""
        return ()

    def waiting_for(self) -> tuple[str, ...]:
        """What is missing before answers can be trusted, in words; empty once ready."""
        return ()
