"""What to do stands beside each denial and warning, in every format that people read in a pull request."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.cli.review.samples import every, result
from webhook.admission.reasons import MEANINGS
from webhook.cli.review.formats import Text
from webhook.cli.review.github import Github
from webhook.cli.review.junit import Junit
from webhook.cli.review.remedies import remedies
from webhook.cli.review.result import Result

CODE = "instancetype-denied"
DENIED = result("denied", CODE, "why", message=f"kubevirt-webhook (instancetypes): why [{CODE}]")
WARNED = result("would-deny", CODE, "why", warnings=[f"kubevirt-webhook (instancetypes): why [{CODE}]"])


@pytest.mark.parametrize("found", [DENIED, WARNED])
def test_the_fix_is_beside_the_reason(found: Result) -> None:
    remedy = MEANINGS[CODE].remedy
    assert remedy

    assert remedy in Text().fragment(found)
    assert remedy in Github().fragment(found)
    assert remedy in (ET.fromstring(Junit("warn").fragment(found))[0].text or "")


def test_what_is_allowed_needs_no_fix() -> None:
    assert {remedies(each) for each in every() if each.severity == "fine"} == {()}
    assert remedies(result("denied", message="without a code")) == ()


def test_a_reason_is_not_repeated() -> None:
    (failure,) = ET.fromstring(Junit().fragment(DENIED))

    assert (failure.text or "").count("why") == 1
