"""KubeVirt's configuration of a cluster, from its KubeVirt objects."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from webhook.errors import InputError, Unavailable
from webhook.kubevirt.configuration import Configuration
from webhook.objects import KubeVirt


class Configured:
    """Reads KubeVirt objects, and remembers the last one's configuration: it hardly ever changes."""

    def __init__(self) -> None:
        self._read: KubeVirt | None = None
        self._found: Configuration | Unavailable | None = None

    def of(self, kubevirts: Iterable[KubeVirt]) -> Configuration | Unavailable | None:
        """The configuration of the one that KubeVirt's operator has taken up; None where there is no object at all."""
        candidates = list(kubevirts)
        if not candidates:
            return None
        counts = next((one for one in candidates if one.status and one.status.phase), candidates[0])
        if counts is not self._read:
            self._read, self._found = counts, _configuration(counts)
        return self._found


def _configuration(kubevirt: KubeVirt) -> Configuration | Unavailable:
    try:
        return Configuration.of_kubevirt(msgspec.to_builtins(kubevirt))
    except InputError as error:
        return Unavailable(f"KubeVirt's configuration can't be read: {error}")
