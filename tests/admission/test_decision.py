from __future__ import annotations

import msgspec
import pytest

from webhook.admission.decision import MAX_WARNING, Change, Decision, Denial, FieldCause, Reason, skip
from webhook.names import Mode

CHANGE = Change(("spec", "schedulerName"), "default-scheduler", "kubevirt", "r")
PATCHING = Decision((Reason("r", "because"),), (CHANGE,), warnings=("mind this",), notes={"scheduler": "kubevirt"})
DENYING = Decision((Reason("r", "because"),), (CHANGE,), Denial(403, "no"))


def test_enforce_does_it() -> None:
    outcome = PATCHING.under("enforce", "scheduling")

    assert (outcome.denial, outcome.changes, outcome.warnings) == (None, (CHANGE,), ("mind this",))
    assert outcome.notes == {"scheduler": "kubevirt"}


def test_a_denial_changes_nothing() -> None:
    outcome = DENYING.under("enforce", "scheduling")

    assert (outcome.denial, outcome.changes) == (Denial(403, "no"), ())


def test_warn_says_what_enforce_would_do() -> None:
    outcome = PATCHING.under("warn", "scheduling")

    assert (outcome.denial, outcome.changes) == (None, ())
    assert outcome.warnings == (
        "scheduling is in mode warn: enforce would set spec.schedulerName to kubevirt",
        "mind this",
    )
    assert "enforce would refuse this request: no" in DENYING.under("warn", "migration").warnings[0]


def test_warn_shows_values_that_are_no_strings() -> None:
    decision = Decision((Reason("r", "x"),), (Change(("spec", "cpu"), None, {"cores": 2}, "r"),))

    assert decision.under("warn", "instancetypes").warnings[0].endswith('set spec.cpu to {"cores":2}')


@pytest.mark.parametrize("mode", ["audit", "off"])
@pytest.mark.parametrize("decision", [PATCHING, DENYING])
def test_audit_is_silent(mode: Mode, decision: Decision) -> None:
    outcome = decision.under(mode, "scheduling")

    assert (outcome.denial, outcome.changes, outcome.warnings) == (None, (), ())
    assert outcome.notes == decision.notes


def test_long_warnings_are_cut() -> None:
    outcome = skip("c", "text", "x" * 300, "y" * MAX_WARNING).under("enforce", "scheduling")

    assert outcome.warnings == ("x" * 255 + "…", "y" * MAX_WARNING)


def test_warnings_hold_no_control_characters() -> None:
    outcome = skip("c", "text", 'no "u1\r\nsmall\x1b[31m\x85" là').under("enforce", "scheduling")

    assert outcome.warnings == ('no "u1\\r\\nsmall\\x1b[31m\\x85" là',)


def test_what_is_said_of_a_decision_neither_hides_nor_tells_anything() -> None:
    text = "\u202e see https://e.com/x?sig=hunter2 \x1b[2J"
    decision = Decision(
        (Reason("c", text),),
        denial=Denial(422, text, (FieldCause("FieldValueInvalid", text, f"spec.{text}"),)),
        warnings=(text,),
        notes={"n": text},
        details={"url": text},
    )

    said = msgspec.json.encode(decision).decode()
    assert said.count("<redacted>") == 7
    assert "hunter2" not in said
    shown = decision.denial
    assert shown is not None
    assert shown.message == shown.causes[0].message == "\\u202e see https://e.com/x?<redacted> \\x1b[2J"


def test_code_is_that_of_the_first_reason() -> None:
    assert skip("c", "text").code == "c"
