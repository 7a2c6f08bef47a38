"""Every reason code is explained, in the command and on the page."""

from __future__ import annotations

import re

import pytest

from hack import messages as page
from tests.cli.runner import run
from webhook.admission import reasons
from webhook.admission.reasons import MEANINGS, catalog, similar
from webhook.admission.reasons.catalog import ALL as POLICIES

CODES = sorted(MEANINGS)


def test_a_code_is_defined_once() -> None:
    code = CODES[0]

    with pytest.raises(ValueError, match=code):
        catalog.define("skipped", code, "Another meaning.")
    assert MEANINGS[code].meaning != "Another meaning."


def test_codes_stand_beside_their_policies() -> None:
    modules = {policy: getattr(reasons, policy) for policy in POLICIES}
    for code, meaning in MEANINGS.items():
        home = modules[meaning.policies[0]] if len(meaning.policies) == 1 else reasons.common
        assert code in vars(home).values(), code


def test_a_denial_and_a_failure_say_what_to_do() -> None:
    without = [code for code, one in MEANINGS.items() if one.kind in {"denied", "failed"} and not one.remedy]

    assert without == []


@pytest.mark.parametrize("code", CODES)
def test_meanings_are_sentences(code: str) -> None:
    meaning = MEANINGS[code]

    assert meaning.policies
    for text in filter(None, (meaning.meaning, meaning.remedy)):
        assert re.match(r"[A-Z`]|kubevirt-webhook|addedNodeSelector|schedulerName", text)
        assert text.endswith((".", "`."))
        assert not re.search(r"\b(we|us|our|can't|doesn't|isn't|don't|nobody|somebody)\b", text)


def test_the_page_is_what_the_code_says() -> None:
    assert page.PAGE.read_text() == page.render(), "`make messages` writes docs/messages.md"


def test_a_code_is_explained_with_or_without_its_brackets() -> None:
    plain, quoted = run("explain", "reason", "no-eligible-node"), run("explain", "reason", "[no-eligible-node]")

    assert plain.exit_code == 0
    assert plain.output == quoted.output
    assert max(map(len, plain.output.splitlines())) <= 80


def test_all_codes_are_listed() -> None:
    listed = run("explain", "reason").output.splitlines()

    assert [line.split()[0] for line in listed] == CODES


def test_a_mistyped_code_gets_a_suggestion() -> None:
    result = run("explain", "reason", "no-elligible-nodes")

    assert result.exit_code == 2
    assert "no-eligible-node" in result.output
    assert similar("zzz") == []
