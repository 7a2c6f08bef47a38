"""The section ``eviction`` of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Final, Literal

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
)

from webhook.settings.fields import Items, Syntax, mistake
from webhook.settings.policy_section import PolicySettings
from webhook.settings.section import Section

Requester = Annotated[
    str, Syntax("requester", "[A-Za-z0-9][-A-Za-z0-9_./]*", 253, "use the value of the annotation requested-by")
]
TimeOfDay = Annotated[
    str, Syntax("time of day", "([01][0-9]|2[0-3]):[0-5][0-9]|24:00", 5, "use HH:MM, from 00:00 to 24:00")
]
# Zones are UTC or a fixed offset: a named zone changes with daylight saving time, and would make the decision depend on
# the zone data of the machine.
_ZONE_FIX: Final = "use UTC or an offset such as +02:00; zone names are not supported"
Zone = Annotated[str, Syntax("time zone", "UTC|[-+](0[0-9]|1[0-4]):[0-5][0-9]", 40, _ZONE_FIX)]


Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
DAYS: Final[tuple[Day, ...]] = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

# Minutes.
_DAY: Final = 24 * 60
WEEK: Final = 7 * _DAY


class Blackout(Section):
    """A time of the week."""

    days: Items[Day] = Field(
        default=DAYS,
        description="Days on which it begins. Absent: every day.",
        json_schema_extra={"minItems": 1},
    )
    begin: TimeOfDay = Field(
        validation_alias="from", serialization_alias="from", examples=["08:00"], description="Begin, as HH:MM."
    )
    end: TimeOfDay = Field(
        validation_alias="to",
        serialization_alias="to",
        examples=["18:00"],
        description="End, as HH:MM; on the next day if it is earlier than the begin.",
    )
    time_zone: Zone = Field(
        default="UTC",
        description="Time zone: UTC or an offset such as +02:00. Zone names are not supported.",
    )

    @field_validator("days")
    @classmethod
    def _check_days(cls, days: tuple[Day, ...]) -> tuple[Day, ...]:
        if not days:
            raise mistake("empty-time", "there is no day", "name days, or remove it for every day")
        return days

    @field_validator("end")
    @classmethod
    def _check_end(cls, end: str, info: ValidationInfo) -> str:
        if end == info.data.get("begin"):
            raise mistake("empty-time", f"begin and end are equal ({end})", "for whole days use 00:00 to 24:00")
        return end

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Begin and end in minutes since Monday 00:00 UTC, the end excluded; 0 <= begin < end <= `WEEK`."""
        return tuple(sorted(self._spans()))

    @property
    def text(self) -> str:
        """The time, for people."""
        days = [day for day in DAYS if day in self.days]
        name = "every day" if len(days) == len(DAYS) else ", ".join(days)
        return f"{name} from {self.begin} to {self.end} {self.time_zone}"

    def _spans(self) -> Iterator[tuple[int, int]]:
        begin, end = _minutes(self.begin), _minutes(self.end)
        lasts = end - begin if end > begin else end - begin + _DAY
        zone = self.time_zone
        ahead = 0 if zone == "UTC" else int(f"{zone[0]}1") * _minutes(zone[1:])
        for day in self.days:
            start = (DAYS.index(day) * _DAY + begin - ahead) % WEEK
            yield start, min(start + lasts, WEEK)
            if start + lasts > WEEK:
                yield 0, start + lasts - WEEK


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


class EvictionSettings(PolicySettings):
    """The eviction policy: denies evictions by the descheduler that cannot succeed, and limits their rate."""

    cluster_wide: bool = Field(
        default=False, description="Also enforce in namespaces without the label kubevirt-webhook.github.io/eviction."
    )
    requesters: Items[Requester] = Field(
        default=("sigs.k8s.io/descheduler",),
        description=("Values of the annotation requested-by of evictions to evaluate; drains have no such annotation."),
    )
    cool_down_seconds: int = Field(
        default=300,
        ge=0,
        le=86_400,
        description=("How long a VM is not evicted after a migration; doubled by each further migration. 0: off."),
    )
    max_cool_down_seconds: int = Field(
        default=3600, ge=0, le=604_800, description="Maximum of the doubled time; at least coolDownSeconds."
    )
    max_per_namespace: int = Field(
        default=0, ge=0, le=10_000, description="Maximum number of unfinished evacuations in a namespace; 0: no limit."
    )
    max_per_cluster: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description=(
            "Maximum number of unfinished evacuations in the cluster; 0: no limit. With a limit, each evaluated"
            " eviction lists all migrations of the cluster."
        ),
    )
    protect_transfers_seconds: int = Field(
        default=0,
        ge=0,
        le=604_800,
        description=(
            "How long after its start a pod is not evicted that imports, clones, uploads, converts or exports a disk;"
            " 0: the policy does not evaluate evictions of such pods."
        ),
    )
    blackouts: Items[Blackout] = Field(default=(), description="Times of the week when the descheduler evicts no VM.")

    @field_validator("max_cool_down_seconds")
    @classmethod
    def _check_longest(cls, longest: int, info: ValidationInfo) -> int:
        shortest = info.data.get("cool_down_seconds", 0)
        if longest < shortest:
            what = f"{longest} is less than coolDownSeconds ({shortest})"
            raise mistake("too-short", what, f"use {shortest} or more")
        return longest
