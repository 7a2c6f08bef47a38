"""KubeVirt's version numbers, as its objects, its settings and people write them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# What stands behind the numbers (a pre-release, a commit, a vendor's build) never changes the rules here.
_WRITTEN: Final = re.compile(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?:[-+_][0-9A-Za-z._+-]{0,200})?")


class Version(NamedTuple):
    """A release of KubeVirt. Versions compare by age."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def line(self) -> tuple[int, int]:
        """The minor version, whose patch releases follow each other."""
        return self.major, self.minor


# Of every supported minor version the patch release whose rules are known; the last is the newest.
KNOWN: Final = (Version(1, 6, 6), Version(1, 7, 4), Version(1, 8, 4), Version(1, 9, 0))
OLDEST: Final = Version(1, 6, 0)
NEWEST: Final = KNOWN[-1]

_PATCHES: Final = {version.line: version.patch for version in KNOWN}
# OpenShift Virtualization counts its own versions: 4.20 is built from KubeVirt 1.6, 4.21 from 1.7, and so on.
_OPENSHIFT: Final = 4
_OPENSHIFT_AHEAD: Final = 14
_FIRST_OPENSHIFT: Final = 14


def parse_version(text: str) -> Version | None:
    """The KubeVirt version that a text names; None where it names none.

    Args:
        text: ``1.7``, ``v1.7.4``, ``v1.9.0-rc.1``, or a version of OpenShift Virtualization such as ``4.20.1``. Without
            a patch release, and for OpenShift Virtualization, whose patch releases do not follow KubeVirt's, the last
            known one of the minor version.
    """
    match = _WRITTEN.fullmatch(text)
    if match is None:
        return None
    major, minor, patch = (None if number is None else int(number) for number in match.groups())
    assert major is not None
    assert minor is not None
    if major == _OPENSHIFT and minor >= _FIRST_OPENSHIFT:
        major, minor, patch = 1, minor - _OPENSHIFT_AHEAD, None
    return Version(major, minor, _PATCHES.get((major, minor), 0) if patch is None else patch)
