"""Which release of KubeVirt runs in a cluster, by what its operator writes into the KubeVirt object's status."""

from __future__ import annotations

from webhook.releases.release import Release, release_of
from webhook.releases.version import parse_version


def detect(observed: str, target: str, operator: str) -> Release | None:
    """The release whose rules count; None where the texts name none.

    During an update the components of both versions run. The older one's rules count until it is done: what it admits
    the newer one admits, and what it does not know is not written.

    Args:
        observed: ``observedKubeVirtVersion``, which follows when an update is done.
        target: ``targetKubeVirtVersion``, which is ahead during an update.
        operator: ``operatorVersion``; it counts where a vendor's build writes digests of images into the other two.
    """
    named = [version for text in (observed, target) if (version := parse_version(text))]
    version = min(named) if named else parse_version(operator)
    return None if version is None else release_of(version)
