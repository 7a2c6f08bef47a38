from __future__ import annotations

import pytest

from tests.builders import Json
from tests.policies.groups.world import APART, IN_GROUP, decide, section, vm
from webhook.placement.groups import GROUP_LABEL
from webhook.policies.groups import reasons


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(
    ("obj", "code", "is_warned"),
    [
        (vm(IN_GROUP), reasons.JOINED, False),
        (vm({GROUP_LABEL: "dbs"}), reasons.WITHOUT_RULE, True),
        (vm(labels=IN_GROUP), reasons.MISPLACED, True),
        (vm(IN_GROUP, IN_GROUP), reasons.JOINED, False),
        (vm(), reasons.NO_GROUP, False),
        ({**vm(), "spec": {}}, reasons.NO_GROUP, False),
    ],
)
def test_owners_hear_what_a_label_comes_to(obj: Json, code: str, is_warned: bool, operation: str) -> None:
    decision = decide(obj, user="alice", operation=operation, oldObject=vm() if operation == "UPDATE" else None)
    assert decision.code == code
    assert not decision.changes
    assert not decision.denial
    assert [warning.code for warning in decision.warnings] == ([code] if is_warned else [])


def test_a_mistyped_group_is_told_of_those_that_there_are() -> None:
    some = {f"g{number}": APART for number in range(9)} | {"far": {**APART, "namespaces": ["elsewhere"]}}
    (warning,) = decide(vm({GROUP_LABEL: "x"}), section(APART, **some)).warnings
    assert '"db", "g0", "g1", "g2", "g3", …' in warning.text
    assert "far" not in warning.text
