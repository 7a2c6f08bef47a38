"""A cluster objects read from files: what ``kubectl get ... -o yaml`` has written into a directory.

For the command line and for tests, which run policies without a cluster. Everything is read and checked at the start;
nothing in it ages, a Lease is never renewed.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec

from webhook import facts, names
from webhook.cluster.directory import KINDS, FileObject, Index, add_object, describe_wrong_type, kind_of, read_objects
from webhook.cluster.scheduler_health import Waiting, WaitingPods, has_opted_in
from webhook.cluster.source import Cluster
from webhook.errors import InputError, InputErrors, Unavailable
from webhook.k8s.documents import Document, mistakes_of
from webhook.k8s.resources import LEASES, NAMESPACES, PODS, Resource
from webhook.k8s.types.core import NodeWithoutImages, PendingPod
from webhook.k8s.types.meta import Lease, Namespace, Object, unix_time
from webhook.kubevirt.config import InstallReader
from webhook.kubevirt.definitions import DEFINITIONS, Definition, fields_of
from webhook.kubevirt.resources import ACTIVE_VMIS, VMIS
from webhook.kubevirt.run_strategy import STARTED_VMS, StartedVm
from webhook.kubevirt.types.views import ActiveVmi, KubeVirt
from webhook.placement.headroom.headroom import Headroom, of_views
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node
from webhook.placement.running_pods import RunningPod
from webhook.settings.model import Settings
from webhook.settings.schedulers import SchedulerSettings
from webhook.text import pluralize

T = TypeVar("T")
V = TypeVar("V", bound=Object)

_RUNNING_PODS: Final = PODS.decoded_as(RunningPod)
# More would not be read.
MAX_MISTAKES: Final = 100


class FilesCluster(Cluster):
    """The objects of some files as a `Cluster` that knows everything at once and never changes.

    Args:
        index: the objects by kind, namespace and name.
        settings: the settings that declare the schedulers.
        clock: Unix time in seconds; how long pods have been waiting is counted up to it.

    Attributes:
        kubevirts: all KubeVirt objects in the files.
        definitions: what the CustomResourceDefinitions in the files say; None where there are none of KubeVirt's.
        skipped: the kinds in the files that nothing here needs, each once.
    """

    answers_at_once = True

    def __init__(
        self, index: Index, settings: Settings, clock: Callable[[], float] = time.time, skipped: Iterable[str] = ()
    ) -> None:
        self._index: Final = index
        self.skipped: Final = tuple(skipped)
        self._settings = settings
        self._clock = clock
        self.kubevirts: Final = self._views("KubeVirt", KubeVirt)
        self.definitions: Final = fields_of(self._views(DEFINITIONS.kind, Definition))
        self._installs: Final = InstallReader(settings.kubevirt.version, self.definitions)
        self._nodes: Final = NodeIndex(map(Node.of, self._views("Node", NodeWithoutImages)))
        self._pods: Final[dict[str, list[PendingPod]]] = defaultdict(list)
        for pod in self._views("Pod", PendingPod):
            if pod.spec and pod.spec.scheduler_name:
                self._pods[pod.spec.scheduler_name].append(pod)

    @classmethod
    def load(
        cls, directory: str | os.PathLike[str], settings: Settings, clock: Callable[[], float] = time.time
    ) -> FilesCluster:
        """Read every YAML and JSON file below a directory, compressed ones (``.gz``) too, or one file.

        An `InputError` where there is nothing to read, `InputErrors` for every mistake in what was read.
        """
        skipped: dict[str, None] = {}
        return cls(read_index(directory, skipped), settings, clock, skipped)

    @classmethod
    def of(
        cls, documents: Iterable[Document], settings: Settings, clock: Callable[[], float] = time.time
    ) -> FilesCluster:
        """A cluster that holds the objects of some documents; `InputErrors` for every mistake in them."""
        skipped: dict[str, None] = {}
        return cls(_index_objects(documents, [], "", skipped), settings, clock, skipped)

    def use(self, settings: Settings) -> None:
        """Use other settings from now on."""
        self._settings = settings
        self._installs.use(settings.kubevirt.version)

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """All objects of one of `KINDS`, or a `KeyError`: plain JSON, not to be changed, in the order of the files."""
        return [entry.value for entry in self._index[kind].values()]

    def peek(self, key: facts.Key[Any]) -> object:
        """The answer; there is always one."""
        match key:
            # What nearly every review reads comes first.
            case facts.KubeVirtKey():
                return self._installs.read(self.kubevirts)
            case facts.NamespaceKey():
                return self._view(NAMESPACES, "", key.name)
            case facts.SchedulerKey():
                scheduler = self._settings.watched_schedulers.get(key.name)
                return self._health(scheduler, key.namespace) if scheduler else None
            case facts.VmiKey():
                return self._view(VMIS, key.namespace, key.name)
            case facts.ObjectKey():
                return self._view(key.resource, key.namespace, key.name)
            case facts.NodesKey():
                return self._nodes
            case facts.ListKey():
                return self._list(key)
            case facts.HeadroomKey():
                return self._headroom()
            case facts.VerdictKey():
                return key.judge()
            case facts.AccessKey():
                # Files hold no roles, so every user has every permission.
                return True
        return Unavailable(f"{type(key).__name__} cannot be read from files")

    async def read(self, key: facts.Key[T], deadline: float) -> T | Unavailable | None:
        """The answer of `peek`, without any wait."""
        return cast("T | Unavailable | None", self.peek(key))

    def namespaces(self) -> tuple[Namespace, ...]:
        """All namespaces in the files."""
        return tuple(self._views("Namespace", Namespace))

    def summary(self) -> str:
        """What was read, in one line."""
        labels = [names.policy_label(policy) for policy in self._settings.policies]
        modes = (names.ENFORCE, names.WARN, names.AUDIT)
        namespaces = self.namespaces()
        opted_in = sum(any(each.meta.label(label) in modes for label in labels) for each in namespaces)
        installs = sorted({each.meta.namespace or "" for each in self.kubevirts})
        parts = [
            pluralize(len(self._index["Node"]), "node"),
            f"{pluralize(len(namespaces), 'namespace')} ({opted_in} opted in)",
            pluralize(len(self._index["VirtualMachine"]), "VM"),
            pluralize(len(self._index["VirtualMachineInstance"]), "VMI"),
            f"KubeVirt in {' and '.join(installs)}" if installs else "no KubeVirt",
        ]
        schedulers = self._settings.watched_schedulers.values()
        parts += [f"scheduler {scheduler.name} {self._health(scheduler).state}" for scheduler in schedulers]
        return ", ".join(parts)

    def _views(self, kind: str, view: type[V]) -> list[V]:
        return [entry.view for entry in self._index[kind].values() if isinstance(entry.view, view)]

    def _list(self, key: facts.ListKey[Any]) -> tuple[Object, ...] | Unavailable:
        name, _, value = key.label.partition("=")
        views = []
        for (namespace, _), entry in self._index.get(key.resource.kind, {}).items():
            if key.namespace in ("", namespace) and (not name or _label(entry, name) == value):
                view = self._view(key.resource, namespace, entry.view.meta.name or "")
                if isinstance(view, Unavailable):
                    return view
                views.append(key.resource.keep(view) if key.resource.keep else view)
        return tuple(view for view in views if view is not None)

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
            return Unavailable(f"{entry.where}: {describe_wrong_type(entry.value, error)[1]}")

    def _headroom(self) -> Headroom | Unavailable:
        pods, vms = self._list(facts.ListKey(_RUNNING_PODS, "")), self._list(facts.ListKey(STARTED_VMS, ""))
        if isinstance(pods, Unavailable) or isinstance(vms, Unavailable):
            return pods if isinstance(pods, Unavailable) else cast("Unavailable", vms)
        nodes = self._views("Node", NodeWithoutImages)
        running = (pod for pod in pods if isinstance(pod, RunningPod))
        return of_views(self._clock, nodes, running, (vm for vm in vms if isinstance(vm, StartedVm)))

    def _health(self, scheduler: SchedulerSettings, namespace: str = "") -> facts.SchedulerHealth:
        health_check = scheduler.watched
        if health_check.kind == "off":
            return facts.SchedulerHealth("available", "its health is not checked")
        pods = self._pods.get(scheduler.name)
        if pods and (why := self._waiting_pods(scheduler.name).evidence(self._clock(), namespace)):
            return facts.SchedulerHealth("unavailable", why)
        if health_check.kind == "pods":
            return facts.SchedulerHealth("available", "no pod waits unnoticed")
        lease = self._view(LEASES, health_check.namespace, health_check.name)
        text = f"Lease {health_check.namespace}/{health_check.name}"
        if not isinstance(lease, Lease):
            return facts.SchedulerHealth("unavailable", f"{text} does not exist")
        if not (lease.spec and lease.spec.holder_identity):
            return facts.SchedulerHealth("unavailable", f"{text} has been released by its holder")
        return facts.SchedulerHealth("available", f"{text} is held; a snapshot shows no renewals")

    def _waiting_pods(self, scheduler: str) -> WaitingPods:
        """The pods that wait for a scheduler, as its health check would see them."""
        waiting = WaitingPods(self._has_opted_in)
        for pod in self._pods.get(scheduler, ()):
            phase, created = pod.status.phase if pod.status else None, unix_time(pod.meta.creation_timestamp)
            if phase in (None, "", "Pending") and pod.is_unnoticed and created is not None:
                waiting.observe_waiting(Waiting.of(pod, created))
        for each in waiting.unchecked_pods(self._clock(), len(waiting)):
            vmi = self._view(ACTIVE_VMIS, each.namespace, each.vmi)
            waiting.record_check(each, vmi if isinstance(vmi, ActiveVmi) else None)
        return waiting

    def _has_opted_in(self, name: str) -> bool:
        namespace = self._view(NAMESPACES, "", name)
        return has_opted_in(namespace if isinstance(namespace, Namespace) else Namespace(), self._settings)


def read_index(directory: str | os.PathLike[str], skipped: dict[str, None] | None = None) -> Index:
    """The objects of every YAML and JSON file below a directory, compressed ones (``.gz``) too, or of one file.

    Args:
        directory: the directory, or a file.
        skipped: gets the kinds that nothing here needs.

    Raises:
        InputError: there is nothing to read.
        InputErrors: every mistake in what was read.
    """
    mistakes: list[InputError] = []
    skipped = {} if skipped is None else skipped
    index = _index_objects(read_objects(Path(directory), mistakes), mistakes, os.fspath(directory), skipped)
    if not any(index.values()) and not skipped:
        raise InputError("holds no objects", os.fspath(directory), "write some there with kubectl get -o yaml")
    return index


def _index_objects(
    documents: Iterable[Document], mistakes: list[InputError], source: str, skipped: dict[str, None]
) -> Index:
    """The objects of a source by kind, namespace and name; `InputErrors` for all mistakes, those of reading too."""
    index: Index = {name: {} for name in KINDS}
    for document in documents:
        try:
            if (kind := kind_of(document)) is None:
                skipped[str(document.value["kind"])] = None
            else:
                add_object(index, document, kind)
        except InputError as error:
            mistakes.extend(mistakes_of(error))
    if len(mistakes) > MAX_MISTAKES:
        mistakes[MAX_MISTAKES:] = [InputError(f"{len(mistakes) - MAX_MISTAKES} more mistakes are not shown", source)]
    if mistakes:
        raise InputErrors(mistakes)
    return index


def _label(entry: FileObject, name: str) -> str | None:
    """A label of an object; of a migration written by hand also the one that KubeVirt would have given it."""
    spec = entry.value.get("spec")
    if name == names.VMI_NAME_LABEL and isinstance(spec, dict):
        return spec.get("vmiName")
    return entry.view.meta.label(name)
