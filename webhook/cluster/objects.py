"""Whole objects as plain JSON, by kind and name: what KubeVirt's rules look up, from files or from an API server.

For commands, which have their user's permissions. The server reads views, and only what it may show to every user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from webhook import names
from webhook.cluster.definitions import read_definitions
from webhook.cluster.files import FilesCluster
from webhook.errors import Unavailable
from webhook.k8s.client.api import ApiConnectionError, Transport, decode, explain, fetch_body, list_failure
from webhook.k8s.client.resources import Resource
from webhook.k8s.views import Object
from webhook.kubevirt.releases.definitions import Definitions
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.kubevirt.views import KubeVirt

Json = dict[str, Any]

GET_SECONDS: Final = 10.0
_CDI: Final = "cdi.kubevirt.io"


def _instancetypes(kind: str, namespaced: bool) -> Resource[Object]:
    return Resource(names.INSTANCETYPE_GROUP, "v1beta1", f"{kind.lower()}s", kind, namespaced, Object)


# Everything that an instancetype, a preference or their inference can lead to.
RESOURCES: Final[Mapping[str, Resource[Object]]] = {
    resource.kind: resource
    for resource in (
        _instancetypes("VirtualMachineInstancetype", True),
        _instancetypes("VirtualMachineClusterInstancetype", False),
        _instancetypes("VirtualMachinePreference", True),
        _instancetypes("VirtualMachineClusterPreference", False),
        Resource("apps", "v1", "controllerrevisions", "ControllerRevision", True, Object),
        Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, Object),
        Resource(_CDI, "v1beta1", "datavolumes", "DataVolume", True, Object),
        Resource(_CDI, "v1beta1", "datasources", "DataSource", True, Object),
        Resource("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot", True, Object),
    )
}


class Objects(Protocol):
    """Where objects are read. Nothing is raised for what goes wrong on the way."""

    async def get(self, kind: str, namespace: str, name: str) -> Json | Unavailable | None:
        """One object, not to be changed; None where the API server would say 404.

        Args:
            kind: one of `RESOURCES`.
            namespace: empty for cluster-wide kinds.
            name: however wild.
        """

    async def kubevirts(self) -> Sequence[KubeVirt] | Unavailable:
        """All KubeVirt objects, of which a cluster has one."""

    async def definitions(self) -> Definitions | None:
        """What the CustomResourceDefinitions of KubeVirt's kinds know; None where the tables by version count."""


class FileObjects(Objects):
    """The objects of a `FilesCluster`.

    Args:
        files: the cluster that was read from files.
    """

    def __init__(self, files: FilesCluster) -> None:
        self._files: Final = files

    async def get(self, kind: str, namespace: str, name: str) -> Json | Unavailable | None:
        """The object in the files; None where they do not have it."""
        return self._files.get(kind, namespace, name)

    async def kubevirts(self) -> Sequence[KubeVirt] | Unavailable:
        """All KubeVirt objects in the files."""
        return self._files.kubevirts

    async def definitions(self) -> Definitions | None:
        """Those in the files; None where there are none."""
        return self._files.definitions


class _KubeVirtList(msgspec.Struct):
    items: list[KubeVirt] | None = None


class LiveObjects(Objects):
    """The objects of a running cluster, each by one GET for each call; nothing is kept.

    Args:
        transport: the connection to the API server.
        seconds: timeout of one request.
    """

    def __init__(self, transport: Transport, seconds: float = GET_SECONDS) -> None:
        self._transport: Final = transport
        self._seconds: Final = seconds

    async def get(self, kind: str, namespace: str, name: str) -> Json | Unavailable | None:
        """By GET; a kind that the cluster does not know is 404 like a missing object."""
        body = await fetch_body(self._transport, RESOURCES[kind], namespace, name, self._seconds)
        return decode(body, dict[str, Any], kind) if isinstance(body, bytes) else body

    async def kubevirts(self) -> Sequence[KubeVirt] | Unavailable:
        """All KubeVirt objects, by a list over all namespaces; none where KubeVirt is not installed."""
        try:
            async with asyncio.timeout(self._seconds):
                status, body = await self._transport.get(KUBEVIRTS.path())
        except (ApiConnectionError, TimeoutError) as error:
            return list_failure(error, KUBEVIRTS, "", self._seconds)
        if status == 404:
            return []
        if status != 200:
            return explain("list", KUBEVIRTS, "", status, body)
        answer = decode(body, _KubeVirtList, "list of kubevirts")
        return answer if isinstance(answer, Unavailable) else answer.items or []

    async def definitions(self) -> Definitions | None:
        """By GET; None for a user who may not read them."""
        read = await read_definitions(self._transport, self._seconds)
        return None if isinstance(read, Unavailable) else read
