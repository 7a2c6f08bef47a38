"""The fields of KubeVirt's API that not every release knows, as its CustomResourceDefinitions say.

An API server drops the fields that a CRD does not know, so that a release neither reads nor stores them. Where the
definitions of a cluster have been read, they count, and not the table here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from webhook.kubevirt.releases import field_table
from webhook.kubevirt.releases.capabilities import SUPPORTED_VERSIONS, Version, releases

VMI: Final = "VirtualMachineInstance"
VIRTUAL_MACHINE: Final = "VirtualMachine"
INSTANCETYPE: Final = "VirtualMachineInstancetype"
CLUSTER_INSTANCETYPE: Final = "VirtualMachineClusterInstancetype"
PREFERENCE: Final = "VirtualMachinePreference"
CLUSTER_PREFERENCE: Final = "VirtualMachineClusterPreference"
_SCOPED: Final = {CLUSTER_INSTANCETYPE: INSTANCETYPE, CLUSTER_PREFERENCE: PREFERENCE}


@dataclass(frozen=True, slots=True)
class ReleaseField:
    """A field and the release that has brought it.

    Attributes:
        kind: the kind that has it; of a VMI, the templates of VMs have it too; of an instancetype or preference, both
            scopes.
        path: the path below ``spec``; lists are passed without an index.
    """

    kind: str
    path: str
    since: Version


FIELDS: Final = tuple(
    ReleaseField(kind, path, *releases(since)) for (kind, since), paths in field_table.PATHS.items() for path in paths
)


def table(kind: str) -> Iterator[tuple[str, ReleaseField]]:
    """The fields of a kind that not every release knows, by their paths below ``spec``; none of a foreign kind."""
    own = _SCOPED.get(kind, kind)
    for field in FIELDS:
        if field.kind == own:
            yield field.path, field
        elif (field.kind, kind) == (VMI, VIRTUAL_MACHINE):
            yield f"template.spec.{field.path}", field


def unknown_fields(version: Version, kind: str) -> frozenset[str]:
    """The paths below ``spec`` of a kind that a release does not know and newer ones do; none of a foreign kind."""
    return frozenset(path for path, field in table(kind) if version < field.since)


@dataclass(frozen=True, slots=True)
class DefinedFields:
    """What the definition of one kind says of the fields that rules here read or write, as paths below ``spec``.

    A definition says nothing of fields below an object that preserves unknown fields.

    Attributes:
        present: of the fields in the tables those that it has.
        absent: of all fields those that it lacks, so that the API server drops them.
    """

    present: frozenset[str]
    absent: frozenset[str]


@dataclass(frozen=True, slots=True)
class Definitions:
    """What the definitions of a cluster's kinds say.

    Attributes:
        kinds: by the name of the kind, those that have been read.
        is_settled: whether they are those of the release whose rules count. While KubeVirt is updated, a release does
            not know a field for the reason alone that the definitions of the next one have it.
    """

    kinds: tuple[tuple[str, DefinedFields], ...]
    is_settled: bool = True

    def unknown_fields(self, kind: str, table: frozenset[str]) -> frozenset[str]:
        """The fields of a kind that the cluster does not know, given those that the release lacks by the tables."""
        defined = dict(self.kinds).get(kind)
        if defined is None:
            return table
        return (table - defined.present if self.is_settled else table) | defined.absent

    @property
    def version(self) -> Version | None:
        """The release that the definitions come from, by the newest fields that they have; None where none shows."""
        following = None
        for version in reversed(SUPPORTED_VERSIONS):
            has_all = all(path in defined.present for defined, path in self._fields_of(version))
            lacks = following and any(path in defined.absent for defined, path in self._fields_of(following))
            if has_all and (following is None or lacks):
                return version
            following = version
        return None

    def _fields_of(self, version: Version) -> Iterator[tuple[DefinedFields, str]]:
        """What the tables say that a release knows."""
        for kind, defined in self.kinds:
            yield from ((defined, path) for path, field in table(kind) if version >= field.since)
