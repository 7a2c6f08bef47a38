from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.drawn import one_of_each, some_of
from tests.golden_files import Golden
from webhook import names
from webhook.admission import decision as module
from webhook.admission.decision import Change, Decision, Denial, FieldCause, Outcome, Reason, redact_changes
from webhook.names import Mode

CHANGE = Change(("spec", "schedulerName"), "default-scheduler", "kubevirt", "r")
MARK = Change(("metadata", "annotations", names.INJECTED_SCHEDULER_ANNOTATION), None, "kubevirt", "r")
BECAUSE = (Reason("r", "because"),)
PATCHING = Decision(BECAUSE, (CHANGE,), warnings=(Reason("w", "mind this"),), notes={"scheduler": "kubevirt"})
DENYING, MARKING = Decision(BECAUSE, (CHANGE,), Denial(403, "no")), Decision(BECAUSE, (MARK, CHANGE))
SIZING = Decision(BECAUSE, (Change(("spec", "cpu"), None, {"cores": 2}, "r"),))
SET = "set spec.schedulerName to kubevirt"
ROOM = module.MAX_WARNING - len("kubevirt-webhook (scheduling):  [c]")
LONG = Decision(BECAUSE, warnings=(Reason("c", "x" * 1000), Reason("c", "y" * ROOM), *(Reason("c", "z"),) * 7))
CONTROLLED = module.allow(Reason("c", 'no "u1\r\nsmall\x1b[31m\x85" là'), warn=True)


@pytest.mark.control("endless-answers")
@pytest.mark.parametrize(
    ("decision", "mode", "denial", "changes", "warnings"),
    [
        (PATCHING, "enforce", None, (CHANGE,), ["): mind this [w]"]),
        # A denial changes nothing.
        (DENYING, "enforce", Denial(403, "kubevirt-webhook (scheduling): no [r]"), (), []),
        # It says what enforce would do.
        (
            PATCHING,
            "warn",
            None,
            (),
            [f", warn): would {SET} [r]", ", warn): mind this [w]"],
        ),
        (DENYING, "warn", None, (), [", warn): would deny this request: no [r]"]),
        (SIZING, "warn", None, (), [', warn): would set spec.cpu to {"cores":2} [r]']),
        *((decision, mode, None, (), []) for decision in (PATCHING, DENYING) for mode in ("audit", "off")),
        # An annotation that only records who made another change is not announced; alone it is.
        (MARKING, "enforce", None, (MARK, CHANGE), []),
        (MARKING, "warn", None, (), [f", warn): would {SET} [r]"]),
        (Decision(BECAUSE, (MARK,)), "warn", None, (), [f", warn): would set {'.'.join(MARK.path)} to kubevirt [r]"]),
        # Long warnings are cut, and hold no control characters.
        (LONG, "enforce", None, (), [f"): {'x' * (ROOM - 1)}… [c]", f"): {'y' * ROOM} [c]", *["): z [c]"] * 7]),
        (CONTROLLED, "enforce", None, (), ['): no "u1\\r\\nsmall\\x1b[31m\\x85" là [c]']),
    ],
)
def test_what_a_mode_makes_of_a_decision(
    decision: Decision, mode: Mode, denial: Denial | None, changes: tuple[Change, ...], warnings: list[str]
) -> None:
    said = tuple(f"kubevirt-webhook (scheduling{warning}" for warning in warnings)
    assert decision.under(mode, "scheduling") == Outcome(denial, changes, said, decision.notes)


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
    decision = module.allow(Reason("c", "text"))
    assert (decision.code, decision.warnings) == ("c", ())
    assert module.allow(Reason("c", "text"), warn=True).warnings == (Reason("c", "text"),)


def test_a_denial_blames_the_field_that_it_names() -> None:
    reason = Reason("c", "text")
    assert module.deny(reason, 429) == Decision((reason,), denial=Denial(429, "text"))
    decision = module.deny(reason, 422, "metadata.name")
    assert decision.denial == Denial(422, "text", (FieldCause("FieldValueInvalid", "text", "metadata.name"),))
    denial = module.deny(reason, 422, "spec", ["one", "two"]).denial
    assert denial
    assert [(cause.message, cause.field) for cause in denial.causes] == [("one", "spec"), ("two", "spec")]
    other = FieldCause("FieldValueForbidden", "three", "spec.running")
    denial = module.deny(reason, 422, causes=[other]).denial
    assert denial is not None
    assert denial.causes == (other,)


def test_a_warning_beside_a_decision_is_a_reason_of_it() -> None:
    reason, more = Reason("r", "text"), (Reason("w", "mind this"),)
    for decision in (module.allow(reason, warnings=more), module.deny(reason, 403, warnings=more)):
        assert (decision.code, decision.reasons, decision.warnings) == ("r", (reason, *more), more)
    assert module.allow(reason, warn=True, warnings=more).warnings == (reason, *more)


@pytest.mark.control("endless-answers", "causes-on-a-terminal")
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


def test_a_few_warnings_are_whole_that_the_api_server_shows_whole() -> None:
    """It cuts warnings to 256 characters only once all of a request have more than 4096."""
    sentence = "word " * 100
    (warning,) = module.allow(Reason("c", sentence), warn=True).under("enforce", "scheduling").warnings
    assert warning == f"kubevirt-webhook (scheduling): {sentence} [c]"


@pytest.mark.control("endless-answers")
@pytest.mark.parametrize("mode", ["enforce", "warn"])
def test_so_many_warnings_as_the_api_server_shows(mode: Mode) -> None:
    changes = tuple(Change(("metadata", "annotations", str(number)), None, "x" * 999, "r") for number in range(1000))
    decision = Decision((Reason("r", "because"),), changes, warnings=(Reason("w", "w" * 999),) * 1000)
    warnings = decision.under(mode, "instancetypes").warnings
    assert len(warnings) == module.MAX_WARNINGS
    assert sum(map(len, warnings)) <= 4096
    more = 1000 * (2 if mode == "warn" else 1) - module.MAX_WARNINGS + 1
    assert f" {more} more warnings " in warnings[-1]


@pytest.mark.control("endless-answers")
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
texts = some_of(PIECES, 4).map("".join) | st.sampled_from(["Secret", "COOKIE", "X-Auth"])
leaves = texts | st.sampled_from([7, None, True])
branches = st.lists(leaves, max_size=2) | st.dictionaries(st.sampled_from(MEMBERS) | texts, leaves, max_size=2)
contents = leaves | branches | st.lists(branches, max_size=2) | branches.map(lambda inner: {"x": inner, "bus": 1})
SEGMENTS = ["spec", "domain", "devices", *MEMBERS]
OPTIONAL = (..., *SEGMENTS)
paths = one_of_each({"0": SEGMENTS, "1": OPTIONAL, "2": OPTIONAL}).map(lambda path: tuple(path.values()))


@settings(max_examples=500)
@given(st.lists(st.builds(Change, paths, contents, contents, st.just("r")), max_size=3).map(tuple))
def test_a_look_at_all_changes_hides_what_a_look_at_each_does(changes: tuple[Change, ...]) -> None:
    assert redact_changes(changes) == tuple(change.redact() for change in changes)


def test_changes_without_secrets_are_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.admission.decision.redact_at", pytest.fail)
    disks = [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {}, "serial": "data-01"}]
    changes = (Change(("spec", "domain", "devices", "disks"), disks, disks[:1], "r"),)
    assert redact_changes(changes) == changes


@pytest.mark.parametrize("value", [{"a": "b" * 20_000}, {"a": {"a": {}}}])
def test_changes_that_are_large_or_deep_are_looked_at_one_by_one(value: Any) -> None:
    for _ in range(100):
        value = {"a": value}
    change = Change(("spec",), None, value, "r")
    assert redact_changes((change,)) == (change.redact(),)
