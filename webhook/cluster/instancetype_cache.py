"""Informers of what VMs name, or get by their labels: instancetypes, preferences and presets.

KubeVirt watches them too, and reads by GET what its stores lack. A kind is watched from its first look-up on: where no
policy needs it, it is not watched. Tenants write most of these objects, so only their spec is kept, as the JSON that
was sent, and only up to a number of bytes; the others are read by GET or list, as without a watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from webhook.facts import NOT_READ, ListKey, ObjectKey
from webhook.k8s.client.api import Transport, decode
from webhook.k8s.client.clock import REAL_TIME, Clock
from webhook.k8s.client.freshness import Fresh
from webhook.k8s.client.reflector import ObjectStore, OnRestore, Reflector
from webhook.k8s.resources import Resource
from webhook.k8s.types.meta import Object
from webhook.kubevirt.resources import NAMED_BY_VMS

MIB: Final = 1024 * 1024
# Of one object's JSON. KubeVirt's own instancetypes have 2 KiB, most of it labels and annotations.
LARGEST_BYTES: Final = 64 * 1024
# Of what is kept, for each kind. A namespace's instancetypes of everyday sizes have room for 300.
NAMESPACE_BYTES: Final = 256 * 1024
NAMESPACED_BYTES: Final = 16 * MIB
CLUSTER_BYTES: Final = 32 * MIB
# What an object takes beside its JSON: its name twice, and places in two dictionaries.
_OVERHEAD_BYTES: Final = 512

Start = Callable[[str, Callable[[], Awaitable[None]]], asyncio.Task[None]]


class _Sent(Object, frozen=True):
    """An object as the API server sends it, its spec not decoded."""

    api_version: str | msgspec.UnsetType = msgspec.UNSET
    kind: str | msgspec.UnsetType = msgspec.UNSET
    spec: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Entry(Object, frozen=True):
    """An object as it is kept: its name, kind and spec as JSON."""

    body: bytes = b""


_RESOURCES: Final[Mapping[str, Resource[Any]]] = {
    resource.path(): msgspec.structs.replace(resource, view=_Sent) for resource in NAMED_BY_VMS
}


class InstancetypeCache:
    """The informers, each from the first look-up of its kind on.

    Args:
        transport: the connection to the API server.
        start: runs a coroutine in a task of the present loop.
        on_restore: as that of `Reflector`.
        clock: the source of monotonic time, and of sleep.

    Attributes:
        informers: those that are watched, by the path of the kind.
    """

    def __init__(self, transport: Transport, start: Start, *, on_restore: OnRestore, clock: Clock = REAL_TIME) -> None:
        self._transport: Final = transport
        self._start: Final = start
        self._on_restore: Final = on_restore
        self._clock: Final = clock
        self._tasks: Final[list[asyncio.Task[None]]] = []
        self.informers: Final[dict[str, Reflector[Any]]] = {}

    def peek(self, key: ObjectKey[Any] | ListKey[Any]) -> object:
        """What the store has, else `webhook.facts.NOT_READ`; the first call for a kind starts its watch."""
        path = key.resource.path()
        if key.uncached or path not in _RESOURCES:
            return NOT_READ
        informer = self.informers[path] if path in self.informers else self._watch(path)
        store = informer.freshness(self._clock.now())
        # While the watch is interrupted, the store may lack what a tenant has just changed.
        if not isinstance(store, Fresh) or store.problem:
            return NOT_READ
        if isinstance(key, ListKey):
            return _list(informer, key)
        stored = informer.get(key.name, key.namespace)
        # One that the store lacks may have been created a moment ago.
        return NOT_READ if stored is None else decode(stored.body, key.resource.view, key.resource.kind)

    def stop(self) -> None:
        """Watch nothing, until something is looked up again."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self.informers.clear()

    def _watch(self, path: str) -> Reflector[Any]:
        resource = _RESOURCES[path]
        parts = (NAMESPACED_BYTES, NAMESPACE_BYTES) if resource.namespaced else (CLUSTER_BYTES, CLUSTER_BYTES)
        informer = self.informers[path] = Reflector(
            self._transport,
            resource,
            store=lambda: ObjectStore(*parts, lambda entry: len(entry.body) + _OVERHEAD_BYTES),
            transform=_entry,
            on_restore=self._on_restore,
            clock=self._clock,
        )
        self._tasks.append(self._start(resource.plural, informer.run))
        return informer


def _list(informer: Reflector[Any], key: ListKey[Any]) -> object:
    """All objects of a namespace, in the order in which the API server lists them."""
    if not key.namespace or key.label or (entries := informer.contents.all_of(key.namespace)) is None:
        return NOT_READ
    objects = [decode(entry.body, key.resource.view, key.resource.kind) for entry in entries]
    return tuple(objects) if all(isinstance(obj, Object) for obj in objects) else NOT_READ


def _entry(sent: _Sent) -> Entry | None:
    """What is kept of an object, without what no policy reads; None for one that is too large."""
    meta, spec = sent.meta, sent.spec
    if isinstance(spec, msgspec.Raw) and len(memoryview(spec)) > LARGEST_BYTES:
        return None
    named = {key: value for key, value in (("name", meta.name), ("namespace", meta.namespace)) if value}
    fields = {"metadata": named, "apiVersion": sent.api_version, "kind": sent.kind, "spec": spec}
    written = {key: value for key, value in fields.items() if value is not msgspec.UNSET}
    return Entry(body=msgspec.json.encode(written))
