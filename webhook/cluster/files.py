"""A cluster objects read from files: what ``kubectl get ... -o yaml`` has written into a directory.

For the command line and for tests, which run policies without a cluster. Everything is read and checked at the start,
so every answer is at hand; nothing in it ages, a Lease is never renewed.
"""

from __future__ import annotations

import difflib
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar, cast, get_args

import msgspec

from webhook import names
from webhook.cluster.configured import Configured
from webhook.cluster.kinds import KINDS, Kind
from webhook.cluster.scheduler_health.waiting_pods import Waiting, WaitingPods, is_listed
from webhook.cluster.source import Cluster
from webhook.errors import InputError, InputErrors, Unavailable, quote
from webhook.facts import (
    AccessKey,
    ConfigurationKey,
    Key,
    KubeVirtInstall,
    KubeVirtKey,
    ListKey,
    NamespaceKey,
    NodesKey,
    ObjectKey,
    PlacementKey,
    SchedulerHealth,
    SchedulerKey,
    VmiKey,
)
from webhook.k8s.client.resources import LEASES, NAMESPACES, Resource
from webhook.k8s.nodes import NodeView
from webhook.k8s.pods import PendingPod
from webhook.k8s.timestamps import unix_time
from webhook.k8s.views import Lease, Namespace, Object
from webhook.k8s.yaml_builder import Document, format_path
from webhook.k8s.yaml_documents import mistakes_of, objects_in, read_documents
from webhook.kubevirt.resources import ACTIVE_VMIS, VMIS
from webhook.kubevirt.views import ActiveVmi, KubeVirt
from webhook.placement import node as placement
from webhook.placement.index import NodeIndex
from webhook.settings.snapshot import SchedulerSettings, Settings

T = TypeVar("T")

# More mistakes than anybody reads.
MAX_MISTAKES: Final = 100

_SUFFIXES: Final = (".yaml", ".yml", ".json", ".yaml.gz", ".yml.gz", ".json.gz")


class FileObject(msgspec.Struct, frozen=True):
    """One object, as it was read and as policies see it."""

    value: dict[str, Any]
    view: Object
    where: str


# Kind, namespace ("" for those without) and name: the kinds' names are unique across their groups.
Index = dict[str, dict[tuple[str, str], FileObject]]


class FilesCluster(Cluster):
    """The objects of some files as a `Cluster` that knows everything at once and never changes.

    Args:
        index: the objects by kind, namespace and name.
        settings: the settings that declare the schedulers.
        clock: Unix time in seconds; how long pods have been waiting is counted up to it.
    """

    def __init__(self, index: Index, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._index: Final = index
        self._settings = settings
        self._clock = clock
        namespaces = frozenset(namespace for namespace, _ in index["KubeVirt"])
        self._install: Final = KubeVirtInstall(namespaces) if namespaces else None
        self._kubevirts: Final = [entry.view for entry in self._entries("KubeVirt") if isinstance(entry.view, KubeVirt)]
        self._configured: Final = Configured(settings.kubevirt_version)
        nodes = (entry.view for entry in self._entries("Node"))
        self._nodes: Final = NodeIndex(placement.Node.of(view) for view in nodes if isinstance(view, NodeView))
        self._pods: Final[dict[str, list[PendingPod]]] = defaultdict(list)
        for pod in (entry.view for entry in self._entries("Pod")):
            if isinstance(pod, PendingPod) and pod.spec and pod.spec.scheduler_name:
                self._pods[pod.spec.scheduler_name].append(pod)

    @classmethod
    def load(
        cls, directory: str | os.PathLike[str], settings: Settings, clock: Callable[[], float] = time.time
    ) -> FilesCluster:
        """Read every YAML and JSON file below a directory, compressed ones (``.gz``) too, or one file.

        Hidden files and directories are passed over, and so are linked directories.

        Raises:
            InputError: there is nothing to read.
            InputErrors: every mistake in what was read.
        """
        index: Index = {name: {} for name in KINDS}
        mistakes: list[InputError] = []
        for document in _objects(Path(directory), mistakes):
            try:
                _add(index, document)
            except InputError as error:
                mistakes.extend(mistakes_of(error))
        if len(mistakes) > MAX_MISTAKES:
            more = InputError(f"{len(mistakes) - MAX_MISTAKES} more mistakes are not shown", os.fspath(directory))
            mistakes[MAX_MISTAKES:] = [more]
        if mistakes:
            raise InputErrors(mistakes)
        if not any(index.values()):
            raise InputError("holds no objects", os.fspath(directory), "write some there with kubectl get -o yaml")
        return cls(index, settings, clock)

    def use(self, settings: Settings) -> None:
        """Use other settings from now on."""
        self._settings = settings
        self._configured.use(settings.kubevirt_version)

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind as plain JSON, in the order of the files; not to be changed.

        Raises:
            KeyError: no file can hold this kind; see `KINDS`.
        """
        return [entry.value for entry in self._entries(kind)]

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """One object as plain JSON, not to be changed; None if there is none.

        Args:
            kind: one of `KINDS`.
            namespace: empty for objects without.
            name: the object's name.

        Raises:
            KeyError: no file can hold this kind.
        """
        entry = self._index[kind].get((namespace, name))
        return entry.value if entry else None

    def peek(self, key: Key[Any]) -> object:
        """The answer; there is always one."""
        match key:
            case NamespaceKey():
                return self._view(NAMESPACES, "", key.name)
            case VmiKey():
                return self._view(VMIS, key.namespace, key.name)
            case ObjectKey():
                return self._view(key.resource, key.namespace, key.name)
            case KubeVirtKey():
                return self._install
            case ConfigurationKey():
                return self._configured.of(self._kubevirts)
            case PlacementKey():
                return self._configured.placement(self._kubevirts)
            case NodesKey():
                return self._nodes
            case ListKey():
                return self._list(key)
            case AccessKey():
                # Files hold no roles: nobody is kept from anything.
                return True
            case SchedulerKey():
                scheduler = self._settings.scheduling.schedulers.get(key.name)
                return self._health(scheduler, key.namespace) if scheduler else None
        return Unavailable(f"{type(key).__name__} cannot be read from files")

    async def read(self, key: Key[T], deadline: float) -> T | Unavailable | None:
        """The answer of `peek`, without any wait."""
        return cast("T | Unavailable | None", self.peek(key))

    def staleness(self) -> dict[str, float]:
        """Always empty, since files are not watched."""
        return {}

    def waiting_for(self) -> tuple[str, ...]:
        """Nothing: everything was read at the start."""
        return ()

    def summary(self) -> str:
        """What was read, in one line."""
        labels = [names.policy_label(policy) for policy in get_args(names.Policy)]
        modes = (names.ENFORCE, names.WARN, names.AUDIT)
        namespaces = [entry.view.meta for entry in self._entries("Namespace")]
        opted_in = sum(any(meta.label(label) in modes for label in labels) for meta in namespaces)
        installs = sorted(self._install.namespaces) if self._install else []
        parts = [
            _count(len(self._entries("Node")), "node"),
            f"{_count(len(namespaces), 'namespace')} ({opted_in} opted in)",
            _count(len(self._entries("VirtualMachine")), "VM"),
            _count(len(self._entries("VirtualMachineInstance")), "VMI"),
            f"KubeVirt in {' and '.join(installs)}" if installs else "no KubeVirt",
        ]
        schedulers = self._settings.scheduling.schedulers.values()
        parts += [f"scheduler {scheduler.name} {self._health(scheduler).state}" for scheduler in schedulers]
        return ", ".join(parts)

    def _entries(self, kind: str) -> list[FileObject]:
        return list(self._index[kind].values())

    def _list(self, key: ListKey[Any]) -> tuple[Object, ...] | Unavailable:
        name, _, value = key.label.partition("=")
        found = []
        for (namespace, _), entry in self._index.get(key.resource.kind, {}).items():
            if key.namespace in ("", namespace) and (not name or _label(entry, name) == value):
                view = self._view(key.resource, namespace, entry.view.meta.name or "")
                if isinstance(view, Unavailable):
                    return view
                kept = key.resource.keep(view) if key.resource.keep else view
                if kept is not None:
                    found.append(kept)
        return tuple(found)

    def _view(self, resource: Resource[Any], namespace: str, name: str) -> Object | Unavailable | None:
        kind = KINDS.get(resource.kind)
        if kind is None or kind.group != resource.group:
            return Unavailable(f"{resource.kind} cannot be read from files")
        entry = self._index[resource.kind].get((namespace if kind.namespaced else "", name))
        if entry is None or type(entry.view) is resource.view:
            return entry.view if entry else None
        try:
            return cast("Object", msgspec.convert(entry.value, resource.view))
        except msgspec.ValidationError as error:
            return Unavailable(f"{entry.where}: {_wrong_type(entry.value, error)[1]}")

    def _health(self, scheduler: SchedulerSettings, namespace: str = "") -> SchedulerHealth:
        guard = scheduler.guard
        if guard.kind == "off":
            return SchedulerHealth("alive", "not guarded")
        pods = self._pods.get(scheduler.name)
        if pods and (why := self._waiting(scheduler.name).evidence(self._clock(), namespace)):
            return SchedulerHealth("dead", why)
        if guard.kind == "pods":
            return SchedulerHealth("alive", "no pod waits unnoticed")
        lease = self._view(LEASES, guard.namespace, guard.name)
        text = f"Lease {guard.namespace}/{guard.name}"
        if not isinstance(lease, Lease):
            return SchedulerHealth("dead", f"there is no {text}")
        if not (lease.spec and lease.spec.holder_identity):
            return SchedulerHealth("dead", f"{text} has been released by its holder")
        return SchedulerHealth("alive", f"{text} is held; a snapshot shows no renewals")

    def _waiting(self, scheduler: str) -> WaitingPods:
        """The pods that wait for a scheduler, as its health check would see them."""
        waiting = WaitingPods(self._has_opted_in)
        for pod in self._pods.get(scheduler, ()):
            phase, created = pod.status.phase if pod.status else None, unix_time(pod.meta.creation_timestamp)
            if phase in (None, "", "Pending") and pod.is_unnoticed and created is not None:
                waiting.observe_waiting(Waiting.of(pod, created))
        for each in waiting.unchecked_pods(self._clock(), len(waiting)):
            vmi = self._view(ACTIVE_VMIS, each.namespace, each.vmi)
            waiting.record_check(each.uid, listed=isinstance(vmi, ActiveVmi) and is_listed(each, vmi))
        return waiting

    def _has_opted_in(self, name: str) -> bool:
        namespace = self._view(NAMESPACES, "", name)
        label = namespace.meta.label(names.policy_label(names.SCHEDULING)) if isinstance(namespace, Namespace) else None
        return label == names.ENFORCE or (label is None and self._settings.scheduling.cluster_wide)


def _label(entry: FileObject, name: str) -> str | None:
    """A label of an object; of a migration written by hand also the one that KubeVirt would have given it."""
    spec = entry.value.get("spec")
    if name == names.VMI_NAME_LABEL and isinstance(spec, dict):
        return spec.get("vmiName")
    return entry.view.meta.label(name)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _objects(root: Path, mistakes: list[InputError]) -> Iterator[Document]:
    """All objects of all files; what cannot be read becomes a mistake."""
    for file in _files(root, mistakes):
        try:
            for document in read_documents(file):
                try:
                    yield from objects_in(document)
                except InputError as error:
                    mistakes.extend(mistakes_of(error))
        except InputError as error:
            mistakes.extend(mistakes_of(error))


def _files(root: Path, mistakes: list[InputError]) -> list[Path]:
    if not root.is_dir():
        return [root]
    found = []

    def unreadable(error: OSError) -> None:
        mistakes.append(InputError(f"cannot be read: {error.strerror}", str(error.filename)))

    for directory, below, files in os.walk(root, onerror=unreadable):
        below[:] = sorted(name for name in below if not name.startswith("."))
        found += [Path(directory, name) for name in files if name.endswith(_SUFFIXES) and not name.startswith(".")]
    if not found and not mistakes:
        raise InputError("holds no YAML or JSON files", str(root), "write some there with kubectl get -o yaml")
    return sorted(found)


def _add(index: Index, document: Document) -> None:
    """Check one object and enter it.

    Raises:
        InputError: it cannot be an object of a cluster, or is one that is known already.
    """
    value = document.value
    kind = _kind(document)
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        raise InputError(f"this {kind.name} has no metadata", document.where(["metadata"]), "give it a name")
    try:
        view = msgspec.convert(value, kind.view)
    except msgspec.ValidationError as error:
        path, what, fix = _wrong_type(value, error)
        raise InputError(what, document.where(path), fix) from error
    name, namespace = view.meta.name, view.meta.namespace or ""
    where = document.where(["metadata"])
    if not name:
        raise InputError(f"this {kind.name} has no metadata.name", where, "objects of a cluster have one")
    title = f"{kind.name} {quote(name)}"
    if kind.namespaced and not namespace:
        raise InputError(f"{title} has no metadata.namespace", where, "objects of its kind are in one")
    if namespace and not kind.namespaced:
        raise InputError(f"{title} has a metadata.namespace", where, "objects of its kind are in none; remove it")
    if view.meta.creation_timestamp is not None and unix_time(view.meta.creation_timestamp) is None:
        path = ("metadata", "creationTimestamp")
        raise InputError(
            f"{format_path(path)} is not a valid time", document.where(path), "use for example 2026-01-31T12:00:00Z"
        )
    known = index[kind.name].setdefault((namespace, name), FileObject(value, view, document.where()))
    if known.value is not value:
        place = f"{title} of namespace {namespace}" if namespace else title
        raise InputError(f"{place} is here a second time", document.where(), f"remove it here or at {known.where}")


def _kind(document: Document) -> Kind:
    name, version = document.value.get("kind"), document.value.get("apiVersion")
    if not isinstance(name, str) or not name:
        raise InputError("the object has no kind", document.where(["kind"]), "write one such as kind: Node")
    if not isinstance(version, str) or not version:
        raise InputError(f"this {name} has no apiVersion", document.where(["apiVersion"]), "write one")
    kind = KINDS.get(name)
    if kind is None:
        near = difflib.get_close_matches(name, KINDS, n=1, cutoff=0.8)
        fix = f"did you mean {near[0]}?" if near else "leave it out"
        raise InputError(f"{quote(name)} is not a kind that can be read from files", document.where(["kind"]), fix)
    group, _, number = version.rpartition("/")
    if group != kind.group or not re.fullmatch(kind.versions, number):
        known = kind.versions.partition("|")[0] if kind.versions.startswith("v1") else "VERSION"
        fix = f"write {kind.group}/{known}" if kind.group else f"write {known}"
        raise InputError(f"{quote(version)} has no {name}", document.where(["apiVersion"]), fix)
    return kind


_TYPES: Final = {
    "str": "a string",
    "int": "a number",
    "float": "a number",
    "bool": "a boolean",
    "object": "a mapping",
    "array": "a list",
    "null": "null",
}
_NAMES: Final = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    dict: "object",
    list: "array",
    type(None): "null",
}


def _wrong_type(value: Any, error: msgspec.ValidationError) -> tuple[tuple[str | int, ...], str, str]:
    """The path that msgspec complains of, what is wrong there, and what to do."""
    message = re.fullmatch(r"Expected `(\w+)(?: \| null)?`, got `(\w+)`(?: - at `\$(.*)`)?", str(error))
    if message is None:
        return (), f"the object is not as it should be: {error}", ""
    wanted, got, place = message.groups()
    steps = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", place or "")
    path = _find_path(value, [name or (step if step == "..." else int(step)) for name, step in steps], got) or ()
    fix = "put it in quotes" if wanted == "str" and got in ("int", "float", "bool") else ""
    return (
        path,
        f"{format_path(path) or 'the object'} must be {_TYPES.get(wanted, wanted)}, not {_TYPES.get(got, got)}",
        fix,
    )


def _find_path(value: Any, steps: list[str | int], got: str) -> tuple[str | int, ...] | None:
    """The first path of that form whose value has a type: msgspec names no keys of mappings, only ``...``."""
    if not steps:
        return () if _NAMES.get(type(value)) == got else None
    step, *rest = steps
    below = ((key, _find_path(value[key], rest, got)) for key in (value if step == "..." else [step]))
    return next(((key, *path) for key, path in below if path is not None), None)
