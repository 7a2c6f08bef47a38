"""What the API server says of the webhooks that it called, between two moments."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from prometheus_client.parser import text_string_to_metric_families

_DURATIONS: Final = "apiserver_admission_webhook_admission_duration_seconds"
_PASSED_OVER: Final = "apiserver_admission_webhook_fail_open_count"
# Of a few megabytes.
_LINES: Final = re.compile(f"^(?:{_DURATIONS}_(?:sum|count)|{_PASSED_OVER}).*$", re.MULTILINE)


class Calls(NamedTuple):
    """The calls for objects that are created.

    Attributes:
        total: how many.
        seconds: what all of them took; the API server applies the patches within.
        passed_over: calls that failed, after which the API server went on without an answer.
    """

    total: int = 0
    seconds: float = 0.0
    passed_over: int = 0

    @classmethod
    def of(cls, text: str) -> Self:
        """The calls in the API server's metrics, since it began."""
        count, seconds, passed_over = 0, 0.0, 0
        for family in text_string_to_metric_families("\n".join(_LINES.findall(text))):
            for sample in family.samples:
                if sample.name.startswith(_PASSED_OVER):
                    passed_over += int(sample.value)
                elif sample.labels.get("operation") == "CREATE" and sample.name.endswith("_sum"):
                    seconds += sample.value
                elif sample.labels.get("operation") == "CREATE":
                    count += int(sample.value)
        return cls(count, seconds, passed_over)

    def since(self, before: Calls) -> Calls:
        """The calls that these have beyond the earlier ones."""
        return Calls(self.total - before.total, self.seconds - before.seconds, self.passed_over - before.passed_over)
