from __future__ import annotations

import pytest

from tests.builders import Json
from tests.policies.groups.world import APART, HOSTS, TOGETHER, after, decide, section, vmi
from webhook import names
from webhook.admission.reasons import common
from webhook.placement.groups import GROUP_LABEL
from webhook.policies.groups import placement, reasons


@pytest.mark.parametrize("rules", [APART, TOGETHER, HOSTS, {**APART, **HOSTS, "namespaces": ["demo", "shop"]}])
def test_what_a_group_requires_is_recorded_and_nothing_else_is_written(rules: Json) -> None:
    settings = section(rules)
    result = after(vmi(), settings)
    group = settings.group("db", "demo")
    assert group is not None
    annotations = result["metadata"].pop("annotations")
    assert annotations == {names.INJECTED_GROUP_ANNOTATION: placement.placement_of("db", group).text}
    assert result == vmi()


def test_a_forged_record_is_replaced() -> None:
    forged = '{"group":"db","nodes":{"labels":{"a":"b"},"required":true}}'
    assert after(vmi(annotations={names.INJECTED_GROUP_ANNOTATION: forged})) == after(vmi())


@pytest.mark.parametrize(
    ("labels", "rules", "code"),
    [
        ({}, APART, reasons.NO_GROUP),
        ({GROUP_LABEL: "none"}, APART, reasons.WITHOUT_RULE),
        (None, {"apart": {}}, reasons.JOINED),
        (None, {**APART, "namespaces": ["elsewhere"]}, reasons.WITHOUT_RULE),
    ],
)
def test_what_requires_nothing_is_not_recorded(labels: Json | None, rules: Json, code: str) -> None:
    decision = decide(vmi(labels), section(rules))
    assert (decision.code, decision.changes) == (code, ())


def test_a_vmi_keeps_its_record() -> None:
    assert decide(vmi(), operation="UPDATE", oldObject=vmi()).code == common.OTHER_OPERATION
