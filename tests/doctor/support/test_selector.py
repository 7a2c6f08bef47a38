from __future__ import annotations

from typing import Any

import msgspec
import pytest

from webhook.doctor.support.selector import selects
from webhook.k8s.types.selectors import LabelSelector

LABELS = {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, True),
        ({}, True),
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "3"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "c", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}, True),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Near", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Gt"}]}, True),
    ],
)
def test_what_a_selector_selects(selector: dict[str, Any] | None, expected: bool) -> None:
    view = None if selector is None else msgspec.convert(selector, LabelSelector)

    assert selects(view, LABELS) is expected
