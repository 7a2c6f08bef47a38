"""The changes by which a node becomes eligible; most are in tests of explanations and drains."""

from __future__ import annotations

from webhook.placement.eligibility import Failure
from webhook.placement.requirements import Kvm, Origin
from webhook.policies.common.openings import change_of


def test_without_an_amount_there_is_nothing_to_offer() -> None:
    assert change_of(Failure(Kvm(Origin.RESOURCES), None, 1), None) is None
