"""What one release of KubeVirt does and another does not, as data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from webhook.kubevirt.releases.version import Version


# Compared and hashed by identity: a set of them is looked up several times in each review.
@dataclass(frozen=True, slots=True, eq=False)
class Capability:
    """A difference between releases.

    Attributes:
        what: what a release that has it does, a clause that goes on "KubeVirt …".
        source: KubeVirt's pull request or commit, else the package.
        since: the first releases that have it: the first patch release of each minor version that got it later than
            the minor version did. Later minor versions have it, earlier ones do not.
        until: the first releases that do not have it any more, in the same way; empty: it is still there.
        never: single releases that lack it.
    """

    what: str
    source: str
    since: tuple[Version, ...]
    until: tuple[Version, ...] = ()
    never: frozenset[Version] = frozenset()

    def is_in(self, version: Version) -> bool:
        """Whether a release has it."""
        return is_reached(self.since, version) and not is_reached(self.until, version) and version not in self.never


# A review asks a dozen times, always of the same release.
@lru_cache(maxsize=1024)
def is_reached(firsts: tuple[Version, ...], version: Version) -> bool:
    """Whether a release is at or after the first ones of a change, of which each minor version may have its own."""
    for first in firsts:
        if first.line == version.line:
            return version >= first
    return any(first.line < version.line for first in firsts)


def capability(what: str, source: str, *, since: str, until: str = "", never: str = "") -> Capability:
    """A capability whose releases are written ``1.6.4 1.7.2 1.8.0``."""
    return Capability(what, source, releases(since), releases(until), frozenset(releases(never)))


def releases(text: str) -> tuple[Version, ...]:
    """Releases written ``1.6.4 1.7.2``, each in full."""
    return tuple(Version(*map(int, release.split("."))) for release in text.split())
