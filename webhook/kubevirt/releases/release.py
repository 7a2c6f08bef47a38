"""A release of KubeVirt: what it can do and what it knows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from webhook.kubevirt.releases import fields
from webhook.kubevirt.releases import version as versions
from webhook.kubevirt.releases.capabilities import CAPABILITIES
from webhook.kubevirt.releases.capability import Capability
from webhook.kubevirt.releases.definitions import Definitions
from webhook.kubevirt.releases.version import Version


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """One release in one cluster; of equal ones there is one object, so that what is derived from it can be kept by it.

    Attributes:
        version: of a version newer than any known one its own, with the newest rules.
        capabilities: those that it has.
        definitions: what the cluster's CustomResourceDefinitions know; None: the tables of the version count.
    """

    version: Version
    capabilities: frozenset[Capability]
    definitions: Definitions | None = None

    def has(self, capability: Capability) -> bool:
        """Whether the release has a capability."""
        return capability in self.capabilities

    def unknown_fields(self, kind: str) -> frozenset[str]:
        """The paths below ``spec`` of a kind that the cluster does not know, though rules here do."""
        table = fields.unknown_fields(self.rules_version, kind)
        return table if self.definitions is None else self.definitions.unknown_fields(kind, table)

    @property
    def rules_version(self) -> Version:
        """The version whose rules count."""
        return _rules_version(self.version)

    @property
    def is_newer(self) -> bool:
        """Whether it is of a minor version that came after all known ones."""
        return self.version.line > versions.NEWEST.line

    @property
    def is_supported(self) -> bool:
        """Whether its rules are known, or it is newer than those that are."""
        return self.version >= versions.OLDEST

    @property
    def support(self) -> str:
        """Whether its rules are known: ``known``, ``newer`` (the newest ones count) or ``too-old``."""
        if not self.is_supported:
            return "too-old"
        return "newer" if self.is_newer else "known"

    def __str__(self) -> str:
        return str(self.version)


@lru_cache(maxsize=64)
def _rules_version(version: Version) -> Version:
    return min(version, versions.NEWEST) if version.line > versions.NEWEST.line else version


@lru_cache(maxsize=64)
def release_of(version: Version, definitions: Definitions | None = None) -> Release:
    """The release of a version, in a cluster with such definitions."""
    known = _rules_version(version)
    return Release(version, frozenset(each for each in CAPABILITIES.values() if each.is_in(known)), definitions)


NEWEST: Final = release_of(versions.NEWEST)
