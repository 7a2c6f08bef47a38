from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden_files import Golden
from webhook import names
from webhook.admission import decision as module
from webhook.admission.decision import Change, Decision, Denial, FieldCause, Outcome, Reason, redact_changes
from webhook.names import Mode

CHANGE = Change(("spec", "schedulerName"), "default-scheduler", "kubevirt", "r")
WARNING = Reason("w", "mind this")
PATCHING = Decision((Reason("r", "because"),), (CHANGE,), warnings=(WARNING,), notes={"scheduler": "kubevirt"})
DENYING = Decision((Reason("r", "because"),), (CHANGE,), Denial(403, "no"))


def test_enforce_does_it() -> None:
    warnings = ("kubevirt-webhook (scheduling): mind this [w]",)
    assert PATCHING.under("enforce", "scheduling") == Outcome(None, (CHANGE,), warnings, {"scheduler": "kubevirt"})
    # A denial changes nothing.
    assert DENYING.under("enforce", "scheduling") == Outcome(
        Denial(403, "kubevirt-webhook (scheduling): no [r]"), (), (), {}
    )


def test_warn_says_what_enforce_would_do() -> None:
    outcome = PATCHING.under("warn", "scheduling")
    assert (outcome.denial, outcome.changes) == (None, ())
    assert outcome.warnings == (
        "kubevirt-webhook (scheduling, warn): would set spec.schedulerName to kubevirt [r]",
        "kubevirt-webhook (scheduling, warn): mind this [w]",
    )
    denied = DENYING.under("warn", "migration").warnings
    assert denied == ("kubevirt-webhook (migration, warn): would deny this request: no [r]",)


def test_one_change_is_one_warning() -> None:
    """An annotation that only records who made another change is not announced; alone it is."""
    annotation = Change(("metadata", "annotations", names.INJECTED_SCHEDULER_ANNOTATION), None, "kubevirt", "r")
    both = Decision((Reason("r", "because"),), (annotation, CHANGE))
    alone = Decision((Reason("r", "because"),), (annotation,))
    (warning,) = both.under("warn", "scheduling").warnings
    assert "spec.schedulerName" in warning
    assert names.INJECTED_SCHEDULER_ANNOTATION in alone.under("warn", "scheduling").warnings[0]
    assert both.under("enforce", "scheduling").changes == (annotation, CHANGE)


def test_warn_shows_values_that_are_no_strings() -> None:
    decision = Decision((Reason("r", "x"),), (Change(("spec", "cpu"), None, {"cores": 2}, "r"),))
    assert decision.under("warn", "instancetypes").warnings[0].endswith('set spec.cpu to {"cores":2} [r]')


@pytest.mark.parametrize("mode", ["audit", "off"])
@pytest.mark.parametrize("decision", [PATCHING, DENYING])
def test_audit_is_silent(mode: Mode, decision: Decision) -> None:
    assert decision.under(mode, "scheduling") == Outcome(None, (), (), decision.notes)


def test_long_warnings_are_cut() -> None:
    before, after = "kubevirt-webhook (scheduling): ", " [c]"
    room = module.MAX_WARNING - len(before) - len(after)
    warnings = tuple(Reason("c", text) for text in ("x" * 300, "y" * room))
    outcome = Decision((Reason("c", "text"),), warnings=warnings).under("enforce", "scheduling")
    assert outcome.warnings == (f"{before}{'x' * (room - 1)}…{after}", f"{before}{'y' * room}{after}")


def test_warnings_hold_no_control_characters() -> None:
    outcome = module.skip(Reason("c", 'no "u1\r\nsmall\x1b[31m\x85" là'), warn=True).under("enforce", "scheduling")
    assert outcome.warnings == ('kubevirt-webhook (scheduling): no "u1\\r\\nsmall\\x1b[31m\\x85" là [c]',)


def test_what_is_said_of_a_decision_neither_hides_nor_tells_anything() -> None:
    text = "\u202e see https://e.com/x?sig=hunter2 \x1b[2J"
    decision = Decision(
        (Reason("c", text),),
        denial=Denial(422, text, (FieldCause("FieldValueInvalid", text, f"spec.{text}"),)),
        warnings=(Reason("c", text),),
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
    decision = module.skip(Reason("c", "text"))
    assert (decision.code, decision.warnings) == ("c", ())
    assert module.skip(Reason("c", "text"), warn=True).warnings == (Reason("c", "text"),)


def test_a_refusal_ends_whatever_it_quotes() -> None:
    causes = tuple(FieldCause("FieldValueInvalid", "word " * 2000, "word " * 2000) for _ in range(100))
    decision = Decision((Reason("r", "because"),), denial=Denial(422, "word " * 20_000, causes))
    denial = decision.under("enforce", "migration").denial
    assert denial
    assert (denial.code, len(denial.message), len(denial.causes)) == (422, module.MAX_MESSAGE, module.MAX_CAUSES)
    assert all(len(cause.message) + len(cause.field) <= module.MAX_MESSAGE for cause in denial.causes)


def test_each_cause_names_the_policy_and_the_code() -> None:
    """kubectl prints the causes of a denial instead of its message."""
    causes = (FieldCause("FieldValueInvalid", "too big", "spec.size"), FieldCause("FieldValueRequired", "no name", ""))
    decision = Decision((Reason("too-big", "because"),), denial=Denial(422, "because", causes))
    denial = decision.under("enforce", "migration").denial
    assert denial
    assert [one.field for one in denial.causes] == ["spec.size", ""]
    for one, cause in zip(denial.causes, causes, strict=True):
        assert one.message == f"kubevirt-webhook (migration): {cause.message} [too-big]"


@pytest.mark.parametrize("mode", ["enforce", "warn"])
def test_so_many_warnings_as_the_api_server_shows(mode: Mode) -> None:
    changes = tuple(Change(("metadata", "annotations", str(number)), None, "x" * 999, "r") for number in range(1000))
    decision = Decision((Reason("r", "because"),), changes, warnings=(Reason("w", "w" * 999),) * 1000)
    warnings = decision.under(mode, "instancetypes").warnings
    assert len(warnings) == module.MAX_WARNINGS
    assert sum(map(len, warnings)) <= 4096
    more = 1000 * (2 if mode == "warn" else 1) - module.MAX_WARNINGS + 1
    assert f" {more} more warnings " in warnings[-1]


@pytest.mark.parametrize("value", ["x" * (module.MAX_SHOWN_BYTES + 1), ["x" * 100] * 1000, {"a": {"b": "x" * 100_000}}])
def test_of_a_long_value_the_length_is_shown(value: object, golden: Golden) -> None:
    shown = Change(("spec", "volumes"), value, None, "r").redact()
    assert isinstance(shown.old, str)
    assert len(shown.old) < 100
    golden(shown.old)
    assert (shown.path, shown.new) == (("spec", "volumes"), None)


def test_what_others_may_read_of_repeated_changes_is_made_once() -> None:
    secret = Change(("metadata", "annotations", "password"), None, "hunter2hunter2", "r")
    repeated = module.RepeatedChanges((CHANGE, secret))
    shown = redact_changes(repeated)
    assert shown == redact_changes((CHANGE, secret)) == (CHANGE.redact(), secret.redact())
    assert "hunter2hunter2" not in str(shown)
    assert redact_changes(repeated) is shown


# Parts of secrets, of places for them, and of what divides words.
PIECES = [
    *("basic", "Bearer", "--token", "password", "://u:p@h", "$6$a$b"),
    *("'", "`", " ", "\\", "\n", "é", ":", "=", "-", "?"),
    *("hf_aaaaaaaaaaaaaaaa", "glpat-bbbbbbbbbbbbbbbb", "eyJhbGciOiJI.e30.x", "AKIAIOSFODNN7EXAMPLE", "4Gi"),
    *("ya29.aaaaaaaaaaaaaaaa", "cm9vdDogeA", "virtio"),
    *(b64encode(text).decode() for text in (b"password: hunter2", b"nothing to see here")),
]
MEMBERS = [
    *("userData", "value", "name", "kind", "data", "annotations", "labels", "options", "httpHeaders", "dhCert", "bus"),
    *("args", "volumeAttributes", "session", "caBundle", "example.com/ssh-key", "aLongNameOfAMemberOfAnObject", "x"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=4).map("".join) | st.sampled_from(["Secret", "COOKIE", "X-Auth"])
contents = st.recursive(
    texts | st.integers(0, 9) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS) | texts, inner, max_size=3),
    max_leaves=8,
)
paths = st.lists(st.sampled_from(["spec", "domain", "devices", *MEMBERS]), min_size=1, max_size=3).map(tuple)


@settings(max_examples=500)
@given(st.lists(st.builds(Change, paths, contents, contents, st.just("r")), max_size=3).map(tuple))
def test_a_look_at_all_changes_hides_what_a_look_at_each_does(changes: tuple[Change, ...]) -> None:
    assert redact_changes(changes) == tuple(change.redact() for change in changes)


def test_changes_without_secrets_are_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.admission.decision.redact_at", pytest.fail)
    disks = [
        {"name": "root", "disk": {"bus": "virtio"}},
        {"name": "data", "disk": {"bus": "sata"}, "serial": "data-01"},
    ]
    changes = (Change(("spec", "domain", "devices", "disks"), disks, disks[:1], "r"),)
    assert redact_changes(changes) == changes


@pytest.mark.parametrize("value", [{"a": "b" * 20_000}, {"a": {"a": {}}}])
def test_changes_that_are_large_or_deep_are_looked_at_one_by_one(value: Any) -> None:
    for _ in range(100):
        value = {"a": value}
    change = Change(("spec",), None, value, "r")
    assert redact_changes((change,)) == (change.redact(),)
