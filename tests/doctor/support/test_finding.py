from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.doctor.world import lines
from webhook.doctor.support.finding import abbreviate, unreadable
from webhook.errors import Unavailable
from webhook.k8s.client.api import Forbidden


@pytest.mark.parametrize(
    "why", [Forbidden("refused"), Unavailable("no answer")], ids=lambda why: type(why).__name__.lower()
)
def test_what_could_not_be_read(why: Unavailable, golden: Callable[[str], None]) -> None:
    finding = unreadable("nodes", "images", why)

    assert (finding.verdict, finding.code, finding.found) == ("unknown", "unreadable", why.why)
    golden(lines([finding]))


def test_lists_are_short() -> None:
    assert abbreviate([]) == ""
    assert abbreviate(["a", "b"]) == "a, b"
    assert abbreviate(list("abcdef")) == "a, b, c, d and 2 more"
