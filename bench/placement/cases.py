"""The two cases that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook import names


@dataclass(frozen=True, slots=True)
class Case:
    """A namespace, and the scheduler that its launcher pods are to end up with.

    Attributes:
        key: what programs call it, in the JSON.
        title: what people do.
        labels: the namespace's; they decide whether the API server calls us.
        mark: the annotation's value that our webhook leaves on the pods; None: it must not have touched them.
    """

    key: str
    title: str
    namespace: str
    scheduler: str
    labels: Mapping[str, str] = field(default_factory=dict)
    mark: str | None = None


NOT_OPTED_IN: Final = Case("default-scheduler", "default-scheduler", "not-opted-in", names.DEFAULT_SCHEDULER)
OPTED_IN: Final = Case(
    "kubevirt",
    "kubevirt, through the webhook",
    "opted-in",
    "kubevirt",
    {names.job_label(names.SCHEDULING): names.ENFORCE},
    mark="kubevirt",
)
CASES: Final = (NOT_OPTED_IN, OPTED_IN)
