"""Objects of the cluster that can't be decoded: passed over, counted, and logged once each."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from typing import Any, Final

from webhook.objects import Object, Resource

# Names that are remembered, so that an object is not logged with every change of it.
_REMEMBERED: Final = 1_000

logger = logging.getLogger(__name__)


class Skipped:
    """What was passed over.

    Attributes:
        counts: by plural.
    """

    def __init__(self) -> None:
        self.counts: Final[Counter[str]] = Counter()
        self._logged: Final[OrderedDict[tuple[str, str, str], None]] = OrderedDict()

    def note(self, resource: Resource[Any], found: Object | None) -> None:
        """An object was passed over; of one without a readable name only that it was."""
        self.counts[resource.plural] += 1
        namespace, name = (found.meta.namespace or "", found.meta.name or "") if found else ("", "")
        key = (resource.plural, namespace, name)
        if key in self._logged:
            return
        self._logged[key] = None
        if len(self._logged) > _REMEMBERED:
            self._logged.popitem(last=False)
        where = f"{namespace}/{name}" if namespace else name or "without a name"
        logger.warning("%s: %s is nested too deeply to be decoded; it is ignored", resource.plural, where)


# One for the process: lists and watches are many, and one counter tells of all of them.
SKIPPED: Final = Skipped()
