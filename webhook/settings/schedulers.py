"""The schedulers that the settings declare."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from webhook import names
from webhook.errors import quote
from webhook.settings.fields import LABEL, SUBDOMAIN, Derived, SchedulerName, derived, form, mistake
from webhook.settings.section import Section

_HEALTH_CHECK: Final = f"off|pods|lease +{LABEL}/{SUBDOMAIN}"


def _check_scheduler_name(text: str) -> str:
    if text == names.DEFAULT_SCHEDULER:
        what = f"{names.DEFAULT_SCHEDULER} cannot be declared: in a VM it means that the owner opted out"
        raise mistake("default-scheduler", what, "declare another scheduler")
    return text


DeclaredName = Annotated[SchedulerName, AfterValidator(_check_scheduler_name)]
HealthCheckText = Annotated[
    str,
    BeforeValidator(lambda value: "off" if value is False else value),
    form(re.compile(_HEALTH_CHECK).fullmatch, "is not a valid health check", "use lease NAMESPACE/NAME, pods or off"),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": f"^(?:{_HEALTH_CHECK})$"}, {"const": False}]}),
]


@dataclass(frozen=True)
class HealthCheck:
    """How a scheduler's health is watched.

    Attributes:
        kind: ``lease`` (its leader election Lease, and pods), ``pods`` (only pods that wait without a condition) or
            ``off``.
        namespace: namespace of the Lease; empty for the other kinds.
        name: name of the Lease; empty for the other kinds.
    """

    kind: Literal["lease", "pods", "off"]
    namespace: str = ""
    name: str = ""


class SchedulerSettings(Section):
    """A scheduler whose name kubevirt-webhook may set."""

    # The profile's name, which is the section's key.
    name: Derived[str] = derived("")
    health_check: HealthCheckText = Field(
        examples=["pods"],
        description=(
            "Health check: lease NAMESPACE/NAME (its leader election Lease, and pods that it does not try to schedule),"
            " pods (only those pods) or off."
        ),
    )
    assume_alive: bool = Field(
        default=False,
        description="Set its name also while its health is unknown, for example directly after the start.",
    )
    only_by_webhook: bool = Field(
        default=False,
        description=(
            "No VM owner chooses this scheduler, so its name counts as set by kubevirt-webhook even if the annotation"
            " injected-scheduler is missing, for example in a clone that filters annotations."
        ),
    )

    @property
    def watched(self) -> HealthCheck:
        """The health check, in its parts."""
        if self.health_check.startswith("lease"):
            namespace, _, lease = self.health_check.removeprefix("lease").strip().partition("/")
            return HealthCheck("lease", namespace, lease)
        return HealthCheck("pods" if self.health_check == "pods" else "off")


def undeclared(scheduler: str, declared: Collection[str]) -> PydanticCustomError:
    """The error about a scheduler that ``scheduling`` names and ``schedulers`` does not declare."""
    fix = f"declare it, or use {' or '.join(sorted(declared))}" if declared else "declare it"
    return mistake("undeclared", f"{quote(scheduler)} is not declared under schedulers", fix, "schedulerName")
