"""Every rule of KubeVirt's in which releases differ, by name; `webhook.kubevirt.releases.fields` has the fields.

A rule that depends on the release takes ``rules.has(NAME)`` or ``release.has(NAME)``, and there is one such place for
each. The table in docs/fidelity.md is made of this module by ``python hack/capabilities.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
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
SUPPORTED_VERSIONS: Final = (Version(1, 6, 6), Version(1, 7, 4), Version(1, 8, 4), Version(1, 9, 0))
OLDEST: Final = Version(1, 6, 0)
NEWEST: Final = SUPPORTED_VERSIONS[-1]
# What is known of it was read in KubeVirt's main branch (2026-08-22) and counts where it runs; it was never run here.
UNRELEASED: Final = Version(1, 10, 0)

_PATCHES: Final = {version.line: version.patch for version in SUPPORTED_VERSIONS}
# OpenShift Virtualization counts its own versions: 4.20 is built from KubeVirt 1.6, 4.21 from 1.7, 4.22 from 1.8, 5.0
# from 1.9, and so on (HyperConverged Cluster Operator 1.16 to 1.19, hack/config). OpenShift 4.23 comes at the same time
# as 5.0. By major version: the first minor version that is read, and the minor version of its KubeVirt.
_OPENSHIFT: Final = {4: (14, 0), 5: (0, 9)}


def parse_version(text: str) -> Version | None:
    """The KubeVirt version that a text names; None where it names none.

    Texts are like ``1.7``, ``v1.7.4``, ``v1.9.0-rc.1``, or a version of OpenShift Virtualization such as ``4.20.1`` or
    ``v5.0.0-87``.
    Without a patch release, and for OpenShift Virtualization, whose patch releases do not follow KubeVirt's, it is the
    last known one of the minor version.
    """
    match = _WRITTEN.fullmatch(text)
    if match is None:
        return None
    major, minor, patch = (None if number is None else int(number) for number in match.groups())
    assert major is not None
    assert minor is not None
    if major in _OPENSHIFT:
        first, of_kubevirt = _OPENSHIFT[major]
        if minor >= first:
            major, minor, patch = 1, minor - first + of_kubevirt, None
    return Version(major, minor, _PATCHES.get((major, minor), 0) if patch is None else patch)


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
    """A capability whose releases are written as `releases` reads them."""
    return Capability(what, source, releases(since), releases(until), frozenset(releases(never)))


def releases(text: str) -> tuple[Version, ...]:
    """Releases written ``1.6.4 1.7.2``, each in full."""
    return tuple(Version(*map(int, release.split("."))) for release in text.split())


# What KubeVirt's webhook for VMs does.
FILLS_MATCHER_KIND: Final = capability(
    "writes the cluster-wide kind, in lower case, into matchers without a kind", "#15009", since="1.6.0", until="1.7.0"
)
CLEARS_NAMES_BEFORE_INFERENCE: Final = capability(
    "calls a name beside inferFromVolume not supported, and not as before not found", "#15396", since="1.7.0"
)
INFERS_FROM_SNAPSHOTS: Final = capability(
    "infers from the labels of a VolumeSnapshot that a DataVolume or DataSource is made of", "#18337", since="1.9.0"
)
ARCHITECTURE_FROM_DATA_SOURCE: Final = capability(
    "takes a VM's architecture from the label of its DataVolume templates' DataSource",
    "pkg/virt-api/webhooks",
    since="1.6.4 1.7.0",
)
WRITES_FIRMWARE_SERIAL: Final = capability(
    "gives the firmware of a new VM a serial number", "pkg/virt-api/webhooks", since="1.6.1 1.7.0"
)
WARNS_OF_LAUNCH_SECURITY: Final = capability(
    "warns that launchSecurity of an instancetype is deprecated", "#17551", since="1.9.0"
)

# Instancetypes and preferences.
STORES_MATCHERS_WITHOUT_KIND: Final = capability(
    "captures what a matcher without a kind names", "#15009", since="1.7.0"
)
READS_ALPHA_REVISIONS: Final = capability(
    "reads ControllerRevisions that hold v1alpha1 or v1alpha2 objects", "#15400", since="1.6.0", until="1.7.0"
)
MEMORY_CONFLICT_PER_MEMBER: Final = capability(
    "finds a conflict only in the members of memory that both sides set, and keeps the others", "#14685", since="1.7.0"
)
ADDS_PREFERRED_PANIC_DEVICE: Final = capability(
    "adds a panic device of the preferred model to VMs without any", "#18314", since="1.9.0"
)

# What KubeVirt sets by default.
KNOWS_PPC64LE: Final = capability(
    "knows the architecture ppc64le, with the machine type pseries", "e1315deaf8", since="1.6.0", until="1.7.0"
)
CONFIGURES_S390X_MACHINE_TYPE: Final = capability(
    "takes the machine type of s390x from architectureConfiguration", "pkg/virt-config", since="1.7.0"
)
REQUESTS_GUEST_MEMORY: Final = capability(
    "writes the guest's memory, less the overcommitment, into requests.memory",
    "pkg/defaults",
    since="1.6.0",
    until="1.6.4 1.7.0",
    never="1.6.2",
)
DISABLES_SECURE_BOOT_ON_ARM64: Final = capability(
    "sets secureBoot to false in any EFI bootloader of arm64 that says nothing", "#16915", since="1.8.3"
)
WRITES_QGS_SOCKET_PATH: Final = capability(
    "annotates VMIs with TDX with the path of the quote generation service", "#15958", since="1.9.0"
)
WRITES_PCI_TOPOLOGY: Final = capability(
    "annotates VMs and VMIs with the version of their PCIe topology", "pkg/virt-api/webhooks", since="1.6.4 1.7.2 1.8.0"
)
PCI_TOPOLOGY_BY_ARCHITECTURE: Final = capability(
    "does so only for amd64 and arm64", "pkg/virt-api/webhooks", since="1.6.5 1.7.3 1.8.2"
)
PCI_TOPOLOGY_BY_MACHINE_TYPE: Final = capability(
    "does so only for machine types with PCIe", "pkg/virt-api/webhooks", since="1.6.6 1.7.4 1.8.3"
)

# Feature gates.
OPENS_BETA_GATES: Final = capability(
    "opens the feature gates in beta by default, unless developerConfiguration.disabledFeatureGates names them",
    "pkg/virt-config/featuregate",
    since="1.9.0",
)
# How objects are written.
OMITS_ZERO_BLOCK_SIZES: Final = capability(
    "leaves a custom block size of zero out of disks", "kubevirt.io/api", since="1.7.0"
)
OMITS_EMPTY_CLAIMS: Final = capability(
    "leaves empty names of claims and requests out of devices", "kubevirt.io/api", since="1.9.0"
)

# What target pods ask of nodes, and what migrations wait for.
REQUIRES_CPU_VENDOR: Final = capability(
    "keeps a VM on nodes of the CPU vendor that it runs on", "pkg/virt-controller/watch/migration", since="1.6.4 1.7.1"
)
SELECTS_SNP_AND_TDX_NODES: Final = capability(
    "requires node labels for SEV-SNP and TDX", "#14845, #14575", since="1.7.0"
)
REQUESTS_TDX_DEVICE: Final = capability(
    "requests the device devices.kubevirt.io/tdx for VMs with TDX", "pkg/virt-controller/services", since="1.9.0"
)
REQUESTS_RESERVED_OVERHEAD: Final = capability(
    "adds memory.reservedOverhead.addedOverhead to what a launcher pod requests", "pkg/hypervisor", since="1.8.0"
)
SEPARATES_PERSISTENT_RESERVATIONS: Final = capability(
    "keeps VMs with the same persistent reservation on different nodes", "pkg/storage/reservation", since="1.9.0"
)
HOLDS_MIGRATIONS_BACK: Final = capability(
    "holds migrations back while a backup runs or a utility volume is attached",
    "pkg/virt-controller/watch/migration",
    since="1.8.0",
)
FINDS_STATE_OF_LONG_NAMES: Final = capability(
    "migrates VMs whose persistent state (TPM, EFI) is on a claim whose name had to be cut off",
    "#16853",
    since="1.6.5 1.7.3 1.8.2",
)
CANCELS_EVACUATIONS: Final = capability(
    "takes the request to evacuate a VM back (evacuate/cancel)", "#15957", since="1.7.0"
)

CAPABILITIES: Final[dict[str, Capability]] = {
    name: value for name, value in dict(globals()).items() if isinstance(value, Capability)
}
