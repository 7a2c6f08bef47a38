"""A cluster that has an answer to every question, so that any review comes to its end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tests.builders import AVAILABLE, UNAVAILABLE, Json, read_node
from tests.policies.eviction import world as eviction
from tests.policies.instancetypes import world as sizes
from tests.policies.migration import world as placement
from tests.review.memory import MemoryCluster
from webhook import facts, names
from webhook.errors import Unavailable
from webhook.k8s.types.meta import Namespace, ObjectMeta
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.types.views import VirtualMachineInstance, VmiSpec
from webhook.placement.index import NodeIndex

POLICIES = (names.SCHEDULING, names.INSTANCETYPES, names.MIGRATION, names.EVICTION)
# With defaults and an allow-list, with expansion, and without anything.
PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "defaults": {
        names.DEFAULT_INSTANCETYPE_ANNOTATION: "u1.small",
        names.DEFAULT_PREFERENCE_ANNOTATION: "fedora",
        names.ALLOWED_INSTANCETYPES_ANNOTATION: "u1.*, VirtualMachineInstancetype/*",
    },
    "expansion": {
        names.DEFAULT_INSTANCETYPE_ANNOTATION: "u1.small",
        names.EXPAND_INSTANCETYPES_ANNOTATION: "true",
        names.SCHEDULER_NAME_ANNOTATION: "batch",
    },
    "nothing": {},
}
STATES = ("known", "absent", "unreadable", "hostile")
_NODES = NodeIndex(read_node(one) for one in placement.NODES)
_WATCHED = (facts.NamespaceKey, facts.KubeVirtKey, facts.NodesKey, facts.SchedulerKey)


class FuzzWorld(MemoryCluster):
    """Answers like a cluster in which all policies have one mode.

    Args:
        state: of what is read beside the object.
        spoil: makes an object hostile, where the state is so.

    Attributes:
        size: the bytes of all objects that were read, which a review's work may grow with as with its own.
    """

    def __init__(self, mode: str, parameters: str, state: str, spoil: Callable[[Json], Json] = lambda it: it) -> None:
        super().__init__({})
        self._labels = {names.policy_label(policy): mode for policy in POLICIES}
        self._annotations = dict(PARAMETERS[parameters])
        self._state = state
        self._spoil = spoil
        self.size = 0

    def peek(self, key: facts.Key[Any]) -> object:
        return self._answer(key) if isinstance(key, _WATCHED) else facts.NOT_READ

    async def read(self, key: facts.Key[Any], deadline: float) -> Any:
        # Making an object hostile takes far more calls than reviewing it, and is not work of the review.
        counting = sys.getprofile()
        sys.setprofile(None)
        try:
            return self._answer(key)
        finally:
            sys.setprofile(counting)

    def _answer(self, key: facts.Key[Any]) -> Any:
        if isinstance(key, facts.NamespaceKey):
            return Namespace(ObjectMeta(name=key.name, labels=self._labels, annotations=self._annotations))
        if isinstance(key, facts.KubeVirtKey):
            return KubeVirtInstall(frozenset({"kubevirt"}))
        if isinstance(key, facts.NodesKey):
            return _NODES
        if isinstance(key, facts.SchedulerKey):
            return UNAVAILABLE if self._state == "unreadable" else AVAILABLE
        return self._read(key)

    def _read(self, key: facts.Key[Any]) -> Any:
        if self._state == "unreadable":
            return Unavailable("no answer in time")
        if isinstance(key, facts.AccessKey):
            return self._state == "known"
        if self._state == "absent" or isinstance(key, facts.TokenKey):
            return () if isinstance(key, facts.ListKey) else None
        if isinstance(key, facts.VmiKey):
            return VirtualMachineInstance(ObjectMeta(name=key.name, uid=key.uid), VmiSpec(None))
        if isinstance(key, facts.ListKey):
            found = [self._converted(key.resource, key.namespace, f"one-{number}") for number in range(3)]
            return tuple(one for one in found if not isinstance(one, Unavailable))
        if isinstance(key, facts.ObjectKey):
            return self._converted(key.resource, key.namespace, key.name)
        raise AssertionError(f"a kind of key that is not known here: {key}")

    def _converted(self, resource: Any, namespace: str, name: str) -> Any:
        plain = _object(resource.kind, name)
        plain["metadata"] = {**plain.get("metadata", {}), "name": name}
        if namespace:
            plain["metadata"]["namespace"] = namespace
        if self._state == "hostile":
            plain = self._spoil(plain)
        try:
            # As it would come over the wire.
            body = msgspec.json.encode(plain)
            self.size += len(body)
            return msgspec.json.decode(body, type=resource.view)
        except (msgspec.MsgspecError, RecursionError, ValueError, TypeError):
            return Unavailable("it can't be decoded")


def _object(kind: str, name: str) -> Json:
    if kind.endswith("nstancetype"):
        return sizes.instancetype(name, kind)
    if kind.endswith("Preference"):
        return sizes.preference(name, kind)
    if kind == "ControllerRevision":
        return sizes.revision(name, sizes.instancetype())
    if kind == "VirtualMachineInstance":
        return placement.vmi()
    if kind == "VirtualMachineInstanceMigration":
        return eviction.migration(name=name)
    if kind == "VirtualMachine":
        return sizes.vm(instancetype=sizes.SMALL)
    return eviction.pod() if kind == "Pod" else {}
