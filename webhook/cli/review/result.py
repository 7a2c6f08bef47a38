"""What a review of one object says, in the form that every output is made of, and the counts of many."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from webhook.admission.patch import segments
from webhook.admission.redaction import redact_at
from webhook.policies.meanings import MEANINGS
from webhook.text import pluralize

_CODE: Final = re.compile(r"\[([a-z-]+)\]$", re.MULTILINE)
# The decisions of several endpoints about one request, the lightest first.
WEIGHT: Final = ("skipped", "allowed", "would-patch", "would-deny", "patched", "error", "denied", "invalid")
# What a pipeline does about a result: nothing, show it, fail, or report that the answer is not known.
Severity = Literal["fine", "warned", "denied", "unevaluated"]
# An exit status.
NOT_EVALUATED: Final = 3
# In the order of the summary, with the words of it.
_DECISIONS: Final = {
    "patched": "patched",
    "allowed": "allowed",
    "would-patch": "would be patched",
    "would-deny": "would be denied",
    "skipped": "skipped",
    "denied": "denied",
    "error": "not evaluated",
    "invalid": "invalid",
}
# Of the JSON form, in its order. Programs read these keys, so that they keep their names.
_JSON: Final = (
    *("source", "uid", "operation", "kind", "namespace", "name", "user", "origin", "decision", "code", "message"),
    *("judgements", "findings", "warnings", "patch", "object", "redacted"),
)


def codes_in(text: str) -> list[str]:
    """The reason codes that lines of a text end in, each once."""
    return list(dict.fromkeys(_CODE.findall(text)))


class Result(msgspec.Struct, kw_only=True):
    """One object, with the evaluations of the endpoints that the API server would call, in its order.

    Attributes:
        file: its name, as the user gave it.
        line: that of the object in the file, from 1.
        name: name of the object, or what its name begins with.
        user: the sender.
        origin: the object that makes this one, as ``KIND NAMESPACE/NAME``; None: it stands in the file itself.
        decision: one of `WEIGHT`.
        message: of a denial, or why no endpoint was called.
        patch: the operations of all endpoints, as JSON Patch.
        object: the object with the patches applied; None without an object, or where the output does not show it.
        manifest: what stands in the file, where that makes the reviewed object.
        findings: what the API server denies in the object, which is then not evaluated.
        checked: what the object was checked against, a sentence; empty: nothing.
        unchecked: what of it could not be checked, each a sentence.
        near: a sentence that names the instancetype or preference that is nearly the one that does not exist.
        matched: whether the API server calls kubevirt-webhook for objects of this kind.
        redacted: which parts are left out because they hold secrets: ``object`` and ``patch``.
    """

    file: str
    line: int
    uid: str = ""
    operation: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    user: str = ""
    origin: str | None = None
    decision: str = "skipped"
    message: str | None = None
    judgements: list[dict[str, Any]] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    patch: list[dict[str, Any]] = msgspec.field(default_factory=list)
    object: Any = None
    manifest: Any = None
    findings: list[dict[str, Any]] = msgspec.field(default_factory=list)
    checked: str = ""
    unchecked: list[str] = msgspec.field(default_factory=list)
    near: str = ""
    matched: bool = True
    redacted: list[str] = msgspec.field(default_factory=list)

    @property
    def source(self) -> str:
        """File and line, for messages."""
        return f"{self.file}:{self.line}"

    @property
    def title(self) -> str:
        """Kind, namespace and name, as kubectl's users write them."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def severity(self) -> Severity:
        """How a pipeline takes it."""
        if self.decision in ("denied", "invalid"):
            return "denied"
        if self.decision == "error":
            return "unevaluated"
        return "warned" if self.warnings or self.decision == "would-deny" else "fine"

    @property
    def reasons(self) -> list[dict[str, Any]]:
        """The reasons of all endpoints, those of the endpoint that decided, or that warns, first."""
        if self.findings:
            return [{"code": each["code"], "text": each["text"]} for each in self.findings]
        denial, warned = codes_in(self.message or ""), codes_in("\n".join(self.warnings))
        by_warning = self.severity == "warned" and self.decision != "would-deny"

        def rank(numbered: tuple[str, dict[str, Any]]) -> tuple[bool, ...]:
            decision, code = numbered[0], numbered[1]["code"]
            would_deny = code in MEANINGS and MEANINGS[code].kind == "denied"
            is_other, is_unwarned = not by_warning and decision != self.decision, code not in warned
            return code not in denial, is_other, is_unwarned or not would_deny, is_unwarned

        reasons = [(each["decision"], reason) for each in self.judgements for reason in each["reasons"]]
        return [reason for _, reason in sorted(reasons, key=rank)]

    @property
    def warnings_by_weight(self) -> list[str]:
        """The warnings, that of the reason that decided first."""
        return sorted(self.warnings, key=lambda each: codes_in(each) != [self.code])

    @property
    def summary(self) -> str:
        """Why, in one sentence: the denial's message, or the reason that decided or is warned of."""
        if self._is_without_code:
            return self.warnings[0]
        return self.message or next((str(reason["text"]) for reason in self.reasons), "")

    @property
    def code(self) -> str:
        """The reason code that decided, or is warned of; empty without one."""
        if self._is_without_code:
            return ""
        return next((str(reason["code"]) for reason in self.reasons), "")

    @property
    def _is_without_code(self) -> bool:
        """Whether it needs attention for warnings alone that have no code, such as the API server's own."""
        by_warning = self.severity == "warned" and self.decision != "would-deny" and bool(self.warnings)
        return by_warning and not codes_in("\n".join(self.warnings))

    def as_json(self) -> dict[str, Any]:
        """The result as plain JSON."""
        patch = None if "patch" in self.redacted else self.patch
        return {key: getattr(self, key) for key in _JSON} | {"code": self.code or None, "patch": patch}

    def redact(self, shown: frozenset[str]) -> bool:
        """Take the secrets out of the parts that an output shows.

        Objects and patches can be applied, so one with a secret is left out as a whole, and named in `redacted`; then
        this returns True. Values of changes are only read: a placeholder stands for those. The parts are ``object``,
        ``patch`` and ``changes``.
        """
        if "object" in shown and (_holds_secret((), self.object) or _holds_secret((), self.manifest)):
            self.object = self.manifest = None
            self.redacted.append("object")
        for change in (each for evaluation in self.judgements for each in evaluation["changes"] if "changes" in shown):
            for side in ("old", "new"):
                change[side] = redact_at(change["path"], change[side], bounded=False)
        if "patch" in shown and any(_holds_secret(segments(each["path"]), each.get("value")) for each in self.patch):
            self.patch.clear()
            self.redacted.append("patch")
        return bool(self.redacted)


def _holds_secret(path: Sequence[str], value: Any) -> bool:
    return redact_at(path, value, bounded=False) is not value


class Summary(msgspec.Struct):
    """The counts of some results.

    Attributes:
        decisions: the results by their decision, of objects that the API server calls kubevirt-webhook for.
        severities: all results by their severity.
        unmatched: how many objects are of other kinds.
        foreign: how many documents are no objects of Kubernetes.
        mistakes: how many mistakes there are in the input.
        checked: how many objects were checked, by what they were checked against.
        unchecked: of how many objects something could not be checked, by what it is.
        redacted: how many objects hold secrets that the output does not show.
    """

    files: int = 0
    decisions: Counter[str] = msgspec.field(default_factory=Counter)
    severities: Counter[Severity] = msgspec.field(default_factory=Counter)
    warnings: int = 0
    unmatched: int = 0
    foreign: int = 0
    mistakes: int = 0
    checked: Counter[str] = msgspec.field(default_factory=Counter)
    unchecked: Counter[str] = msgspec.field(default_factory=Counter)
    redacted: int = 0

    def add(self, result: Result) -> None:
        """Count a result."""
        self.severities[result.severity] += 1
        self.warnings += len(result.warnings)
        if result.checked:
            self.checked[result.checked] += 1
        self.unchecked.update(result.unchecked)
        if result.matched:
            self.decisions[result.decision] += 1
        else:
            self.unmatched += 1

    def join(self, other: Summary) -> None:
        """Count what another one has counted."""
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(other, field))

    @property
    def total(self) -> int:
        """How many objects were reviewed."""
        return self.decisions.total() + self.unmatched

    def exit_status(self, fail_on: str) -> int:
        """0 if all is allowed, 1 denied (also warned where ``fail_on`` is ``warn``), 2 bad input, 3 not evaluated."""
        if self.mistakes:
            return 2
        is_warned = self.severities["warned"] or self.warnings
        if self.severities["denied"] or (fail_on == "warn" and is_warned):
            return 1
        return NOT_EVALUATED if self.severities["unevaluated"] else 0

    def checks(self) -> list[str]:
        """What objects were checked against, and what could not be checked, a sentence each."""
        return [*sorted(self.checked), *sorted(self.unchecked)]

    def line(self) -> str:
        """The counts in one line."""
        counts = [f"{self.decisions[key]:,} {text}" for key, text in _DECISIONS.items() if self.decisions[key]]
        other = self.unmatched + self.foreign
        parts = [
            ", ".join(counts),
            pluralize(self.warnings, "warning") if self.warnings else "",
            pluralize(self.mistakes, "error") + " in the input" if self.mistakes else "",
            f"{other:,} of other kinds" if other else "",
        ]
        what = "; ".join(filter(None, parts)) or "none"
        noun = "object" if self.decisions.total() == 1 else "objects"
        return f"{self.decisions.total():,} {noun} in {pluralize(self.files, 'file')}: {what}"
