from __future__ import annotations

from typing import Any

import pytest

from tests.golden_files import Golden
from webhook.errors import InputErrors
from webhook.settings.file import parse
from webhook.settings.model import WEEK, Blackout
from webhook.settings.validation import model_of, read

HOUR, DAY = 60, 24 * 60


@pytest.mark.parametrize(
    ("fields", "spans"),
    [
        ({"days": ["Mon"], "from": "08:00", "to": "18:00"}, ((8 * HOUR, 18 * HOUR),)),
        ({"days": ["Mon"], "from": "00:00", "to": "24:00"}, ((0, DAY),)),
        ({"days": ["Mon"], "from": "18:00", "to": "00:00"}, ((18 * HOUR, DAY),)),
        ({"days": ["Mon"], "from": "22:00", "to": "06:00"}, ((22 * HOUR, DAY + 6 * HOUR),)),
        ({"days": ["Sun"], "from": "22:00", "to": "24:00"}, ((WEEK - 2 * HOUR, WEEK),)),
        ({"days": ["Sun"], "from": "22:00", "to": "06:00"}, ((0, 6 * HOUR), (WEEK - 2 * HOUR, WEEK))),
        ({"days": ["Mon"], "from": "01:00", "to": "03:00", "timeZone": "+02:00"}, ((0, HOUR), (WEEK - HOUR, WEEK))),
        ({"days": ["Sun"], "from": "20:00", "to": "21:30", "timeZone": "-03:30"}, ((0, HOUR), (WEEK - 30, WEEK))),
        ({"days": ["Tue", "Mon"], "from": "00:00", "to": "00:01"}, ((0, 1), (DAY, DAY + 1))),
    ],
)
def test_minutes_of_the_week(fields: dict[str, Any], spans: tuple[tuple[int, int], ...]) -> None:
    blackout = read(model_of(Blackout).model_validate(fields))
    assert isinstance(blackout, Blackout)
    assert blackout.spans == spans


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("{from: 8:00, to: '18:00'}", "from"),
        ("{from: 24:01, to: '18:00'}", "from"),
        ("{from: 22:00, to: 22:00}", "to"),
        ("{from: 22:00}", "to"),
        ("{from: 22:00, to: 23:00, days: [mon]}", "days[0]"),
        ("{from: 22:00, to: 23:00, timeZone: Europe/Berlin}", "timeZone"),
        ("{from: 22:00, to: 23:00, timeZone: '+15:00'}", "timeZone"),
    ],
)
def test_mistakes(written: str, key: str, golden: Golden) -> None:
    with pytest.raises(InputErrors) as refused:
        parse(f"eviction:\n  blackouts:\n  - {written}\n".encode(), "settings.yaml")
    (error,) = refused.value.mistakes
    assert error.where == "settings.yaml:3"
    assert error.what.startswith(f"eviction.blackouts[0].{key}: ")
    golden(str(error))


def test_times_need_no_quotes() -> None:
    (made,) = parse(
        b"eviction: {blackouts: [{from: 22:00, to: 06:00, timeZone: +02:00}]}", "settings.yaml"
    ).eviction.blackouts
    assert made.text == "every day from 22:00 to 06:00 +02:00"
