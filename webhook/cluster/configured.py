"""KubeVirt's configuration of a cluster, from its KubeVirt objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from webhook.errors import InputError, Unavailable
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.rules import rules_of
from webhook.kubevirt.views import KubeVirt
from webhook.placement import kubevirt_config
from webhook.releases.release import Release, release_of
from webhook.releases.version import parse_version


class Configured:
    """Reads KubeVirt objects, and remembers what the last one said: it hardly ever changes.

    Args:
        version: the KubeVirt version whose rules count, whatever the objects say; empty: the one that they name.
    """

    def __init__(self, version: str = "") -> None:
        self._release: Release | None = None
        self._read: KubeVirt | None = None
        self._rules: ClusterConfig | Unavailable | None = None
        self._placement: kubevirt_config.PlacementKubeVirt | Unavailable | None = None
        self.use(version)

    def use(self, version: str) -> None:
        """Let another version count from now on."""
        parsed = parse_version(version)
        self._release = None if parsed is None else release_of(parsed)
        self._update(self._read)

    def of(self, kubevirts: Iterable[KubeVirt]) -> ClusterConfig | Unavailable | None:
        """KubeVirt's configuration as its rules for VMs read it.

        Of several objects the one counts that KubeVirt's operator has taken up.

        Args:
            kubevirts: all KubeVirt objects of the cluster.

        Returns:
            The configuration; None where there is neither a KubeVirt object nor a version in the settings;
            `Unavailable` where it cannot be decoded.
        """
        self._take(kubevirts)
        return self._rules

    def placement(self, kubevirts: Iterable[KubeVirt]) -> kubevirt_config.PlacementKubeVirt | Unavailable | None:
        """KubeVirt's configuration as the rules of placement read it.

        Args:
            kubevirts: all KubeVirt objects of the cluster.

        Returns:
            The KubeVirt object in use; None where there is none; `Unavailable` where it cannot be decoded.
        """
        self._take(kubevirts)
        return self._placement

    def _take(self, kubevirts: Iterable[KubeVirt]) -> None:
        candidates = list(kubevirts)
        counts = candidates[0] if candidates else None
        if len(candidates) > 1:
            counts = next((one for one in candidates if one.status and one.status.phase), counts)
        if counts is not self._read:
            self._update(counts)

    def _update(self, counts: KubeVirt | None) -> None:
        self._read, self._rules, self._placement = counts, None, None
        if counts is not None:
            plain = msgspec.to_builtins(counts)
            self._rules, placement = _rules(plain, self._release), _placement(plain)
            self._placement = placement
            if not isinstance(self._rules, Unavailable) and not isinstance(placement, Unavailable):
                self._placement = placement.with_release(self._rules.rules.release)
        elif self._release is not None:
            self._rules = ClusterConfig.of(None, rules=rules_of(self._release))
            self._placement = kubevirt_config.BUILT_IN.with_release(self._release)


_UNREADABLE: Final = "KubeVirt's configuration cannot be read"


def _rules(plain: Any, release: Release | None) -> ClusterConfig | Unavailable:
    try:
        return ClusterConfig.of_kubevirt(plain, release)
    except InputError as error:
        return Unavailable(f"{_UNREADABLE}: {error}")


def _placement(plain: Any) -> kubevirt_config.PlacementKubeVirt | Unavailable:
    try:
        return msgspec.convert(plain, kubevirt_config.PlacementKubeVirt)
    except msgspec.ValidationError:
        return Unavailable(_UNREADABLE)
