from __future__ import annotations

from typing import Any

import pytest

from tests.policies.decisions import always
from webhook.admission.decision import Decision, Reason
from webhook.kubevirt.resources import UNSTRUCTURED_VMS, VMIS
from webhook.policies.naming.settings import NamingSettings
from webhook.policy import Operations, Policy, both_stages

DECIDED = always(Decision((Reason("c", "text"),)))


@pytest.mark.parametrize("name", ["", "required-labels", "required_labels", "requiredLabels", "labels2", "a" * 41])
def test_a_policys_name_is_one_lower_case_word(name: str) -> None:
    """Another would be no package, no label, no part of a DNS name, or another key of the settings."""
    with pytest.raises(ValueError, match="one lower-case word"):
        Policy(name=name, settings=NamingSettings, reasons={}, shared_reasons=(), endpoints=())


@pytest.mark.parametrize(
    ("resource", "chosen", "expected"),
    [
        (UNSTRUCTURED_VMS, None, ("CREATE", "UPDATE")),
        (VMIS, None, ("CREATE",)),
        (UNSTRUCTURED_VMS, ("CREATE",), ("CREATE",)),
        (VMIS, ("UPDATE",), ("UPDATE",)),
    ],
)
def test_operations_are_chosen_or_follow_from_the_kind(
    resource: Any, chosen: Operations | None, expected: Operations
) -> None:
    made = both_stages("validate", "labels", resource, DECIDED, match_conditions=lambda _: {}, operations=chosen)
    assert [(each.stage, each.operations) for each in made] == [("enforce", expected), ("observe", expected)]
