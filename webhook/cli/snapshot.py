"""All that a plan depends on, read from files or from a running cluster, each list once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec

from webhook.cluster.directory import describe_wrong_type
from webhook.cluster.files import FilesCluster
from webhook.doctor.support.reader import Reader
from webhook.errors import InputError, Unavailable
from webhook.forecast.snapshot import BUDGETS, RUNNING_PODS, ClusterObjects
from webhook.k8s.client.resources import NAMESPACES, NODES, Resource
from webhook.k8s.client.transport import connect
from webhook.k8s.views import Object, PartialObjectMetadata
from webhook.kubevirt.config import DEFAULTS
from webhook.kubevirt.install import KubeVirtInstall
from webhook.kubevirt.resources import KUBEVIRTS
from webhook.kubevirt.views import KubeVirt
from webhook.placement.machines import CLAIMS, MIGRATIONS, VMIS, VOLUMES
from webhook.placement.target_pods import RUNTIME_CLASSES
from webhook.settings.file import default_settings
from webhook.text import pluralize

V = TypeVar("V", bound=Object)

_POLICIES: Final = Resource(
    "migrations.kubevirt.io", "v1alpha1", "migrationpolicies", "MigrationPolicy", False, PartialObjectMetadata
)


class _ListToRead(NamedTuple):
    """A list to read.

    Attributes:
        field: the field of `ClusterObjects`; empty: only its length counts.
        missing: what the plan then lacks, a clause; empty: there is no plan without it.
    """

    field: str
    resource: Resource[Any]
    missing: str = ""


_LISTS: Final = (
    _ListToRead("nodes", NODES),
    _ListToRead("pods", RUNNING_PODS),
    _ListToRead("vmis", VMIS),
    _ListToRead("kubevirts", KUBEVIRTS),
    _ListToRead("migrations", MIGRATIONS, "unfinished migrations are not known"),
    _ListToRead("namespaces", NAMESPACES, "the labels of namespaces are not known"),
    _ListToRead("budgets", BUDGETS, "PodDisruptionBudgets are not known"),
    _ListToRead("claims", CLAIMS, "which nodes reach the VMs' volumes is not known"),
    _ListToRead("volumes", VOLUMES, "which nodes reach the VMs' volumes is not known"),
    _ListToRead("runtime_classes", RUNTIME_CLASSES, "what RuntimeClasses require is not known"),
    _ListToRead("policies", _POLICIES, "whether MigrationPolicies change the limits is not known"),
)


class SnapshotError(Exception):
    """The cluster cannot be read.

    Args:
        why: the cause, a clause.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why: Final = why


def from_files(directory: Path) -> ClusterObjects:
    """A snapshot of the objects in files.

    Raises:
        InputError: a file cannot be read, or an object has a value of a wrong type.
    """
    files = FilesCluster.load(directory, default_settings())
    found = {
        each.field: [_view(value, each.resource) for value in files.objects(each.resource.kind)] for each in _LISTS
    }
    return _snapshot(found, [])


async def from_cluster(kubeconfig: Path | None) -> ClusterObjects:
    """A snapshot of a running cluster, by one list of each kind.

    Raises:
        InputError: the kubeconfig cannot be used.
        NotRead: a list that every plan needs cannot be read.
    """
    transport = await connect(str(kubeconfig) if kubeconfig else None)
    try:
        reader = Reader(transport)
        lists = await asyncio.gather(*(reader.all(each.resource) for each in _LISTS))
    finally:
        await transport.close()
    gaps, found = [], {}
    for each, listed in zip(_LISTS, lists, strict=True):
        if not isinstance(listed, Unavailable):
            found[each.field] = list(listed)
        elif each.missing:
            gaps.append(f"{each.missing}: {listed.why}")
        else:
            raise SnapshotError(listed.why)
    for kind, number in reader.malformed.items():
        gaps.append(
            f"{pluralize(number, f'object of the kind {kind}', f'objects of the kind {kind}')} cannot be decoded"
        )
    return _snapshot(found, gaps)


def _view(value: dict[str, Any], resource: Resource[V]) -> V:
    try:
        return msgspec.convert(value, resource.view)
    except msgspec.ValidationError as error:
        metadata = value["metadata"]
        where = f"{resource.kind} {metadata.get('namespace', '')}/{metadata['name']}"
        raise InputError(describe_wrong_type(value, error)[1], where) from None


def _snapshot(found: dict[str, list[Any]], gaps: list[str]) -> ClusterObjects:
    kubevirts = cast("Sequence[KubeVirt]", found.pop("kubevirts"))
    if found.pop("policies", None):
        gaps.append("MigrationPolicies can change bandwidths and timeouts, which is not evaluated")
    install = KubeVirtInstall.of(kubevirts)
    configuration = install.configuration if install else DEFAULTS
    if isinstance(configuration, Unavailable):
        raise SnapshotError(f"KubeVirt's configuration cannot be decoded: {configuration.why}")
    if install is None:
        gaps.append("no KubeVirt object was found, so KubeVirt's built-in settings apply")
    lists: Any = {field: tuple(listed) for field, listed in found.items()}
    return ClusterObjects(
        **lists,
        kubevirt=configuration,
        gaps=tuple(dict.fromkeys(gaps)),
    )
