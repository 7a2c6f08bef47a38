"""KubeVirt's installation in a cluster, from its KubeVirt objects: where it runs, and its configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from webhook.errors import InputError, Unavailable
from webhook.kubevirt.config import DEFAULTS, ClusterConfig
from webhook.kubevirt.releases.definitions import Definitions
from webhook.kubevirt.releases.detection import declare, detect
from webhook.kubevirt.releases.version import Version, parse_version
from webhook.kubevirt.rules import rules_of
from webhook.kubevirt.views import KubeVirt, KubeVirtStatus

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
    def of(
        cls, kubevirts: Iterable[KubeVirt], declared: Version | None = None, definitions: Definitions | None = None
    ) -> KubeVirtInstall | None:
        """The installation that a cluster's KubeVirt objects describe.

        Args:
            kubevirts: all KubeVirt objects of the cluster.
            declared: the version that counts, whatever the objects say; None: the one that they name.
            definitions: what the cluster's CustomResourceDefinitions know; None: the tables of the version count.

        Returns:
            The installation; None where there is neither a KubeVirt object nor a declared version.
        """
        objects = tuple(kubevirts)
        kubevirt = find_in_use(objects)
        if kubevirt is None:
            release = declared and declare(declared, None, definitions)
            return cls(_NOWHERE, ClusterConfig.of(None, rules=rules_of(release))) if release else None
        namespaces = frozenset(each.meta.namespace or "" for each in objects)
        release = declared and declare(declared, detect(*versions_of(kubevirt), definitions), definitions)
        try:
            return cls(namespaces, ClusterConfig.of_kubevirt(kubevirt, release, definitions))
        except InputError as error:
            return cls(namespaces, Unavailable(str(error)))


def find_in_use(kubevirts: Iterable[KubeVirt]) -> KubeVirt | None:
    """The KubeVirt object that KubeVirt's operator has taken up, else the first one; None where there is none."""
    objects = tuple(kubevirts)
    return next((each for each in objects if each.is_in_use), objects[0] if objects else None)


def versions_of(kubevirt: KubeVirt) -> tuple[str, str, str]:
    """The versions that KubeVirt's operator has written into the object, as `detect` takes them."""
    return (kubevirt.status or KubeVirtStatus()).versions


class InstallReader:
    """Reads KubeVirt objects once, and again when they, the definitions or the declared version have changed.

    Args:
        version: the KubeVirt version whose rules count, whatever the objects say; empty: the one that they name.
        definitions: what the cluster's CustomResourceDefinitions know; None: the tables of the version count.
        learns: whether `learn` is called with the definitions each time the objects name other versions.
    """

    def __init__(self, version: str = "", definitions: Definitions | None = None, *, learns: bool = False) -> None:
        self._objects: tuple[KubeVirt, ...] = ()
        self._definitions = definitions
        self._learns: Final = learns
        self._learned_at: tuple[str, str, str] | None = None
        self.use(version)

    def use(self, version: str) -> None:
        """Let another version count from now on."""
        self._declared = parse_version(version)
        self._build()

    def learn(self, versions: tuple[str, str, str], definitions: Definitions | None) -> None:
        """Let these definitions count.

        Args:
            versions: what the KubeVirt object named when they were read; later ones may come with others.
            definitions: what they know; None: they could not be read.
        """
        self._learned_at, self._definitions = versions, definitions
        self._build()

    def read(self, kubevirts: Iterable[KubeVirt]) -> KubeVirtInstall | None:
        """The installation that all KubeVirt objects of the cluster describe; the same one until they change.

        While the definitions of another version are being read, the former installation counts: a review goes by the
        rules and the fields of one release.
        """
        objects = tuple(kubevirts)
        # A watched copy replaces an object that has changed, so identity shows it, without comparing configurations.
        if list(map(id, objects)) != list(map(id, self._objects)):
            self._objects = objects
            if self._install is None or self._knows_definitions:
                self._build()
        return self._install

    @property
    def _knows_definitions(self) -> bool:
        kubevirt = find_in_use(self._objects)
        return not self._learns or kubevirt is None or versions_of(kubevirt) == self._learned_at

    def _build(self) -> None:
        definitions = self._definitions if self._knows_definitions else None
        self._install = KubeVirtInstall.of(self._objects, self._declared, definitions)
