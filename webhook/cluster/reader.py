"""The objects of a running cluster, read a few times: no watches, no health checks, no permissions but those of reads.

For commands, which have their user's permissions; `webhook.cluster.live` is for servers. What goes wrong on the way is
a value: `Unavailable`, also `webhook.k8s.client.api.Forbidden`, and None for an object that does not exist.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from webhook import names
from webhook.cluster.definitions import read_definitions
from webhook.cluster.source import Cluster
from webhook.errors import FileGap, InputError, Unavailable
from webhook.facts import (
    NOT_READ,
    HeadroomKey,
    Key,
    KubeVirtKey,
    ListKey,
    NamespaceKey,
    NodesKey,
    ObjectKey,
    VerdictKey,
)
from webhook.k8s.client.api import (
    NO_QUERY,
    READ_ERRORS,
    UNDECODABLE,
    ApiConnectionError,
    ApiError,
    Transport,
    fetch,
    list_failure,
)
from webhook.k8s.client.list_pages import fetch_list, pages
from webhook.k8s.json_tree import member
from webhook.k8s.paths import is_segment
from webhook.k8s.resources import NAMESPACES, NODES, PODS, Resource
from webhook.k8s.types.meta import Object
from webhook.kubevirt.config import KubeVirtInstall
from webhook.kubevirt.definitions import DEFINITIONS
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.kubevirt.run_strategy import STARTED_VMS
from webhook.placement.headroom.headroom import Headroom, of_views
from webhook.placement.index import NodeIndex
from webhook.placement.nodes import Node
from webhook.placement.running_pods import RunningPod

if TYPE_CHECKING:
    from webhook.cluster.files import FilesCluster
    from webhook.kubevirt.releases.fields import Definitions

T = TypeVar("T")
V = TypeVar("V", bound=Object)

Json = dict[str, Any]

# Of one request: of a check, of a command that goes through everything, and of a look-up.
SECONDS: Final = 30.0
GET_SECONDS: Final = 10.0
_COMMAND_SECONDS: Final = 60.0
_PAGE: Final = 500


async def listed(
    api: Transport, resource: Resource[V], namespace: str = "", query: Mapping[str, str] = NO_QUERY, *, seconds: float
) -> AsyncGenerator[V, None]:
    """All objects of a resource, of a namespace or of all, in the API server's order; none where it is not served.

    A page takes so many seconds at most; raises `READ_ERRORS`.
    """
    if namespace and not is_segment(namespace):
        return
    listing = pages(api, resource, namespace, query, limit=_PAGE, seconds=seconds)
    try:
        async with aclosing(listing):
            async for page in listing:
                for one in page.items or ():
                    yield one
    except ApiError as error:
        if error.status != 404:
            raise


async def list_all(api: Transport, resource: Resource[V], seconds: float) -> list[V] | Unavailable:
    """All objects of a resource in all namespaces, within so many seconds; none where the cluster does not have it."""
    try:
        async with asyncio.timeout(seconds):
            return [one async for one in listed(api, resource, seconds=seconds)]
    except READ_ERRORS as error:
        return list_failure(error, resource, "", seconds)


async def all_of(
    api: Transport, resource: Resource[Any], namespace: str = "", query: Mapping[str, str] = NO_QUERY
) -> AsyncGenerator[Any, None]:
    """`listed`, for commands; an `InputError` where a list cannot be read."""
    try:
        async with aclosing(listed(api, resource, namespace, query, seconds=_COMMAND_SECONDS)) as objects:
            async for one in objects:
                yield one
    except READ_ERRORS as error:
        fix = "run the command again to continue" if isinstance(error, ApiConnectionError | TimeoutError) else ""
        why = list_failure(error, resource, namespace, _COMMAND_SECONDS).why
        raise InputError(why, resource.plural, fix) from None


_VERSION: Final = re.compile(r"v(\d{1,4})\.(\d{1,4})\..*")


async def kubernetes_version(api: Transport) -> tuple[int, int] | Unavailable:
    """Major and minor version of the API server."""
    try:
        status, body = await api.get("/version")
        answer = msgspec.json.decode(body, type=dict[str, Any])
    except ApiConnectionError as error:
        return Unavailable(error.why)
    except UNDECODABLE:
        status, answer = 0, {}
    match = _VERSION.fullmatch(str(answer.get("gitVersion")))
    if status != 200 or match is None:
        return Unavailable("the API server does not report its version")
    return int(match[1]), int(match[2])


class Reader:
    """Reads each object and list once, so that all checks see the same state. A malformed object spoils no list.

    Args:
        api: the connection to the API server.

    Attributes:
        malformed: objects that could not be decoded and were skipped, by kind.
    """

    def __init__(self, api: Transport) -> None:
        self.api: Final = api
        self.malformed: Final[Counter[str]] = Counter()
        self._reads: Final[dict[Any, asyncio.Task[Any]]] = {}

    async def definitions(self) -> Definitions | Unavailable | None:
        """What the cluster's definitions of KubeVirt's kinds say, read at each call; None where they list no fields."""
        return await read_definitions(self.api, SECONDS)

    async def get(self, resource: Resource[V], namespace: str, name: str) -> V | Unavailable | None:
        """One object; None if it does not exist. A `ValueError` where its kind needs a namespace: none would exist."""
        if resource.namespaced and not namespace:
            raise ValueError(f"{resource.kind} {name} is namespaced, and no namespace is given")
        key = (resource, namespace, name)
        if key not in self._reads:
            self._reads[key] = asyncio.create_task(fetch(self.api, resource, namespace, name, SECONDS))
        return cast("V | Unavailable | None", await self._reads[key])

    async def all(
        self, resource: Resource[V], namespace: str = "", query: Mapping[str, str] = NO_QUERY
    ) -> tuple[V, ...] | Unavailable:
        """All objects of a kind, or of a namespace, that the query selects; none if the cluster does not serve it."""
        key = (resource, namespace, tuple(query.items()))
        if key not in self._reads:
            self._reads[key] = asyncio.create_task(self._list(resource, namespace, query))
        return cast("tuple[V, ...] | Unavailable", await self._reads[key])

    async def _list(
        self, resource: Resource[V], namespace: str, query: Mapping[str, str]
    ) -> tuple[V, ...] | Unavailable:
        raw = cast("Resource[Object]", msgspec.structs.replace(resource, view=msgspec.Raw))
        objects: list[V] = []
        try:
            async for item in listed(self.api, raw, namespace, query, seconds=SECONDS):
                try:
                    objects.append(msgspec.json.decode(cast("msgspec.Raw", item), type=resource.view))
                except UNDECODABLE:
                    self.malformed[resource.kind] += 1
        except READ_ERRORS as error:
            return list_failure(error, resource, namespace, SECONDS)
        return tuple(objects)


class FileReader:
    """Reads the objects of a `FilesCluster` as `Reader` does those of a running cluster.

    Files without an object of a kind do not show whether the cluster has any: that is a `FileGap`, not an empty list.

    Args:
        files: the cluster that was read from files.
    """

    def __init__(self, files: FilesCluster) -> None:
        self._files: Final = files
        self._lists: Final[dict[Any, tuple[Any, ...]]] = {}
        self.malformed: Final[Counter[str]] = Counter()
        what = "not checked: only a running cluster shows it, and the objects were read from files"
        self.api: Final = FileGap(what, "needs-cluster", "run doctor without --cluster-from")

    async def definitions(self) -> Definitions | Unavailable | None:
        """Those in the files."""
        return self._files.definitions if self._files.objects(DEFINITIONS.kind) else _not_in_files(DEFINITIONS, "")

    async def get(self, resource: Resource[V], namespace: str, name: str) -> V | Unavailable | None:
        """One object; None if the files hold others of its kind, or of its kind and namespace, but not this one."""
        if resource.namespaced and not namespace:
            raise ValueError(f"{resource.kind} {name} is namespaced, and no namespace is given")
        value = self._files.peek(ObjectKey(resource, namespace, name))
        if value is None and not self._values(resource, namespace):
            return _not_in_files(resource, namespace)
        if isinstance(value, Unavailable):
            return FileGap(value.why, "unreadable", "correct the object")
        return cast("V | None", value)

    async def all(
        self, resource: Resource[V], namespace: str = "", query: Mapping[str, str] = NO_QUERY
    ) -> tuple[V, ...] | Unavailable:
        """All objects of a kind, or of a namespace, that the query selects; `FileGap` if the files hold none at all."""
        values = self._values(resource, namespace)
        if not values:
            return _not_in_files(resource, namespace)
        key = (resource, namespace, tuple(query.items()))
        if key not in self._lists:
            objects = []
            for value in (each for each in values if _is_selected(each, query)):
                try:
                    objects.append(msgspec.convert(value, resource.view))
                except UNDECODABLE:
                    self.malformed[resource.kind] += 1
            self._lists[key] = tuple(objects)
        return self._lists[key]

    def _values(self, resource: Resource[Any], namespace: str) -> list[Json]:
        values = self._files.objects(resource.kind)
        return [value for value in values if not namespace or value["metadata"].get("namespace") == namespace]


# Where commands read the objects of a cluster. Its ``api`` is for requests that do not read an object; files have none.
ObjectReader = Reader | FileReader


def _not_in_files(resource: Resource[Any], namespace: str) -> FileGap:
    """The files hold no object of a kind, or of a kind and a namespace."""
    of_namespace = f" of namespace {namespace}" if namespace else ""
    where = f"-n {namespace}" if namespace else "-A" if resource.namespaced else ""
    plural = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    command = " ".join(filter(None, ("kubectl get", plural, where, "-o yaml")))
    why = f"not checked: the files hold no {resource.kind}{of_namespace}"
    return FileGap(why, "not-in-files", f'if the cluster has any, add to the files what "{command}" prints')


def _is_selected(value: Json, query: Mapping[str, str]) -> bool:
    """Whether the API server would list an object: by labels and fields that must have a value each."""
    labels = {f"{name}={text}" for name, text in (value["metadata"].get("labels") or {}).items()}
    fields = [pair.partition("=") for pair in query.get("fieldSelector", "").split(",") if pair]
    selector = {pair for pair in query.get("labelSelector", "").split(",") if pair}
    shown = ((member(value, path), text) for path, _, text in fields)
    return selector <= labels and all(("" if field is None else field) == text for field, text in shown)


class OnceCluster(Cluster):
    """Answers the questions of explanations, each key with a request of its own.

    Args:
        transport: the connection to the API server; the caller closes it.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport: Final = transport

    def peek(self, key: Key[Any]) -> object:
        """Always `webhook.facts.NOT_READ`, since nothing is remembered."""
        return NOT_READ

    async def read(self, key: Key[T], deadline: float) -> T | Unavailable | None:
        """The answer of the API server, by a request of its own."""
        return cast("T | Unavailable | None", await self._read(key, deadline))

    async def _read(self, key: Key[Any], deadline: float) -> object:
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        match key:
            case ObjectKey():
                return await fetch(self._transport, key.resource, key.namespace, key.name, left)
            case NamespaceKey():
                return await fetch(self._transport, NAMESPACES, "", key.name, left)
            case ListKey():
                return await fetch_list(self._transport, key.resource, key.namespace, key.label, left, key.field)
            case NodesKey():
                nodes = await list_all(self._transport, NODES, left)
                if isinstance(nodes, Unavailable):
                    return nodes
                return NodeIndex(Node.of(node) for node in nodes if node.meta.name)
            case KubeVirtKey():
                kubevirts = await list_all(self._transport, KUBEVIRTS, left)
                return kubevirts if isinstance(kubevirts, Unavailable) else KubeVirtInstall.of(kubevirts)
            case HeadroomKey():
                return await _headroom(self._transport, left)
            case VerdictKey():
                return key.judge()
        return Unavailable(f"{type(key).__name__} cannot be read from a cluster without watches")


async def _headroom(transport: Transport, seconds: float) -> Headroom | Unavailable:
    """The headroom of the cluster now, of which it is not known which VMs have just ended."""
    pods, vms, nodes = await asyncio.gather(
        list_all(transport, PODS.decoded_as(RunningPod), seconds),
        list_all(transport, STARTED_VMS, seconds),
        list_all(transport, NODES, seconds),
    )
    if isinstance(pods, Unavailable):
        return pods
    if isinstance(vms, Unavailable):
        return vms
    return nodes if isinstance(nodes, Unavailable) else of_views(time.time, nodes, pods, vms)


async def read_once(cluster: Cluster, key: Key[T]) -> T | Unavailable | None:
    """The answer of a cluster to a command that waits for it alone, for `GET_SECONDS`."""
    return await cluster.read(key, asyncio.get_running_loop().time() + GET_SECONDS)


# Everything that an instancetype, a preference or their inference can lead to, as plain JSON.
RESOURCES: Final[Mapping[str, Resource[Any]]] = {
    kind: Resource(group, version, f"{kind.lower()}s", kind, "Cluster" not in kind, cast("Any", dict[str, Any]))
    for group, version, kinds in (
        (names.INSTANCETYPE_GROUP, "v1beta1", ("VirtualMachineInstancetype", "VirtualMachineClusterInstancetype")),
        (names.INSTANCETYPE_GROUP, "v1beta1", ("VirtualMachinePreference", "VirtualMachineClusterPreference")),
        ("apps", "v1", ("ControllerRevision",)),
        ("", "v1", ("PersistentVolumeClaim",)),
        ("cdi.kubevirt.io", "v1beta1", ("DataVolume", "DataSource")),
        ("snapshot.storage.k8s.io", "v1", ("VolumeSnapshot",)),
    )
    for kind in kinds
}
