from __future__ import annotations

import pytest
from pydantic import ValidationError

from webhook.settings.validation import Section


class Example(Section):
    some_number: int = 1


def test_null_is_absent_and_names_are_camel_case() -> None:
    assert Example.model_validate({"someNumber": None}).some_number == 1
    assert Example.model_validate({"someNumber": 2}).some_number == 2


@pytest.mark.parametrize("value", [{"some_number": 2}, {"other": None}, {"someNumber": "2"}, []])
def test_nothing_else_is_taken(value: object) -> None:
    with pytest.raises(ValidationError):
        Example.model_validate(value)
