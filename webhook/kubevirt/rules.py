"""KubeVirt's rules as one release has them: what it does, and the types that it does it to."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from webhook.kubevirt.releases import release as releases
from webhook.kubevirt.releases.capability import Capability
from webhook.kubevirt.releases.release import Release
from webhook.kubevirt.types.released import Types


class Rules:
    """What a rule has to know of the release whose rule it is; made once for each release.

    Attributes:
        release: the release.
        types: the types of the objects that it reads and writes.
    """

    __slots__ = ("_capabilities", "release", "types")

    def __init__(self, release: Release) -> None:
        self.release: Final = release
        self.types: Final = Types(release)
        self._capabilities: Final = release.capabilities

    def has(self, capability: Capability) -> bool:
        """Whether the release has a capability."""
        return capability in self._capabilities


@lru_cache(maxsize=64)
def rules_of(release: Release) -> Rules:
    """The rules of a release."""
    return Rules(release)


NEWEST: Final = rules_of(releases.NEWEST)
