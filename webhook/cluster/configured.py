"""KubeVirt's configuration of a cluster, from its KubeVirt objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from webhook.errors import InputError, Unavailable
from webhook.kubevirt.config import ClusterConfig
from webhook.kubevirt.views import KubeVirt
from webhook.placement import kubevirt_config


class Configured:
    """Reads KubeVirt objects, and remembers what the last one said: it hardly ever changes."""

    def __init__(self) -> None:
        self._read: KubeVirt | None = None
        self._rules: ClusterConfig | Unavailable | None = None
        self._placement: kubevirt_config.PlacementKubeVirt | Unavailable | None = None

    def of(self, kubevirts: Iterable[KubeVirt]) -> ClusterConfig | Unavailable | None:
        """For the rules about VMIs; None where there is no KubeVirt.

        Of several objects the one counts that KubeVirt's operator has taken up.
        """
        self._take(kubevirts)
        return self._rules

    def placement(self, kubevirts: Iterable[KubeVirt]) -> kubevirt_config.PlacementKubeVirt | Unavailable | None:
        """The same for what is asked of nodes."""
        self._take(kubevirts)
        return self._placement

    def _take(self, kubevirts: Iterable[KubeVirt]) -> None:
        candidates = list(kubevirts)
        counts = next((one for one in candidates if one.status and one.status.phase), next(iter(candidates), None))
        if counts is self._read:
            return
        self._read, self._rules, self._placement = counts, None, None
        if counts is not None:
            plain = msgspec.to_builtins(counts)
            self._rules, self._placement = _rules(plain), _placement(plain)


_UNREADABLE: Final = "KubeVirt's configuration can't be read"


def _rules(plain: Any) -> ClusterConfig | Unavailable:
    try:
        return ClusterConfig.of_kubevirt(plain)
    except InputError as error:
        return Unavailable(f"{_UNREADABLE}: {error}")


def _placement(plain: Any) -> kubevirt_config.PlacementKubeVirt | Unavailable:
    try:
        return msgspec.convert(plain, kubevirt_config.PlacementKubeVirt)
    except msgspec.ValidationError:
        return Unavailable(_UNREADABLE)
