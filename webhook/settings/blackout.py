"""Times of the week without evictions, as the settings file has them and as the request path reads them.

Zones are UTC or a fixed offset: a named zone changes with daylight saving time, and would make the decision depend on
the zone data of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from webhook.settings import snapshot
from webhook.settings.section import Section
from webhook.settings.syntax import Syntax, mistake

Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
DAYS: Final[tuple[Day, ...]] = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

_DAY: Final = 24 * 60

_WRITE_TIME: Final = "use HH:MM, from 00:00 to 24:00"
TimeOfDay = Annotated[str, Syntax("time of day", "([01][0-9]|2[0-3]):[0-5][0-9]|24:00", 5, _WRITE_TIME)]
Zone = Annotated[
    str,
    Syntax(
        "time zone",
        "UTC|[-+](0[0-9]|1[0-4]):[0-5][0-9]",
        40,
        "use UTC or an offset such as +02:00; zone names are not supported",
    ),
]


class BlackoutModel(Section):
    """A time of the week."""

    days: Annotated[tuple[Day, ...], Field(strict=False)] = Field(
        default=DAYS, description="Days on which it begins. Absent: every day."
    )
    begin: TimeOfDay = Field(alias="from", description="Begin, as HH:MM.", examples=["08:00"])
    end: TimeOfDay = Field(
        alias="to", description="End, as HH:MM; on the next day if it is earlier than the begin.", examples=["18:00"]
    )
    time_zone: Zone = Field(
        default="UTC", description="Time zone: UTC or an offset such as +02:00. Zone names are not supported."
    )

    @field_validator("end")
    @classmethod
    def _check_end(cls, end: str, info: ValidationInfo) -> str:
        if end == info.data.get("begin"):
            raise mistake("empty-time", f"begin and end are equal ({end})", "for whole days use 00:00 to 24:00")
        return end

    def snapshot(self) -> snapshot.Blackout:
        """The blackout in minutes of a week in UTC."""
        days = [day for day in DAYS if day in self.days]
        name = "every day" if len(days) == len(DAYS) else ", ".join(days)
        text = f"{name} from {self.begin} to {self.end} {self.time_zone}"
        return snapshot.Blackout(text, tuple(sorted(self._spans())))

    def _spans(self) -> Iterator[tuple[int, int]]:
        begin, end = _minutes(self.begin), _minutes(self.end)
        lasts = end - begin if end > begin else end - begin + _DAY
        zone = self.time_zone
        ahead = 0 if zone == "UTC" else int(f"{zone[0]}1") * _minutes(zone[1:])
        for day in self.days:
            start = (DAYS.index(day) * _DAY + begin - ahead) % snapshot.WEEK
            yield start, min(start + lasts, snapshot.WEEK)
            if start + lasts > snapshot.WEEK:
                yield 0, start + lasts - snapshot.WEEK


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)
