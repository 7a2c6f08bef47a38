"""KubeVirt's installation in a cluster, from its KubeVirt objects: where it runs, and its configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from webhook.errors import InputError, Unavailable
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.rules import rules_of
from webhook.kubevirt.views import KubeVirt
from webhook.releases.release import Release, release_of
from webhook.releases.version import parse_version

_NOWHERE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class KubeVirtInstall:
    """KubeVirt's installation in a cluster.

    Attributes:
        namespaces: the namespaces that hold a KubeVirt object: ``kubevirt`` upstream, ``openshift-cnv`` on OpenShift,
            ``harvester-system`` on Harvester; empty where only the settings say which release counts.
        configuration: KubeVirt's configuration; `Unavailable` where it cannot be decoded.
    """

    namespaces: frozenset[str]
    configuration: ClusterConfig | Unavailable = DEFAULTS

    @classmethod
    def of(cls, kubevirts: Iterable[KubeVirt], release: Release | None = None) -> KubeVirtInstall | None:
        """The installation that a cluster's KubeVirt objects describe.

        Args:
            kubevirts: all KubeVirt objects of the cluster.
            release: the release that counts, whatever the objects say; None: the one that they name.

        Returns:
            The installation; None where there is neither a KubeVirt object nor a release.
        """
        objects = tuple(kubevirts)
        kubevirt = find_in_use(objects)
        if kubevirt is None:
            return cls(_NOWHERE, ClusterConfig.of(None, rules=rules_of(release))) if release else None
        namespaces = frozenset(each.meta.namespace or "" for each in objects)
        try:
            return cls(namespaces, ClusterConfig.of_kubevirt(kubevirt, release))
        except InputError as error:
            return cls(namespaces, Unavailable(str(error)))


def find_in_use(kubevirts: Iterable[KubeVirt]) -> KubeVirt | None:
    """The KubeVirt object that KubeVirt's operator has taken up, else the first one; None where there is none."""
    objects = tuple(kubevirts)
    return next((each for each in objects if each.is_in_use), objects[0] if objects else None)


class InstallReader:
    """Reads KubeVirt objects once, and again when they or the declared version have changed, which is rare.

    Args:
        version: the KubeVirt version whose rules count, whatever the objects say; empty: the one that they name.
    """

    def __init__(self, version: str = "") -> None:
        self._objects: tuple[KubeVirt, ...] = ()
        self.use(version)

    def use(self, version: str) -> None:
        """Let another version count from now on."""
        parsed = parse_version(version)
        self._release = None if parsed is None else release_of(parsed)
        self._install = KubeVirtInstall.of(self._objects, self._release)

    def read(self, kubevirts: Iterable[KubeVirt]) -> KubeVirtInstall | None:
        """The installation that all KubeVirt objects of the cluster describe; the same one until they change."""
        objects = tuple(kubevirts)
        # A watched copy replaces an object that has changed, so identity shows it, without comparing configurations.
        if list(map(id, objects)) != list(map(id, self._objects)):
            self._objects = objects
            self._install = KubeVirtInstall.of(objects, self._release)
        return self._install
