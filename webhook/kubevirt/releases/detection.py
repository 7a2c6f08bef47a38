"""Which release of KubeVirt runs in a cluster, by what its operator writes into the KubeVirt object's status."""

from __future__ import annotations

from webhook.kubevirt.releases.definitions import Definitions
from webhook.kubevirt.releases.release import Release, release_of
from webhook.kubevirt.releases.version import Version, parse_version


def detect(observed: str, target: str, operator: str, definitions: Definitions | None = None) -> Release | None:
    """The release whose rules count; None where nothing shows which one that is.

    During an update the components of both versions run. The older one's rules count until it is done: what it admits
    the newer one admits, and what it does not know is not written.

    Args:
        observed: ``observedKubeVirtVersion``, which follows when an update is done.
        target: ``targetKubeVirtVersion``, which is ahead during an update.
        operator: ``operatorVersion``; it counts where a vendor's build writes digests of images into the other two.
        definitions: what the cluster's definitions know; they show the release where none of the texts names one.
    """
    named = [version for text in (observed, target) if (version := parse_version(text))]
    version = min(named) if named else parse_version(operator)
    if version is None and definitions is not None:
        version = definitions.version
    if version is None:
        return None
    return release_of(version, definitions and definitions.settled(not is_updating(observed, target)))


def declare(version: Version, named: Release | None, definitions: Definitions | None) -> Release:
    """The release that the settings declare, whatever the KubeVirt object says.

    Args:
        version: the version that they declare.
        named: the release that the object names; None where it names none.
        definitions: what the cluster's definitions know.
    """
    if definitions is None:
        return release_of(version)
    shown = named.version if named else definitions.version
    is_updated = named is None or named.definitions is None or named.definitions.is_settled
    return release_of(version, definitions.settled(is_updated and (shown is None or shown.line == version.line)))


def is_updating(observed: str, target: str) -> bool:
    """Whether KubeVirt is being updated: its components are not all of the version that its operator installs."""
    return bool(observed and target) and observed != target
