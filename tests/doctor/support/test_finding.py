from __future__ import annotations

import pytest

from webhook.doctor.support.finding import pluralize, several, unreadable
from webhook.errors import Unavailable
from webhook.k8s.client.api import Forbidden


@pytest.mark.parametrize(
    ("why", "todo"),
    [
        (Forbidden("refused"), "grant that to whoever runs doctor"),
        (Unavailable("no answer"), "run doctor again; if it stays, look at the API server"),
    ],
)
def test_what_could_not_be_read(why: Unavailable, todo: str) -> None:
    finding = unreadable("nodes", "images", why)

    assert (finding.verdict, finding.found, finding.todo) == ("unknown", why.why, todo)


def test_lists_are_short() -> None:
    assert several([]) == ""
    assert several(["a", "b"]) == "a, b"
    assert several(list("abcdef")) == "a, b, c, d and 2 more"


def test_numbers_agree() -> None:
    assert pluralize(1, "node") == "1 node"
    assert pluralize(0, "node") == "0 nodes"
    assert pluralize(2, "entry", "entries") == "2 entries"
