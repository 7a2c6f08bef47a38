"""Which fields a cluster's CustomResourceDefinitions know; else `webhook.kubevirt.releases.fields` counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from webhook.kubevirt.releases.fields import FIELDS, HOLDERS, ReleaseField
from webhook.kubevirt.releases.version import KNOWN, Version


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

    def settled(self, is_settled: bool) -> Definitions:
        """The same, of the release whose rules count, or not."""
        return replace(self, is_settled=is_settled)

    def of(self, kind: str) -> DefinedFields | None:
        """What is said of a kind; None where its definition has not been read."""
        return dict(self.kinds).get(kind)

    def unknown_fields(self, kind: str, table: frozenset[str]) -> frozenset[str]:
        """The fields of a kind that the cluster does not know.

        Args:
            kind: the name of the kind.
            table: those that the release does not know by the tables.
        """
        defined = self.of(kind)
        if defined is None:
            return table
        return (table - defined.present if self.is_settled else table) | defined.absent

    @property
    def version(self) -> Version | None:
        """The release that the definitions come from, by the newest fields that they have; None where none shows."""
        for version, following in zip(reversed(KNOWN), (None, *reversed(KNOWN)), strict=False):
            if self._have_all(version) and (following is None or self._lack_one(following)):
                return version
        return None

    def _have_all(self, version: Version) -> bool:
        return all(path in defined.present for defined, path in self._fields_of(version))

    def _lack_one(self, version: Version) -> bool:
        return any(path in defined.absent for defined, path in self._fields_of(version))

    def _fields_of(self, version: Version) -> Iterator[tuple[DefinedFields, str]]:
        """What the tables say that a release knows."""
        for kind, defined in self.kinds:
            for path, field in _table(kind):
                if field.is_in(version):
                    yield defined, path


def _table(kind: str) -> list[tuple[str, ReleaseField]]:
    return [
        (f"{prefix}{field.path}", field)
        for holder, prefix in HOLDERS.get(kind, ())
        for field in FIELDS
        if field.kind == holder
    ]


def table_paths(kind: str) -> list[str]:
    """The paths below ``spec`` of a kind that not every release knows."""
    return [path for path, _ in _table(kind)]
