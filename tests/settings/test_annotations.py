from __future__ import annotations

import pytest

from webhook.errors import InputError
from webhook.settings.annotations import parse_json


def test_json_may_stand_on_several_lines() -> None:
    assert parse_json('\n {"a":\n [1]}\n') == {"a": [1]}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("pool=vms", "it is not JSON (invalid character in line 1, column 1)"),
        ('{"a": 1,}', "it is not JSON (trailing comma in object in line 1, column 9)"),
        ('{\n  "ä": 1,\n  "b": x\n}\n', "it is not JSON (invalid character in line 3, column 8)"),
        ('{"ä": x}', "it is not JSON (invalid character in line 1, column 7)"),
        ("{} {}", "it is not JSON (trailing characters in line 1, column 4)"),
        ('{\n  "a": [\n', "it is not JSON (the end is missing in line 2, column 9)"),
        ("\ud800", "it is not JSON (invalid character in line 1, column 1)"),
        ("[" * 10_000, "it is nested too deeply"),
        ('{"cpu": {"max": 1e400}}', "it has a number that is too large"),
        ("9" * 5000, "it has a number that is too large"),
        (" " * 20_000 + "{}", "it has more than 16384 characters"),
    ],
)
def test_a_mistake_has_its_place(text: str, what: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_json(text, "{}")
    assert (raised.value.what, raised.value.where) == (what, "")
